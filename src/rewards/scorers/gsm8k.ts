/**
 * GSM8K: the number after the last `#### `, compared as text. Only the last 300 characters are read, as in verl.
 *
 * `strict` requires `#### ` and removes thousands commas; `flexible` takes the last text that looks like a number, with
 * its commas. A full stop stays part of the number in both: "#### 72." is not 72.
 */
import { lastCharacters } from "./python-text.ts";

export type Gsm8kMethod = "strict" | "flexible";

/** The answer of a response, or null if it gives none. */
export function extractGsm8k(response: string, method: Gsm8kMethod = "strict"): string | null {
  const end = lastCharacters(response, 300);
  if (method === "strict") {
    const [, answer] = [...end.matchAll(/#### (-?[0-9.,]+)/g)].at(-1) ?? [];
    return answer?.replaceAll(",", "") ?? null;
  }
  const numbers = end.match(/-?[0-9.,]+/g) ?? [];
  return numbers.findLast((number) => number !== ".") ?? numbers[0] ?? null;
}

/** 1 for the right answer, `formatScore` for another one, 0 for none. */
export function scoreGsm8k(
  response: string,
  truth: string,
  { method = "strict", formatScore = 0 }: { readonly method?: Gsm8kMethod; readonly formatScore?: number } = {},
): number {
  const answer = extractGsm8k(response, method);
  if (answer === null) return 0;
  return answer === truth ? 1 : formatScore;
}
