/** Strings, numbers and counts of a JSON schema: the keywords that say something about a single value. */
import { UserError } from "../../util/errors.ts";
import { formatRule, formats } from "./formats.ts";
import { integerBetween, integerRule, numberBetween, numberRule, quoted, stringRule } from "./json-text.ts";
import { PatternError, regexRule } from "./regex.ts";
import type { Rule } from "./rule.ts";

export type Schema = Readonly<Record<string, unknown>>;

/** The strings of a schema, with their quotes. */
export function stringOf(schema: Schema, place: string): Rule {
  const { pattern, format } = schema;
  const [least, most] = countsOf(schema, ["minLength", "maxLength"], place);
  if (pattern === undefined && format === undefined) return stringRule(least, most);
  const bound = ["minLength", "maxLength"].find((key) => schema[key] !== undefined);
  if (bound !== undefined)
    throw unsupported(
      `${place}.${bound}`,
      `beside \`${pattern === undefined ? "format" : "pattern"}\` it cannot be used; say the length in the pattern.`,
    );
  const ofFormat = format === undefined ? null : formatRule(format);
  if (ofFormat === null && pattern === undefined)
    throw unsupported(
      `${place}.format`,
      `it is ${JSON.stringify(format)?.slice(0, 80)}; possible are ${formats.join(", ")}.`,
    );
  if (pattern === undefined) return quoted(ofFormat!);
  if (typeof pattern !== "string") throw wrong(`${place}.pattern`, pattern, "a regular expression");
  try {
    return quoted(regexRule(pattern));
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    if (ofFormat !== null) return quoted(ofFormat); // a format with a pattern for validators that do not know it
    throw unsupported(`${place}.pattern`, `${error.message}. docs/serving.md says which patterns work.`);
  }
}

/** Numbers of at most so many digits, where a schema has no bound of its own. */
const FAR = 10 ** 15 - 1;

/** The numbers of a schema. */
export function numberOf(schema: Schema, place: string, isInteger: boolean): Rule {
  const step = schema.multipleOf;
  if (step !== undefined && !(isInteger && step === 1))
    throw unsupported(`${place}.multipleOf`, "remove it, and check the value.");
  const read = (key: string) => {
    const value = schema[key];
    if (value === undefined || (typeof value === "number" && Number.isFinite(value))) return value;
    throw wrong(`${place}.${key}`, value, "a number");
  };
  const [minimum, maximum, above, below] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"].map(read);
  if ([minimum, maximum, above, below].every((bound) => bound === undefined))
    return isInteger ? integerRule : numberRule;
  const highest = Math.min(maximum ?? Number.POSITIVE_INFINITY, below ?? Number.POSITIVE_INFINITY);
  const lowest = Math.max(minimum ?? -Number.POSITIVE_INFINITY, above ?? -Number.POSITIVE_INFINITY);
  const least = lowest === -Number.POSITIVE_INFINITY ? Math.min(-FAR, highest - FAR) : lowest;
  const most = highest === Number.POSITIVE_INFINITY ? Math.max(FAR, lowest + FAR) : highest;
  const [first, last] = [BigInt(Math.ceil(least)), BigInt(Math.floor(most))];
  const from = above !== undefined && Number(first) <= above ? first + 1n : first;
  const to = below !== undefined && Number(last) >= below ? last - 1n : last;
  const integers = from > to ? null : integerBetween(from, to);
  const isOpen = above !== undefined || below !== undefined;
  const rule = isInteger ? integers : numberBetween({ least, most, isOpen }, integers);
  if (rule !== null) return rule;
  throw unsupported(
    place,
    `no ${isInteger ? "integer" : "integer, and no number between two integers,"} is within its bounds.`,
  );
}

/** The least and the greatest length of a string or a list. */
export function countsOf(schema: Schema, [least, most]: readonly [string, string], place: string): [number, number] {
  const read = (key: string, fallback: number) => {
    const value = schema[key];
    if (value === undefined) return fallback;
    if (typeof value === "number" && Number.isInteger(value) && value >= 0) return value;
    throw wrong(`${place}.${key}`, value, "a whole number of at least 0");
  };
  const counts: [number, number] = [read(least, 0), read(most, Number.POSITIVE_INFINITY)];
  if (counts[0] > counts[1]) throw wrong(`${place}.${least}`, counts[0], `at most \`${most}\`, which is ${counts[1]}`);
  return counts;
}

/** A keyword that cannot be used, and what to do instead. */
export function unsupported(place: string, advice: string): UserError {
  return new UserError(`\`${place}\` is not supported: ${advice}`);
}

/** A keyword with a value that it cannot have. */
export function wrong(place: string, found: unknown, should: string): UserError {
  return new UserError(`\`${place}\` is ${(JSON.stringify(found) ?? "missing").slice(0, 80)}; it should be ${should}.`);
}
