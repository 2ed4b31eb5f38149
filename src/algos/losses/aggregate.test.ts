/** How token losses are reduced, on numbers that can be checked by hand. */
import { describe, expect, test } from "vitest";
import { runLoss } from "../../../scripts/goldens/traced.ts";
import type { Version } from "../batch.ts";
import { type AggregateMode, aggregate, batchScalars } from "./aggregate.ts";

const x = [
  [1, 2, 3, 100],
  [6, 100, 100, 100],
  [100, 100, 100, 100],
];
const mask = [
  [1, 1, 1, 0],
  [1, 0, 0, 0],
  [0, 0, 0, 0],
];

function reduce(mode: string, { factor = null as number | null, version = "0.9" as Version } = {}): number {
  const options = { loss_agg_mode: mode as AggregateMode, loss_scale_factor: factor, version };
  return runLoss({
    build: (tensors) => ({ loss: aggregate(tensors.x!, tensors, options), metrics: {} }),
    rows: { x, mask },
    scalars: { ...batchScalars(mask, 4) },
  }).loss;
}

describe("three tokens 1 2 3, one token 6, and a row without any", () => {
  test.each([
    ["token-mean", 12 / 4],
    ["seq-mean-token-sum", 12 / 2],
    ["seq-mean-token-mean", (2 + 6) / 2],
    ["seq-mean-token-sum-norm", 12 / 2 / 4],
    ["token-sum", 12],
  ])("%s", (mode, expected) => {
    expect(reduce(mode)).toBeCloseTo(expected, 12);
  });

  test("seq-mean-token-sum-norm is not divided by rows in 0.7, and by its own factor when there is one", () => {
    const mode = "seq-mean-token-sum-norm";
    expect(reduce(mode, { version: "0.7" })).toBeCloseTo(12 / 4, 12);
    expect(reduce(mode, { factor: 100 })).toBeCloseTo(12 / 2 / 100, 12);
    expect(reduce(mode, { factor: 100, version: "0.7" })).toBeCloseTo(12 / 100, 12);
  });
});

test("an unknown mode is refused with the nearest", () => {
  expect(() => reduce("seq-mean-token-men")).toThrow('Did you mean "seq-mean-token-mean"');
});

test("the scalars of a batch count tokens and rows that have any", () => {
  expect(batchScalars(mask, 4)).toEqual({ batch_tokens: 4, batch_rows: 2, response_length: 4 });
  expect(batchScalars([], 4)).toEqual({ batch_tokens: 0, batch_rows: 0, response_length: 4 });
});
