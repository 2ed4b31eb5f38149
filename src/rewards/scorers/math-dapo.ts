/**
 * DAPO's math rule: what follows the last `Answer:`, normalised and compared as text. Only the last 300 characters are
 * read. Right is +1, wrong is -1, as the recipe was tuned with.
 *
 * Without `Answer:` the last `\boxed{…}` of the last 100 characters is compared unchanged, as verl 0.9 does and 0.7 did
 * not (`boxedFallback: false`). Surprising rules of verl are kept: "a " and "an " are removed inside words too, unit
 * words anywhere, and a full stop belongs to the answer.
 */
import { lastBoxed } from "./boxed.ts";
import { lastCharacters, strip } from "./python-text.ts";

/** A score with verl's columns `acc` and `pred`. */
type DapoScore = { readonly score: 1 | -1; readonly acc: boolean; readonly pred: string | null };

type DapoOptions = { readonly strictBox?: boolean; readonly boxedFallback?: boolean };

const replaced: readonly (readonly [before: string, after: string])[] = [
  ["an ", ""],
  ["a ", ""],
  [".$", "$"],
  ["\\$", ""],
  ["\\ ", ""],
  [" ", ""],
  ["mbox", "text"],
  [",\\text{and}", ","],
  ["\\text{and}", ","],
  ["\\text{m}", "\\text{}"],
];
const removed: readonly string[] = [
  "square",
  "ways",
  "integers",
  "dollars",
  "mph",
  "inches",
  "hours",
  "km",
  "units",
  "\\ldots",
  "sue",
  "points",
  "feet",
  "minutes",
  "digits",
  "cents",
  "degrees",
  "cm",
  "gm",
  "pounds",
  "meters",
  "meals",
  "edges",
  "students",
  "childrentickets",
  "multiples",
  "\\text{s}",
  "\\text{.}",
  "\\text{\ns}",
  "\\text{}^2",
  "\\text{}^3",
  "\\text{\n}",
  "\\text{}",
  "\\mathrm{th}",
  "^\\circ",
  "^{\\circ}",
  "\\;",
  ",\\!",
  "{,}",
  '"',
  "\\dots",
];
const NO_ANSWER = "[INVALID]";

/** An answer in the form in which it is compared. */
export function normalizeDapo(answer: string): string {
  let text = answer.slice(answer.lastIndexOf("=") + 1);
  for (const [before, after] of replaced) text = text.replaceAll(before, after);
  for (const part of removed) text = text.replaceAll(part, "");
  text = text
    .replace(/[^\n]*?\$([^\n]*?)\$[^\n]*/g, "$$$1$$")
    .replace(/\\text\{([^\n]*?)\}/g, "$1")
    .replace(/\\textbf\{([^\n]*?)\}/g, "$1")
    .replace(/\\overline\{([^\n]*?)\}/g, "$1")
    .replace(/\\boxed\{([^\n]*)\}/g, "$1")
    .replace(/frac([^{])([^\n])/gu, "frac{$1}{$2}")
    .replace(/sqrt([^{])/gu, "sqrt{$1}")
    .replaceAll("$", "");
  const digits = text.replaceAll(",", "");
  return strip(/^[\p{Nd}²³¹⁰⁴-⁹₀-₉]+$/u.test(digits) ? digits : text);
}

/** Score a response; `strictBox` looks only at the box, for equality. */
export function scoreMathDapo(
  response: string,
  truth: string,
  { strictBox = false, boxedFallback = true }: DapoOptions = {},
): DapoScore {
  const end = lastCharacters(response, 300);
  const boxed = () => lastBoxed(lastCharacters(end, 100));
  if (strictBox) return scored(boxed(), truth);

  const [, given] = [...end.matchAll(/Answer\s*:\s*([^\n]+)/giu)].at(-1) ?? [];
  const pred = normalizeDapo(given ?? NO_ANSWER);
  const box = boxedFallback && pred === NO_ANSWER ? boxed() : null;
  return box === null ? scored(pred, normalizeDapo(truth)) : scored(box, truth);
}

function scored(pred: string | null, truth: string): DapoScore {
  const acc = pred === truth;
  return { score: acc ? 1 : -1, acc, pred };
}
