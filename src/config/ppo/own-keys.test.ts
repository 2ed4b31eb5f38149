/** Keys that a registered estimator or policy loss brings along. */
import { spawnSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findAdvantage, registerAdvantage } from "../../algos/advantages/registry.ts";
import { findPolicyLoss, registerPolicyLoss } from "../../algos/losses/policy/registry.ts";
import { choice, field, nullable, number } from "../../util/field.ts";
import { defineConfig } from "../define-config.ts";
import { entriesOf } from "../entries.ts";
import { parseOverride } from "../overrides.ts";
import { resolve } from "../resolve.ts";
import { allKeys, withRegistered } from "../schema.ts";
import { ppoSchema } from "./schema.ts";
import { actorSettings, advantageSettings } from "./settings.ts";

const policyKey = "actor_rollout_ref.actor.policy_loss";
const model = "actor_rollout_ref.model.path=m";
const ppo = (...overrides: readonly string[]) =>
  resolve(ppoSchema, [[model, ...overrides].map(parseOverride)], { home: "", env: {} });

registerAdvantage({
  name: "quantile",
  hasCritic: false,
  needs: [],
  fields: {
    share: field(number(0, 1), 0.5, "Which quantile of the rewards is the baseline."),
    side: { kind: field(choice("low", "high"), "low", "Which neighbour of it.") },
  },
  check({ share }) {
    if (share === 0.25) throw new Error("checked");
  },
  compute({ mask }, { share, side, gamma }) {
    const value = side.kind === "high" ? share : -share;
    const advantages = mask.map((row) => Float64Array.from(row, () => value * gamma));
    return { advantages, returns: advantages };
  },
});
registerAdvantage({
  name: "keyless",
  hasCritic: false,
  needs: [],
  compute: ({ mask }) => ({
    advantages: mask.map((row) => new Float64Array(row.length)),
    returns: mask.map((row) => new Float64Array(row.length)),
  }),
});
const seen: unknown[] = [];
registerPolicyLoss({
  name: "leash",
  fields: { beta: field(nullable(number(0)), null, "How short the leash is.") },
  build(tensors, { beta, clip_ratio }) {
    seen.push([beta, clip_ratio]);
    return { loss: tensors.total(tensors.logRatio) };
  },
});

