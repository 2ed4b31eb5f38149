import { describe, expect, test } from "vitest";
import { samplerAgreement } from "./sampler-agreement.ts";

const logs = (...probabilities: number[]) => probabilities.map(Math.log);

describe("samplerAgreement", () => {
  test("identical policies differ by nothing and correlate fully", () => {
    const logprobs = [logs(0.1, 0.5), logs(0.9)];
    const metrics = samplerAgreement({ rolloutLogprobs: logprobs, oldLogprobs: logprobs, mask: [[1, 1], [1]] });
    expect(metrics).toMatchObject({
      "training/rollout_probs_diff_valid": 1,
      "training/rollout_probs_diff_max": 0,
      "training/rollout_probs_diff_mean": 0,
      "training/rollout_probs_diff_std": 0,
    });
    expect(metrics["training/rollout_actor_probs_pearson_corr"]).toBeCloseTo(1);
  });

  test("differences are of probabilities, over the tokens that count", () => {
    const metrics = samplerAgreement({
      rolloutLogprobs: [logs(0.5, 0.2, 0.001)],
      oldLogprobs: [logs(0.4, 0.5, 0.9)],
      mask: [[1, 1, 0]],
    });
    expect(metrics["training/rollout_probs_diff_max"]).toBeCloseTo(0.3);
    expect(metrics["training/rollout_probs_diff_mean"]).toBeCloseTo(0.2);
    expect(metrics["training/rollout_probs_diff_std"]).toBeCloseTo(Math.sqrt(0.02));
    expect(metrics["training/rollout_actor_probs_pearson_corr"]).toBeCloseTo(-1);
  });

  test("nothing to compare is said, and one token has no spread", () => {
    const agree = (mask: number[]) =>
      samplerAgreement({ rolloutLogprobs: [[-1, -2]], oldLogprobs: [[-1, -2]], mask: [mask] });
    expect(agree([0, 0])).toEqual({ "training/rollout_probs_diff_valid": 0 });
    expect(Object.keys(agree([1, 0])).join(" ")).not.toMatch(/std|pearson/);
  });

  test("a log-prob that is not finite is refused", () => {
    const rows = { rolloutLogprobs: [[Number.NEGATIVE_INFINITY]], oldLogprobs: [[-1]], mask: [[1]] };
    expect(() => samplerAgreement(rows)).toThrow("`rolloutLogprobs` is -Infinity");
  });
});
