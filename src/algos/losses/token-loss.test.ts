/** Losses as lists of terms, and what engines may rely on. */
import { describe, expect, test } from "vitest";
import { runLoss } from "../../../scripts/goldens/traced.ts";
import * as o from "../../graph/ops.ts";
import { checkExtra, combineTerms, type LossTerm } from "./token-loss.ts";

const term = (name: string, weight: number, more: Partial<LossTerm> = {}): LossTerm => ({
  name,
  weight,
  heads: ["logprobs"],
  build: ({ logprobs, mask }) => ({ loss: o.sum(o.mul(logprobs!, mask)) }),
  ...more,
});

describe("a loss of several terms", () => {
  const square = term("square", -0.5, {
    heads: ["logprobs", "values"],
    extra: ["returns"],
    scalars: ["count"],
    build: ({ values, mask, count }) => ({
      loss: o.div(o.sum(o.mul(o.square(values!), mask)), count!),
      metrics: { largest: o.max(values!, [0, 1]) },
    }),
  });
  const loss = combineTerms("both", "both 1", [term("plain", 2, { extra: ["returns", "advantages"] }), square]);

  test("reads what its terms read, each thing once", () => {
    expect(loss).toMatchObject({ key: "both 1", name: "both", heads: ["logprobs", "values"], scalars: ["count"] });
    expect(loss.extra).toEqual(["returns", "advantages"]);
  });

  test("is their weighted sum, and reports each without its weight", () => {
    const rows = { mask: [[1, 1, 0]], logprobs: [[3, 4, 9]], values: [[2, 1, 5]] };
    const found = runLoss({ build: loss.build, rows, scalars: { count: 2 }, wrt: ["logprobs", "values"] });
    expect(found).toEqual({
      loss: 2 * 7 - 0.5 * 2.5,
      metrics: { plain: 7, square: 2.5, largest: 5 },
      gradients: { logprobs: [[2, 2, 0]], values: [[-1, -0.5, expect.closeTo(0)]] },
    });
  });

  test("a term called `loss` has no metric of its own", () => {
    const { metrics } = combineTerms("one", "one", [term("loss", 1)]).build({
      mask: o.input("mask", [1, 1]),
      logprobs: o.input("logprobs", [1, 1]),
    });
    expect(metrics).toEqual({});
  });

  test("cannot read one name with two widths", () => {
    const terms = [term("a", 1, { extra: ["top"] }), term("b", 1, { extra: [{ name: "top", width: 4 }] })];
    expect(() => combineTerms("c", "c", terms)).toThrow("two terms read `top` with different widths");
  });
});

test("rows have what the loss reads, as many numbers as tokens times width", () => {
  const loss = combineTerms("distill", "distill 4", [term("kd", 1, { extra: ["mask2", { name: "top", width: 2 }] })]);
  const row = { ids: [1, 2, 3], extra: { mask2: [1, 1, 1], top: [1, 2, 3, 4, 5, 6] } };
  checkExtra([row, row], loss);
  const without = { ids: [1], extra: { mask2: [1] } };
  expect(() => checkExtra([row, without], loss)).toThrow(
    "The loss `distill` reads `top` of each token, and row 1 of the batch has only `mask2`. Give every row `extra.top`.",
  );
  const short = { ids: [1, 2], extra: { mask2: [1, 1], top: [1, 2] } };
  expect(() => checkExtra([short], loss)).toThrow(
    "row 0 of the batch has 2 numbers of it. It has 2 tokens, so give 4 numbers, 2 for each.",
  );
});
