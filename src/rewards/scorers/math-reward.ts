/**
 * MATH: the content of the last box, normalised and compared as text. `\fbox` is found but never right, and a single
 * `\boxed ` with a space in the text wins over every `\boxed{…}`, both as in verl.
 */
import { closingBrace } from "./boxed.ts";
import { normalizeHendrycks } from "./hendrycks.ts";

/** The last `\boxed…` or `\fbox…` of a text with its command, or null. */
export function lastBox(text: string): string | null {
  const spaced = text.lastIndexOf("\\boxed ");
  if (spaced >= 0) {
    const end = text.indexOf("$", spaced);
    return end < 0 ? text.slice(spaced) : text.slice(spaced, end);
  }
  const boxed = text.lastIndexOf("\\boxed");
  const start = boxed >= 0 ? boxed : text.lastIndexOf("\\fbox");
  const end = start < 0 ? -1 : closingBrace(text, start);
  return end < 0 ? null : text.slice(start, end + 1);
}

/** The content of a box found by `lastBox`; null for an `\fbox`, or if no brace follows directly. */
export function contentOf(box: string): string | null {
  if (box.startsWith("\\boxed ")) return box.slice("\\boxed ".length);
  return box.startsWith("\\boxed{") ? box.slice("\\boxed{".length, -1) : null;
}

/** 1 if the boxed answer equals the truth after normalisation, else 0. */
export function scoreMathReward(response: string, truth: string): number {
  const box = lastBox(response);
  const answer = box === null ? null : contentOf(box);
  if (answer === null) return 0;
  const [ours, theirs] = [normalizeHendrycks(answer), normalizeHendrycks(truth)];
  const isRight = ours === null || theirs === null ? answer === truth : ours === theirs;
  return isRight ? 1 : 0;
}
