import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { type Rates, settleOptim } from "./optim.ts";
import { parseOverride } from "./overrides.ts";
import { ppoSchema } from "./ppo/schema.ts";
import { resolve } from "./resolve.ts";
import { rewardSchema } from "./reward/schema.ts";
import { sftSchema } from "./sft/schema.ts";

const cosine: Rates = {
  lr: 1e-4,
  lr_scheduler_type: "cosine",
  min_lr: null,
  min_lr_ratio: 0,
  lr_decay_steps: null,
  lr_warmup_steps: -1,
};

test("the lowest rate is the same, whether it is given as a rate or as a share", () => {
  for (const least of [0, 1e-6, 1e-5, 1e-4])
    expect(settleOptim("optim", { ...cosine, min_lr: least }).optim.min_lr_ratio).toBe(least / 1e-4);
  expect(settleOptim("optim", { ...cosine, min_lr_ratio: 0.3 }).optim.min_lr_ratio).toBe(0.3);
  expect(settleOptim("optim", { ...cosine, lr: 0, min_lr: 0 }).optim.min_lr_ratio).toBe(0);
});

describe("a rate that contradicts another is refused with both", () => {
  const cases: readonly [object, RegExp][] = [
    [{ min_lr: 2e-4 }, /`optim\.min_lr` is 0\.0002, above `optim\.lr`=0\.0001/],
    [{ min_lr: 1e-5, min_lr_ratio: 0.5 }, /`optim\.min_lr` is 0\.00001 and `optim\.min_lr_ratio` is 0\.5/],
    [{ lr_decay_steps: 9, lr_warmup_steps: 9 }, /`optim\.lr_warmup_steps` is 9, and `optim\.lr_decay_steps`=9/],
  ];
  test.each(cases)("%j", (keys, message) => {
    expect(() => settleOptim("optim", { ...cosine, ...keys })).toThrow(UserError);
    expect(() => settleOptim("optim", { ...cosine, ...keys })).toThrow(message);
  });
});

test("on a constant rate Megatron's keys have no effect, which is said", () => {
  const keys = { lr_scheduler_type: "constant", min_lr: 1e-6, lr_decay_steps: 9 } as const;
  expect(settleOptim("critic.optim", { ...cosine, ...keys }).notices).toEqual([
    expect.stringMatching(/^`critic\.optim\.min_lr`=0\.000001 has no effect: .* constant/),
    expect.stringMatching(/^`critic\.optim\.lr_decay_steps`=9 has no effect/),
  ]);
});

test("every verb that trains has them", () => {
  const surroundings = { home: "/", env: {} };
  const keys = (branch: string) =>
    ["lr=1e-4", "lr_decay_style=cosine", "min_lr=1e-5", "lr_warmup_steps=null"].map((it) =>
      parseOverride(`${branch}.${it}`),
    );
  const settled = { min_lr_ratio: expect.closeTo(0.1, 9), lr_warmup_steps: -1 };
  const model = parseOverride("model.path=m");
  expect(resolve(sftSchema, [[model, ...keys("optim")]], surroundings).config.optim).toMatchObject(settled);
  const rows = parseOverride("data.train_files=pairs.jsonl");
  expect(resolve(rewardSchema, [[model, rows, ...keys("optim")]], surroundings).config.optim).toMatchObject(settled);
  const actor = "actor_rollout_ref.actor";
  const ppo = [parseOverride("actor_rollout_ref.model.path=m"), ...keys(`${actor}.optim`), ...keys("critic.optim")];
  const { config } = resolve(ppoSchema, [ppo], surroundings);
  expect([config.actor_rollout_ref.actor.optim, config.critic.optim]).toMatchObject([settled, settled]);
});
