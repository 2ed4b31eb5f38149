/** What ends a run that nobody watches any more: a closed terminal, a launcher that is gone. All of it saves first. */
import { existsSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Child, pause, Sandbox } from "./sandbox.ts";

const hasProc = existsSync("/proc/self/stat");

describe.skipIf(!hasProc)("a run (skipped where there is no /proc)", () => {
  let box: Sandbox;
  beforeAll(async () => {
    box = await Sandbox.make();
  });
  afterAll(() => box.remove());

  const long = ["trainer.total_training_steps=100000", "trainer.total_epochs=100000", "trainer.save_freq=100000"];

  /** Once its metrics have a few steps. */
  async function stepsOf(run: string, child: Child): Promise<void> {
    while (child.isRunning && (await box.metrics(run).catch(() => [])).length < 3) await pause(5);
    expect(child.isRunning, child.said).toBe(true);
  }

  test("saves and ends when its terminal is closed", { timeout: 120_000 }, async () => {
    const child = box.startSft("closed", ...long);
    await stepsOf("closed", child);
    child.process.kill("SIGHUP");
    expect(await child.ended).toBe(130);
    expect(child.said).toMatch(/Stopped after step \d+ of 100000 and saved/);
  });

  test("goes on under nohup", { timeout: 120_000 }, async () => {
    const child = box.startSftUnder("nohup", ["sh", "-c", 'exec "$@" 0>/dev/null', "sh"], ...long);
    await stepsOf("nohup", child);
    child.process.kill("SIGHUP");
    const before = (await box.metrics("nohup")).length;
    while (child.isRunning && (await box.metrics("nohup")).length < before + 3) await pause(5);
    expect(child.isRunning, child.said).toBe(true);
    child.process.kill("SIGTERM");
    expect(await child.ended).toBe(130);
  });

  test("saves and ends when the launcher that started it was killed", { timeout: 120_000 }, async () => {
    // As bin/trainyard.js relaunches itself on another Node; the shell waits for its child as the launcher does.
    const launcher = ["sh", "-c", 'TRAINYARD_RELAUNCHED=$$ "$@"; exit', "sh"];
    const child = box.startSftUnder("orphan", launcher, ...long);
    await stepsOf("orphan", child);
    child.process.kill("SIGKILL");
    await child.ended; // when the run itself has closed stderr
    expect(child.said).toMatch(/Stopped after step \d+ of 100000 and saved/);
  });
});
