/**
 * When an answer counts as the expected one, by the rules of verl's prime_code.
 *
 * Expected answers are compared here, in the trusted process; no program ever sees them.
 */
import { parseFloatStrictly, strip } from "./scorers/python-text.ts";

/**
 * Whether a program printed what was expected: the same text, apart from white space around it or around its lines; the
 * same lines, apart from empty ones; or numbers that are close, one per line.
 */
export function isSameOutput(output: string, expected: string): boolean {
  const lines = splitLines(output);
  const truth = strip(expected);
  if (strip(lines.join("\n")) === truth || strip(lines.map(strip).join("\n")) === truth) return true;
  const wanted = expected
    .split("\n")
    .filter((line) => line !== "")
    .map(strip);
  const printed = lines.filter((line) => line !== "");
  return areEqual(lines, wanted) || areEqual(printed, wanted) || areClose(printed, wanted);
}

/** `text.splitlines()`, for the line ends that programs print. */
function splitLines(text: string): string[] {
  const lines = text.split(/\r\n|[\n\r\v\f\u0085\u2028\u2029]/);
  return lines.at(-1) === "" ? lines.slice(0, -1) : lines;
}

function areEqual(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((line, i) => line === b[i]);
}

/** numpy's `allclose`; if all are integers, they have to be equal. */
function areClose(printed: readonly string[], wanted: readonly string[]): boolean {
  if (printed.length !== wanted.length || [...printed, ...wanted].every((line) => /^\d+$/.test(line))) return false;
  return printed.every((line, i) => {
    const [a, b] = [parseFloatStrictly(line), parseFloatStrictly(wanted[i] ?? "")];
    return a !== null && b !== null && (a === b || Math.abs(a - b) <= 1e-8 + 1e-5 * Math.abs(b));
  });
}

/** Whether a function returned the expected value, or the only element of an expected list (verl's data has both). */
export function isSameValue(result: string, expected: unknown): boolean {
  const value = parseExactly(result);
  if (value === undefined) return false;
  return isSame(value, expected) || (Array.isArray(expected) && expected.length > 0 && isSame(value, expected[0]));
}

/** JSON whose whole numbers are exact, however large; undefined if the text is not JSON. */
export function parseExactly(text: string): unknown {
  // The reviver's third argument has the number as it is written; TypeScript does not know it.
  const parse = JSON.parse as (
    text: string,
    reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown,
  ) => unknown;
  try {
    return parse(text, (_, value, { source = "" }) =>
      typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? BigInt(source) : value,
    );
  } catch {
    return undefined;
  }
}

/** Python's `==` on JSON values: 1, 1.0 and true are equal. */
function isSame(a: unknown, b: unknown): boolean {
  // Between number and bigint these comparisons are exact.
  if (isNumeric(a) && isNumeric(b)) return numberOf(a) <= numberOf(b) && numberOf(a) >= numberOf(b);
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a === b;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [Object.entries(a), Object.entries(b)];
  return (
    left.length === right.length &&
    left.every(([key, value]) => Object.hasOwn(b, key) && isSame(value, Reflect.get(b, key)))
  );
}

function isNumeric(value: unknown): value is number | bigint | boolean {
  return typeof value === "number" || typeof value === "bigint" || typeof value === "boolean";
}

function numberOf(value: number | bigint | boolean): number | bigint {
  return typeof value === "boolean" ? Number(value) : value;
}
