/**
 * The key `reward.sources`: what scores the samples of each data source, as lists of entries with weights.
 *
 * `{openai/gsm8k: [{use: scorer}], '*': [{use: judge, name: strict, weight: 0.5}]}`. `*` stands for all data sources that
 * have no list of their own. What the names stand for is looked up in `reward-tree.ts`.
 */
import { z } from "zod";
import { UserError } from "../../util/errors.ts";
import type { Type } from "../../util/field.ts";
import { isDict } from "../interpolate.ts";
import { formatValue } from "../value.ts";

/** The ways to score a sample. */
const uses = ["function", "scorer", "model", "judge", "service"] as const;
export type RewardUse = (typeof uses)[number];

/** One part of a reward; without a name it is the part that the other keys of the reward describe. */
export type RewardEntry = { readonly use: RewardUse; readonly name: string | null; readonly weight: number };

/** What scores the samples of each data source. */
export type RewardSources = Readonly<Record<string, readonly RewardEntry[]>>;

/** An entry as a config file has it. */
type EntryInput = { readonly use: RewardUse; readonly name?: string | null; readonly weight?: number };
type SourcesInput = Readonly<Record<string, readonly EntryInput[]>> | null;

/** The data source that stands for all others. */
export const ALL_SOURCES = "*";

/** The value of `reward.sources`; null and an empty dict are none. */
export const rewardSources: Type<RewardSources | null, SourcesInput> = {
  schema: z.custom<SourcesInput>((value) => value === null || isDict(value)).transform(readSources),
  expects: "a dict such as {'*': [{use: function, weight: 1}]}, or null",
  isOpen: true,
};

function readSources(value: unknown): RewardSources | null {
  const lists = isDict(value) ? listsBelow(value, "") : [];
  return lists.length === 0
    ? null
    : Object.fromEntries(lists.map(([source, list]) => [source, readList(source, list)]));
}

/** A data source with dots in its name may have become a dict in a dict on its way here. */
function listsBelow(value: Readonly<Record<string, unknown>>, prefix: string): (readonly [string, unknown])[] {
  return Object.entries(value).flatMap(([part, inner]) =>
    isDict(inner) && !("use" in inner) ? listsBelow(inner, `${prefix}${part}.`) : [[prefix + part, inner] as const],
  );
}

const Entry = z.strictObject({
  use: z.enum(uses),
  name: z
    .string()
    .min(1)
    .nullish()
    .transform((name) => name ?? null),
  weight: z.number().default(1),
});

function readList(source: string, list: unknown): readonly RewardEntry[] {
  const key = `\`reward.sources\` for the data source "${source}"`;
  if (!Array.isArray(list) || list.length === 0)
    throw new UserError(
      `${key} is ${formatValue(list)}; it takes a list of entries such as [{use: function, weight: 1}].`,
    );
  const entries = list.map((given, i) => {
    const read = Entry.safeParse(given);
    if (read.success) return read.data;
    throw new UserError(
      `${key}: entry ${i + 1} is ${formatValue(given)}. An entry has \`use\`, one of ${uses.join(", ")}, and where wanted ` +
        "`name`, a text, and `weight`, a number.",
    );
  });
  const columns = entries.map(columnName);
  const twice = columns.find((column, i) => columns.indexOf(column) !== i);
  if (twice === undefined) return entries;
  throw new UserError(
    `${key} has two entries whose scores would both be the column \`${twice}\`. Give them other names.`,
  );
}

/** The column with the score of a part. */
export const columnName = ({ use, name }: Pick<RewardEntry, "use" | "name">): string => `reward/${name ?? use}`;
