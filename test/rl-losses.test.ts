/** Policy losses that look at a mini-batch as a whole get what they ask for from the loop. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { Yard } from "./rl-yard.ts";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

const loss = "actor_rollout_ref.actor.policy_loss";

test("clip_cov takes the gradient from the share of tokens that it names", async () => {
  const bounds = [`${loss}.clip_cov_lb=-100`, `${loss}.clip_cov_ub=100`];
  const keys = (ratio: number) => [`${loss}.loss_mode=clip_cov`, `${loss}.clip_cov_ratio=${ratio}`, ...bounds];
  for (const ratio of [0.25, 0.5]) {
    const metrics = await yard.play(`clip${ratio}`, keys(ratio));
    for (const data of metrics) expect(Math.abs(data["actor/pg_clipfrac"]! - ratio)).toBeLessThan(0.05);
  }
});

test("kl_cov holds back the tokens it selects, by as much as its coefficient says", async () => {
  const keys = (coef: number, ratio: number) => [
    `${loss}.loss_mode=kl_cov`,
    `${loss}.ppo_kl_coef=${coef}`,
    `${loss}.kl_cov_ratio=${ratio}`,
    "actor_rollout_ref.actor.ppo_epochs=4",
    "trainer.total_training_steps=3",
  ];
  const moved = async (name: string, coef: number, ratio: number) => {
    const metrics = await yard.play(name, keys(coef, ratio));
    return metrics.reduce((sum, data) => sum + data["actor/ppo_kl"]!, 0);
  };
  const free = await moved("free", 0, 1);
  expect(await moved("held", 10, 1)).toBeLessThan(0.8 * free);
});
