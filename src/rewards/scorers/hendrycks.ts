/**
 * The text normalisation of the MATH benchmark (Hendrycks et al., arXiv:2103.03874), after which answers are compared
 * letter by letter: `\tfrac34`, `\frac{3}{4}` and `3/4` become one text. `math_reward`, `prime_math` and `geo3k` share it.
 */
import { LONGEST_ANSWER } from "./python-text.ts";

const dropped: readonly string[] = ["\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"];

/**
 * The normalised answer; null where the original raises (two `\text{ ` units, or a `\frac` or `\sqrt` with nothing after
 * it), and for a text that is too long for an answer. `barePercent` also removes a `%` without a backslash.
 */
export function normalizeHendrycks(answer: string, { barePercent = false } = {}): string | null {
  if (answer.length > LONGEST_ANSWER) return null;
  let text = answer.replaceAll("\n", "").replaceAll("\\!", "").replaceAll("\\\\", "\\");
  text = text.replaceAll("tfrac", "frac").replaceAll("dfrac", "frac");
  for (const part of dropped) text = text.replaceAll(part, "");

  const [value = "", ...units] = text.split("\\text{ ");
  if (units.length > 1) return null;
  text = value.replaceAll("\\\\%", "").replaceAll("\\%", "");
  if (barePercent) text = text.replaceAll("%", "");

  text = text.replaceAll(" .", " 0.").replaceAll("{.", "{0.");
  if (text.startsWith(".")) text = `0${text}`;
  text = withoutShortName(text);
  if (/\\sqrt(?:$|\\sqrt)/.test(text)) return null;
  text = text.replace(/\\sqrt(?!\{)(.)/gsu, "\\sqrt{$1}").replaceAll(" ", "");

  const fractions = bracedFractions(text);
  if (fractions === null) return null;
  return fractions === "0.5" ? "\\frac{1}{2}" : fractions.replace(wholeFraction, "\\frac{$1}{$2}");
}

/** A quotient of two integers in their shortest form, and nothing else. */
const wholeFraction = /^(0|-?[1-9][0-9]*)\/(0|-?[1-9][0-9]*)$/;

/** `x=5` is 5: the part before the only "=" is removed if it has at most two characters. */
function withoutShortName(text: string): string {
  const [name = "", value, ...more] = text.split("=");
  const isShort = name.length <= 4 && [...name].length <= 2;
  return value !== undefined && more.length === 0 && isShort ? value : text;
}

/** `\frac12` and `\frac1{2}` with braces; the text is unchanged if a `\frac` has only one character after it. */
function bracedFractions(text: string): string | null {
  const [head = "", ...tails] = text.split("\\frac");
  const parts = [head];
  for (const tail of tails) {
    if (tail === "") return null;
    if (tail.startsWith("{")) {
      parts.push(tail);
      continue;
    }
    const [, above, below] = /^(.)(.)?/su.exec(tail) ?? [];
    if (above === undefined || below === undefined) return text;
    const rest = tail.slice(above.length + below.length);
    parts.push(below === "{" ? `{${above}}{${rest}` : `{${above}}{${below}}${rest}`);
  }
  return parts.join("\\frac");
}
