/**
 * Texts in a terminal: how many columns they take, cut to fit, and without control characters.
 *
 * Text of a model is printed, so escape sequences in it must not reach the terminal.
 */

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });
/** East Asian wide and full-width letters, and emoji. */
const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}|[\u{20000}-\u{3fffd}]/u;
const invisible = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;

const widthOf = (grapheme: string): number => (invisible.test(grapheme) ? 0 : wide.test(grapheme) ? 2 : 1);

/** The columns that a text without control characters takes. */
export function textWidth(text: string): number {
  let width = 0;
  for (const { segment } of graphemes.segment(text)) width += widthOf(segment);
  return width;
}

/** The text without line breaks and other control characters; each becomes a visible character. */
export function printable(text: string): string {
  return text
    .replaceAll("\t", "  ")
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, (control) =>
      control < " " ? String.fromCodePoint(0x2400 + control.charCodeAt(0)) : "\ufffd",
    );
}

/** The text in exactly `width` columns: padded with spaces, or its start cut off, because names differ at the end. */
export function fitEnd(text: string, width: number): string {
  const excess = textWidth(text) - width;
  if (excess <= 0) return text + " ".repeat(-excess);
  const segments = [...graphemes.segment(text)].map(({ segment }) => segment);
  let taken = 0;
  let kept = "";
  for (const segment of segments.reverse()) {
    if (taken + widthOf(segment) > width - 1) break;
    taken += widthOf(segment);
    kept = segment + kept;
  }
  return fitEnd(`…${kept}`, width);
}

/** Lines of at most `width` columns, broken at spaces where there are any. */
export function wrap(text: string, width: number): string[] {
  return text.split("\n").flatMap((line) => wrapLine(printable(line), width));
}

function wrapLine(line: string, width: number): string[] {
  const lines: string[] = [];
  let current = "";
  let used = 0;
  for (const { segment } of graphemes.segment(line)) {
    if (used + widthOf(segment) > width) {
      const space = current.lastIndexOf(" ");
      const cut = space > current.length / 2 ? space + 1 : current.length;
      lines.push(current.slice(0, cut).trimEnd());
      current = current.slice(cut);
      used = textWidth(current);
    }
    current += segment;
    used += widthOf(segment);
  }
  return [...lines, current];
}
