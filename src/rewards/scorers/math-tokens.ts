/**
 * The tokens of a formula: LaTeX and plain notation (`\frac{1}{2}`, `sqrt(2)/2`, `2π`) become one list of tokens.
 *
 * A token is a number ("12.5"), a name ("sqrt", "x", "pi") or a mark ("+", "(", "<="). Commands for
 * layout (`\left`, `\,`, `\displaystyle`) and degree signs are dropped. Names are lower case: the answers `A` and `a` are
 * the same.
 */

export type Token = { readonly kind: "number" | "name" | "mark"; readonly text: string };

/** Functions by their names. `frac`, `binom` and `sqrt` have syntax of their own. */
export const functions = {
  arcsin: "arcsin",
  asin: "arcsin",
  arccos: "arccos",
  acos: "arccos",
  arctan: "arctan",
  atan: "arctan",
  sinh: "sinh",
  cosh: "cosh",
  tanh: "tanh",
  sin: "sin",
  cos: "cos",
  tan: "tan",
  cot: "cot",
  sec: "sec",
  csc: "csc",
  exp: "exp",
  ln: "ln",
  lg: "log",
  log: "log",
  abs: "abs",
  floor: "floor",
  ceil: "ceil",
} as const;
const commandNames: readonly string[] = ["sqrt", "frac", "binom"];
const constantNames: readonly string[] = ["infinity", "infty", "inf", "pi"];
const greekNames: readonly string[] = [
  "alpha",
  "beta",
  "gamma",
  "delta",
  "epsilon",
  "varepsilon",
  "zeta",
  "eta",
  "theta",
  "vartheta",
  "iota",
  "kappa",
  "lambda",
  "mu",
  "nu",
  "xi",
  "rho",
  "sigma",
  "tau",
  "upsilon",
  "phi",
  "varphi",
  "chi",
  "psi",
  "omega",
];

/** The meaning of commands and single characters that are a mark, or a name in another spelling. */
const meanings: Readonly<Record<string, Token | null>> = {
  ...marks({
    "*": ["\\cdot", "\\times", "\\ast", "·", "×", "⋅", "∗"],
    "/": ["\\div", "÷"],
    "-": ["−", "–", "\\minus"],
  }),
  ...marks({ "<=": ["\\leq", "\\le", "\\leqslant", "≤"], ">=": ["\\geq", "\\ge", "\\geqslant", "≥"] }),
  ...marks({ "<": ["\\lt"], ">": ["\\gt"], "!=": ["\\neq", "\\ne", "≠"], "±": ["\\pm", "\\mp"], "∪": ["\\cup"] }),
  ...marks({ "∈": ["\\in"], "|": ["\\vert", "\\lvert", "\\rvert", "\\mid", "\\|"], "=": ["\\equiv", "\\approx", "≈"] }),
  ...marks({ "⌊": ["\\lfloor"], "⌋": ["\\rfloor"], "⌈": ["\\lceil"], "⌉": ["\\rceil"], "%": ["\\%"] }),
  ...marks({ "\\{": ["\\lbrace"], "\\}": ["\\rbrace"], "[": ["\\lbrack"], "]": ["\\rbrack"] }),
  ...names({ frac: ["\\dfrac", "\\tfrac", "\\cfrac"], binom: ["\\dbinom", "\\tbinom"] }),
  ...names({ pi: ["π"], sqrt: ["√"], inf: ["∞", "infty", "infinity"] }),
  ...Object.fromEntries(
    [
      "\\left",
      "\\right",
      "\\big",
      "\\Big",
      "\\bigl",
      "\\bigr",
      "\\Bigl",
      "\\Bigr",
      "\\displaystyle",
      "\\limits",
      "\\text",
      "\\textbf",
      "\\textit",
      "\\mathrm",
      "\\mathbf",
      "\\mathit",
      "\\mbox",
      "\\operatorname",
      "\\,",
      "\\;",
      "\\:",
      "\\!",
      "\\ ",
      "\\quad",
      "\\qquad",
      "\\$",
      "$",
      "~",
      "°",
      "\\circ",
      "\\degree",
      '"',
    ].map((typesetting) => [typesetting, null]),
  ),
};

function marks(spellings: Readonly<Record<string, readonly string[]>>): Record<string, Token> {
  return synonyms("mark", spellings);
}

function names(spellings: Readonly<Record<string, readonly string[]>>): Record<string, Token> {
  return synonyms("name", spellings);
}

function synonyms(kind: "mark" | "name", spellings: Readonly<Record<string, readonly string[]>>) {
  return Object.fromEntries(
    Object.entries(spellings).flatMap(([text, others]) => others.map((other) => [other, { kind, text }] as const)),
  );
}

/** Commands whose argument is words, not a formula. */
const textCommand = /\\(?:text(?:bf|it|rm|normal)?|mathrm|mathbf|mathit|mbox|operatorname)\s*\{([^{}]*)\}/y;
const token = /\\[a-zA-Z]+|\\[^a-zA-Z]|[0-9]+(?:\.[0-9]+)?\.?(?![0-9])|\.[0-9]+|\*\*|<=|>=|!=|[a-zA-Z]+|./suy;
const degree = /\^\s*(?:\{\s*\\circ\s*\}|\\circ)/g;
const knownNames = [...Object.keys(functions), ...commandNames, ...constantNames, ...greekNames];
const knownName = new RegExp(`^(?:${knownNames.join("|")})`);

/** The tokens of a formula. Never throws: an unknown character becomes a mark that no rule accepts. */
export function tokenize(formula: string): Token[] {
  const text = formula.replace(degree, "");
  const tokens: Token[] = [];
  for (let at = 0; at < text.length; ) {
    const words = match(textCommand, text, at);
    if (words !== null) {
      tokens.push(...wordsOf(words[1] ?? ""));
      at += words[0].length;
      continue;
    }
    const [piece = ""] = match(token, text, at) ?? [];
    tokens.push(...tokensOf(piece));
    at += piece.length;
  }
  return tokens;
}

function match(pattern: RegExp, text: string, at: number): RegExpExecArray | null {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

/** `\text{Yes}` is one name; a formula in `\text{…}` is a formula. */
function wordsOf(content: string): Token[] {
  const text = content.trim().toLowerCase();
  if (text === "") return [];
  return /[0-9\\^=]/.test(text) ? tokenize(content) : [{ kind: "name", text }];
}

function tokensOf(piece: string): Token[] {
  const meaning = meaningOf(piece);
  if (meaning !== undefined) return meaning === null ? [] : [meaning];
  if (/^\s/.test(piece)) return [];
  if (/^[0-9.]/.test(piece)) return [{ kind: "number", text: piece.replace(/\.$/, "") }];
  if (/^\\[a-zA-Z]/.test(piece)) return [commandOf(piece.slice(1).toLowerCase())];
  if (/^\p{L}/u.test(piece)) return lettersOf(piece.toLowerCase());
  return [{ kind: "mark", text: piece === "**" ? "^" : piece }];
}

const meaningOf = (piece: string): Token | null | undefined =>
  Object.hasOwn(meanings, piece) ? meanings[piece] : undefined;
const commandOf = (name: string): Token => meaningOf(name) ?? { kind: "name", text: name };

/** A sequence of letters: known names where they match, single letters elsewhere. */
function lettersOf(letters: string): Token[] {
  const tokens: Token[] = [];
  for (let at = 0; at < letters.length; ) {
    const [name = letters[at]!] = knownName.exec(letters.slice(at, at + 12)) ?? [];
    tokens.push(commandOf(name));
    at += name.length;
  }
  return tokens;
}
