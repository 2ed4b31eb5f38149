/**
 * LaTeX as a line of plain text with the same meaning: `\frac{1}{2}` is "1/2", `\sqrt{2}` is "sqrt(2)", `\text{Yes}` is
 * "Yes". The PRM800K rules compare such texts (`prm800k.ts`).
 *
 * verl leaves this to pylatexenc, which drops braces, so that `\frac{1+x}{2}` becomes "1+x/2" and
 * `x^{n+1}` becomes "x^n+1". Here a part of several terms gets brackets.
 */

const symbols: Readonly<Record<string, string>> = {
  pi: "pi",
  infty: "inf",
  cup: "U",
  cdot: "*",
  times: "*",
  div: "/",
  pm: "±",
  mp: "∓",
  cap: "∩",
  circ: "∘",
  le: "≤",
  leq: "≤",
  ge: "≥",
  geq: "≥",
  ne: "≠",
  neq: "≠",
  lt: "<",
  gt: ">",
  in: "∈",
  approx: "≈",
  to: "→",
  quad: " ",
  qquad: " ",
  ldots: "…",
  dots: "…",
  cdots: "⋯",
  prime: "'",
  degree: "°",
  angle: "∠",
  mid: "|",
  lvert: "|",
  rvert: "|",
  vert: "|",
  lfloor: "⌊",
  rfloor: "⌋",
  lceil: "⌈",
  rceil: "⌉",
  emptyset: "∅",
  sin: "sin",
  cos: "cos",
  tan: "tan",
  cot: "cot",
  sec: "sec",
  csc: "csc",
  ln: "ln",
  log: "log",
  exp: "exp",
  arcsin: "arcsin",
  arccos: "arccos",
  arctan: "arctan",
  max: "max",
  min: "min",
  gcd: "gcd",
  mod: "mod",
  alpha: "α",
  beta: "β",
  gamma: "γ",
  delta: "δ",
  epsilon: "ϵ",
  varepsilon: "ε",
  zeta: "ζ",
  eta: "η",
  theta: "θ",
  kappa: "κ",
  lambda: "λ",
  mu: "μ",
  nu: "ν",
  xi: "ξ",
  rho: "ρ",
  sigma: "σ",
  tau: "τ",
  phi: "ϕ",
  varphi: "φ",
  chi: "χ",
  psi: "ψ",
  omega: "ω",
  Delta: "Δ",
  Omega: "Ω",
  Sigma: "Σ",
  Pi: "Π",
  Phi: "Φ",
  mathbb: "",
  left: "",
  right: "",
};
const DEEPEST = 50;
const piece = /\\[a-zA-Z]+\*?|\\.|[{}]|[^\\{}]/gsu;

/** The position of the parser. */
type Cursor = { readonly pieces: readonly string[]; at: number };

/** The plain text of some LaTeX; null if braces are nested too deep for an answer. */
export function latexToText(latex: string): string | null {
  const cursor: Cursor = { pieces: latex.match(piece) ?? [], at: 0 };
  let text = "";
  while (cursor.at < cursor.pieces.length) {
    const part = next(cursor, 0);
    if (part === null) return null;
    text += part;
  }
  return text;
}

/** The text of the next command, group or character. */
function next(cursor: Cursor, depth: number): string | null {
  const [part = ""] = cursor.pieces.slice(cursor.at, ++cursor.at);
  if (part === "{") return group(cursor, depth + 1);
  if (part === "^") return raised(cursor, depth);
  if (!part.startsWith("\\")) return part === "}" ? "" : part;
  const name = part.slice(1).replace("*", "");
  if (["frac", "dfrac", "tfrac", "cfrac"].includes(name)) {
    const [above, below] = [argument(cursor, depth), argument(cursor, depth)];
    return above === null || below === null ? null : ` ${bracketed(above)}/${bracketed(below)}`;
  }
  if (name === "sqrt") return root(cursor, depth);
  if (name === "begin" || name === "end") return argument(cursor, depth) === null ? null : "";
  if (Object.hasOwn(symbols, name)) return symbols[name] ?? "";
  if (/^[a-zA-Z!()[\]]/.test(name)) return ""; // typesetting, or delimiters of formulas
  return /^[,;: ]$/.test(name) ? " " : name === "\\" ? ";" : name;
}

function group(cursor: Cursor, depth: number): string | null {
  if (depth > DEEPEST) return null;
  let text = "";
  while (cursor.at < cursor.pieces.length && cursor.pieces[cursor.at] !== "}") {
    const part = next(cursor, depth);
    if (part === null) return null;
    text += part;
  }
  cursor.at++;
  return text;
}

/** The argument of a command: the next thing that is not a space. */
function argument(cursor: Cursor, depth: number): string | null {
  while (cursor.pieces[cursor.at] === " ") cursor.at++;
  return cursor.at < cursor.pieces.length && depth < DEEPEST ? next(cursor, depth + 1) : null;
}

function raised(cursor: Cursor, depth: number): string | null {
  if (cursor.pieces[cursor.at] !== "{") return "^";
  const exponent = argument(cursor, depth);
  return exponent === null ? null : `^${bracketed(exponent)}`;
}

function root(cursor: Cursor, depth: number): string | null {
  const end = cursor.pieces[cursor.at] === "[" ? cursor.pieces.indexOf("]", cursor.at) : -1;
  const degree = end < 0 ? "" : cursor.pieces.slice(cursor.at + 1, end).join("");
  if (end >= 0) cursor.at = end + 1;
  const radicand = argument(cursor, depth);
  if (radicand === null) return null;
  return degree === "" ? `sqrt(${radicand})` : `(${radicand})^(1/${degree})`;
}

/** In brackets, unless it is a number, a name, a call or has brackets already. */
function bracketed(text: string): string {
  const trimmed = text.trim();
  return /^(?:-?[\p{L}\p{N}.,]+|\p{L}*\([^()]*\))$/u.test(trimmed) ? trimmed : `(${trimmed})`;
}
