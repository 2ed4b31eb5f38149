/**
 * A final answer as more than a formula: a list, a set, an interval, a union, a matrix, an equation or inequality, or a
 * word; and whether two of them are equal.
 *
 * A list without brackets has no order, like a set; one in round or square brackets has an order and keeps its brackets:
 * (1,2) is a point or an open interval, [1,2] is something else. The truth decides the form: if it is a number, the
 * answer `x = 5` counts as 5.
 */
import { areEqual, ratioOf, realValue } from "./equality.ts";
import { type Expression, LONGEST_FORMULA, parseTokens } from "./expression.ts";
import { type Token, tokenize } from "./math-tokens.ts";
import { withoutThousands } from "./prm800k.ts";

type Answer =
  | { readonly kind: "formula"; readonly tokens: readonly Token[] }
  /** `open` is "" for a list without brackets. */
  | { readonly kind: "list"; readonly open: string; readonly close: string; readonly items: readonly Answer[] }
  | { readonly kind: "union"; readonly items: readonly Answer[] }
  | { readonly kind: "matrix"; readonly rows: readonly (readonly Answer[])[] }
  /** `a < b <= c`: one sign fewer than sides. */
  | { readonly kind: "relation"; readonly sides: readonly Answer[]; readonly signs: readonly string[] };

const MOST_ITEMS = 50;
const DEEPEST = 10;
const relationSigns: readonly string[] = ["=", "<", ">", "<=", ">=", "!="];
const unitText = "(?<=[^\\s=<>,;({[&+*/^-])\\s*\\\\(?:text|mathrm|mbox)\\s*\\{[^{}]*\\}";
const unitWord =
  "(?<=[0-9}])\\s*(?:square|cubic|sq)?\\s*(?:[ckm]?m|km/h|mph|kg|feet|foot|inch|yard|mile|meter|liter|litre|hour|minute|second|day|week|month|year|degree|dollar|cent|unit|point)(?:e?s)?";
/** What stands behind an answer and says of what it is so many. */
const unit = new RegExp(`(?:${unitText}|${unitWord})\\s*(?:\\^\\s*\\{?[23]\\}?)?\\s*$`);
const MOST_UNITS = 4;

/** `7 3/4` is 7 + 3/4, and not a product. */
const mixedNumber = /(?<![0-9.,/])([0-9]+) +([0-9]+)\s*\/\s*([0-9]+)(?![0-9.])/g;

