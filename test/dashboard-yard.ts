/**
 * Run folders to look at: made by the run room's own writers, with the metrics, rollouts and config of a run that never
 * happened. Everything follows from the seed, so that two calls make the same folder.
 */

import { metricTable } from "../src/algos/metrics/table.ts";
import type { Metrics } from "../src/run/metrics.ts";
import type { NewEpisode, NewGroup } from "../src/run/rollouts.ts";
import { claimRun, type Run } from "../src/run/run.ts";
import { Random } from "../src/util/random.ts";
import { namesOf } from "./metric-names.ts";

export type Story = {
  readonly steps: number;
  readonly total?: number;
  readonly seed?: number;
  /** How fast the reward rises; 0 for a run that learns nothing. */
  readonly pace?: number;
  readonly lr?: number;
  /** Log rollouts every this many steps; 0 for none. */
  readonly rolloutsEvery?: number;
  readonly validateEvery?: number;
  /** Metrics of a step in the place of the usual ones. */
  readonly change?: (step: number) => Metrics;
  /** Rollouts of a step in the place of the usual ones. */
  readonly groups?: (step: number) => readonly NewGroup[];
  /** Validation rollouts of a step in the place of the usual ones. */
  readonly valGroups?: (step: number) => readonly NewGroup[];
};

/** Write a run folder and close it. */
export async function writeRun(dir: string, story: Story): Promise<void> {
  await using claim = await claimRun(dir, { resumeMode: "disable" });
  const run = await claim.begin(configOf(story), ["actor_rollout_ref.model.path", "actor_rollout_ref.actor.optim"]);
  for (let step = 1; step <= story.steps; step++) await writeStep(run, step, story);
}

/** One step of such a run. */
export async function writeStep(run: Run, step: number, story: Story): Promise<void> {
  const { rolloutsEvery = 1, validateEvery = 10, seed = 1, groups } = story;
  const isValidated = step % validateEvery === 0;
  if (rolloutsEvery > 0 && step % rolloutsEvery === 0)
    await run.logRollouts(step, "train", groups?.(step) ?? trainGroups(step, skillAt(step, story), seed));
  if (rolloutsEvery > 0 && isValidated)
    await run.logRollouts(step, "val", story.valGroups?.(step) ?? valGroups(step, skillAt(step, story), seed));
  await run.logMetrics(step, { ...metricsOf(step, story), ...story.change?.(step) });
}

export const configOf = ({ steps, total = steps, lr = 1e-6, seed = 1 }: Story) => ({
  data: { train_files: "data/sums.parquet", train_batch_size: 64, max_prompt_length: 64, max_response_length: 256 },
  actor_rollout_ref: {
    model: { path: "models/tiny" },
    actor: { optim: { lr, lr_warmup_steps: 10 }, clip_ratio: 0.2, entropy_coeff: 0, use_kl_loss: true },
    rollout: { n: 8, temperature: 1, top_p: 1 },
  },
  algorithm: { adv_estimator: "grpo", use_kl_in_reward: false },
  trainer: {
    project_name: "sums",
    experiment_name: "grpo",
    seed,
    total_training_steps: total,
    logger: ["console"],
    save_freq: 100,
    test_freq: 10,
  },
});

/** The share of right answers at a step. */
function skillAt(step: number, { total, steps, pace = 1 }: Story): number {
  const progress = (step / (total ?? steps)) * 6 * pace;
  return 0.12 + 0.8 * (1 - Math.exp(-progress / 2)) * (pace === 0 ? 0 : 1);
}

const others = metricTable
  .flatMap(({ rows }) => rows.flatMap(({ name }) => namesOf(name)))
  .filter((name) =>
    /^(rollout_corr\/(rollout_is|kl|ppl|chi2|log_ppl)|critic\/|global_seqlen|prompt_length)/.test(name),
  );

