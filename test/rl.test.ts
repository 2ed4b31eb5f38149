import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { advantageNames, findAdvantage } from "../src/algos/advantages/registry.ts";
import { correctionPresets } from "../src/algos/correction/presets.ts";
import { klNames } from "../src/algos/kl/estimates.ts";
import { policyLossNames } from "../src/algos/losses/policy/registry.ts";
import type { RewardFunction } from "../src/rewards/reward.ts";
import { Yard } from "./rl-yard.ts";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

const actor = "actor_rollout_ref.actor";
const rollout = "actor_rollout_ref.rollout";
const correction = "algorithm.rollout_correction";

/** Runs share folders, so that each begins anew. */
const anew = "trainer.resume_mode=disable";

type Metrics = Record<string, number>[];

/** Every number is one, and the actor has a gradient to learn from. */
function expectSteps(metrics: Metrics): void {
  expect(metrics).toHaveLength(2);
  expect(Math.max(...metrics.map((data) => data["actor/grad_norm"]!))).toBeGreaterThan(0);
  for (const data of metrics)
    for (const [name, value] of Object.entries(data)) expect([name, Number.isFinite(value)]).toEqual([name, true]);
}

describe("two steps are taken with", () => {
  const needsSums = (name: string) => findAdvantage(name).needs.includes("sumPiSquared");
  const sums = `${actor}.calculate_sum_pi_squared=true`;
  const losses = policyLossNames().filter((name) => name !== "bypass_mode");
  const presets = Object.entries(correctionPresets).flatMap(([version, named]) =>
    Object.keys(named).map((name) => [`${correction}.preset=${name}`, `${correction}.version="${version}"`]),
  );
  const columns = "algorithm.gdpo_reward_keys=[acc,early]";
  const cases: readonly (readonly string[])[] = [
    ...advantageNames().map((name) => [
      `algorithm.adv_estimator=${name}`,
      ...(name === "gdpo" ? [columns] : []),
      ...(needsSums(name) ? [sums] : []),
    ]),
    ...losses.map((name) => [
      `${actor}.policy_loss.loss_mode=${name}`,
      ...(name === "dro" ? [`${actor}.policy_loss.dro_beta=0.1`] : []),
    ]),
    ...klNames().map((kind) => [
      `${actor}.use_kl_loss=true`,
      `${actor}.kl_loss_type=${kind}`,
      "algorithm.use_kl_in_reward=true",
      `algorithm.kl_penalty=${kind}`,
    ]),
    ["algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.type=adaptive"],
    ...presets,
    ...["pow", "max_min", "max_random"].map((method) => [
      "algorithm.adv_estimator=gae",
      "algorithm.use_pf_ppo=true",
      `algorithm.pf_ppo.reweight_method=${method}`,
    ]),
    ["algorithm.filter_groups.enable=true", "data.gen_batch_size=2"],
    ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc"],
    ["algorithm.adv_estimator=gae", `${actor}.shuffle=true`, `${actor}.ppo_epochs=2`],
    ["algorithm.adv_estimator=gae", `${actor}.use_dynamic_bsz=true`, `${actor}.ppo_max_token_len_per_gpu=32`],
    [`${actor}.entropy_coeff=0.01`, `${actor}.calculate_entropy=true`],
    [`${rollout}.top_k=4`, `${rollout}.temperature=0.7`],
    ["trainer.balance_batch=false", "data.shuffle=false"],
    [
      "reward_model.reward_manager=dapo",
      "reward_model.reward_kwargs.overlong_buffer_cfg.enable=true",
      "reward_model.reward_kwargs.overlong_buffer_cfg.len=2",
    ],
  ];
  test.each(cases.map((keys) => [keys.join(" "), keys] as const))("%s", async (_, keys) => {
    expectSteps(await yard.play("table", [...keys, anew, "trainer.save_freq=-1"]));
  });
});

test("until critic_warmup only the critic learns", async () => {
  const keys = ["algorithm.adv_estimator=gae", "trainer.critic_warmup=2"];
  const [first, second] = await yard.play("warmup", keys);
  expect(Object.keys(first!).filter((name) => /^actor\/(loss|lr|grad_norm)$/.test(name))).toEqual([]);
  for (const data of [first, second]) expect(data!["critic/grad_norm"]).toBeGreaterThan(0);
  expect(second!["actor/grad_norm"]).toBeGreaterThan(0);
});

