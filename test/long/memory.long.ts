/**
 * Five hundred steps of a small model, with everything that a step can do: memory stays where it was.
 *
 * V8 leaves garbage lying about where a machine has room for it. Here its heaps are bounded, so that garbage is
 * collected: what still grows would be ours, outside the heap as resident memory, inside it as the end of the run.
 */
import { existsSync, readFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RewardService } from "../rl-kills.ts";
import { Yard } from "../rl-yard.ts";
import { pause } from "../sandbox.ts";

let yard: Yard;
let service: RewardService;
beforeAll(async () => {
  yard = await Yard.make();
  service = await RewardService.open();
});
afterAll(async () => {
  await service.close();
  yard.remove();
});

/** Resident megabytes of a process; none once it has ended. */
function residentMb(pid: number): number[] {
  try {
    const [, kilobytes] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
    return kilobytes === undefined ? [] : [Number(kilobytes) / 1024];
  } catch {
    return [];
  }
}

/** The step of the last line of a run's metrics. */
async function lastStep(path: string): Promise<number> {
  const file = await open(path).catch(() => null);
  if (file === null) return 0;
  try {
    const { size } = await file.stat();
    const length = Math.min(size, 16_384);
    const { buffer } = await file.read({ buffer: Buffer.alloc(length), position: size - length });
    return Number([...buffer.toString("utf8").matchAll(/^\{"step":(\d+),/gm)].at(-1)?.[1] ?? 0);
  } finally {
    await file.close();
  }
}

const hasProc = existsSync("/proc/self/status");
test.skipIf(!hasProc)("memory is flat over 500 steps (skipped where there is no /proc)", async () => {
  const child = yard.startSftUnder(
    ...(["long", ["env", "NODE_OPTIONS=--max-old-space-size=64 --max-semi-space-size=4"]] as const),
    ...[...service.keys, "algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=true"],
    ...["trainer.total_training_steps=520", "trainer.save_freq=25", "trainer.max_actor_ckpt_to_keep=1"],
    ...[`data.val_files=${yard.validation}`, "trainer.test_freq=10", "trainer.best_metric=val-core/even/acc/mean@1"],
    ...[`trainer.rollout_data_dir=${yard.path("dumps")}`, "trainer.logger=[file,tensorboard]"],
  );
  const seen = new Map<number, number[]>();
  while (child.isRunning) {
    const step = await lastStep(yard.path("long", "metrics.jsonl"));
    const hundred = Math.max(1, Math.round(step / 100)) * 100;
    if (Math.abs(step - hundred) <= 10)
      seen.set(hundred, [...(seen.get(hundred) ?? []), ...residentMb(child.process.pid!)]);
    await pause(20);
  }
  expect({ code: await child.ended, said: child.said }).toEqual({ code: 0, said: expect.stringContaining("Done") });
  // The least of some steps: what is above it is garbage that waits to be collected.
  const least = [...seen].map(([step, values]) => [step, Math.min(...values)] as const);
  process.stdout.write(
    `resident memory: ${least.map(([step, mb]) => `${mb.toFixed(1)} MB at step ${step}`).join(", ")}\n`,
  );
  const at = new Map(least);
  expect(at.get(500)! - at.get(100)!).toBeLessThan(15); // allocators settle in the first thousand steps, by some megabytes
});
