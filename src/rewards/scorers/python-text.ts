/**
 * Where Python's texts differ from JavaScript's: verl's scorers count characters by code point and have their own
 * definition of white space. Only what the scorers need.
 */

/** A longer answer is not normalised, only compared with the truth as it is. */
export const LONGEST_ANSWER = 10_000;

/** The last `count` characters, counted by code point: `text[-count:]`. */
export function lastCharacters(text: string, count: number): string {
  let start = text.length;
  for (let left = count; left > 0 && start > 0; left--) start -= isPair(text, start - 2) ? 2 : 1;
  return text.slice(start);
}

function isPair(text: string, at: number): boolean {
  return at >= 0 && text.codePointAt(at)! > 0xffff;
}

/** Without white space at either end: `text.strip()`. */
export function strip(text: string): string {
  let [start, end] = [0, text.length];
  while (start < end && isSpace(text.charCodeAt(start))) start++;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

/** White space in Python: with the four separators of ASCII, without the byte order mark. */
function isSpace(code: number): boolean {
  if (code <= 0x20) return code === 0x20 || (code >= 0x09 && code <= 0x0d) || code >= 0x1c;
  return code === 0x85 || (code >= 0xa0 && code !== 0xfeff && /\s/.test(String.fromCharCode(code)));
}

/** The words between white space: `text.split()`. */
export function words(text: string): string[] {
  const found: string[] = [];
  for (let at = 0; at < text.length; ) {
    const start = at;
    while (at < text.length && !isSpace(text.charCodeAt(at))) at++;
    if (at > start) found.push(text.slice(start, at));
    else at++;
  }
  return found;
}

/** Decimal digits of any script as those of ASCII: Python reads numbers in all of them. */
function asciiDigits(text: string): string {
  return text.replace(/[^\P{Nd}0-9]/gu, (digit) => {
    const code = digit.codePointAt(0)!;
    if (code >= 0x1d7ce && code <= 0x1d7ff) return String((code - 0x1d7ce) % 10); // mathematical digits, five times ten
    // All others stand in a row of sixteen, from its place 0 or from its place 6 on.
    const row = code & ~0xf;
    return String(/\p{Nd}/u.test(String.fromCodePoint(row)) ? code - row : code - row - 6);
  });
}

/** The number of a text, as `float(text)` reads it; null if that raises. `1_000` is not a number here. */
export function parseFloatStrictly(text: string): number | null {
  const trimmed = asciiDigits(strip(text)).toLowerCase();
  if (/^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?$/.test(trimmed)) return Number(trimmed);
  const infinite = /^([+-]?)inf(?:inity)?$/.exec(trimmed);
  return infinite === null ? null : infinite[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
}
