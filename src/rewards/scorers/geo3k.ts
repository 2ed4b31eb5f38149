/**
 * Geometry3K: nine tenths for the right answer in the last box, one tenth for the form `<think>…</think>…\boxed{…}`.
 * Pictures are not used: the answer is compared by the rules of PRM800K (`prm800k.ts`), as mathruler does.
 */
import { lastBoxed } from "./boxed.ts";
import { isEquivalent } from "./prm800k.ts";
import { strip } from "./python-text.ts";

/** The score with its two parts. */
type Geo3kScore = { readonly score: number; readonly acc: number; readonly format: number };

const FORMAT_SHARE = 0.1;

/** Score a response. */
export function scoreGeo3k(response: string, truth: string): Geo3kScore {
  const boxed = lastBoxed(response);
  const answer = boxed === null ? "None" : strip(boxed); // as in mathruler: no answer is "None", which is right for the truth "None"
  const acc = isEquivalent(answer, truth, { isCompact: true }) ? 1 : 0;
  const format = hasForm(response) ? 1 : 0;
  return { score: (1 - FORMAT_SHARE) * acc + FORMAT_SHARE * format, acc, format };
}

/** The four parts in their order, the first at the very beginning. */
function hasForm(response: string): boolean {
  let at = 0;
  for (const part of ["<think>", "</think>", "\\boxed{", "}"]) {
    const found = response.indexOf(part, at);
    if (found < 0 || (at === 0 && found > 0)) return false;
    at = found + part.length;
  }
  return true;
}
