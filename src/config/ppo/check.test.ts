import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { parseOverride } from "../overrides.ts";
import { resolve } from "../resolve.ts";
import { ppoSchema } from "./schema.ts";

const surroundings = { home: "/home/me", env: {} };
const model = "actor_rollout_ref.model.path=m";
const ppo = (...overrides: readonly string[]) =>
  resolve(ppoSchema, [[model, ...overrides].map(parseOverride)], surroundings);

function problem(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  return "";
}

const actor = "actor_rollout_ref.actor";
const rollout = "actor_rollout_ref.rollout";

describe("a mistake is answered with the key, the value and the way out", () => {
  test.each([
    [
      "algorithm.adv_estimatr=gae",
      /`algorithm\.adv_estimatr` .* is not a key of `ppo`\. Nearest: `algorithm\.adv_estimator`/,
    ],
    [
      "algorithm.adv_estimator=grop",
      /`algorithm\.adv_estimator` is "grop", which does not exist\. Did you mean "grpo"/,
    ],
    [`${actor}.policy_loss.loss_mode=vanila`, /`policy_loss\.loss_mode` is "vanila".*"vanilla"/],
    [`${actor}.use_kl_loss=true ${actor}.kl_loss_type=k9`, /The KL kind is "k9"/],
    [`${actor}.clip_ratio_c=1`, /`actor_rollout_ref\.actor\.clip_ratio_c` is 1 .* a number above 1/],
    [`${actor}.loss_agg_mode=mean`, /it takes `token-mean`, /],
    ["data.train_batch_size=100", /ppo_mini_batch_size` is 256, more than `data\.train_batch_size`=100\. .*=100/],
    ["critic.ppo_mini_batch_size=2000", /`critic\.ppo_mini_batch_size` is 2000, more than .*=1024/],
    [`${actor}.ppo_micro_batch_size=2 ${actor}.ppo_micro_batch_size_per_gpu=4`, /is 2 and `.*_per_gpu` is 4/],
    [
      `${actor}.use_dynamic_bsz=true ${actor}.ppo_max_token_len_per_gpu=1000`,
      /allows 1000 tokens per pass.* at least 1024/,
    ],
    ["data.gen_batch_size=96", /`data\.gen_batch_size` is 96 and `data\.train_batch_size` is 1024/],
    [
      "critic.enable=false",
      /`algorithm\.adv_estimator` is gae, which needs a critic's values, and `critic\.enable` is false/,
    ],
    ["algorithm.adv_estimator=grpo trainer.critic_warmup=5", /`trainer\.critic_warmup` is 5, .* there is no critic/],
    ["algorithm.adv_estimator=grpo_passk", /grpo_passk, .* `actor_rollout_ref\.rollout\.n` is 1/],
    ["algorithm.adv_estimator=optimal_token_baseline", /calculate_sum_pi_squared=true/],
    ["algorithm.adv_estimator=gdpo", /`algorithm\.gdpo_reward_keys` names no reward column/],
    [
      "algorithm.adv_estimator=gdpo algorithm.gdpo_reward_keys=[a,b] algorithm.gdpo_reward_weights=[1]",
      /has 1 numbers for the 2 columns/,
    ],
    ["algorithm.filter_groups.enable=true", /`actor_rollout_ref\.rollout\.n`=1 that is every group/],
    ["algorithm.rollout_correction.rollout_is=tokn", /`rollout_correction\.rollout_is` is "tokn"\. Use one of token/],
    ["algorithm.rollout_correction.preset=decoupled", /not a preset of verl 0\.9/],
    ["algorithm.rollout_correction.rollout_rs=seq_mean_k1", /`rollout_rs_threshold` is null/],
    [
      `${actor}.policy_loss.loss_mode=bypass_mode`,
      /is bypass_mode, and `algorithm\.rollout_correction\.bypass_mode` is false/,
    ],
    [`${actor}.policy_loss.loss_mode=dro`, /`policy_loss\.dro_beta` is null/],
    [`${rollout}.temperature=0`, /`actor_rollout_ref\.rollout\.temperature` is 0: .*nothing to learn/],
    [`${rollout}.do_sample=false`, /`actor_rollout_ref\.rollout\.do_sample` is false/],
    [`${rollout}.val_kwargs.n=4`, /`actor_rollout_ref\.rollout\.val_kwargs\.n` is 4, and .*do_sample` is false: all 4/],
    [`${rollout}.max_model_len=1000`, /max_model_len` is 1000, .* at least 1024/],
    ["reward_model.enable=true", /`reward_model\.enable` is true, and `reward_model\.model\.path` is missing/],
    [
      "reward_model.enable=true reward_model.model.path=rm custom_reward_function.path=a.ts",
      /both choose what scores a response/,
    ],
    ["reward_model.judge.url=http://a reward_model.judge.model=j", /`reward_model\.judge\.template` is missing/],
    ["reward_model.reward_manager=dapoo", /`reward_model\.reward_manager` is "dapoo".*"dapo"/],
    [
      "reward_model.reward_manager=dapo reward_model.reward_kwargs.overlong_buffer_cfg.enable=true",
      /overlong_buffer_cfg\.len` is 0/,
    ],
    ["reward_manager.source=importlib", /`reward_manager\.module\.path` names no file/],
    [
      "reward_manager.source=importlib reward_manager.module.path=a.py",
      /Python classes are not loaded\. Write it in TypeScript: .*defineRewardManager/,
    ],
    ["trainer.logger=wandbb", /`trainer\.logger` is "wandbb".*"wandb"/],
    ["trainer.val_only=true data.val_files=null", /`trainer\.val_only` is true, and `data\.val_files` names no file/],
    ["trainer.val_only=true trainer.val_before_train=false", /nothing would be done/],
    ["trainer.resume_mode=resume_path", /`trainer\.resume_from_path` is missing/],
    ["data.train_files=null", /`data\.train_files` names no file/],
    [
      "custom_reward_function={path:a.ts}",
      /it takes a function in a TypeScript config; a file is named by custom_reward_function\.path/,
    ],
  ])("%s", (overrides, message) => {
    expect(problem(() => ppo(...overrides.split(" ")))).toMatch(message);
  });

  test("the model's path", () => {
    expect(problem(() => resolve(ppoSchema, [], surroundings))).toMatch(/`actor_rollout_ref\.model\.path` is missing/);
  });
});

