/** Our side of the RL bench: one training step per command. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseOverride } from "../src/config/overrides.ts";
import { ppoSchema } from "../src/config/ppo/schema.ts";
import { klSettings, microBatching } from "../src/config/ppo/settings.ts";
import { resolve } from "../src/config/resolve.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { cut, tokensOfBlock } from "../src/engine/embedded/micro-batches.ts";
import { readConfig } from "../src/models/config.ts";
import { Progress } from "../src/train/progress.ts";
import type { RlContext } from "../src/train/rl/context.ts";
import { type Episode, masksOf, responseLength, tokenRows } from "../src/train/rl/episode.ts";
import { loadPrompts } from "../src/train/rl/prompts.ts";
import { openRoles, roleSpecs } from "../src/train/rl/roles.ts";
import { openRolloutClient } from "../src/train/rl/rollout-client.ts";
import { takeStep } from "../src/train/rl/step.ts";
import { openTrainRows } from "../src/train/rl/train-rows.ts";
import { setLevel } from "../src/util/log.ts";
import { isRight } from "./addition.ts";
import { type RlJob, type RlStep, rlJobSchema } from "./rl-job.ts";
import { type Answers, peakBytes, serve } from "./serve.ts";

await serve(async (input): Promise<Answers> => {
  setLevel("quiet");
  const job = rlJobSchema.parse(input);
  const dir = await mkdtemp(join(tmpdir(), "trainyard-bench-"));
  const { config: read } = resolve(ppoSchema, [keysOf(job, dir).map(parseOverride)], { home: "/", env: {} });
  const reward = { kind: "function", run: isRight } as const;
  const config = { ...read, custom_reward_function: { ...read.custom_reward_function, function: reward } };
  const context = { signal: AbortSignal.any([]), env: {} };
  const engine = new EmbeddedEngine({ threads: job.threads });
  const prompts = await loadPrompts(config, context);
  const roles = await openRoles(config, await roleSpecs(config, prompts, context), { engine, start: null });
  const { tokenizer } = prompts;
  const rollout = await openRolloutClient(config, { roles, tokenizer, engine, dir }, context);
  const { rows } = openTrainRows(config, prompts);
  const progress = new Progress(1, job.steps);
  const rlContext: RlContext = {
    config,
    prompts,
    roles,
    rollout,
    rows,
    progress,
    totalSteps: job.steps,
    peak: null,
    saveSkipped: async () => {},
    signal: context.signal,
  };
  const actorConfig = await readConfig(prompts.folder);
  /** The useful share of the tokens of an update: each prompt once without its last token and each response, divided by all with padding. */
  const usefulShare = (episodes: readonly Episode[]): number => {
    const rows = tokenRows(episodes, masksOf(episodes));
    const blocks = cut(rows, microBatching(config, "actor"), { heads: ["logprobs"], config: actorConfig });
    const prompts = new Map(episodes.map(({ group, prompt }) => [group, prompt.ids.length - 1]));
    const responses = episodes.reduce((sum, episode) => sum + responseLength(episode), 0);
    const useful = [...prompts.values()].reduce((a, b) => a + b, responses);
    return useful / blocks.reduce((sum, block) => sum + tokensOfBlock(rows, block), 0);
  };
  let step = 0;
  let klControl = klSettings(config);
  return {
    async answer(): Promise<RlStep> {
      const start = performance.now();
      const taken = await takeStep(rlContext, ++step, { klControl, skippedInARow: 0 });
      const seconds = (performance.now() - start) / 1000;
      klControl = taken.klControl;
      const { metrics } = taken;
      const split = Object.entries(metrics).filter(([name]) => name.startsWith("timing_s/"));
      return {
        seconds,
        peakBytes: peakBytes(),
        meanLength: metrics["response_length/mean"]!,
        reward: metrics["critic/score/mean"]!,
        split: Object.fromEntries(split),
        usefulShare: usefulShare(taken.episodes),
      };
    },
    async close() {
      await rollout[Symbol.asyncDispose]();
      await engine.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
});

function keysOf(job: RlJob, dir: string): string[] {
  const { actor, rollout } = { actor: "actor_rollout_ref.actor", rollout: "actor_rollout_ref.rollout" };
  return [
    `actor_rollout_ref.model.path=${job.folder}`,
    `data.train_files=${job.data}`,
    `data.train_batch_size=${job.prompts}`,
    "data.max_prompt_length=64",
    `data.max_response_length=${job.newTokens}`,
    "algorithm.adv_estimator=grpo",
    `${actor}.ppo_mini_batch_size=${job.prompts}`,
    `${actor}.optim.lr=${job.lr}`,
    `${actor}.optim.weight_decay=0`,
    `${rollout}.n=${job.samples}`,
    `${rollout}.ignore_eos=${job.isFull}`,
    `trainer.total_training_steps=${job.steps}`,
    `trainer.default_local_dir=${dir}`,
  ];
}
