/** What a run of `ppo` measures besides its losses, read from its metrics.jsonl. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Yard } from "./rl-yard.ts";

const rollout = "actor_rollout_ref.rollout";
const correction = "algorithm.rollout_correction";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

describe("the difference of sampler and trainer (`rollout_corr/*`) is logged in every step", () => {
  test("without a correction: the two agree up to rounding", async () => {
    const metrics = await yard.play("plain");
    expect(metrics).toHaveLength(2);
    for (const data of metrics) {
      expect(Math.abs(data["rollout_corr/kl"]!)).toBeLessThan(1e-5);
      expect(data["rollout_corr/training_ppl"]).toBeCloseTo(data["rollout_corr/rollout_ppl"]!, 4);
      expect(data["rollout_corr/training_ppl"]).toBeGreaterThan(1);
      expect(data).not.toHaveProperty(["rollout_corr/rollout_is_mean"]);
    }
  });

  const cutOff = `${rollout}.top_k=3`;
  test.each([
    ["after a pass that computes the old log-probs", [cutOff], true],
    ["where the sampler's log-probs are the old ones", [cutOff, `${correction}.bypass_mode=true`], false],
  ])("%s: against log-probs that the trainer computed", async (name, keys, hasPass) => {
    await yard.play(name, keys);
    const metrics = await yard.metrics(name, { withTimings: true });
    for (const data of metrics) {
      expect("timing_s/old_log_prob" in data).toBe(hasPass);
      expect(data["rollout_corr/kl"]).toBeGreaterThan(0.1); // the sampler draws from 3 of 16 tokens
    }
  });

  test("a correction logs the same numbers beside its own", async () => {
    const keys = [cutOff, "trainer.total_training_steps=1"];
    const [plain] = await yard.play("uncorrected", keys);
    const [corrected] = await yard.play("corrected", [...keys, `${correction}.rollout_is=token`]);
    for (const name of Object.keys(plain!).filter((it) => it.startsWith("rollout_corr/")))
      expect(corrected![name], name).toBe(plain![name]);
    expect(corrected).toHaveProperty(["rollout_corr/rollout_is_mean"]);
  });

  test("unless no response has a score", async () => {
    const keys = ["reward.error_budget=1", "trainer.total_training_steps=1"];
    const fails = () => {
      throw new Error("no score");
    };
    const [data] = await yard.play("unscored", keys, fails);
    expect(data!["training/rollout_probs_diff_valid"]).toBe(0);
    expect(Object.keys(data!).filter((name) => name.startsWith("rollout_corr/"))).toEqual([]);
  });
});
