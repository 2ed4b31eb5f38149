/**
 * What `npm start` shows is learnt: accuracy rises past 0.9 with the reward, and not at all where the same rewards are
 * given to other responses than those that earned them. Accuracy is that of the likeliest answers to sums kept aside.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { loadConfig } from "../../src/config/file.ts";
import { parseOverride } from "../../src/config/overrides.ts";
import { ppoSchema } from "../../src/config/ppo.ts";
import { resolve } from "../../src/config/resolve.ts";
import type { RewardFunction } from "../../src/rewards/reward.ts";
import { readMetrics } from "../../src/run/metrics.ts";
import { trainRl } from "../../src/train/rl.ts";
import { Random } from "../../src/util/random.ts";

const out = mkdtempSync(join(tmpdir(), "trainyard-quickstart-"));
afterAll(() => rmSync(out, { recursive: true, force: true }));

/** The accuracies of the run, in order. */
async function learn(name: string, reward: RewardFunction): Promise<number[]> {
  const folder = join(import.meta.dirname, "../..");
  const { entries } = await loadConfig({ file: "examples/quickstart/ppo.ts", folder }, ppoSchema);
  const keys = [`trainer.default_local_dir=${join(out, name)}`, "trainer.logger=[]", "trainer.save_freq=-1"];
  const { config } = resolve(ppoSchema, [entries, keys.map(parseOverride)], { home: "/", env: {} });
  const custom = { ...config.custom_reward_function, function: { kind: "function", run: reward } as const };
  await trainRl({ ...config, custom_reward_function: custom }, { signal: AbortSignal.any([]), env: {} });
  const metrics = await readMetrics(join(out, name));
  return metrics.flatMap(({ data }) => data["val-core/sums/acc/mean@1"] ?? []);
}

test("the quickstart learns to carry", async () => {
  const accuracies = await learn("learning", ({ response, groundTruth }) => {
    return { score: response === groundTruth, acc: response === groundTruth };
  });
  expect(accuracies[0]).toBeLessThan(0.4);
  expect(accuracies.at(-1)).toBeGreaterThan(0.9);
});

test("the quickstart learns nothing from rewards that others earned", async () => {
  const random = new Random(7);
  const earned: boolean[] = [];
  const accuracies = await learn("shuffled", ({ response, groundTruth }) => {
    const acc = response === groundTruth;
    earned.push(acc);
    return { score: earned[random.int(earned.length)]!, acc }; // what some response up to now has earned
  });
  expect(Math.max(...accuracies)).toBeLessThan(0.5);
});
