/**
 * PRIME's rule for competition mathematics (arXiv:2502.01456): the answer is searched after words such as "answer is",
 * in the last box, after the last "is" or "=", and is right by the rules of PRM800K or else by those of ToRA:
 * numbers within 1e-4, also as percentages, π as 3.14, lists element by element.
 *
 * The last step of verl's, a symbolic comparison, never succeeds there (it uses a decorator as a context manager), so it
 * is left out: unreduced fractions stay wrong. Departures: π may be in LaTeX and in plain formulas, "1,2" is
 * not 12, and `Interval(…)`, `Point(…)` and `Matrix(…)`, which are Python and not answers, are not read.
 */
import { closingBrace } from "./boxed.ts";
import { realValue } from "./equality.ts";
import { LONGEST_FORMULA, parseExpression } from "./expression.ts";
import { isEquivalent, withoutThousands } from "./prm800k.ts";
import { parseFloatStrictly, strip } from "./python-text.ts";

const before: readonly string[] = ["answer:", "answer is", "answers are"];
const behind: readonly string[] = ["is answer", "is the answer", "are answers", "are the answers"];
const last: readonly string[] = ["be ", "is ", "are ", "=", ": ", "get ", "be\n", "is\n", "are\n", ":\n", "get\n"];

/** Of longer responses only the end is read. */
const LONGEST_RESPONSE = 100_000;

/** The answer of a response; the response itself if nothing else is found. */
export function extractPrimeAnswer(response: string): string {
  let text = readable(response.slice(-LONGEST_RESPONSE));
  for (const marker of before) text = cut(text, marker, (part, at) => part.slice(at + marker.length));
  for (const marker of behind) text = cut(text, marker, (part, at) => part.slice(0, at));
  text = readable(boxedContent(text.text) || text.text);
  text = cut(text, ". ", (part, at) => part.slice(0, at));
  for (const marker of last) text = cut(text, marker, (part, at) => part.slice(at + marker.length));
  return text.text;
}

/** A text, and the same in lower case, in which markers are looked for. */
type Readable = { readonly text: string; readonly lower: string };
const readable = (text: string): Readable => ({ text, lower: text.toLowerCase() });

/** A part of the text by the last place of a marker; the text itself where the marker is not in it. */
function cut({ text, lower }: Readable, marker: string, keep: (part: string, at: number) => string): Readable {
  const at = lower.lastIndexOf(marker);
  return at < 0 ? { text, lower } : { text: strip(keep(text, at)), lower: strip(keep(lower, at)) };
}

/** 1 if the response's answer is right, else 0. */
export function scorePrimeMath(response: string, truth: string): number {
  const answer = extractPrimeAnswer(response);
  if (isEquivalent(answer, truth, { isCompact: false })) return 1;
  if (answer.length > LONGEST_FORMULA) return 0;
  const hasPi = answer.includes("\\pi") || truth.includes("\\pi");
  const values = hasPi ? [Math.PI, 3.14] : [Math.PI];
  return values.some((pi) => isSameAnswer(answer, truth, pi)) ? 1 : 0;
}

/** The content of the last `\boxed{…}`, or else of the last `\fbox{…}`; "" without either. */
function boxedContent(text: string): string {
  const boxed = text.lastIndexOf("\\boxed");
  const start = boxed >= 0 ? boxed : text.lastIndexOf("\\fbox");
  const open = start < 0 ? -1 : text.indexOf("{", start);
  const end = start < 0 ? -1 : closingBrace(text, start);
  return end < 0 ? "" : strip(text.slice(open + 1, end));
}

/** The number if the text is one, else the text. */
type Reading = number | string;

/** The rules of ToRA (arXiv:2309.17452). */
function isSameAnswer(answer: string, truth: string, pi: number): boolean {
  const [given, right] = [read(answer, pi), read(truth, pi)];
  if (typeof given === "string" && typeof right === "string") {
    if (strip(given).toLowerCase() === strip(right).toLowerCase()) return true;
    if (given.replaceAll(" ", "") === right.replaceAll(" ", "")) return true;
  }
  const [a, b] = [numberOf(given), numberOf(right)];
  if (a !== null && b !== null) return [b / 100, b, b * 100].some((value) => isClose(value, a));
  return given !== "" && isSameList(strip(String(given)), strip(String(right)), pi);
}

function isSameList(given: string, right: string, pi: number): boolean {
  const isLoose =
    (isIn("[", given, "]") && !right.startsWith("(")) || (isIn("(", given, ")") && !right.startsWith("["));
  const bare = (text: string) => (isLoose ? text.replace(/^[[\]()]+|[[\]()]+$/g, "") : text).replace(/[{}()]/g, "");
  if (bare(given) === bare(right)) return true;

  const isWrapped = /^[([].*[)\]]$/s.test(given) && given[0] === right[0] && given.at(-1) === right.at(-1);
  const [ours, theirs] = [given, right].map((text) => (isWrapped ? text.slice(1, -1) : text).split(","));
  if (ours === undefined || theirs === undefined || theirs.length < 2 || ours.length !== theirs.length) return false;
  return theirs.every((part, i) => isSameAnswer(strip(ours[i] ?? ""), strip(part), pi));
}

const isIn = (open: string, text: string, close: string): boolean => text.startsWith(open) && text.endsWith(close);

/** Amounts of money and percentages without their sign, numbers without their base, formulas with π computed. */
function read(text: string, pi: number): Reading {
  if (/^\$[0-9]+(?:\.[0-9]+)?/.test(text)) return text.slice(1);
  if (/^[0-9]+(?:\.[0-9]+)?\\?%$/.test(text)) return text.replace(/\\?%/, "");
  const based = /^([0-9]+)_(?:\{?[0-9]+\}?)$/.exec(text);
  if (based?.[1] !== undefined) return Number(based[1]);
  if (!text.includes("\\pi")) return text;
  const formula = parseExpression(text.replaceAll("\\pi", `(${pi})`));
  return (formula && realValue(formula)) ?? text;
}

function numberOf(reading: Reading): number | null {
  if (typeof reading === "number") return reading;
  return parseFloatStrictly(withoutThousands(reading.replaceAll("{,}", "")));
}

const isClose = (a: number, b: number): boolean =>
  a === b || Math.abs(a - b) <= 1e-4 * Math.max(Math.abs(a), Math.abs(b));
