/** How many steps a run takes, and which rows its loader gives, follow from the config and the number of rows. */
import { describe, expect, test } from "vitest";
import { parseOverride } from "../config/overrides.ts";
import { ppoSchema } from "../config/ppo/schema.ts";
import { resolve } from "../config/resolve.ts";
import { sftSchema } from "../config/sft/schema.ts";
import { rlSteps, supervisedSteps } from "./steps.ts";

const surroundings = { home: "/", env: {} };

function rl(prompts: number, ...overrides: readonly string[]) {
  const keys = [
    "actor_rollout_ref.model.path=m",
    "data.train_files=t",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=2",
    "algorithm.adv_estimator=grpo",
    "trainer.total_epochs=3",
    ...overrides,
  ];
  return rlSteps(resolve(ppoSchema, [keys.map(parseOverride)], surroundings).config, prompts);
}

function sft(rows: number, ...overrides: readonly string[]) {
  const keys = [
    "model.path=m",
    "data.train_files=t",
    "data.train_batch_size=4",
    "trainer.total_epochs=3",
    ...overrides,
  ];
  return supervisedSteps(resolve(sftSchema, [keys.map(parseOverride)], surroundings).config, rows);
}

describe.each([
  ["reinforcement learning", rl],
  ["supervised training", sft],
])("%s", (_, steps) => {
  test("takes the full batches of every epoch", () => {
    expect(steps(10).totalSteps).toBe(6);
    expect(steps(12).totalSteps).toBe(9);
  });

  test("takes total_training_steps where they are given", () => {
    expect(steps(10, "trainer.total_training_steps=100").totalSteps).toBe(100);
  });

  test("gives equal batches for equal configs, and others for another seed", () => {
    const first = (...overrides: readonly string[]) => steps(40, ...overrides).loader.next().indices;
    expect(first()).toHaveLength(4);
    expect(first()).toEqual(first());
    expect(first("trainer.seed=7")).not.toEqual(first());
  });
});

test("a group filter samples gen_batch_size prompts at a time, and nothing else does", () => {
  expect(rl(40, "data.gen_batch_size=8", "algorithm.filter_groups.enable=true").loader.next().indices).toHaveLength(8);
  expect(rl(40, "algorithm.filter_groups.enable=true").loader.next().indices).toHaveLength(4);
});