describe("the keys of a registered algorithm", () => {
  test("have its defaults, and reach it under its own names", () => {
    const settings = advantageSettings(ppo("algorithm.adv_estimator=quantile").config);
    expect(settings).toMatchObject({ share: 0.5, side: { kind: "low" }, gamma: 1 });
    const own = ["algorithm.own.quantile.share=0.75", "algorithm.own.quantile.side.kind=high"];
    const { config } = ppo("algorithm.adv_estimator=quantile", "algorithm.gamma=0.5", ...own);
    expect(config.algorithm.own).toEqual({ quantile: { share: 0.75, side: { kind: "high" } } });
    const input = { rewards: [[1]], mask: [[1]], groups: ["a"] };
    const { advantages } = findAdvantage("quantile").compute(input, advantageSettings(config));
    expect([...advantages[0]!]).toEqual([0.375]);
  });

  test("of a policy loss stand beside those of the actor", () => {
    const { config } = ppo(`${policyKey}.loss_mode=leash`, `${policyKey}.own.leash.beta=3`);
    expect(actorSettings(config)).toMatchObject({ beta: 3, clip_ratio: 0.2, policy_loss: { loss_mode: "leash" } });
    expect(actorSettings(config).policy_loss).not.toHaveProperty("own");
    expect(actorSettings(ppo(`${policyKey}.own.leash.beta=3`).config)).not.toHaveProperty("beta");
    expect(findPolicyLoss("leash").fields).toHaveProperty("beta");
  });

  test("may be set in a config file as dicts", () => {
    const input = defineConfig({
      actor_rollout_ref: { model: { path: "m" }, actor: { policy_loss: { own: { leash: { beta: 2 } } } } },
      algorithm: { own: { quantile: { share: 0.1 } } },
    });
    const { config } = resolve(ppoSchema, [entriesOf(input, () => "")], { home: "", env: {} });
    expect(config.algorithm.own?.quantile).toEqual({ share: 0.1, side: { kind: "low" } });
    expect(config.actor_rollout_ref.actor.policy_loss.own).toEqual({ leash: { beta: 2 } });
  });

  test.each([
    ["algorithm.own.quantile.share=2", /`algorithm\.own\.quantile\.share` is 2 .*; it takes a number from 0 to 1/],
    ["algorithm.own.quantile.shar=0.2", /is not a key of `ppo`\. Nearest: `algorithm\.own\.quantile\.share`/],
    ["algorithm.own.keyless.share=0.2", /is not a key of `ppo`/],
    ["algorithm.own.quantil.share=0.2", /is not a key of `ppo`/],
    [`${policyKey}.own.leash.gamma=1`, /is not a key of `ppo`/],
    ["algorithm.share=0.2", /is not a key of `ppo`/],
    ["algorithm.own=3", /holds other keys/],
  ])("are closed: %s is refused", (override, message) => {
    expect(() => ppo(override)).toThrow(message);
  });

  test("are checked by the algorithm before a run, if it is the one that runs", () => {
    const quarter = "algorithm.own.quantile.share=0.25";
    expect(() => ppo("algorithm.adv_estimator=quantile", quarter)).toThrow("checked");
    expect(ppo(quarter).notices).toEqual([
      "`algorithm.own.quantile.share` has no effect: `algorithm.adv_estimator` is gae.",
    ]);
  });

  test("exist on every engine, and only where something brought them", () => {
    expect(allKeys(withRegistered(ppoSchema))).toContain(`${policyKey}.own.leash.beta`);
    expect(allKeys(ppoSchema).filter((key) => key.includes(".own."))).toEqual([]);
    const { config } = ppo("trainer.engine=ray", "algorithm.own.quantile.share=0.1");
    expect(config.algorithm.own?.quantile).toMatchObject({ share: 0.1 });
  });

  test("cannot have the name of what every algorithm gets, nor one that is no part of a path", () => {
    const other = { hasCritic: false, needs: [], compute: () => ({ advantages: [], returns: [] }) };
    const share = field(number(0), 1, "");
    expect(() => registerAdvantage({ ...other, name: "a1", fields: { gamma: share } })).toThrow(
      'declares the key "gamma"',
    );
    expect(() => registerAdvantage({ ...other, name: "a.1", fields: { share } })).toThrow('"a.1" cannot be a part');
    expect(() => registerAdvantage({ ...other, name: "a1", fields: { "x y": share } })).toThrow(
      '"x y" cannot be a part',
    );
  });
});

describe("a config file that registers", () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "own-keys-"));
    await writeFile(
      join(folder, "run.ts"),
      `import { defineConfig, field, fields, registerAdvantage } from "trainyard";
registerAdvantage({
  name: "from_file",
  hasCritic: false,
  needs: [],
  fields: { depth: field(fields.int(1), 7, "How deep it looks.") },
  compute: ({ mask }) => ({ advantages: mask.map((row) => new Float64Array(row.length)), returns: [] }),
});
export default defineConfig({
  actor_rollout_ref: { model: { path: "m" } },
  algorithm: { adv_estimator: "from_file", own: { from_file: { depth: 8 } } },
});`,
    );
  });
  afterAll(() => rm(folder, { recursive: true }));

  /** In a process of its own, where the file's `trainyard` is the program that runs. */
  function print(...args: readonly string[]): string {
    const launcher = fileURLToPath(new URL("../../../bin/trainyard.js", import.meta.url));
    const called = [launcher, "ppo", "run.ts", ...args];
    const { status, stdout, stderr } = spawnSync(process.execPath, called, { cwd: folder, encoding: "utf8" });
    expect([status, stderr.replace(/^Config: .*\n/, "")]).toEqual([0, ""]);
    return stdout;
  }

  test("shows its keys in --help, and they can be set on the command line", () => {
    expect(print("--help")).toContain("  algorithm.own.from_file.depth=7\n      How deep it looks.");
    const config = print("--cfg", "job", "algorithm.own.from_file.depth=9");
    expect(config).toMatch(/own:\n {4}from_file:\n {6}depth: 9/);
  });
});
