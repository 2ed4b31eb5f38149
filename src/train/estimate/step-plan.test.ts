/** The config decides what a step consists of: which roles are opened, which passes are made, and how often. */
import { describe, expect, test } from "vitest";
import { charConfig } from "../../../test/rl-yard.ts";
import { parseOverride } from "../../config/overrides.ts";
import { modelParts } from "../../config/ppo/reward-tree.ts";
import { ppoSchema } from "../../config/ppo/schema.ts";
import { resolve } from "../../config/resolve.ts";
import { parseConfig } from "../../models/config.ts";
import { rlPlan } from "./step-plan.ts";

const model = parseConfig(charConfig, "chars");
const prompts = Array.from({ length: 4 }, (_, i) => Int32Array.from({ length: 3 + i }, () => i));

function planOf(...overrides: readonly string[]) {
  const keys = [
    "actor_rollout_ref.model.path=m",
    "data.train_files=t",
    "data.train_batch_size=4",
    "data.max_prompt_length=8",
    "data.max_response_length=6",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "algorithm.adv_estimator=grpo",
    ...overrides,
  ];
  const { config } = resolve(ppoSchema, [keys.map(parseOverride)], { home: "/", env: {} });
  const critic = config.critic.enable ? model : null;
  const rewardModels = modelParts(config).map((part) => ({ part, config: model }));
  return rlPlan(config, { actor: model, critic, rewardModels }, [prompts, prompts]);
}

const rolesOf = (...overrides: readonly string[]) => planOf(...overrides).roles.map(({ name }) => name);
const timersOf = (...overrides: readonly string[]) => planOf(...overrides).passes.map(({ timer }) => timer);

test.each([
  ["an estimator without a critic", [], ["actor"], ["check", "update_actor"]],
  [
    "a critic",
    ["algorithm.adv_estimator=gae"],
    ["actor", "critic"],
    ["check", "values", "update_critic", "update_actor"],
  ],
  ["a KL loss", ["actor_rollout_ref.actor.use_kl_loss=true"], ["actor", "reference"], ["check", "ref", "update_actor"]],
  [
    "a reward model",
    ["reward_model.enable=true", "reward_model.model.path=r"],
    ["actor", "reward model"],
    ["gen", "check", "update_actor"],
  ],
  [
    "several reward models",
    [
      "reward_model.model.path=r",
      "reward.models.kind.model.path=k",
      "reward.sources={a:[{use:model},{use:model,name:kind}],'*':[{use:scorer,name:math}]}",
    ],
    ["actor", "reward model", "reward model kind"],
    ["gen", "gen", "check", "update_actor"],
  ],
  ["a cut distribution", ["actor_rollout_ref.rollout.top_p=0.9"], ["actor"], ["old_log_prob", "update_actor"]],
])("%s: the roles and passes", (_, overrides, roles, timers) => {
  expect(rolesOf(...overrides)).toEqual(roles);
  expect(timersOf(...overrides)).toEqual(timers);
});

describe("a pass", () => {
  test("over the step has every response of every prompt, with the longest length", () => {
    const [pass] = planOf("actor_rollout_ref.rollout.top_p=0.9").passes;
    expect(pass?.batches.map((rows) => rows.map(({ ids }) => ids.length))).toEqual([
      [9, 9, 10, 10, 11, 11, 12, 12],
      [9, 9, 10, 10, 11, 11, 12, 12],
    ]);
    expect(pass?.batches[0]?.[0]?.mask).toEqual(Uint8Array.of(0, 0, 0, 1, 1, 1, 1, 1, 1));
  });

  test("that trains is made once per mini-batch and epoch", () => {
    const timesOf = (...overrides: readonly string[]) =>
      planOf(...overrides).passes.find(({ timer }) => timer === "update_actor")?.times;
    expect(timesOf()).toBe(1);
    expect(timesOf("actor_rollout_ref.actor.ppo_mini_batch_size=1")).toBe(4);
    expect(timesOf("actor_rollout_ref.actor.ppo_mini_batch_size=1", "actor_rollout_ref.actor.ppo_epochs=3")).toBe(12);
  });
});

describe("sampling", () => {
  test("is n responses per prompt, and greedy ones where the estimator needs them as a baseline", () => {
    const counts = (...overrides: readonly string[]) => planOf(...overrides).sampling.map(({ timer, n }) => [timer, n]);
    expect(counts()).toEqual([["gen", 2]]);
    expect(counts("algorithm.adv_estimator=remax")).toEqual([
      ["gen", 2],
      ["gen_max", 1],
    ]);
  });

  test("is left out where servers do it", () => {
    const plan = planOf("actor_rollout_ref.rollout.base_url=http://127.0.0.1:1/v1");
    expect(plan.sampling).toEqual([]);
    expect(plan.passes.map(({ timer }) => timer)).toEqual(["old_log_prob", "update_actor"]);
  });
});
