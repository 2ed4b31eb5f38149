/**
 * JSON as rules: strings, numbers, any value, and the space between values.
 *
 * Space is what programs write: none, one space, or a new line with an indentation. Numbers have a limited number of
 * digits, so that a reader gets the value that was written.
 */
import {
  type CharRange,
  characters,
  choice,
  EVERY_CHAR,
  literal,
  oneOf,
  optional,
  type Rule,
  reference,
  repeat,
  sequence,
  without,
} from "./rule.ts";

const CONTROLS: CharRange = [0, 0x1f];
const QUOTE: CharRange = [0x22, 0x22];
const BACKSLASH: CharRange = [0x5c, 0x5c];
const DIGITS: CharRange = [0x30, 0x39];
const MOST_INDENT = 24;
/** A double holds every number of this many digits. */
const MOST_DIGITS = 15;

const digit = characters([DIGITS]);
const space = characters([[0x20, 0x20]]);

/** Space after `{`, `[` and `,`, and before `}` and `]`. */
const lineSpace: Rule = choice([literal(""), space, sequence(literal("\n"), repeat(space, 0, MOST_INDENT))]);
const comma = sequence(literal(","), lineSpace);
const colon = sequence(literal(":"), optional(space));

const shortEscapes: readonly (readonly [char: string, escape: string])[] = [
  ['"', '\\"'],
  ["\\", "\\\\"],
  ["\b", "\\b"],
  ["\f", "\\f"],
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
];

/** One character of these ranges, as it is written in a JSON string: as it is, or escaped where JSON requires it. */
export function stringChar(ranges: readonly CharRange[]): Rule {
  const plain = without(ranges, [CONTROLS, QUOTE, BACKSLASH]);
  const has = (point: number) => ranges.some(([first, last]) => first <= point && point <= last);
  const escapes = Array.from({ length: 0x20 }, (_, point) => point)
    .concat(QUOTE[0], BACKSLASH[0])
    .filter(has)
    .map((point) => {
      const short = shortEscapes.find(([char]) => char.charCodeAt(0) === point);
      return short?.[1] ?? `\\u${point.toString(16).padStart(4, "0")}`;
    });
  return choice([...(plain.length > 0 ? [characters(plain)] : []), ...(escapes.length > 0 ? [oneOf(escapes)] : [])]);
}

export const quoted = (content: Rule): Rule => sequence(literal('"'), content, literal('"'));

/** Characters of one UTF-16 unit: some validators count units and others characters, and of these both count one. */
const unitChar = stringChar([[0, 0xffff]]);
export const anyChar = stringChar(EVERY_CHAR);

/** A string of any characters, with its quotes. */
export function stringRule(least = 0, most = Number.POSITIVE_INFINITY): Rule {
  const isUnbounded = least === 0 && most === Number.POSITIVE_INFINITY;
  return quoted(repeat(isUnbounded ? anyChar : unitChar, least, most));
}

const fraction = sequence(literal("."), repeat(digit, 1, MOST_DIGITS));
const exponent = sequence(
  characters([
    [0x45, 0x45],
    [0x65, 0x65],
  ]),
  optional(choice([literal("+"), literal("-")])),
  repeat(digit, 1, 2),
);
const firstDigit = characters([[0x31, 0x39]]);
const natural = choice([literal("0"), sequence(firstDigit, repeat(digit, 0, MOST_DIGITS - 1))]);

export const integerRule: Rule = sequence(optional(literal("-")), natural);
export const numberRule: Rule = sequence(integerRule, optional(fraction), optional(exponent));

/** An integer from `least` to `most`; null if there is none. */
export function integerBetween(least: bigint, most: bigint): Rule | null {
  const options: Rule[] = [];
  if (least < 0n) {
    const magnitudes = naturalBetween(most < 0n ? -most : 1n, -least);
    if (magnitudes !== null) options.push(sequence(literal("-"), magnitudes));
  }
  const positive = most < 0n ? null : naturalBetween(least > 0n ? least : 0n, most);
  if (positive !== null) options.push(positive);
  return options.length === 0 ? null : choice(options);
}

export type NumberBounds = { readonly least: number; readonly most: number; readonly isOpen: boolean };

/**
 * A number of a range: every integer of it, and every decimal number between two integers of it. Null if there is none.
 * If an end is not part of the range (`isOpen`), decimal numbers are never whole.
 */
export function numberBetween({ least, most, isOpen }: NumberBounds, integers: Rule | null): Rule | null {
  const [low, high] = [BigInt(Math.ceil(least)), BigInt(Math.floor(most))];
  const options: Rule[] = integers === null ? [] : [integers];
  const decimals = isOpen ? sequence(literal("."), repeat(digit, 0, 5), firstDigit) : fraction;
  const positive = high >= 1n ? naturalBetween(low > 0n ? low : 0n, high - 1n) : null;
  if (positive !== null) options.push(sequence(positive, decimals));
  const negative = low <= -1n ? naturalBetween(high < 0n ? -high : 0n, -low - 1n) : null;
  if (negative !== null) options.push(sequence(literal("-"), negative, decimals));
  return options.length === 0 ? null : choice(options);
}

