import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { hasInterpolation as isOpen } from "../interpolate.ts";
import { type Entry, parseOverride } from "../overrides.ts";
import { resolve } from "../resolve.ts";
import { allKeys, find } from "../schema.ts";
import { rewardTree } from "./reward-tree.ts";
import { type PpoConfig, ppoSchema } from "./schema.ts";
import * as settings from "./settings.ts";

function read<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../../../test/fixtures/${name}`, import.meta.url), "utf8"));
}

const surroundings = { home: "/home/me", env: {} };
const model = "actor_rollout_ref.model.path=m";

function resolved(...sources: readonly (readonly Entry[])[]) {
  return resolve(ppoSchema, sources, surroundings);
}

const ppo = (...overrides: readonly string[]) => resolved([model, ...overrides].map(parseOverride));
const configOf = (...overrides: readonly string[]): PpoConfig => ppo(...overrides).config;

function problem(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  return "";
}

type Recipe = { readonly program: string; readonly overrides: readonly string[] };
const recipes = Object.entries(read<Record<string, readonly Recipe[]>>("verl-recipes.json")).flatMap(([file, runs]) =>
  runs.map((run) => ({ file, ...run })),
);
const ppoRecipes = recipes.filter(({ program }) => program === "verl.trainer.main_ppo");

/** Recipes that are refused, each with what it is told. The script's own comment cuts this one's command short. */
const refusedRecipes: Readonly<Record<string, RegExp>> = {
  "examples/ppo_trainer/run_deepseek7b_llm_pfppo.sh": /^` ` is not an override\. Write key=value/,
};

const paths = ["data.train_files=train.parquet", "data.val_files=test.parquet", model, "critic.model.path=m"].map(
  parseOverride,
);

describe("verl's recipes are taken as they are, or refused by name", () => {
  test.each(ppoRecipes)("$file", ({ file, overrides }) => {
    const refusal = refusedRecipes[file];
    if (refusal !== undefined) {
      expect(problem(() => overrides.map(parseOverride))).toMatch(refusal);
      return;
    }
    const entries = overrides.map(parseOverride);
    const { config, notices } = resolved(entries, paths);
    expect(config.data.train_files).toEqual(["train.parquet"]);
    const [noEffect = ""] = notices;
    for (const { path, value } of entries) {
      const found = find(ppoSchema, path);
      expect(["field", "inert", "refused"], path).toContain(found.kind);
      if (found.kind !== "inert") continue;
      const isSame = found.inert.same.some((same) => isDeepStrictEqual(same, value));
      expect(noEffect.includes(`${path}=`), path).toBe(!isSame);
      if (!isSame) expect(noEffect).toContain(found.inert.instead);
    }
  });

  test("there are 39 of them, the ten of sft among them", () => {
    expect([recipes.length, ppoRecipes.length]).toEqual([39, 29]);
  });

  test("what a recipe sets is what the config holds", () => {
    const recipe = ppoRecipes.find(({ file }) => file.endsWith("run_qwen2-7b_rm_seq_balance.sh"));
    const { config } = resolved((recipe?.overrides ?? []).map(parseOverride));
    expect(config.data).toMatchObject({ train_batch_size: 4096, max_response_length: 4096 });
    expect(config.actor_rollout_ref.rollout).toMatchObject({ log_prob_use_dynamic_bsz: true, response_length: 4096 });
    expect(config.critic).toMatchObject({ enable: true, ppo_mini_batch_size: 512, optim: { lr: 1e-5 } });
    expect(config.reward_model.model.path).toBe("sfairXC/FsfairX-LLaMA3-RM-v0.1");
    expect(config.trainer.logger).toEqual(["console", "wandb"]);
    expect(settings.microBatching(config, "actor")).toEqual({ maxTokens: 24000 });
    expect(settings.microBatching(config, "values")).toEqual({ maxTokens: 98304 });
    expect(rewardTree(config).parts).toMatchObject([{ use: "model", key: "reward_model" }]);
  });
});

type Keys = Readonly<Record<string, unknown>>;
const verlKeys = read<Readonly<Record<string, Keys>>>("verl-ppo-keys.json");

/** Defaults that differ on purpose: see the heads of the files. */
const ours: Readonly<Record<string, string>> = {
  "actor_rollout_ref.model.path": "must be given",
  "critic.model.path": "the actor's",
  "critic.model.tokenizer_path": "null in 0.9, the actor's in 0.7",
  "actor_rollout_ref.actor.clip_ratio_low": "follows clip_ratio",
  "actor_rollout_ref.actor.clip_ratio_high": "follows clip_ratio",
  "actor_rollout_ref.rollout.seed": "trainer.seed",
  "reward_model.model.path": "none",
  "reward_model.num_workers": "as many as the machine has cores",
  "trainer.save_freq": "the last step is saved",
  "trainer.logger": "no account needed",
  "trainer.device": "any machine has it",
};

describe("every key of verl's configs has a home", () => {
  test.each(Object.entries(verlKeys))("%s: it is honoured, named or refused", (_, keys) => {
    for (const key of Object.keys(keys))
      expect(["field", "inert", "refused"], key).toContain(find(ppoSchema, key).kind);
  });

  test.each(Object.entries(verlKeys))("%s: its values are taken as a whole file", (_, keys) => {
    const entries = Object.entries(keys).map(
      ([path, value]): Entry => ({ path, value, op: "set", where: "in f.yaml" }),
    );
    const older = entries.filter(({ value }) => value === null); // 0.9 keeps 0.7's spellings as null
    const others = entries.filter((entry) => !older.includes(entry));
    expect(problem(() => resolved([parseOverride(model)], older, others))).toBe("");
  });

  const defaults = [verlKeys.ppo_trainer ?? {}, verlKeys["ppo_trainer_0.9"] ?? {}].flatMap((keys) =>
    Object.entries(keys).flatMap(([key, value]) => {
      const found = find(ppoSchema, key);
      const isOlder = value === null && found.key !== key; // 0.9 keeps 0.7's spellings as null
      return found.kind === "field" && !isOlder ? [{ ...found, value }] : [];
    }),
  );

  test("the defaults are verl's, except those that differ on purpose", () => {
    const same = defaults.filter(({ key }) => !Object.hasOwn(ours, key));
    for (const { key, value, field } of same.filter(({ value, field }) => !isOpen(value) && !isOpen(field.default)))
      expect(field.type.schema.parse(value), key).toEqual(field.type.schema.parse(field.default));
    const open = same.filter(({ value, field }) => isOpen(value) || isOpen(field.default));
    const entries = open.map(({ key, value }): Entry => ({ path: key, value, op: "set", where: "" }));
    expect(resolved([parseOverride(model)], ...entries.map((entry) => [entry])).config).toEqual(configOf());
  });

  test("those that are listed as different are", () => {
    for (const key of Object.keys(ours)) {
      const of = defaults.filter((it) => it.key === key);
      expect(
        of.some(({ value, field }) => !isDeepStrictEqual(value, field.default)),
        key,
      ).toBe(true);
    }
  });
});

describe("0.9's spellings are those of 0.7", () => {
  const actor = "actor_rollout_ref.actor";
  test.each([
    ["reward.num_workers=3", "reward_model.num_workers=3"],
    ["reward.reward_model.model_path=rm", "reward_model.model.path=rm"],
    ["reward.reward_manager.name=prime", "reward_model.reward_manager=prime"],
    ["reward.sandbox_fusion.url=http://a", "reward_model.sandbox_fusion.url=http://a"],
    ["reward.custom_reward_function.path=a.ts", "custom_reward_function.path=a.ts"],
    ["reward.reward_kwargs.overlong_buffer_cfg.len=9", "reward_model.reward_kwargs.overlong_buffer_cfg.len=9"],
    [`${actor}.optim.clip_grad=0.5`, `${actor}.grad_clip=0.5`],
    [`${actor}.optim.lr_decay_style=cosine`, `${actor}.optim.lr_scheduler_type=cosine`],
  ])("%s", (newer, older) => {
    const { reward_manager: a, ...first } = configOf(newer);
    const { reward_manager: b, ...second } = configOf(older);
    expect(a).toEqual(b);
    expect({ ...first, reward_model: { ...first.reward_model, reward_manager: "" } }).toEqual({
      ...second,
      reward_model: { ...second.reward_model, reward_manager: "" },
    });
  });

  test("critic.fsdp has no effect either", () => {
    expect(ppo("critic.fsdp.param_offload=true").notices[0]).toContain("critic.fsdp.param_offload=true");
    expect(ppo("trainer.v1.trainer_mode=sync", "trainer.use_v1=true").notices[0]).not.toContain("trainer_mode");
  });
});

test("any overrides give a config or a UserError", () => {
  const keys = [...allKeys(ppoSchema), "data", "critic", "algorithm", "__proto__", "constructor", "a.b"];
  const values = fc.constantFrom("1", "-1", "null", "true", "x", "[1,a]", "{a: {b: 1}}", "${data.seed}", "???", "{}");
  const override = fc.tuple(fc.constantFrom("", "+", "~"), fc.constantFrom(...keys), values);
  fc.assert(
    fc.property(fc.array(override, { maxLength: 4 }), (parts) => {
      problem(() => ppo(...parts.map(([op, key, value]) => `${op}${key}${op === "~" ? "" : `=${value}`}`)));
    }),
    { numRuns: 100 },
  );
});
