import { describe, expect, test } from "vitest";
import { advantageNames } from "../../algos/advantages/registry.ts";
import { correctionDefaults, correctionPresets } from "../../algos/correction/presets.ts";
import { defineConfig } from "../define-config.ts";
import { entriesOf } from "../entries.ts";
import { type Entry, parseOverride } from "../overrides.ts";
import { resolve } from "../resolve.ts";
import { rewardTree } from "./reward-tree.ts";
import { type PpoConfig, ppoSchema } from "./schema.ts";
import * as settings from "./settings.ts";
import { FunctionInFile } from "./values.ts";

const surroundings = { home: "/home/me", env: {} };
const model = "actor_rollout_ref.model.path=m";
const resolved = (entries: readonly Entry[]) => resolve(ppoSchema, [entries], surroundings);
const ppo = (...overrides: readonly string[]) => resolved([model, ...overrides].map(parseOverride));
const configOf = (...overrides: readonly string[]): PpoConfig => ppo(...overrides).config;

test("what algorithms get by default is verl's", () => {
  const config = configOf();
  const shared = { loss_agg_mode: "token-mean", loss_scale_factor: null, version: "0.9" };
  expect(settings.actorSettings(config)).toEqual({
    ...shared,
    clip_ratio: 0.2,
    clip_ratio_low: 0.2,
    clip_ratio_high: 0.2,
    clip_ratio_c: 3,
    tau_pos: 1,
    tau_neg: 1.05,
    policy_loss: {
      loss_mode: "vanilla",
      clip_cov_ratio: 0.0002,
      clip_cov_lb: 1,
      clip_cov_ub: 5,
      kl_cov_ratio: 0.0002,
      ppo_kl_coef: 0.1,
      dro_beta: null,
    },
    rollout_correction: { loss_type: "ppo_clip" },
    entropy_coeff: 0,
    use_kl_loss: false,
    kl_loss_coef: 0.001,
    kl_loss_type: "low_var_kl",
  });
  expect(settings.criticSettings(config)).toEqual({ ...shared, cliprange_value: 0.5 });
  expect(settings.advantageSettings(config)).toEqual({
    gamma: 1,
    lam: 1,
    norm_adv_by_std_in_grpo: true,
    gdpo_reward_keys: [],
    gdpo_reward_weights: null,
    handle_zero_tail: true,
    version: "0.9",
  });
  expect(settings.klSettings(config)).toEqual({ type: "fixed", kl_coef: 0.001 });
  expect(config.algorithm.rollout_correction).toMatchObject(correctionDefaults["0.7"]);
  expect([settings.rowSelection(config).name, settings.groupFilter(config)]).toEqual(["all", null]);
});

test("which rows, groups and reward columns count is looked up", () => {
  const config = configOf(
    "algorithm.filter_groups={enable: true, metric: acc, max_num_gen_batches: 3}",
    "algorithm.adv_estimator=gdpo",
    "algorithm.gdpo_reward_keys=[style,truth]",
    "actor_rollout_ref.rollout.n=4",
  );
  const filter = settings.groupFilter(config)!;
  expect(filter).toMatchObject({ column: "acc", maxRounds: 3 });
  expect([[1, 1, 1], [0, 1, 1], [], [true]].map(filter.keeps)).toEqual([false, true, false, false]);
  expect(settings.rewardColumns(config)).toEqual({
    columns: ["style", "truth"],
    key: "algorithm.gdpo_reward_keys",
  });
  expect(settings.rewardColumns(configOf()).columns).toEqual([]);
});

test("PF-PPO selects the rows with gae only, as in verl", () => {
  const config = configOf("algorithm.use_pf_ppo=true");
  const selected = advantageNames().filter((name) => {
    const algorithm = { ...config.algorithm, adv_estimator: name };
    return settings.rowSelection({ ...config, algorithm }).name === "pf-ppo";
  });
  expect(selected).toEqual(["gae"]);
});

