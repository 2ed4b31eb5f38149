/**
 * Finding `\boxed{…}` in a response. verl has four rules for it, which differ in what they do with `\fbox`, with a box
 * without braces and with one that is not closed; each scorer states its own on top of these two functions. All of them
 * read the text once.
 */

/** Where the first brace that opens at or after `start` is closed; -1 if it is not. */
export function closingBrace(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const character = text.charCodeAt(at);
    if (character === 0x7b) depth++;
    else if (character === 0x7d && --depth === 0) return at;
  }
  return -1;
}

/** The content of the last `\boxed{…}`; null without one, or if its brace is not closed. */
export function lastBoxed(text: string): string | null {
  const opener = "\\boxed{";
  const start = text.lastIndexOf(opener);
  if (start < 0) return null;
  const end = closingBrace(text, start);
  return end < 0 ? null : text.slice(start + opener.length, end);
}
