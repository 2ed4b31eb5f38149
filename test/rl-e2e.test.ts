/** The end-to-end scripts of examples/e2e, with the model that they make; and that their checks can fail. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const folder = fileURLToPath(new URL("../examples/e2e", import.meta.url));
const hasBash = spawnSync("bash", ["--version"]).status === 0;

let out: string;
beforeAll(() => {
  out = mkdtempSync(join(tmpdir(), "trainyard-e2e-"));
});
afterAll(() => rmSync(out, { recursive: true, force: true }));

/** Run a script; `said` is all that it printed. */
async function run(
  script: string,
  env: Readonly<Record<string, string>> = {},
): Promise<{ code: number; said: string }> {
  const child = spawn("bash", [join(folder, script), "trainer.threads=1"], {
    env: { ...process.env, MODEL: "", DATA: "", REWARD: "", ...env },
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => {
      said += chunk;
    });
  const code = await new Promise<number>((resolve) => child.once("close", (status) => resolve(status ?? -1)));
  return { code, said };
}

describe.skipIf(!hasBash)("a script (skipped where there is no bash)", () => {
  const everywhere = ["two steps are taken", "which resume from the checkpoint", "it has said so", "and no other"];
  const sameWeights = "both end with the same weights, byte for byte";
  const scripts: readonly (readonly [script: string, checks: readonly string[]])[] = [
    ["function-reward.sh", [sameWeights]],
    ["model-reward.sh", [sameWeights, "scores differ, so the model has read the responses"]],
    ["memory-cap.sh", [sameWeights, "a cap that is too small ends a program, so the cap is one"]],
    ["rollout-server.sh", ["samples are of the weights after each update: log-probs agree"]],
  ];
  test.each(scripts)("holds: %s", { timeout: 300_000 }, async (script, checks) => {
    const { code, said } = await run(script, { OUT: join(out, script) });
    expect({ code, said }).toEqual({ code: 0, said: expect.not.stringContaining("not ok") });
    const held = said.split("\n").flatMap((line) => (line.startsWith("ok: ") ? [line.slice(4)] : []));
    expect(held).toEqual(expect.arrayContaining([...everywhere, ...checks]));
  });

  const mistakes: readonly (readonly [what: string, script: string, env: Record<string, string>, says: RegExp])[] = [
    ["there is no reward function", "function-reward.sh", { REWARD: "/nowhere.ts" }, /nowhere\.ts.*not ok: two steps/s],
    ["memory is short", "memory-cap.sh", { MEMORY_MB: "60" }, /not ok: two steps are taken/],
  ];
  test.each(mistakes)("ends with 1 where %s", async (_, script, env, says) => {
    const { code, said } = await run(script, env);
    expect({ code, said }).toEqual({ code: 1, said: expect.stringMatching(says) });
  });
});