/** Parse an answer; null if it is empty or too long. */
export function parseAnswer(latex: string): Answer | null {
  if (latex.length > LONGEST_FORMULA) return null;
  const bare = latex.trim().replace(/^\$+|\.?\$*$/g, "");
  const matrix = /^(?:[a-zA-Z]\s*=)?\s*\\begin\{([pbvBV]?matrix)\}(.*)\\end\{\1\}$/s.exec(bare);
  if (matrix?.[2] !== undefined) return parseMatrix(matrix[2]);
  const listed = bare
    .replace(/\\\\(?=[a-zA-Z])/g, "\\")
    .replace(/\{,\}|,\\! */g, ",")
    .replace(/\\(?:text|mbox)\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])/g, ",")
    .replace(/,(?:\s*,)+/g, ",");
  const text = withoutUnits(listed);
  const isList = /[([{]/.test(text);
  const tokens = tokenize((isList ? text : withoutThousands(text)).replace(mixedNumber, "($1+$2/$3)"));
  if (tokens.length === 0) return null;
  return Math.max(...depths(tokens)) > DEEPEST ? { kind: "formula", tokens } : read(tokens);
}

/** An answer without the units behind it, one after the other: a pattern of several would take forever on some texts. */
function withoutUnits(text: string): string {
  let bare = text;
  for (let i = 0; i < MOST_UNITS; i++) bare = bare.replace(unit, "");
  return bare;
}

function parseMatrix(body: string): Answer | null {
  const rows = body.split("\\\\").map((row) => row.split("&").map(parseAnswer));
  const isComplete = (row: (Answer | null)[]): row is Answer[] => row.every((cell) => cell !== null);
  return rows.every(isComplete) ? { kind: "matrix", rows } : null;
}

function read(tokens: readonly Token[]): Answer {
  const parts = splitAt(tokens, [",", ";"]).filter((part) => part.length > 0);
  if (parts.length > 1) return { kind: "list", open: "", close: "", items: parts.map(read) };
  const only = parts[0] ?? tokens;

  const members = splitAt(only, ["∈"]);
  if (members.length === 2) return read(members[1] ?? []);
  const signs = topLevel(only).filter((text) => relationSigns.includes(text));
  if (signs.length > 0) return { kind: "relation", sides: splitAt(only, relationSigns).map(read), signs };
  const union = splitAt(only, ["∪"]);
  if (union.length > 1) return { kind: "union", items: union.map(read) };
  return readBrackets(only) ?? readPlusMinus(only) ?? { kind: "formula", tokens: withQuotient(only) };
}

const openers: readonly string[] = ["(", "[", "\\{", "{"];
const closers: readonly string[] = [")", "]", "\\}", "}"];

/** A list that its brackets enclose from end to end; a set of one is that one. */
function readBrackets(tokens: readonly Token[]): Answer | null {
  const [open = "", close = ""] = [tokens[0]?.text, tokens.at(-1)?.text];
  const inner = tokens.slice(1, -1);
  if (!openers.includes(open) || !closers.includes(close) || !isBalanced(inner)) return null;
  const parts = splitAt(inner, [",", ";"]);
  if (open === "{" || (open === "\\{" && parts.length === 1)) return inner.length === 0 ? null : read(inner);
  return parts.length === 1 ? readBrackets(inner) : { kind: "list", open, close, items: parts.map(read) };
}

/** `a ± b` is the list of both. */
function readPlusMinus(tokens: readonly Token[]): Answer | null {
  const at = tokens.findIndex(({ text }) => text === "±");
  if (at < 0) return null;
  const withSign = (text: string): Answer => ({
    kind: "formula",
    tokens: tokens.map((token) => (token.text === "±" ? { kind: "mark", text } : token)),
  });
  return { kind: "list", open: "", close: "", items: [withSign("+"), withSign("-")] };
}

/** The ratio 3:4 is the quotient. */
const withQuotient = (tokens: readonly Token[]): readonly Token[] =>
  tokens.map((token) => (token.text === ":" ? { kind: "mark", text: "/" } : token));

/** How deep in brackets each token is; a bracket itself is outside. */
function* depths(tokens: readonly Token[]): Generator<number> {
  let depth = 0;
  for (const { text } of tokens) {
    if (closers.includes(text)) depth--;
    yield depth;
    if (openers.includes(text)) depth++;
  }
}

const isBalanced = (tokens: readonly Token[]): boolean => [...depths(tokens)].every((depth) => depth >= 0);

function topLevel(tokens: readonly Token[]): string[] {
  const depth = [...depths(tokens)];
  return tokens.filter((_, i) => depth[i] === 0).map(({ text }) => text);
}

/** The parts between separators that are not inside brackets. */
function splitAt(tokens: readonly Token[], marks: readonly string[]): Token[][] {
  const depth = [...depths(tokens)];
  const parts: Token[][] = [[]];
  tokens.forEach((token, i) => {
    if (depth[i] === 0 && token.kind === "mark" && marks.includes(token.text)) parts.push([]);
    else parts.at(-1)?.push(token);
  });
  return parts;
}

/** Whether an answer has the same meaning as the truth. */
export function isSameAnswer(truth: Answer, answer: Answer): boolean {
  const [right, given] = [unnamed(truth, answer), isEquation(truth) ? answer : lastSide(answer)];
  if (right.kind === "relation" && given.kind === "relation") return isSameRelation(right, given);
  if (right.kind === "relation" && given.kind === "list") {
    const interval = intervalOf(right);
    return interval !== null && isSameAnswer(interval, given);
  }
  if (right.kind === "list" && given.kind === "list") return isSameList(right, given);
  if (right.kind === "union" && given.kind === "union") return isSameSet(right.items, given.items);
  if (right.kind === "matrix" && given.kind === "matrix") return isSameMatrix(right.rows, given.rows);
  return right.kind === "formula" && given.kind === "formula" && isSameFormula(right.tokens, given.tokens);
}

const isEquation = (answer: Answer): boolean =>
  answer.kind === "relation" && answer.signs.every((sign) => sign === "=");

/** The part after the last "="; other answers are unchanged. */
function lastSide(answer: Answer): Answer {
  return answer.kind === "relation" && isEquation(answer) ? (answer.sides.at(-1) ?? answer) : answer;
}

/** The truth without its `x =`, if the answer has none. */
function unnamed(truth: Answer, answer: Answer): Answer {
  if (truth.kind !== "relation" || !isEquation(truth) || isEquation(answer)) return truth;
  const [name] = truth.sides;
  const isName =
    name?.kind === "formula" && name.tokens.every(({ kind, text }) => kind === "name" || /^[()_{}]$/.test(text));
  return isName ? lastSide(truth) : truth;
}

type Relation = Extract<Answer, { kind: "relation" }>;
type List = Extract<Answer, { kind: "list" }>;
const flipped: Readonly<Record<string, string>> = { "<": ">", ">": "<", "<=": ">=", ">=": "<=" };
const flip = (sign: string): string => flipped[sign] ?? sign;

function isSameRelation(truth: Relation, answer: Relation): boolean {
  const isSame = (sides: readonly Answer[], signs: readonly string[]) =>
    signs.join() === truth.signs.join() && isSameInOrder(truth.sides, sides);
  if (isSame(answer.sides, answer.signs)) return true;
  if (isSame(answer.sides.toReversed(), answer.signs.toReversed().map(flip))) return true;
  if (truth.signs.length !== 1 || answer.signs.length !== 1) return false;
  const [a, b] = [differenceOf(truth), differenceOf(answer)];
  const ratio = a === null || b === null ? null : ratioOf(a, b);
  const [right = "", given = ""] = [truth.signs[0], answer.signs[0]];
  return ratio !== null && right === (ratio > 0 ? given : flip(given));
}

/** Left side minus right side. */
function differenceOf({ sides: [left, right] }: Relation): Expression | null {
  if (left?.kind !== "formula" || right?.kind !== "formula") return null;
  const [a, b] = [parseTokens(left.tokens), parseTokens(right.tokens)];
  if (a === null || b === null) return null;
  return { kind: "apply", operation: "add", operands: [a, { kind: "apply", operation: "negate", operands: [b] }] };
}

/** `x > 3` as (3, ∞), `1 < x <= 2` as (1, 2]; null if it is not an interval. */
function intervalOf(relation: Relation): Answer | null {
  const isSymbol = (side: Answer | undefined) =>
    side?.kind === "formula" && side.tokens.every(({ kind }) => kind === "name");
  const isDown = relation.signs.every((sign) => sign.startsWith(">"));
  const sides = isDown ? relation.sides.toReversed() : relation.sides;
  const signs = isDown ? relation.signs.toReversed().map(flip) : relation.signs;
  if (!signs.every((sign) => sign.startsWith("<"))) return null;
  const [first, second, third] = sides;
  const [open, close] = [signs[0] === "<" ? "(" : "[", signs.at(-1) === "<" ? ")" : "]"];
  if (first === undefined || second === undefined) return null;
  if (third !== undefined) return isSymbol(second) ? { kind: "list", open, close, items: [first, third] } : null;
  const infinity: Token = { kind: "name", text: "inf" };
  if (isSymbol(second)) {
    return { kind: "list", open, close: ")", items: [first, { kind: "formula", tokens: [infinity] }] };
  }
  const below: Answer = { kind: "formula", tokens: [{ kind: "mark", text: "-" }, infinity] };
  return isSymbol(first) ? { kind: "list", open: "(", close, items: [below, second] } : null;
}

function isSameList(truth: List, answer: List): boolean {
  const [isSet, isGivenSet] = [truth, answer].map(({ open }) => open === "" || open === "\\{");
  if (isSet && isGivenSet) return isSameSet(truth.items, answer.items);
  const isSameKind = truth.open === answer.open && truth.close === answer.close;
  const isBare = truth.open === "" || answer.open === "";
  return (isSameKind || isBare) && isSameInOrder(truth.items, answer.items);
}

function isSameInOrder(truth: readonly Answer[], answer: readonly Answer[]): boolean {
  return (
    truth.length === answer.length &&
    truth.every((item, i) => {
      const given = answer[i];
      return given !== undefined && isSameAnswer(item, given);
    })
  );
}

/** Whether every item has its own equal item on the other side. */
function isSameSet(truth: readonly Answer[], answer: readonly Answer[]): boolean {
  if (truth.length !== answer.length || truth.length > MOST_ITEMS) return false;
  const left = [...answer];
  return truth.every((item) => {
    const at = left.findIndex((given) => isSameAnswer(item, given));
    if (at >= 0) left.splice(at, 1);
    return at >= 0;
  });
}

function isSameMatrix(truth: readonly (readonly Answer[])[], answer: readonly (readonly Answer[])[]): boolean {
  return truth.length === answer.length && truth.every((row, i) => isSameInOrder(row, answer[i] ?? []));
}

function isSameFormula(truth: readonly Token[], answer: readonly Token[]): boolean {
  if (spelling(truth, " ") === spelling(answer, " ")) return true;
  const word = wordOf(truth);
  if (word !== "" && word === wordOf(answer)) return true;
  const [right, given] = [parseTokens(truth), parseTokens(answer)];
  if (right === null || given === null) return false;
  return areEqual(right, given) || ((isDecimal(truth) || isDecimal(answer)) && isSameRounded(right, given));
}

const spelling = (tokens: readonly Token[], between: string): string => tokens.map(({ text }) => text).join(between);

/** Only letters, without brackets and spaces: `\text{(A)}`, `A` and `(A)` are one word. */
function wordOf(tokens: readonly Token[]): string {
  const word = spelling(tokens, "").replace(/[\s(){}.]/g, "");
  return /^\p{L}+$/u.test(word) ? word : "";
}

const isDecimal = (tokens: readonly Token[]): boolean => /^-?[0-9]*\.[0-9]+%?$/.test(spelling(tokens, ""));

/** Equal to six decimals, because a decimal number may approximate a fraction. */
function isSameRounded(a: Expression, b: Expression): boolean {
  const [x, y] = [realValue(a), realValue(b)];
  return x !== null && y !== null && Math.round(x * 1e6) === Math.round(y * 1e6);
}
