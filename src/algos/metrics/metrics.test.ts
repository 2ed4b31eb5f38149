import { expect, test } from "vitest";
import { checkNumbers, countedEntries, covarianceOf, reduceMetrics, summary } from "./metrics.ts";

test("a name says how its values become one", () => {
  const lists = { a: [1, 2, 4], b_max: [1, 5, 3], "x/max_loss": [2, 7], min_c: [3, -1], "y/min": [0.5, 0.25] };
  const expected = { a: 7 / 3, b_max: 5, "x/max_loss": 7, min_c: -1, "y/min": 0.25 };
  expect(reduceMetrics(lists)).toEqual(expected);
});

test("statistics of nothing are absent", () => {
  expect(reduceMetrics({ loss: [], "loss/max": [] })).toEqual({});
  expect(summary("critic/score", [])).toEqual({});
});

test("a summary has mean, max and min", () => {
  expect(summary("x", Float32Array.of(1, 4, -2))).toEqual({ "x/mean": 1, "x/max": 4, "x/min": -2 });
});

test("what is masked is never looked at", () => {
  const rows = [[1, Number.NaN], [2], []];
  expect([...countedEntries(rows, [[1, 0], [1], []])]).toEqual([1, 2]);
});

test("the covariance of a list with itself is its variance", () => {
  expect(covarianceOf([1, 2, 3, 4], [1, 2, 3, 4])).toBeCloseTo(5 / 3);
  expect(covarianceOf([1, 2, 3], [-1, -2, -3])).toBeCloseTo(-1);
});

test("a number that is not finite is named with its row", () => {
  expect(() => checkNumbers("turns", [1, Number.NaN])).toThrow("`turns` is NaN at row 1");
});
