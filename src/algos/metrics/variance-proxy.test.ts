import { describe, expect, test } from "vitest";
import { type VarianceBatch, varianceProxies } from "./variance-proxy.ts";

const half = Math.log(0.5);
const batch: VarianceBatch = {
  mask: [
    [1, 1],
    [1, 0],
  ],
  oldLogprobs: [
    [half, half],
    [half, -99],
  ],
  sumPiSquared: [
    [0.5, 0.5],
    [0.3, 99],
  ],
  advantages: [
    [1, 3],
    [-1, 99],
  ],
};

describe("varianceProxies", () => {
  test("power is the mean of squared advantage times score norm", () => {
    // W is 0.5 + 0.5 and 0.3; the mean advantages are 2 and -1.
    const metrics = varianceProxies(batch, 0.5);
    expect(metrics["variance_proxy/expected_w"]).toBeCloseTo(0.65);
    expect(metrics["variance_proxy/expected_a_squared"]).toBeCloseTo(2.5);
    expect(metrics["variance_proxy/proxy2_total_power"]).toBeCloseTo((4 * 1 + 1 * 0.3) / 2);
    expect(metrics["variance_proxy/proxy1_signal_strength"]).toBe(0.25);
    expect(metrics["variance_proxy/proxy3_pure_noise"]).toBeCloseTo(2.15 - 0.25);
  });

  test("weights of 1 change nothing, weights of 2 quadruple the power", () => {
    const weighted = (weight: number) =>
      varianceProxies({ ...batch, weights: batch.mask.map((row) => Array.from(row, () => weight)) }, 1);
    const plain = varianceProxies(batch, 1);
    for (const [name, value] of Object.entries(plain)) expect(weighted(1)[name], name).toBeCloseTo(value);
    const power = "variance_proxy/proxy2_total_power";
    expect(weighted(2)[power]).toBeCloseTo(4 * plain[power]!);
  });

  test("padding and empty episodes change nothing", () => {
    const padded = Object.fromEntries(
      Object.entries(batch).map(([key, rows]) => [
        key,
        [...rows, [9, 9]].map((row) => [...Array.from(row), key === "mask" ? 0 : 7]),
      ]),
    );
    const mask = [...(padded.mask ?? []).slice(0, 2), [0, 0, 0]];
    const metrics = varianceProxies({ ...batch, ...padded, mask }, 1);
    for (const [name, value] of Object.entries(varianceProxies(batch, 1)))
      expect(metrics[name], name).toBeCloseTo(value);
  });

  test("without a gradient norm, and for a single episode, noise is not known", () => {
    expect(Object.keys(varianceProxies(batch, null)).join(" ")).not.toMatch(/proxy1|proxy3/);
    const first = Object.fromEntries(Object.entries(batch).map(([key, rows]) => [key, rows.slice(0, 1)]));
    const names = Object.keys(varianceProxies({ ...batch, ...first }, 1));
    expect(names).toContain("variance_proxy/proxy1_signal_strength");
    expect(names).not.toContain("variance_proxy/proxy3_pure_noise");
  });

  test("no tokens have no proxies", () => {
    expect(
      varianceProxies(
        {
          ...batch,
          mask: [
            [0, 0],
            [0, 0],
          ],
        },
        1,
      ),
    ).toEqual({});
  });

  test("refuses a gradient norm that is not finite", () => {
    expect(() => varianceProxies(batch, Number.NaN)).toThrow("`gradNorm` is NaN");
  });
});
