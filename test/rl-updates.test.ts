/** Updates of `trainyard ppo` as verl makes them: which rows, at which learning rate, and what is logged of mini-batches. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { Yard } from "./rl-yard.ts";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

const actor = "actor_rollout_ref.actor";
const gae = "algorithm.adv_estimator=gae";

test.each([
  ["gae", false],
  ["rloo", true],
  ["reinforce_plus_plus", true],
])("PF-PPO redraws the responses with gae only: with %s the run is the same without it: %s", async (name, isSame) => {
  const keys = [`algorithm.adv_estimator=${name}`];
  await yard.play(`${name}-plain`, keys);
  await yard.play(`${name}-pf`, [...keys, "algorithm.use_pf_ppo=true"]);
  const [plain, filtered] = [await yard.outcome(`${name}-plain`), await yard.outcome(`${name}-pf`)];
  if (isSame) expect(filtered).toEqual(plain);
  else expect(filtered.files).not.toEqual(plain.files);
});

test("the actor's learning rate counts its own updates, so critic_warmup only delays the schedule", async () => {
  const steps = (count: number) => [`trainer.total_training_steps=${count}`, "trainer.save_freq=2"];
  const schedule = [gae, `${actor}.optim.lr_warmup_steps=3`, "critic.optim.lr_warmup_steps=3"];
  const rates = (metrics: Record<string, number>[], role: string) => metrics.map((data) => data[`${role}/lr`]);
  const at = await yard.play("at-once", [...schedule, ...steps(4)]);
  const late = await yard.play("late", [...schedule, ...steps(6), "trainer.critic_warmup=3"]);
  expect(rates(at, "actor")).toEqual([0, 1e-2 / 3, 2e-2 / 3, 1e-2].map((rate) => expect.closeTo(rate, 12)));
  expect(rates(late, "actor")).toEqual([undefined, undefined, ...rates(at, "actor")]);
  expect(rates(late, "critic").slice(0, 4)).toEqual(rates(at, "critic"));

  await yard.play("late-twice", [...schedule, ...steps(4), "trainer.critic_warmup=3"]);
  await yard.play("late-twice", [...schedule, ...steps(6), "trainer.critic_warmup=3"]);
  expect(await yard.outcome("late-twice")).toEqual(await yard.outcome("late"));
});

test("the largest and smallest values over mini-batches are logged under names with max and min, else means", async () => {
  // In bypass mode the weights of the first mini-batch are 1; the update moves those of the second away from it.
  const keys = ["algorithm.rollout_correction.preset=bypass_pg_is", `${actor}.optim.lr=0.1`];
  const [, data] = await yard.play("reduced", keys);
  const metric = (name: string) => data![`rollout_corr/rollout_is_${name}`]!;
  expect(metric("max")).toBeCloseTo(1, 5); // of the first mini-batch
  expect(metric("min")).toBeLessThan(0.01); // of the second one; the mean of both would be above 0.5
  expect(metric("seq_max_deviation")).toBeGreaterThan(0.9); // the mean would be below 0.5
  expect(metric("mean")).toBeGreaterThan(0.5);
  expect(metric("mean")).toBeLessThan(0.6);
});

test("a clip of 0 is legal, as in verl: what moved away from the old policy and the old values no longer learns", async () => {
  const keys = [
    gae,
    "algorithm.gamma=0",
    "algorithm.lam=0",
    "algorithm.use_kl_in_reward=true",
    "algorithm.kl_ctrl.kl_coef=0",
    `${actor}.clip_ratio=0`,
    `${actor}.ppo_epochs=2`,
    "critic.cliprange_value=0",
    "critic.ppo_epochs=2",
  ];
  const [, data] = await yard.play("no-range", keys);
  expect(data!["critic/vf_clipfrac"]).toBeGreaterThan(0.1);
  expect(data!["actor/pg_clipfrac"]).toBeGreaterThan(0.1);
  expect(Object.values(data!).every(Number.isFinite)).toBe(true);

  const [, wide] = await yard.play("wide-range", [...keys, "critic.cliprange_value=100"]);
  expect(wide!["critic/vf_clipfrac"]).toBe(0);
  expect(wide!["critic/vf_loss"]).not.toBe(data!["critic/vf_loss"]);
});