describe("what this version does not do and would change the result is refused", () => {
  test.each([
    ["actor_rollout_ref.model.lora_rank=32", /LoRA is not supported/],
    ["critic.model.lora_rank=32", /LoRA is not supported/],
    ["actor_rollout_ref.model.mtp.enable=true", /Multi-token prediction/],
    [`${rollout}.multi_turn.enable=true`, /tools and further turns are not supported/],
    [`${rollout}.agent.default_agent_loop=tool_agent`, /tools and further turns/],
    ["data.tool_config_path=tools.yaml", /tools and further turns/],
    [`${actor}.router_replay.mode=R3`, /mixtures of experts are not supported/],
    [`${actor}.megatron.router_replay.mode=R2`, /mixtures of experts are not supported/],
    [`${actor}.fsdp_config.qat.enable=true`, /Quantization-aware training/],
    [`${actor}.optim.optimizer=SGD`, /The optimizer is AdamW/],
    ["data.custom_cls.path=a.py", /Python classes are not loaded/],
    ["trainer.v1.trainer_mode=colocate_async", /take turns/],
    ["distillation.enabled=true", /Distillation/],
    ["actor_rollout_ref.hybrid_engine=false", /share their weights/],
    ["reward_model.model.override_config.rope_theta=1", /config\.json of a reward model is used as it is/],
  ])("%s", (override, message) => {
    expect(problem(() => ppo(override))).toMatch(message);
  });
});

describe("what has no effect beside the other keys is said", () => {
  test.each([
    ["algorithm.adv_estimator=grpo critic.optim.lr=1", /^`critic\.optim\.lr` has no effect: .*grpo has no critic/m],
    ["algorithm.kl_penalty=k3", /^`algorithm\.kl_penalty` has no effect: `algorithm\.use_kl_in_reward` is false/m],
    [`${actor}.kl_loss_coef=1`, /kl_loss_coef` has no effect/],
    ["algorithm.use_pf_ppo=true algorithm.adv_estimator=rloo", /`algorithm\.use_pf_ppo` has no effect/],
    [
      `${actor}.use_dynamic_bsz=true ${actor}.ppo_micro_batch_size_per_gpu=2`,
      /ppo_micro_batch_size_per_gpu` has no effect: passes are filled/,
    ],
    [
      `${actor}.ppo_micro_batch_size_per_gpu=2 ${actor}.ppo_max_token_len_per_gpu=9`,
      /ppo_max_token_len_per_gpu` has no effect: passes hold/,
    ],
    ["data.train_files=a trainer.test_freq=5", /`trainer\.test_freq` has no effect: `data\.val_files` names no file/],
    ["reward_model.max_rpm=5", /not rate_limited/],
    ["algorithm.adv_estimator=grpo", /compares the responses to one prompt, and `actor_rollout_ref\.rollout\.n` is 1/],
    [`algorithm.use_kl_in_reward=true ${actor}.use_kl_loss=true`, /counts twice/],
    ["algorithm.adv_estimator=rloo critic.enable=true", /A critic is trained .* does not use its values/],
    ["trainer.logger=[console,swanlab]", /swanlab.*not available/],
  ])("%s", (overrides, message) => {
    expect(ppo(...overrides.split(" ")).notices.join("\n")).toMatch(message);
  });

  test("a key that repeats its default says nothing", () => {
    expect(ppo("algorithm.kl_penalty=kl", `${actor}.kl_loss_coef=0.001`, "trainer.n_gpus_per_node=1").notices).toEqual(
      [],
    );
  });
});
