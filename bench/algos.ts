/**
 * `npm run bench algos`: what the algorithms cost beside a training step.
 *
 * Every advantage estimator over 4,096 episodes of 1,024 tokens, the balancing of 100,000 sequences, and a training
 * step with PPO's loss compared with one with the plain log-likelihood, in turns.
 */

import { defaultSettings } from "../scripts/goldens/settings.ts";
import type { AdvantageInput } from "../src/algos/advantages/estimator.ts";
import { advantageNames, findAdvantage } from "../src/algos/advantages/registry.ts";
import { karmarkarKarp } from "../src/algos/balancing/partition.ts";
import { actorLoss } from "../src/algos/losses/actor-loss.ts";
import { batchScalars } from "../src/algos/losses/aggregate.ts";
import type { TokenLoss, TokenRow } from "../src/engine/contract.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { Random } from "../src/util/random.ts";
import { type Figure, figure, median } from "./figures.ts";
import { modelFolder, smallModel } from "./models.ts";
import type { Report } from "./results.ts";
import type { BenchOptions } from "./train.ts";
import { meanLoss } from "./train-job.ts";

const AIM_MS = 100;

export async function benchAlgos(options: BenchOptions, print: (figure: Figure) => void): Promise<Report> {
  const figures: { figure: Figure; remark: string }[] = [];
  const add = (what: string, unit: string, ours: number, remark = "") => {
    const line = figure("algos", { what, unit, isMore: false }, ours, null);
    print(line);
    figures.push({ figure: line, remark });
  };
  const [count, tokens] = options.isSmoke ? [64, 256] : [4096, 1024];
  const input = episodes(count, tokens);
  for (const name of advantageNames()) {
    const { compute } = findAdvantage(name);
    const times = timesOf(options.steps ?? 7, () => compute(input, defaultSettings.advantage));
    add(`step time of ${name}, ${count} episodes of ${tokens} tokens (best)`, "ms", Math.min(...times), aim(times));
    add(`step time of ${name}, ${count} episodes of ${tokens} tokens (median)`, "ms", median(times));
  }
  const random = new Random(1);
  const sequences = options.isSmoke ? 1000 : 100_000;
  const lengths = Array.from({ length: sequences }, () => 1 + random.int(4096));
  const times = timesOf(3, () => karmarkarKarp(lengths, 8));
  add(`step time of balancing ${sequences} sequences over 8 workers (best)`, "ms", Math.min(...times));
  const { plain, ppo } = await lossTimes(options);
  add("step time with the plain log-likelihood (best)", "ms", Math.min(...plain));
  add("step time with the loss of PPO (best)", "ms", Math.min(...ppo));
  add("share of step: the loss of PPO over the plain one", "%", (Math.min(...ppo) / Math.min(...plain) - 1) * 100);
  const notes = [`The aim for an estimator is ${AIM_MS} ms; for a loss, 3 % of the step.`];
  return { figures, notes, versions: { node: process.versions.node }, isComplete: true };
}

function aim(times: readonly number[]): string {
  return Math.min(...times) <= AIM_MS ? "" : `above the aim of ${AIM_MS} ms`;
}

function timesOf(count: number, work: () => unknown): number[] {
  work(); // the first call is slower: it is compiled
  return Array.from({ length: count }, () => {
    const start = performance.now();
    work();
    return performance.now() - start;
  });
}

/** Groups of eight; responses of all lengths with a tool's output in the middle; a reward at the end. */
function episodes(count: number, tokens: number): AdvantageInput {
  const random = new Random(7);
  const rows = <T>(make: () => T): T[] => Array.from({ length: count }, make);
  const floats = () => Float64Array.from({ length: tokens }, () => random.uniform());
  const rewards = rows(() => {
    const row = new Float64Array(tokens);
    row[tokens - 1] = random.uniform();
    return row;
  });
  const oldLogprobs = rows(() => floats().map((x) => -x));
  return {
    rewards,
    mask: rows(() => {
      const length = tokens / 2 + random.int(tokens / 2);
      return new Uint8Array(tokens).fill(1, 0, length).fill(0, length >> 1, (length >> 1) + 64);
    }),
    groups: rewards.map((_, i) => `group ${Math.floor(i / 8)}`),
    values: rows(floats),
    baselines: Array.from({ length: count }, () => random.uniform()),
    oldLogprobs,
    // At least the square of the token's own probability, and at most that plus what the other tokens can add.
    sumPiSquared: oldLogprobs.map((row) =>
      row.map((x) => Math.exp(x) ** 2 + random.uniform() * (1 - Math.exp(x)) ** 2),
    ),
  };
}

/** Times of a training step with each of the two losses, in turns, on the small model. */
async function lossTimes(options: BenchOptions): Promise<{ plain: number[]; ppo: number[] }> {
  const engine = new EmbeddedEngine({ threads: options.threads });
  try {
    const { folder } = await modelFolder(smallModel(options));
    const model = await engine.open({ folder });
    const random = new Random(3);
    const time = options.isSmoke ? 32 : 256;
    const rows: TokenRow[] = Array.from({ length: 8 }, () => {
      const ids = Int32Array.from({ length: time }, () => random.int(model.config.vocabSize));
      const mask = Uint8Array.from(ids, (_, t) => Number(t > 0));
      const extra = { oldLogprobs: new Float32Array(time).fill(-8), advantages: new Float32Array(time).fill(0.5) };
      return { ids, mask, extra };
    });
    const scalars = {
      ...batchScalars(
        rows.map((row) => row.mask),
        time,
      ),
      count: 8 * (time - 1),
    };
    const step = async (loss: TokenLoss) => {
      const start = performance.now();
      await model.train(rows, loss, { micro: { rows: 8 }, scalars });
      await model.step({ lr: 0, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0, maxNorm: 1 });
      return performance.now() - start;
    };
    const ppoLoss = actorLoss(defaultSettings.actor);
    const [plain, ppo]: [number[], number[]] = [[], []];
    for (let turn = 0; turn <= (options.steps ?? 6); turn++) {
      const [first, second] = [await step(meanLoss), await step(ppoLoss)];
      if (turn > 0) plain.push(first);
      if (turn > 0) ppo.push(second);
    }
    return { plain, ppo };
  } finally {
    await engine.close();
  }
}
