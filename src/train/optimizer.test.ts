import { expect, test } from "vitest";
import { parseOverride } from "../config/overrides.ts";
import { resolve } from "../config/resolve.ts";
import { sftSchema } from "../config/sft/schema.ts";
import { learningRate } from "../nn/schedule.ts";
import { scheduleOf } from "./optimizer.ts";

const rates = (totalSteps: number, ...keys: string[]): number[] => {
  const given = ["model.path=m", "optim.lr_scheduler_type=cosine", "optim.min_lr_ratio=0.1", ...keys];
  const { config } = resolve(sftSchema, [given.map(parseOverride)], { home: "/", env: {} });
  const schedule = scheduleOf(config.optim, totalSteps);
  return Array.from({ length: 40 }, (_, step) => learningRate(schedule, step));
};

test("with `lr_decay_steps` the learning rate is that of a run of as many steps, however long the run is", () => {
  for (const warmUp of [0, 5])
    expect(rates(40, "optim.lr_decay_steps=20", `optim.lr_warmup_steps=${warmUp}`)).toEqual(
      rates(20, `optim.lr_warmup_steps=${warmUp}`),
    );
  const short = rates(40, "optim.lr_decay_steps=20");
  expect(short[19]).toBeGreaterThan(short[20]!);
  expect(new Set(short.slice(20))).toEqual(new Set([short[20]]));
});
