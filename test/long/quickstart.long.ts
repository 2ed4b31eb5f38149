/**
 * What `npm start` shows is learnt: accuracy rises past 0.9 with the reward, and not at all where the same rewards are
 * given to other responses than those that earned them. Accuracy is that of the likeliest answers to sums kept aside.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { readMetrics } from "../../src/run/metrics.ts";

const root = join(import.meta.dirname, "../..");
const out = mkdtempSync(join(tmpdir(), "trainyard-quickstart-"));
afterAll(() => rmSync(out, { recursive: true, force: true }));

/** The accuracies of a run of an example, in order. */
async function accuracies(name: string): Promise<number[]> {
  const keys = [`trainer.default_local_dir=${join(out, name)}`, "trainer.logger=[]"];
  const args = [join(root, "bin/trainyard.js"), "ppo", `examples/quickstart/${name}.ts`, ...keys];
  const child = spawn(process.execPath, args, { cwd: root, stdio: "ignore" });
  expect(await new Promise((done) => child.once("close", done))).toBe(0);
  const metrics = await readMetrics(join(out, name));
  return metrics.flatMap(({ data }) => data["val-core/sums/acc/mean@1"] ?? []);
}

test("the quickstart learns to carry", async () => {
  const course = await accuracies("ppo");
  expect(course[0]).toBeLessThan(0.4);
  expect(course.at(-1)).toBeGreaterThan(0.9);
});

test("the quickstart learns nothing from rewards that others earned", async () => {
  expect(Math.max(...(await accuracies("shuffled")))).toBeLessThan(0.5);
});
