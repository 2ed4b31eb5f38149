/**
 * Formulas as trees: numbers, symbols and operations on them. Reads LaTeX and plain notation (`math-tokens.ts`).
 *
 * Not a computer algebra system: nothing is simplified. Two formulas are compared by their values (`equality.ts`). What
 * cannot be read is null, and length and depth are limited for any response.
 */
import { functions, type Token, tokenize } from "./math-tokens.ts";

export type Operation =
  | ("add" | "multiply" | "divide" | "power" | "root" | "negate" | "factorial" | "binom")
  | (typeof functions)[keyof typeof functions];

export type Expression =
  | { readonly kind: "number"; readonly numerator: bigint; readonly denominator: bigint }
  | { readonly kind: "symbol"; readonly name: string }
  | { readonly kind: "apply"; readonly operation: Operation; readonly operands: readonly Expression[] };

/** Longer formulas are not read: the longest answer of MATH has 159 characters. */
export const LONGEST_FORMULA = 1000;
const DEEPEST = 100;

/** The position of the parser. */
type Cursor = { readonly tokens: Token[]; at: number; depth: number; bars: number };

/** Thrown inside this file only: the tokens are not a formula. */
class Unreadable extends Error {}

/** The tree of a formula, or null. */
export function parseExpression(text: string): Expression | null {
  return text.length > LONGEST_FORMULA ? null : parseTokens(tokenize(text));
}

/** The tree of a formula that is tokens already, or null. */
export function parseTokens(tokens: readonly Token[]): Expression | null {
  const cursor: Cursor = { tokens: [...tokens], at: 0, depth: 0, bars: 0 };
  try {
    const expression = sum(cursor);
    return cursor.at === cursor.tokens.length ? expression : null;
  } catch (error) {
    if (error instanceof Unreadable) return null;
    throw error;
  }
}

const apply = (operation: Operation, ...operands: readonly Expression[]): Expression => ({
  kind: "apply",
  operation,
  operands,
});

const peek = (cursor: Cursor): string => cursor.tokens[cursor.at]?.text ?? "";
const isMark = (cursor: Cursor, ...marks: readonly string[]): boolean =>
  cursor.tokens[cursor.at]?.kind === "mark" && marks.includes(peek(cursor));

function take(cursor: Cursor, mark: string): void {
  if (!isMark(cursor, mark)) throw new Unreadable();
  cursor.at++;
}

function sum(cursor: Cursor): Expression {
  if (++cursor.depth > DEEPEST) throw new Unreadable();
  let left = product(cursor);
  while (isMark(cursor, "+", "-")) {
    const isMinus = peek(cursor) === "-";
    cursor.at++;
    const right = product(cursor);
    left = apply("add", left, isMinus ? apply("negate", right) : right);
  }
  cursor.depth--;
  return left;
}

function product(cursor: Cursor): Expression {
  let left = signed(cursor);
  for (;;) {
    if (isMark(cursor, "*", "/")) {
      const operation = peek(cursor) === "*" ? "multiply" : "divide";
      cursor.at++;
      left = apply(operation, left, signed(cursor));
    } else if (startsFactor(cursor)) left = apply("multiply", left, power(cursor));
    else return left;
  }
}

function signed(cursor: Cursor): Expression {
  let isNegative = false;
  for (; isMark(cursor, "+", "-"); cursor.at++) if (peek(cursor) === "-") isNegative = !isNegative;
  const value = power(cursor);
  return isNegative ? apply("negate", value) : value;
}

function power(cursor: Cursor): Expression {
  if (++cursor.depth > DEEPEST) throw new Unreadable();
  const base = postfixed(cursor);
  let value = base;
  if (isMark(cursor, "^")) {
    cursor.at++;
    value = apply("power", base, isMark(cursor, "{") ? power(cursor) : signed(cursor));
  }
  cursor.depth--;
  return value;
}

function postfixed(cursor: Cursor): Expression {
  let value = primary(cursor);
  for (; isMark(cursor, "!", "%"); cursor.at++) {
    value = peek(cursor) === "!" ? apply("factorial", value) : apply("divide", value, integer(100n));
  }
  return value;
}

const closers: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}", "⌊": "⌋", "⌈": "⌉", "|": "|" };
const wraps: Readonly<Record<string, Operation>> = { "|": "abs", "⌊": "floor", "⌈": "ceil" };

/** Whether the next token can begin a factor, so that there is an implied multiplication. */
function startsFactor(cursor: Cursor): boolean {
  const next = cursor.tokens[cursor.at];
  if (next === undefined) return false;
  if (next.kind !== "mark") return true;
  return Object.hasOwn(closers, next.text) && (next.text !== "|" || cursor.bars === 0);
}

function primary(cursor: Cursor): Expression {
  const next = cursor.tokens[cursor.at];
  if (next === undefined) throw new Unreadable();
  if (next.kind === "number") return mixedNumber(cursor);
  if (next.kind === "name") return named(cursor);
  const closer = Object.hasOwn(closers, next.text) ? closers[next.text] : undefined;
  if (closer === undefined) throw new Unreadable();
  cursor.at++;
  const isBar = next.text === "|";
  if (isBar) cursor.bars++;
  const inner = sum(cursor);
  if (isBar) cursor.bars--;
  take(cursor, closer);
  const wrap = Object.hasOwn(wraps, next.text) ? wraps[next.text] : undefined;
  return wrap === undefined ? inner : apply(wrap, inner);
}

