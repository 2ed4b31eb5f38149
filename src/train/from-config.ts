/**
 * The verbs as functions for programs: each takes what a config file would hold and does what the command does.
 *
 * A config is resolved as on the command line, so defaults, spellings and messages are the same. Nothing here reads
 * `process.env`: a program passes the variables that are to count.
 */
import { homedir } from "node:os";
import { entriesOf } from "../config/entries.ts";
import { type EvalInput, evalSchema } from "../config/eval/schema.ts";
import { type GenerateInput, generateSchema } from "../config/generate/schema.ts";
import { type PpoInput, ppoSchema } from "../config/ppo/schema.ts";
import { resolve } from "../config/resolve.ts";
import { type RewardConfigInput, rewardSchema } from "../config/reward/schema.ts";
import type { Schema } from "../config/schema.ts";
import { type SftInput, sftSchema } from "../config/sft/schema.ts";
import type { Tree } from "../util/field.ts";
import { info } from "../util/log.ts";
import type { TrainContext } from "./context.ts";
import * as evaluation from "./evaluate/evaluate.ts";
import * as generation from "./generate/generate.ts";
import * as rl from "./rl/run.ts";
import * as preference from "./supervised/reward-model.ts";
import * as sft from "./supervised/sft.ts";

/** A signal that stops the run, which is then saved, and environment variables; both are optional. */
export type RunContext = Partial<Omit<TrainContext, "set">>;

/** Train by reinforcement learning: `trainyard ppo`. */
export const trainRl = (config: PpoInput, context: RunContext = {}): Promise<void> =>
  run(ppoSchema, config, context, rl.trainRl);

/** Fine-tune on prompts and responses: `trainyard sft`. */
export const trainSft = (config: SftInput, context: RunContext = {}): Promise<void> =>
  run(sftSchema, config, context, sft.trainSft);

/** Train a reward model on preferences: `trainyard reward`. */
export const trainReward = (config: RewardConfigInput, context: RunContext = {}): Promise<void> =>
  run(rewardSchema, config, context, preference.trainReward);

/** Sample responses to the prompts of a file: `trainyard generate`. */
export const generate = (config: GenerateInput, context: RunContext = {}): Promise<void> =>
  run(generateSchema, config, context, generation.generate);

/** Score the responses of a file: `trainyard eval`. */
export const evaluate = (config: EvalInput, context: RunContext = {}): Promise<evaluation.EvalReport> =>
  run(evalSchema, config, context, evaluation.evaluate);

async function run<T extends Tree, Config, Result>(
  schema: Schema<T, Config>,
  input: Readonly<Record<string, unknown>>,
  { signal = AbortSignal.any([]), env = {} }: RunContext,
  work: (config: Config, context: TrainContext) => Promise<Result>,
): Promise<Result> {
  const entries = entriesOf(input, () => "in the config");
  const { config, notices, set } = resolve(schema, [entries], { home: homedir(), env });
  for (const notice of notices) info(notice);
  return await work(config, { signal, env, set });
}
