/**
 * Questions answered with a search tool (Search-R1, arXiv:2503.09516): the last `<answer>…</answer>` must be one of the
 * targets, after lower-casing and without punctuation, articles and double spaces. More than ten answer tags of either
 * kind cost three quarters of the score, so that guessing in every line does not help.
 */
import { LONGEST_ANSWER, strip, words } from "./python-text.ts";

export type SearchQaOptions = {
  /** A target inside the answer is enough. */
  readonly substring?: boolean;
  /** The score of a wrong answer in the right tags. */
  readonly formatScore?: number;
};

const [OPEN, CLOSE] = ["<answer>", "</answer>"];

/** The content of the last complete pair of answer tags, or null. */
export function extractSearchAnswer(response: string): string | null {
  let answer: string | null = null;
  for (let at = 0; ; ) {
    const start = response.indexOf(OPEN, at);
    const end = start < 0 ? -1 : response.indexOf(CLOSE, start + OPEN.length);
    if (end < 0) return answer === null ? null : strip(answer);
    answer = response.slice(start + OPEN.length, end);
    at = end + CLOSE.length;
  }
}

/** An answer in the form in which it is compared. */
export function normalizeSearchAnswer(answer: string): string {
  const plain = answer.toLowerCase().replace(/[!-/:-@[-`{-~]+/g, "");
  return words(plain.replace(/(?<![\p{L}\p{N}_])(?:an?|the)(?![\p{L}\p{N}_])/gu, " ")).join(" ");
}

/** 1 for an answer that is a target, a quarter of it with too many tags, 0 without an answer. */
export function scoreSearchQa(
  response: string,
  targets: readonly string[],
  { substring = false, formatScore = 0 }: SearchQaOptions = {},
): number {
  const answer = extractSearchAnswer(response);
  if (answer === null) return 0;
  if (answer.length > LONGEST_ANSWER) return formatScore;
  const given = normalizeSearchAnswer(answer);
  const known = targets.map(normalizeSearchAnswer);
  if (substring) return known.some((target) => given.includes(target)) ? 1 : formatScore;
  if (!known.includes(given)) return formatScore;
  return count(response, OPEN) > 10 || count(response, CLOSE) > 10 ? 0.25 : 1;
}

function count(text: string, part: string): number {
  return text.split(part).length - 1;
}
