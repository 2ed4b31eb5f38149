import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { ErrorBudget } from "./budget.ts";
import type { Failure } from "./outcome.ts";

const failure = (row: number): Failure => ({ row, dataSource: "toy", reason: "threw", message: `threw Error: ${row}` });

/** Count outcomes, `x` a failure; returns after how many it stopped, or null. */
function stopsAfter(budget: ErrorBudget, outcomes: string): number | null {
  for (let i = 0; i < outcomes.length; i++) {
    if (budget.add(outcomes[i] === "x" ? failure(i + 1) : undefined) !== null) return i + 1;
  }
  return null;
}

describe("the share of failures that stops a run", () => {
  const good = (count: number) => ".".repeat(count);
  const cases: readonly [what: string, share: number, outcomes: string, stop: number | null][] = [
    ["the very first, at 1 %", 0.01, "x", 1],
    ["a failure among the first hundred, at 1 %", 0.01, `${good(98)}x`, 99],
    ["not the hundredth, at 1 %", 0.01, `${good(99)}x${good(1000)}`, null],
    ["the second of two hundred, at 1 %", 0.01, `${good(150)}xx`, 152],
    ["not one in a hundred for ever", 0.01, `${good(99)}x`.repeat(50), null],
    ["eleven in a row, however many scores came before", 0.01, `${good(5000)}${"x".repeat(20)}`, 5011],
    ["the first, at 0", 0, `${good(5000)}x`, 5001],
    ["none, at 1", 1, "x".repeat(3000), null],
    ["the first of the second half, at 0.5", 0.5, "..xxx", 5],
  ];
  for (const [what, share, outcomes, stop] of cases) {
    test(what, () => expect(stopsAfter(new ErrorBudget(share), outcomes)).toBe(stop));
  }

  test.each([-0.1, 1.1, Number.NaN])("a budget of %d is refused", (share) => {
    expect(() => new ErrorBudget(share)).toThrow(UserError);
  });
});

test("the error names the count, the limit and the latest failures with their rows", () => {
  const budget = new ErrorBudget(0.5);
  budget.add(undefined);
  budget.add(failure(7));
  const error = budget.add(failure(8));
  expect(error).toBeInstanceOf(UserError);
  expect(error?.message).toBe(
    "2 of the last 3 rewards could not be computed, and at most 50 % may fail (`reward.error_budget`): " +
      'row 7 (data source "toy"): the reward function threw Error: 7; ' +
      'row 8 (data source "toy"): the reward function threw Error: 8. ' +
      "Fix the reward function or the rows, or raise `reward.error_budget` to train without such samples.",
  );
  expect(budget.failures).toEqual([failure(7), failure(8)]);
  expect([budget.scored, budget.failed]).toEqual([1, 2]);
});

test("however many failures there are, the latest thousand are kept", () => {
  const budget = new ErrorBudget(1);
  for (let row = 1; row <= 2500; row++) budget.add(failure(row));
  expect(budget.failures.map(({ row }) => row)).toEqual(Array.from({ length: 1000 }, (_, i) => i + 1501));
  expect(budget.failed).toBe(2500);
});
