/**
 * Helpful and harmless dialogues as prompts with responses (`sft`), as preference pairs (`rm`), and as prompts to sample
 * from with a reward model (`rl`).
 *
 * `full_hh_rlhf` is verl's, of a dataset whose rows already have a prompt and responses. `hh-rlhf` is the original,
 * whose two sides are whole dialogues: they are divided at the last turn of the assistant before which both are equal.
 * In both, a prompt ends with the words that start the answer.
 */
import { UserError } from "../../util/errors.ts";
import { placeOf, type Row } from "../row.ts";
import { type At, type Dataset, type Made, type Output, textOf, user } from "./dataset.ts";

const full = "Dahoas/full-hh-rlhf";
const original = "Anthropic/hh-rlhf";
const opener = "\n\nAssistant:";

const bothResponses = (row: Row): readonly Made[] =>
  ["chosen", "rejected"].map((side) => ({ prompt: textOf(row, "prompt"), response: textOf(row, side) }));

const pairOf = (row: Row): Made => ({
  prompt: textOf(row, "prompt"),
  chosen: textOf(row, "chosen"),
  rejected: textOf(row, "rejected"),
});

const promptOf =
  (repo: string) =>
  (row: Row, { split, index }: At): Made => ({
    data_source: repo,
    prompt: [user(textOf(row, "prompt"))],
    ability: "alignment",
    reward_model: { style: "model", ground_truth: textOf(row, "response") },
    extra_info: { split, index },
  });

/** The three files of one split. */
function parts(repo: string, split: string): Readonly<Record<"sft" | "rm" | "rl", Output>> {
  const file = (part: string) => ({ part, split, file: `${part}/${split}.parquet` });
  return {
    sft: { ...file("sft"), takes: "all", make: bothResponses },
    rm: { ...file("rm"), takes: "all", make: pairOf },
    rl: { ...file("rl"), takes: ["response"], make: promptOf(repo) },
  };
}

/** Python's rounding: a half is rounded to the even neighbour. */
function rounded(value: number): number {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

/** The places from `from` up to `to`. */
const range = (from: number, to: number) => Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);

const ofTrain = parts(full, "train");
const fullOutputs: readonly Output[] = [
  ofTrain.sft,
  // verl validates a reward model on the last quarter of the training rows.
  { ...ofTrain.rm, choose: (count) => range(0, rounded(0.75 * count)) },
  { ...ofTrain.rm, file: "rm/test.parquet", choose: (count) => range(count - rounded(0.25 * count), count) },
  ofTrain.rl,
];

/** A row whose sides are whole dialogues, divided where they start to differ. */
function divided(row: Row): Row {
  const [chosen, rejected] = [textOf(row, "chosen"), textOf(row, "rejected")];
  let shared = 0;
  while (shared < chosen.length && chosen[shared] === rejected[shared]) shared++;
  const start = chosen.slice(0, shared).lastIndexOf(opener);
  if (start < 0)
    throw new UserError(
      `${placeOf(row)}: \`chosen\` and \`rejected\` share no beginning that ends in "\\n\\nAssistant:", so there is no ` +
        "prompt that both answer. Remove the row, or correct one side.",
    );
  const end = start + opener.length;
  const values = {
    prompt: chosen.slice(0, end),
    response: chosen.slice(end),
    chosen: chosen.slice(end),
    rejected: rejected.slice(end),
  };
  return { ...row, values };
}

export const hhRlhf: readonly Dataset[] = [
  {
    name: "hh-rlhf",
    aliases: [],
    summary: `helpful and harmless pairs, as sft, rm and rl rows (${original})`,
    source: { repo: original, config: null },
    saveDir: "~/data/hh_rlhf",
    read: divided,
    outputs: ["train", "test"].flatMap((split) => Object.values(parts(original, split))),
  },
  {
    name: "full_hh_rlhf",
    aliases: [],
    summary: `the same in verl's form, from ${full}`,
    source: { repo: full, config: null },
    saveDir: "~/data/full_hh_rlhf",
    outputs: fullOutputs,
  },
];
