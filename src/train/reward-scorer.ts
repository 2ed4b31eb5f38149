/**
 * A reward model on an engine: token rows in, one score per row out, read after the last token.
 *
 * Sequence classification and token classification (verl's reward models) with one label give the same score here.
 */
import type { ForwardOptions, Model, ModelSpec } from "../engine/contract.ts";
import { readAnyConfig } from "../models/config.ts";
import type { SequenceScorer } from "../rewards/reward-model.ts";
import { warn } from "../util/log.ts";

/** A mask that counts the last token alone. */
export function lastToken(ids: Int32Array): Uint8Array {
  const mask = new Uint8Array(ids.length);
  mask[ids.length - 1] = 1;
  return mask;
}

/** The score of each row, in order. */
export async function scoreRows(model: Model, rows: readonly Int32Array[], options: ForwardOptions): Promise<number[]> {
  const masked = rows.map((ids) => ({ ids, mask: lastToken(ids) }));
  const outputs = await model.forward(masked, ["scores"], options);
  return outputs.map(({ scores }) => scores!.at(-1)!);
}

/** A reward model and its folder; `key` is the config key of its path. */
type RewardModelFolder = {
  readonly key: string;
  readonly path: string;
  readonly folder: string;
  readonly seed: number;
};

/**
 * How a reward model is opened. A language model gets a new score head, as in verl, whose weights `seed` decides; its
 * scores mean nothing yet, so there is a warning.
 */
export async function rewardModelSpec({ key, path, folder, seed }: RewardModelFolder): Promise<ModelSpec> {
  const { head } = await readAnyConfig(folder);
  if (head !== "lm") return { folder };
  warn(
    `\`${key}\` is ${path}, a language model: it has no score head. As in verl it gets a new one with ` +
      `random weights (\`trainer.seed\` is ${seed}), so ITS SCORES ARE NOISE. Give a reward model ` +
      "(*ForSequenceClassification or *ForTokenClassification with one label); `trainyard reward` trains one.",
  );
  return { folder, head: "score", seed };
}

/** A reward model as something that scores sequences. */
export function scorerOf(model: Model, maxTokens: number): SequenceScorer {
  return { score: (rows) => scoreRows(model, rows, { micro: { maxTokens } }) };
}
