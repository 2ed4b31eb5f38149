/**
 * An answer compared by its meaning, like Math-Verify does: the scorer to choose if answers are more than numbers. verl has it as an option too; no data source uses it by default.
 *
 * Where the answer is looked for, in this order: the last boxes (several close together are a list) or what follows
 * "final answer is", whichever ends later; what follows the last "answer"; the last formula or number. Outside of boxes
 * only the last 2,000 characters are read. Nothing here can hang or throw, so there is no time limit.
 */
import { isSameAnswer, parseAnswer } from "./answer.ts";
import { closingBrace } from "./boxed.ts";
import { strip } from "./python-text.ts";

/** 1 if the response's answer has the same meaning as the truth, else 0. */
export function scoreMathVerify(response: string, truth: string): number {
  const given = extractMathAnswer(response);
  const [right, answer] = [parseAnswer(truth), given === null ? null : parseAnswer(given)];
  return right !== null && answer !== null && isSameAnswer(right, answer) ? 1 : 0;
}

/** A piece of a text, and where it ends there. */
type Found = { readonly text: string; readonly end: number };

/** The LaTeX or plain text of the answer a response gives, or null. */
export function extractMathAnswer(response: string): string | null {
  const tail = response.slice(-2000);
  const offset = response.length - tail.length;
  const boxed = lastBoxes(response);
  const final = afterWord(tail, /final answer.{0,100}?\s+is:?/gis);
  if (boxed !== null || final !== null) {
    return (final === null || (boxed !== null && boxed.end >= final.end + offset) ? boxed : final)?.text ?? null;
  }
  return (afterWord(tail, /answer:/gi) ?? afterWord(tail, /answer/gi) ?? formulas(tail).at(-1))?.text ?? null;
}

/** Boxes less than 10 characters apart, or less than 70 with a separator between them, are one answer. */
function lastBoxes(text: string): Found | null {
  const contents: string[] = [];
  let [before, end, isFirst] = [text.length, -1, true];
  while (contents.length < 20) {
    const start = text.lastIndexOf("\\boxed{", before - 1);
    const close = start < 0 ? -1 : closingBrace(text.slice(start, isFirst ? undefined : before), 0);
    if (close < 0) break;
    const between = text.slice(start + close + 1, before);
    const isNear = between.length < 10 || (between.length < 70 && /\b(?:and|or)\b|[,;]/.test(between));
    if (!isFirst && !isNear) break;
    if (isFirst) end = start + close + 1;
    const content = strip(text.slice(start + "\\boxed{".length, start + close));
    if (contents[0] !== content) contents.unshift(content);
    [before, isFirst] = [start, false];
    if (start === 0) break;
  }
  const joined = contents.join(",");
  return joined === "" ? null : { text: joined, end };
}

/** The first formula that begins within 50 characters of the last such word. */
function afterWord(text: string, word: RegExp): Found | null {
  const found = [...text.matchAll(word)].at(-1);
  if (found === undefined) return null;
  const start = found.index + found[0].length;
  const rest = text.slice(start);
  const first = formulas(rest).find(({ begin }) => begin <= 50);
  return first === undefined ? null : { text: first.text, end: start + first.end };
}

const delimiters: readonly (readonly [open: string, close: string])[] = [
  ["$$", "$$"],
  ["\\[", "\\]"],
  ["\\(", "\\)"],
  ["$", "$"],
];
const decimal = "(?:[0-9]{1,3}(?:[ ,][0-9]{3})+(?![0-9])|[0-9]+)(?:\\.[0-9]+)?|\\.[0-9]+";
const fraction = /-?\\[dt]?frac\{[^{}]*\}\{[^{}]*\}/g;
const operand = `\\(?-?(?:${decimal})\\)?`;
const plain = new RegExp(`(?<![^\\s=*$€£¥₹(:])-?${operand}(?:\\s*[-+*/^×÷]\\s*${operand})*%?`, "g");

/** Every formula of a text: between dollars or LaTeX's brackets, else fractions, numbers and sums of them in plain text. */
function formulas(text: string): (Found & { readonly begin: number })[] {
  const found: (Found & { readonly begin: number })[] = [];
  let rest = "";
  for (let at = 0; at < text.length; ) {
    const between = delimiters.find(([open]) => text.startsWith(open, at));
    const end = between === undefined ? -1 : text.indexOf(between[1], at + between[0].length);
    if (between === undefined || end < 0) {
      const length = text.startsWith("\\$", at) ? 2 : 1;
      rest += text.slice(at, at + length);
      at += length;
      continue;
    }
    const content = text.slice(at + between[0].length, end);
    found.push({
      text: lastBoxes(content)?.text ?? content.replace(/\\boxed\s*/g, ""),
      begin: at,
      end: end + between[1].length,
    });
    rest += " ".repeat(end + between[1].length - at);
    at = end + between[1].length;
  }
  for (const match of [...rest.matchAll(plain), ...rest.matchAll(fraction)]) {
    const formula = match[0].replace(/(?<=[0-9]) (?=[0-9]{3}(?![0-9]))/g, "");
    found.push({ text: formula, begin: match.index, end: match.index + match[0].length });
  }
  return joinedByWords(
    text,
    found.sort((a, b) => a.end - b.end),
  );
}

/** `$2$ or $3$` is one answer. */
function joinedByWords<T extends Found & { readonly begin: number }>(text: string, found: readonly T[]) {
  const joined: (Found & { readonly begin: number })[] = [];
  for (const formula of found) {
    const previous = joined.at(-1);
    const between = previous === undefined ? "" : text.slice(previous.end, formula.begin);
    const areDelimited = [previous, formula].every((it) => it !== undefined && /[$\\]/.test(text[it.begin] ?? ""));
    if (previous !== undefined && areDelimited && /^\s*(?:,?(?:and|or)|,)\s*$/.test(between)) {
      joined[joined.length - 1] = { ...formula, begin: previous.begin, text: `${previous.text},${formula.text}` };
    } else joined.push(formula);
  }
  return joined;
}
