/**
 * Rules of a grammar over bytes: a set of bytes, a sequence, a choice, a repetition, and a reference for recursion.
 *
 * A rule is a value without state. `automaton.ts` matches text against one; `json-schema.ts`, `regex.ts` and the formats
 * of tool calls make them. Bytes are those of UTF-8, because a token may be a part of a character.
 */

export type Rule =
  /** One byte of a set; `bytes` has 256 entries. */
  | { readonly kind: "byte"; readonly bytes: Uint8Array }
  | { readonly kind: "sequence"; readonly parts: readonly Rule[] }
  | { readonly kind: "choice"; readonly options: readonly Rule[] }
  | { readonly kind: "repeat"; readonly item: Rule; readonly least: number; readonly most: number }
  | Reference;

/** A rule that is set later, so that a rule can contain itself. */
export type Reference = { readonly kind: "reference"; target: Rule | null };

/** Code points from the first to the second, both included. */
export type CharRange = readonly [first: number, last: number];

/** Larger counts are no limit: no text here is that long. */
const MOST_COUNT = 2 ** 31;

export const reference = (): Reference => ({ kind: "reference", target: null });

export function sequence(...parts: readonly Rule[]): Rule {
  return parts.length === 1 ? parts[0]! : { kind: "sequence", parts };
}

export function choice(options: readonly Rule[]): Rule {
  return options.length === 1 ? options[0]! : { kind: "choice", options };
}

export function repeat(item: Rule, least = 0, most = Number.POSITIVE_INFINITY): Rule {
  return {
    kind: "repeat",
    item,
    least: Math.min(least, MOST_COUNT),
    most: most >= MOST_COUNT ? Number.POSITIVE_INFINITY : most,
  };
}

export const optional = (item: Rule): Rule => repeat(item, 0, 1);

/** Exactly this text. */
export function literal(text: string): Rule {
  return { kind: "sequence", parts: Array.from(new TextEncoder().encode(text), (byte) => singleByte(byte)) };
}

/** One of these texts. Common beginnings are shared, so that long lists are matched in a few steps. */
export function oneOf(texts: readonly string[]): Rule {
  return branch([...new Set(texts)].sort());
}

/** Sorted texts without duplicates. */
function branch(texts: readonly string[]): Rule {
  const [first = "", last = ""] = [texts[0], texts.at(-1)];
  if (texts.length === 1) return literal(first);
  let shared = 0;
  while (shared < first.length && first[shared] === last[shared]) shared++;
  if (isHighSurrogate(first, shared)) shared--; // never within a character
  const groups = new Map<string, string[]>();
  for (const text of texts) {
    const rest = text.slice(shared);
    const head = [...rest.slice(0, 2)][0] ?? "";
    const group = groups.get(head);
    if (group === undefined) groups.set(head, [rest]);
    else group.push(rest);
  }
  return sequence(literal(first.slice(0, shared)), choice([...groups.values()].map(branch)));
}

const isHighSurrogate = (text: string, end: number) => end > 0 && /[\ud800-\udbff]/.test(text[end - 1]!);

const singles = new Map<number, Rule>();

function singleByte(byte: number): Rule {
  const known = singles.get(byte) ?? byteRange(byte, byte);
  singles.set(byte, known);
  return known;
}

function byteRange(first: number, last: number): Rule {
  return { kind: "byte", bytes: new Uint8Array(256).fill(1, first, last + 1) };
}

const SURROGATES: CharRange = [0xd800, 0xdfff];
const LAST_ASCII = 0x7f;
const LAST_OF_LENGTH = [LAST_ASCII, 0x7ff, 0xffff, 0x10ffff];

/** One character of these ranges, as UTF-8. */
export function characters(ranges: readonly CharRange[]): Rule {
  const ascii = new Uint8Array(256);
  const options: Rule[] = [];
  for (const [first, last] of without(ranges, [SURROGATES])) {
    if (first <= LAST_ASCII) ascii.fill(1, first, Math.min(last, LAST_ASCII) + 1);
    if (last > LAST_ASCII) options.push(beyondAscii([Math.max(first, LAST_ASCII + 1), last]));
  }
  if (ascii.includes(1)) options.unshift({ kind: "byte", bytes: ascii });
  return choice(options);
}

const wide = new Map<string, Rule>();

/** Characters of two to four bytes. Few ranges are ever asked for, so each has one rule. */
function beyondAscii(range: CharRange): Rule {
  const known =
    wide.get(range.join()) ??
    choice(utf8Ranges(range).map((parts) => sequence(...parts.map(([first, last]) => byteRange(first, last)))));
  if (wide.size < 1000) wide.set(range.join(), known);
  return known;
}

/** A range as sequences of byte ranges: it is split where the number of bytes or a leading byte changes. */
function utf8Ranges([first, last]: CharRange): CharRange[][] {
  for (const end of LAST_OF_LENGTH) {
    if (first <= end && last > end) return [...utf8Ranges([first, end]), ...utf8Ranges([end + 1, last])];
  }
  const bytes = LAST_OF_LENGTH.findIndex((end) => last <= end) + 1;
  for (let i = 1; i < bytes; i++) {
    const low = 2 ** (6 * i) - 1;
    if (first - (first & low) === last - (last & low)) continue;
    const split = (first & low) !== 0 ? (first | low) + 1 : (last & low) !== low ? last - (last & low) : null;
    if (split !== null) return [...utf8Ranges([first, split - 1]), ...utf8Ranges([split, last])];
  }
  const encode = (point: number) => new TextEncoder().encode(String.fromCodePoint(point));
  const [from, to] = [encode(first), encode(last)];
  return [Array.from(from, (byte, i) => [byte, to[i]!])];
}

/** The characters of `ranges` that are not in `removed`. */
export function without(ranges: readonly CharRange[], removed: readonly CharRange[]): CharRange[] {
  let left = [...ranges];
  for (const [first, last] of removed) {
    left = left.flatMap(([from, to]): CharRange[] => {
      if (to < first || from > last) return [[from, to]];
      return [...(from < first ? [[from, first - 1] as const] : []), ...(to > last ? [[last + 1, to] as const] : [])];
    });
  }
  return left;
}

/** Every code point. */
export const EVERY_CHAR: readonly CharRange[] = [[0, 0x10ffff]];