/** About a hundred metrics. */
function metricsOf(step: number, story: Story): Metrics {
  const { seed = 1, lr = 1e-6, validateEvery = 10 } = story;
  const random = new Random(seed, "metrics", step);
  const noise = (size: number) => (random.uniform() + random.uniform() - 1) * size;
  const skill = skillAt(step, story);
  const score = Math.min(1, Math.max(0, skill + noise(0.06)));
  const length = 70 + 90 * skill + noise(12);
  const gen = 6 + length / 30 + noise(0.6);
  const update = 4.2 + noise(0.4);
  const ref = 1.1 + noise(0.1);
  const isValidated = step % validateEvery === 0;
  const testing = isValidated ? 3 + noise(0.2) : 0;
  return {
    ...Object.fromEntries(others.map((name) => [name, 1 + noise(0.2)])),
    "critic/score/mean": score,
    "critic/score/max": 1,
    "critic/score/min": 0,
    "critic/rewards/mean": score - 0.01,
    "critic/advantages/mean": noise(0.01),
    "critic/advantages/max": 2.2 + noise(0.2),
    "critic/advantages/min": -2.2 + noise(0.2),
    "response_length/mean": length,
    "response_length/max": Math.min(256, length * 2.2),
    "response_length/min": length * 0.3,
    "response_length/clip_ratio": Math.max(0, 0.02 + noise(0.02)),
    "prompt_length/mean": 31 + noise(2),
    "actor/entropy": 0.25 + 0.9 * Math.exp((-3 * step) / (story.total ?? story.steps)) + noise(0.03),
    "actor/pg_loss": noise(0.02),
    "actor/pg_clipfrac": Math.max(0, 0.01 + noise(0.01)),
    "actor/pg_clipfrac_lower": Math.max(0, noise(0.0005)),
    "actor/ppo_kl": 0.0012 + noise(0.001),
    "actor/kl_loss": 0.03 * skill + Math.abs(noise(0.004)),
    "actor/grad_norm": 0.8 + Math.abs(noise(0.5)),
    "actor/lr": lr * Math.min(1, step / 10),
    "training/rollout_probs_diff_mean": 1e-7 * (1 + noise(0.5)),
    "training/rollout_probs_diff_max": 1e-6 * (1 + noise(0.5)),
    "training/rollout_actor_probs_pearson_corr": 1,
    "training/global_step": step,
    "timing_s/gen": gen,
    "timing_s/ref": ref,
    "timing_s/adv": 0.05,
    "timing_s/update_actor": update,
    "timing_s/update_weights": 0.1,
    "timing_s/step": gen + ref + update + testing + 0.4,
    "perf/throughput": (64 * 8 * (length + 31)) / (gen + ref + update),
    "perf/time_per_step": gen + ref + update + testing + 0.4,
    "perf/total_num_tokens": Math.round(64 * 8 * (length + 31)),
    "perf/max_memory_allocated_gb": 9.2 + noise(0.1),
    "perf/cpu_memory_used_gb": 14 + noise(0.3),
    ...(isValidated && {
      "timing_s/testing": testing,
      "val-core/sums/acc/mean@4": Math.min(1, skill + noise(0.02)),
      "val-core/words/acc/mean@4": Math.min(1, 0.7 * skill + noise(0.02)),
      "val-aux/sums/acc/pass@4": Math.min(1, skill + 0.1),
    }),
  };
}

function trainGroups(step: number, skill: number, seed: number): NewGroup[] {
  const random = new Random(seed, "rollouts", step);
  return [0, 1].map(() => sumGroup(random, skill, { n: 4, isTrained: true }));
}

function valGroups(step: number, skill: number, seed: number): NewGroup[] {
  return Array.from({ length: 6 }, (_, i) => {
    const terms = new Random(7, "val", i);
    const pair: [number, number] = [terms.int(90) + 10, terms.int(90) + 10];
    const harder = Math.min(1, Math.max(0, skill * (1.3 - i * 0.12)));
    return sumGroup(new Random(seed, "val", step * 10 + i), harder, { n: 2, isTrained: false, pair });
  });
}

type Kind = { readonly n: number; readonly isTrained: boolean; readonly pair?: readonly [number, number] };

/** A sum, and answers of which a share is right. */
function sumGroup(random: Random, skill: number, { n, isTrained, pair }: Kind): NewGroup {
  const [a, b] = pair ?? [random.int(90) + 10, random.int(90) + 10];
  const scores = Array.from({ length: n }, (): number => (random.uniform() < skill ? 1 : 0));
  const mean = scores.reduce((sum, score) => sum + score, 0) / n;
  const spread = Math.sqrt(mean * (1 - mean)) + 1e-6;
  const episodes = scores.map((score): NewEpisode => {
    const given = score === 1 ? a + b : a + b + 1 + random.int(20);
    const words = ["Let", " me", " add", ` ${a}`, " and", ` ${b}`, ".", "\n", "So", " the", " answer", " is"];
    const tokens = [...words, ` ${given}`, ".", "<|im_end|>"];
    const isDecisive = (token: string) => token === ` ${given}`;
    return {
      response: tokens.slice(0, -1).join(""),
      tokens,
      logprobs: tokens.map((token) => -random.uniform() * (isDecisive(token) ? 2.5 : 0.4)),
      entropy: tokens.map((token) => random.uniform() * (isDecisive(token) ? 2.5 : 0.5)),
      ...(isTrained && { advantages: tokens.map(() => (score - mean) / spread) }),
      score,
      extra: { acc: score, given: String(given) },
    };
  });
  return {
    prompt: `<|im_start|>user\nWhat is ${a} + ${b}? Think, then answer.<|im_end|>\n<|im_start|>assistant\n`,
    truth: String(a + b),
    source: "sums",
    episodes,
  };
}