/** A number; an integer right before a fraction of integers is a mixed number, `2\frac{1}{2}`. */
function mixedNumber(cursor: Cursor): Expression {
  const whole = number(peek(cursor));
  cursor.at++;
  if (whole.denominator !== 1n || peek(cursor) !== "frac") return whole;
  const start = cursor.at;
  const fraction = named(cursor);
  const isMixed = fraction.kind === "apply" && fraction.operands.every((part) => part.kind === "number");
  if (isMixed) return apply("add", whole, fraction);
  cursor.at = start;
  return whole;
}

function number(text: string) {
  const [whole = "", decimals = ""] = text.split(".");
  return { kind: "number", numerator: BigInt(whole + decimals), denominator: 10n ** BigInt(decimals.length) } as const;
}

const integer = (value: bigint): Expression => ({ kind: "number", numerator: value, denominator: 1n });

function named(cursor: Cursor): Expression {
  const name = peek(cursor);
  cursor.at++;
  if (name === "frac") return apply("divide", argument(cursor), argument(cursor));
  if (name === "binom") return apply("binom", argument(cursor), argument(cursor));
  if (name === "sqrt") return squareRoot(cursor);
  const operation = functionOf(name);
  if (operation === undefined) return { kind: "symbol", name: name + subscript(cursor) };

  const base = operation === "log" && isMark(cursor, "_") ? subscriptValue(cursor) : integer(10n);
  const exponent = isMark(cursor, "^") ? exponentOf(cursor) : null;
  const operand = isMark(cursor, "(", "{", "[", "|") ? primary(cursor) : operandOf(cursor);
  if (exponent !== null && isMinusOne(exponent)) return apply(inverseOf(operation), operand);
  const value = operation === "log" ? apply("log", operand, base) : apply(operation, operand);
  return exponent === null ? value : apply("power", value, exponent);
}

const operations = new Map<string, Operation>(Object.entries(functions));
const functionOf = (name: string): Operation | undefined => operations.get(name);

/** `\sin^{-1}` is the inverse function, not the reciprocal. */
function inverseOf(operation: Operation): Operation {
  if (operation === "sin") return "arcsin";
  if (operation === "cos") return "arccos";
  if (operation === "tan") return "arctan";
  throw new Unreadable();
}

const isMinusOne = (value: Expression): boolean =>
  value.kind === "apply" && value.operation === "negate" && value.operands.every(isOne);
const isOne = (value: Expression): boolean => value.kind === "number" && value.numerator === value.denominator;

function exponentOf(cursor: Cursor): Expression {
  take(cursor, "^");
  return isMark(cursor, "{") ? primary(cursor) : signed(cursor);
}

/** What a function without brackets applies to: `\sin 2x` is the sine of 2x. */
function operandOf(cursor: Cursor): Expression {
  let operand = signed(cursor);
  while (startsFactor(cursor) && functionOf(peek(cursor)) === undefined)
    operand = apply("multiply", operand, power(cursor));
  return operand;
}

/** `\sqrt{2}`, `\sqrt[3]{2}`, `sqrt(2)`. */
function squareRoot(cursor: Cursor): Expression {
  const degree = isMark(cursor, "[") ? primary(cursor) : integer(2n);
  return apply("root", isMark(cursor, "(") ? primary(cursor) : argument(cursor), degree);
}

/** The argument of a command: a group, or a single character: `\frac12` is one half. */
function argument(cursor: Cursor): Expression {
  const next = cursor.tokens[cursor.at];
  if (next?.kind === "number" && next.text.length > 1) {
    cursor.tokens[cursor.at] = { kind: "number", text: next.text.slice(1).replace(/^\./, "0.") };
    return number(next.text.slice(0, 1));
  }
  if (next?.kind !== "number") return primary(cursor);
  cursor.at++;
  return number(next.text);
}

/** `_1` or `_{12}` as part of a symbol's name; empty if there is none. */
function subscript(cursor: Cursor): string {
  let name = "";
  for (; isMark(cursor, "'"); cursor.at++) name += "'";
  if (!isMark(cursor, "_")) return name;
  cursor.at++;
  if (!isMark(cursor, "{")) {
    const [index = ""] = peek(cursor);
    if (cursor.tokens[cursor.at]?.kind === "number") argument(cursor);
    else cursor.at++;
    return `${name}_${index}`;
  }
  const end = cursor.tokens.findIndex(({ text }, i) => i > cursor.at && text === "}");
  if (end < 0) throw new Unreadable();
  const index = cursor.tokens.slice(cursor.at + 1, end).map(({ text }) => text);
  cursor.at = end + 1;
  return `${name}_${index.join("")}`;
}

function subscriptValue(cursor: Cursor): Expression {
  take(cursor, "_");
  return argument(cursor);
}
