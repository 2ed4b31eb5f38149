import { expect, test } from "vitest";
import { Random } from "../util/random.ts";
import type { Score } from "./reward.ts";
import { type ScoredPart, weightedSum } from "./weighted-sum.ts";

const score = (value: number, extra: Readonly<Record<string, unknown>> = {}): Score => ({ score: value, extra });
const rule: ScoredPart = { column: "reward/rule", weight: 1, score: score(1, { acc: true }) };
const judge: ScoredPart = { column: "reward/judge", weight: 0.5, score: score(6, { judge_reply: "6" }) };

test("the score is the weighted sum, and each part is a column", () => {
  expect(weightedSum([rule, judge], 3)).toEqual({
    score: 4,
    extra: { "reward/rule": 1, "reward/judge": 6, acc: true, judge_reply: "6" },
  });
});

test("a part alone without a column is its own score", () => {
  const alone = score(0.5, { pred: "x" });
  expect(weightedSum([{ column: null, weight: 1, score: alone }], 3)).toBe(alone);
});

test("the order of the parts changes nothing, not even the last bit", () => {
  const random = new Random(3, "weights");
  for (let i = 0; i < 200; i++) {
    const parts = Array.from({ length: 5 }, (_, k) => ({
      column: `reward/${k}`,
      weight: random.uniform() * 3 - 1,
      score: score(random.uniform() * 10 - 5, { shared: k }),
    }));
    const order = Array.from(random.permutation(parts.length), (at) => parts[at]!);
    const [given, shuffled] = [weightedSum(parts, 4), weightedSum(order, 4)];
    expect(shuffled).toEqual(given);
    expect(Object.is(shuffled.score, given.score)).toBe(true);
  }
});

test("rewards per token are added token by token; a single score goes to the last one", () => {
  const tokens: ScoredPart = { column: "reward/steps", weight: 2, score: { score: 6, tokens: [1, 2, 3], extra: {} } };
  expect(weightedSum([rule, tokens], 3)).toEqual({
    score: 13,
    tokens: [2, 4, 7],
    extra: { "reward/rule": 1, "reward/steps": 6, acc: true },
  });
});

test("a column that two parts have is named after its part", () => {
  const other: ScoredPart = { column: "reward/kind", weight: 1, score: score(2, { judge_reply: "2" }) };
  expect(weightedSum([judge, other], 1).extra).toEqual({
    "reward/judge": 6,
    "reward/judge/judge_reply": "6",
    "reward/kind": 2,
    "reward/kind/judge_reply": "2",
  });
});
