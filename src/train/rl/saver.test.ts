import { describe, expect, test } from "vitest";
import { parseOverride } from "../../config/overrides.ts";
import { ppoSchema } from "../../config/ppo/schema.ts";
import { resolve } from "../../config/resolve.ts";
import type { Model } from "../../engine/contract.ts";
import type { TrainingRun } from "../with-run.ts";
import { openSaver } from "./saver.ts";
import type { RlState } from "./state.ts";

const state = {
  loader: { epoch: 1 },
  fingerprint: "",
  klControl: {},
  skippedInARow: 0,
  best: null,
} as unknown as RlState;

/** A saver whose model writes when it is told to; `events` is what happened. */
function setUp(...keys: readonly string[]) {
  const given = ["actor_rollout_ref.model.path=m", "data.train_files=t", "algorithm.adv_estimator=grpo", ...keys];
  const { config } = resolve(ppoSchema, [given.map(parseOverride)], { home: "/", env: {} });
  const events: string[] = [];
  const disk = Promise.withResolvers<void>();
  const write = async (what: string) => {
    events.push(`begin ${what}`);
    await disk.promise;
    events.push(`end ${what}`);
  };
  const model = { save: () => write("weights"), saveOptimizer: () => write("optimizer") } as unknown as Model; // all it needs
  const run = {
    async save(step: number, fill: (dir: string) => Promise<void>, kept: RlState) {
      await fill("dir");
      events.push(`checkpoint ${step} of ${JSON.stringify(kept.loader)}`);
    },
  } as unknown as TrainingRun; // all it needs
  return { saver: openSaver({ config, roles: { actor: model, rewardModels: new Map() } }, run), events, disk };
}

const isDone = async (work: Promise<void>) => {
  let done = false;
  work.then(
    () => {
      done = true;
    },
    () => {},
  );
  await new Promise((next) => setImmediate(next));
  return done;
};

const inBackground = "actor_rollout_ref.actor.checkpoint.async_save=true";

describe("in the background", () => {
  test("a save returns when all files have been begun, and keeps the state as it was", async () => {
    const { saver, events, disk } = setUp(inBackground);
    const now = structuredClone(state) as { loader: { epoch: number } } & RlState; // to be changed
    await saver.save(1, now);
    expect(events).toEqual(["begin weights", "begin optimizer"]);
    now.loader.epoch = 2;
    expect(await isDone(saver.saved())).toBe(false);
    disk.resolve();
    await saver.saved();
    expect(events.slice(2)).toEqual(["end weights", "end optimizer", 'checkpoint 1 of {"epoch":1}']);
  });

  test("the next save waits for the one before", async () => {
    const { saver, events, disk } = setUp(inBackground);
    await saver.save(1, state);
    const next = saver.save(2, state);
    expect(await isDone(next)).toBe(false);
    disk.resolve();
    await next;
    await saver.saved();
    expect(events.filter((event) => event.startsWith("checkpoint"))).toHaveLength(2);
    expect(events.indexOf('checkpoint 1 of {"epoch":1}')).toBe(4);
  });

  test("an error is thrown by what waits for it next, and does not hide another one", async () => {
    const { saver, disk } = setUp(inBackground);
    await saver.save(1, state);
    disk.reject(new Error("the disk is full"));
    await expect(saver.saved()).rejects.toThrow("the disk is full");
    await expect(saver.save(2, state)).rejects.toThrow("the disk is full");
    await saver[Symbol.asyncDispose]();
  });
});

test("otherwise a save returns when all is written, one file after the other", async () => {
  const { saver, events, disk } = setUp();
  const save = saver.save(1, state);
  expect(await isDone(save)).toBe(false);
  expect(events).toEqual(["begin weights"]);
  disk.resolve();
  await save;
  expect(events.at(-1)).toBe('checkpoint 1 of {"epoch":1}');
});