test("remax compares each response with the greedy one to its prompt", async () => {
  const greedy = new Map<string, number>();
  const keys = ["algorithm.adv_estimator=remax", "trainer.total_training_steps=1", "trainer.balance_batch=false"];
  const seen: string[] = [];
  const [data] = await yard.play("remax", [...keys, `${rollout}.n=2`], (input) => {
    seen.push(input.prompt);
    if (seen.length > 8) greedy.set(input.prompt, 5); // the first eight are the drawn ones
    return seen.length > 8 ? 5 : 1;
  });
  expect([seen.length, greedy.size]).toEqual([12, 4]);
  expect(data).toMatchObject({ "critic/score/mean": 1, "critic/advantages/max": -4, "critic/advantages/min": -4 });
});

test("a response whose reward went wrong teaches nothing, and moves no mean", async () => {
  let count = 0;
  const half: RewardFunction = (input) => {
    if (count++ % 2 === 1) throw new Error("no reward today");
    return { score: 1, truth: input.groundTruth };
  };
  const keys = ["reward.error_budget=1", "trainer.total_training_steps=1"];
  const [data] = await yard.play("half", keys, half);
  expect(data).toMatchObject({ "critic/score/mean": 1, "critic/score/min": 1 });
  const none = await yard.play("none", keys, () => {
    throw new Error("no reward ever");
  });
  expect(none).toEqual([expect.objectContaining({ "actor/grad_norm": 0 })]);
  expect(none[0]).not.toHaveProperty(["critic/score/mean"]);
});

test("a reward that goes wrong beyond the budget stops the run, though sampling is under way", async () => {
  let count = 0;
  const keys = ["data.max_response_length=40", `${rollout}.ignore_eos=true`];
  const broken: RewardFunction = () => {
    count++;
    throw new Error("no reward today");
  };
  await expect(yard.play("broken", keys, broken)).rejects.toThrow(/rewards could not be computed.*no reward today/);
  expect(count).toBeGreaterThan(0);
});

test("weights that are no numbers stop the run after so many steps, and the checkpoint before them stays", async () => {
  const keys = ["trainer.total_training_steps=9", "trainer.save_freq=1", "trainer.max_skipped_updates=1"];
  await yard.play("blown", keys.with(0, "trainer.total_training_steps=1"));
  const before = await yard.outcome("blown");
  const blown = [...keys, `${actor}.optim.lr=1e25`, "trainer.save_freq=9"];
  await expect(yard.play("blown", blown)).rejects.toThrow(/2 steps in a row had a gradient that is not finite/);
  expect((await yard.outcome("blown")).files).toEqual(before.files);
});

test("groups that do not differ are sampled anew until they do, which is said where it goes on for long", async () => {
  let scored = 0;
  const later: RewardFunction = () => (++scored > 11 * 16 ? scored : 0);
  const keys = ["algorithm.filter_groups.enable=true", "trainer.total_training_steps=2"];
  expectSteps(await yard.play("again", keys, later));
  expect(scored).toBe((12 + 1) * 16);
  const said = await readFile(yard.path("again", "log.txt"), "utf8");
  expect(said.match(/warning: .*/g)).toEqual([
    expect.stringMatching(
      /Step 1: after 10 rounds of sampling 0 of 4 groups have scores that differ\. Sampling goes on/,
    ),
  ]);
});

test("the advantages of gdpo are made of the columns that it names", async () => {
  const reward: RewardFunction = ({ response }) => {
    const isSeven = response.includes("7");
    return { score: isSeven ? 1 : 0, opposite: isSeven ? 0 : 1 };
  };
  const keys = ["trainer.total_training_steps=1", "algorithm.adv_estimator=gdpo"];
  const one = await yard.play("gdpo1", [...keys, "algorithm.gdpo_reward_keys=[score]"], reward);
  const two = await yard.play("gdpo2", [...keys, "algorithm.gdpo_reward_keys=[opposite]"], reward);
  expect(one[0]!["critic/advantages/max"]).toBeCloseTo(-two[0]!["critic/advantages/min"]!, 4);
  expect(Math.abs(one[0]!["critic/advantages/max"]! + one[0]!["critic/advantages/min"]!)).toBeGreaterThan(0.1);
});
