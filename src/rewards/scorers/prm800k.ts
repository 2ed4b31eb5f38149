/**
 * When an answer is right by the rules of PRM800K (arXiv:2305.20050), which `prime_math` and `geo3k` share: the normalised
 * texts are equal, or the elements of a tuple have equal values one by one. Integers and reduced fractions must be written
 * as such: 10/5 is not 2, and 2/4 is not 1/2.
 *
 * Departures from verl, which asks sympy: values are compared by `equality.ts`, which cannot hang, so exponents of
 * several digits need no exclusion; a mixed number keeps its sign (-2 1/2 is -5/2); all commas of 1,234,567,890 are removed;
 * and the brackets of LaTeX arguments are kept (`latex-text.ts`).
 */
import { areEqualFormulas } from "./equality.ts";
import { LONGEST_FORMULA } from "./expression.ts";
import { normalizeHendrycks } from "./hendrycks.ts";
import { latexToText } from "./latex-text.ts";
import { parseFloatStrictly, strip } from "./python-text.ts";

/** Where the two users of these rules differ. */
type Prm800kOptions = {
  /** mathruler: spaces, braces and bare percent signs do not count, and litres are not a unit. */
  readonly isCompact: boolean;
};

const units: readonly string[] = [
  "degree",
  "cm",
  "centimeter",
  "meter",
  "mile",
  "second",
  "minute",
  "hour",
  "day",
  "week",
  "month",
  "year",
  "foot",
  "feet",
  "inch",
  "yard",
];
const unit = new RegExp(`(?:${units.join("|")})(?:es)?s? *(?:\\^[0-9]+)?`, "g");
const litre = /liter(?:es)?s? *(?:\^[0-9]+)?/g;

/** Whether an answer is the truth. */
export function isEquivalent(answer: string, truth: string, options: Prm800kOptions): boolean {
  if (answer.length > LONGEST_FORMULA) return answer === truth;
  if (normalizeText(answer, options) === normalizeText(truth, options)) return true;
  const [given, right] = [normalizeValue(answer, options), normalizeValue(truth, options)];
  if (given === right) return true;
  if (given === "") return false;

  const [givenParts, rightParts] = [tupleParts(given), tupleParts(right)];
  if (givenParts.length !== rightParts.length) return false;
  const sameBrackets = given[0] === right[0] && given.at(-1) === right.at(-1);
  if (rightParts.length > 1 && !sameBrackets) return false;
  return rightParts.length > 0 && rightParts.every((part, i) => isEqualPart(givenParts[i] ?? "", part));
}

/** Hendrycks' normalisation of a text that may be inside `\text{…}`; unchanged if that is not possible. */
function normalizeText(answer: string, { isCompact }: Prm800kOptions): string {
  const text = strip(unwrapped(strip(answer)));
  return normalizeHendrycks(text, { barePercent: isCompact }) ?? text;
}

const unwrapped = (answer: string): string => /^\\text\{([^\n]+?)\}$/u.exec(answer)?.[1] ?? answer;

function normalizeValue(answer: string, { isCompact }: Prm800kOptions): string {
  let text = unwrapped(answer)
    .replace(/\\?[%$]/g, "")
    .replace(/ (?:or|and) /g, " , ")
    .replaceAll("million", "*10^6")
    .replaceAll("billion", "*10^9")
    .replaceAll("trillion", "*10^12")
    .replace(unit, "");
  if (!isCompact) text = text.replace(litre, "");
  text = text.replace(/\^ *(?:\\circ|\{ *\\circ *\})/g, "");
  if (text.startsWith("{") && text.endsWith("}")) text = text.slice(1, -1);
  text = text.replace(/,\\! */g, "");
  text = wholeNumber(text) ?? text;
  text = text.replace(/(?:\\\\\s*)+$/, ""); // line breaks at the end
  if (text.includes("\\")) text = strip(latexToText(text) ?? text);
  text = mixedNumbers(text.replace(/- */g, "-"));
  if (isCompact) text = text.replace(/[ {}]/g, "");
  text = text.toLowerCase();
  return wholeNumber(withoutThousands(text)) ?? text;
}

/** The digits of a text that is an integer in any notation: `1e3` is 1000. */
function wholeNumber(text: string): string | null {
  const value = parseFloatStrictly(text);
  if (value === null || !(Math.abs(value - Math.round(value)) <= 1e-7)) return null;
  return String(BigInt(Math.round(value)));
}

/** `7 3/4` is 7+3/4, and with a sign before it the sign is that of both. */
function mixedNumbers(text: string): string {
  return text.replace(/-([0-9]+) +([0-9]+\/[0-9]+)/g, "-($1+$2)").replace(/([0-9]) +(?=[0-9])/g, "$1+");
}

/** Without the commas between groups of three digits. */
export function withoutThousands(text: string): string {
  return text.replace(/([0-9]),(?=(?:[0-9]{3},)*[0-9]{3}(?![0-9]))/g, "$1");
}

/** The elements of `(1, 2)` or `[1, 2)`; a text without such brackets is one element. */
function tupleParts(text: string): string[] {
  const plain = withoutThousands(text);
  if (plain === "") return [];
  const isTuple = plain.length > 2 && /^[([][^()[\]]*[)\]]$/.test(plain);
  return isTuple ? plain.slice(1, -1).split(",").map(strip) : [plain];
}

const isFraction = (text: string): boolean => /^-?[0-9]+.?\/0*[1-9][0-9]*.?$/u.test(text);
const isWhole = (text: string): boolean => wholeNumber(withoutThousands(text)) !== null;

function isEqualPart(given: string, right: string): boolean {
  if (isFraction(given) && isFraction(right)) return given === right;
  if (isWhole(given) !== isWhole(right)) return false;
  return unknownLetters(given + right) <= 2 && areEqualFormulas(given, right);
}

/** Text is not algebra: with more than two letters, "yes" would be y times e times s. */
function unknownLetters(text: string): number {
  return new Set(text.replaceAll("sqrt", "").replaceAll("frac", "").match(/\p{L}/gu)).size;
}