function naturalBetween(least: bigint, most: bigint): Rule | null {
  const options: Rule[] = [];
  for (let digits = String(least).length; digits <= String(most).length; digits++) {
    const [first, last] = [digits === 1 ? 0n : 10n ** BigInt(digits - 1), 10n ** BigInt(digits) - 1n];
    const [from, to] = [least > first ? least : first, most < last ? most : last];
    if (from <= to) options.push(digitsBetween(String(from), String(to)));
  }
  return options.length === 0 ? null : choice(options);
}

/** Numbers of as many digits as both ends have. */
function digitsBetween(from: string, to: string): Rule {
  const rest = from.length - 1;
  if (rest < 0) return literal("");
  const [low, high] = [Number(from[0]), Number(to[0])];
  if (low === high) return sequence(literal(from[0]!), digitsBetween(from.slice(1), to.slice(1)));
  const isLowest = /^0*$/.test(from.slice(1));
  const isHighest = /^9*$/.test(to.slice(1));
  const options: Rule[] = [];
  if (!isLowest) options.push(sequence(literal(from[0]!), digitsBetween(from.slice(1), "9".repeat(rest))));
  const [first, last] = [isLowest ? low : low + 1, isHighest ? high : high - 1];
  if (first <= last) options.push(sequence(characters([[0x30 + first, 0x30 + last]]), repeat(digit, rest, rest)));
  if (!isHighest) options.push(sequence(literal(to[0]!), digitsBetween("0".repeat(rest), to.slice(1))));
  return choice(options);
}

/** `[…]` with items that follow each other: first those of `first`, then some of `item`. */
export function arrayRule(first: readonly Rule[], item: Rule | null, least: number, most: number): Rule {
  const fixed = first.slice(0, most);
  let content: Rule = literal("");
  if (item !== null) {
    const start = Math.max(0, least - fixed.length);
    const end = most - fixed.length;
    const more = sequence(comma, item);
    if (fixed.length > 0) content = repeat(more, start, end);
    else if (end > 0) {
      const filled = sequence(item, repeat(more, Math.max(0, start - 1), end - 1));
      content = start > 0 ? sequence(filled, lineSpace) : optional(sequence(filled, lineSpace));
    }
  }
  for (let i = fixed.length - 1; i >= 0; i--) {
    const follows = sequence(...(i > 0 ? [comma] : []), fixed[i]!, content);
    content = i < least ? follows : optional(follows);
  }
  const end = fixed.length > 0 ? sequence(content, lineSpace) : content;
  return sequence(literal("["), lineSpace, end, literal("]"));
}

export type Member = { readonly key: Rule; readonly value: Rule; readonly isRequired: boolean };

/** `{…}` with its members in this order; `rest` may follow any number of times. */
export function objectRule(members: readonly Member[], rest: Omit<Member, "isRequired"> | null): Rule {
  const pair = ({ key, value }: Omit<Member, "isRequired">) => sequence(key, colon, value);
  const more = rest === null ? literal("") : repeat(sequence(comma, pair(rest)));
  // What may follow before any member was written, and after one was. Each is shared, so the rule stays small.
  let first = rest === null ? literal("") : optional(sequence(pair(rest), more, lineSpace));
  let later = sequence(more, lineSpace);
  for (const member of members.toReversed()) {
    const [skipFirst, skipLater] = [first, later];
    const [asFirst, asLater] = [sequence(pair(member), skipLater), sequence(comma, pair(member), skipLater)];
    first = member.isRequired ? asFirst : choice([asFirst, skipFirst]);
    later = member.isRequired ? asLater : choice([asLater, skipLater]);
  }
  return sequence(literal("{"), lineSpace, first, literal("}"));
}

/**
 * A key that is none of these names, with its quotes. It has no escapes, so that no name can be written in another way.
 */
export function otherKey(names: readonly string[]): Rule {
  const plain = without(EVERY_CHAR, [CONTROLS, QUOTE, BACKSLASH]);
  const anyRest = repeat(characters(plain));
  const build = (rests: readonly (readonly number[])[], isStart: boolean): Rule => {
    const heads = new Set(rests.flatMap(([head]) => (head === undefined ? [] : [head])));
    const others = without(
      plain,
      [...heads].map((head): CharRange => [head, head]),
    );
    const options = [sequence(characters(others), anyRest)];
    for (const head of heads) {
      const under = rests.filter(([first]) => first === head).map((points) => points.slice(1));
      options.push(sequence(characters([[head, head]]), build(under, false)));
    }
    if (!isStart && rests.every(({ length }) => length > 0)) options.push(literal(""));
    return choice(options);
  };
  if (names.length === 0) return quoted(anyRest);
  const points = names.map((name) => Array.from(name, (char) => char.codePointAt(0)!));
  const isWritable = (point: number) => plain.some(([first, last]) => first <= point && point <= last);
  return quoted(
    build(
      points.filter((name) => name.every(isWritable)),
      true,
    ),
  );
}

/** Any JSON value: it holds itself, so its target is set below. */
export const anyValue = reference();
export const anyObject: Rule = objectRule([], { key: stringRule(), value: anyValue });
export const anyArray: Rule = arrayRule([], anyValue, 0, Number.POSITIVE_INFINITY);
anyValue.target = choice([
  anyObject,
  anyArray,
  stringRule(),
  numberRule,
  literal("true"),
  literal("false"),
  literal("null"),
]);