describe("what follows from the values is filled in", () => {
  test("interpolated defaults follow what is set", () => {
    const actor = "actor_rollout_ref.actor";
    const config = configOf(
      ...[`${actor}.ppo_mini_batch_size=64`, `${actor}.use_dynamic_bsz=true`, `${actor}.clip_ratio=0.1`],
      ...[
        `${actor}.loss_agg_mode=seq-mean-token-mean`,
        "critic.ppo_max_token_len_per_gpu=50000",
        "data.max_prompt_length=99",
      ],
    );
    expect(config.critic).toMatchObject({
      ppo_mini_batch_size: 64,
      use_dynamic_bsz: true,
      loss_agg_mode: "seq-mean-token-mean",
      forward_max_token_len_per_gpu: 50000,
      model: { path: "m" },
    });
    expect(config.actor_rollout_ref.actor).toMatchObject({ clip_ratio_low: 0.1, clip_ratio_high: 0.1 });
    expect(config.actor_rollout_ref.ref).toMatchObject({ log_prob_use_dynamic_bsz: true });
    expect(config.actor_rollout_ref.rollout.prompt_length).toBe(99);
    expect(config.reward_model.forward_max_token_len_per_gpu).toBe(50000);
  });

  test.each([
    ["gae", "null", true],
    ["grpo", "null", false],
    ["grpo", "true", true],
    ["rloo", "false", false],
  ])("with adv_estimator=%s and critic.enable=%s there is a critic: %s", (name, enable, isTrained) => {
    expect(configOf(`algorithm.adv_estimator=${name}`, `critic.enable=${enable}`).critic.enable).toBe(isTrained);
  });

  test("a preset of rollout correction sets its keys, and those given beside it win", () => {
    const of = (...overrides: readonly string[]) =>
      configOf(...overrides.map((it) => `algorithm.rollout_correction.${it}`)).algorithm.rollout_correction;
    for (const version of ["0.7", "0.9"] as const)
      for (const [name, keys] of Object.entries(correctionPresets[version]))
        expect(of(`preset=${name}`, `version="${version}"`), name).toMatchObject(keys);
    expect(of("preset=decoupled_token_is", "rollout_is_threshold=5").rollout_is_threshold).toBe(5);
    expect(of("rollout_is_threshold='0.5_5.0'", "rollout_is=token").rollout_is_threshold).toBe("0.5_5.0");
  });

  test("bypass mode brings its policy loss, in verl 0.9 only in the place of PPO's own", () => {
    const bypass = "algorithm.rollout_correction.preset=bypass_pg_is";
    const gspo = "actor_rollout_ref.actor.policy_loss.loss_mode=gspo";
    const lossOf = ({ config }: ReturnType<typeof ppo>) => settings.actorSettings(config).policy_loss;
    expect(lossOf(ppo(bypass)).loss_mode).toBe("bypass_mode");
    expect(settings.actorSettings(ppo(bypass).config).rollout_correction.loss_type).toBe("reinforce");
    expect(ppo(bypass).notices).toEqual([]);
    const kept = ppo(bypass, gspo);
    expect(lossOf(kept).loss_mode).toBe("gspo");
    expect(kept.notices.join()).toMatch(/=gspo takes the sampler's log-probs as the old ones/);
    const replaced = ppo(bypass, gspo, 'algorithm.version="0.7"');
    expect(lossOf(replaced).loss_mode).toBe("bypass_mode");
    expect(replaced.notices.join()).toMatch(/whatever `policy_loss\.loss_mode` says/);
  });

  test("an older micro-batch size is the newer one, and without any, passes are filled by tokens", () => {
    const part = "actor_rollout_ref.rollout.log_prob_micro_batch_size";
    expect(settings.microBatching(configOf(`${part}=8`), "old_log_prob")).toEqual({ rows: 8 });
    expect(settings.microBatching(configOf("critic.ppo_micro_batch_size=8"), "values")).toEqual({ rows: 8 });
    expect(settings.microBatching(configOf(), "actor")).toEqual({ maxTokens: 16384 });
    const long = configOf("data.max_response_length=20000");
    expect(settings.microBatching(long, "actor")).toEqual({ maxTokens: 20512 });
    const twice = configOf("actor_rollout_ref.actor.ulysses_sequence_parallel_size=2");
    expect(settings.microBatching(twice, "ref")).toEqual({ maxTokens: 32768 });
  });

  test("a temperature for validation samples there, unless that is switched off", () => {
    const key = "actor_rollout_ref.rollout.val_kwargs";
    const temperature = (...overrides: readonly string[]) =>
      settings.samplingSettings(configOf(...overrides.map((it) => `${key}.${it}`)), "val").temperature;
    expect([temperature(), temperature("temperature=0.6")]).toEqual([0, 0.6]);
    expect(temperature("temperature=0.6", "do_sample=false")).toBe(0);
  });

  test("training files of one's own come without verl's validation files", () => {
    expect(configOf().data.val_files).toEqual(["/home/me/data/rlhf/gsm8k/test.parquet"]);
    expect(configOf("data.train_files=a.jsonl").data.val_files).toEqual([]);
    expect(configOf("data.train_files=a.jsonl", "data.val_files=b.jsonl").data.val_files).toEqual(["b.jsonl"]);
  });

  test.each([
    ["False", -1],
    ["0", -1],
    ["-1", -1],
    ["5", 5],
  ])("trainer.test_freq=%s is %s", (written, steps) => {
    expect(configOf(`trainer.test_freq=${written}`).trainer.test_freq).toBe(steps);
  });
});

describe("a reward function may stand in a TypeScript config", () => {
  const input = defineConfig({
    actor_rollout_ref: { model: { path: "m" } },
    custom_reward_function: ({ response, groundTruth }) => (response.trim() === groundTruth ? 1 : 0),
  });
  const entries = entriesOf({ ...input }, () => "in trainyard.config.ts");

  test("it comes through, to be called", async () => {
    const [part] = rewardTree(resolved(entries).config).parts;
    const scorer = part?.use === "function" && part.scorer.kind === "function" ? part.scorer : null;
    const sample = { dataSource: "", prompt: "", groundTruth: "4", extraInfo: {}, responseLength: 1 };
    expect(await scorer?.run({ ...sample, response: " 4" })).toBe(1);
    expect(await scorer?.run({ ...sample, response: "5" })).toBe(0);
  });

  test("one that a file holds is printed as that file, where reward processes load it", () => {
    for (const path of ["custom_reward_function", "reward.custom_reward_function"]) {
      const entry: Entry = { path, value: new FunctionInFile("/a/run.ts"), op: "set", where: "" };
      const { config } = resolved([parseOverride(model), entry]);
      const scorer = { kind: "config", path: "/a/run.ts" };
      expect(rewardTree(config).parts).toEqual([{ use: "function", key: "custom_reward_function", scorer }]);
      expect(JSON.parse(JSON.stringify(config)).custom_reward_function.function.path).toBe("/a/run.ts");
    }
  });

  test("a path besides it is refused", () => {
    const both = [...entries, parseOverride("custom_reward_function.path=a.ts")];
    expect(() => resolved(both)).toThrow(/`custom_reward_function\.path` is a\.ts, and the config file holds/);
  });
});

test("the resolved config survives JSON", () => {
  const { config } = ppo("algorithm.rollout_correction.preset=decoupled_token_is", "actor_rollout_ref.rollout.n=4");
  expect(JSON.parse(JSON.stringify(config))).toEqual(config);
});
