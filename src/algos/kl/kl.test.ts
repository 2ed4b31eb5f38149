/** Laws of KL estimates, of the penalty on rewards, and of the controllers of its weight. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Node } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { grad } from "../../graph/vjp.ts";
import { interpret } from "../../runtime/interpreter.ts";
import { UserError } from "../../util/errors.ts";
import { defaultsOf } from "../../util/field.ts";
import { adapt, klControl, klControlFields } from "./control.ts";
import { klEstimate, klNames, klPenalty, registerKlEstimate } from "./estimates.ts";
import { penalizeRewards } from "./reward-penalty.ts";

const defaults = defaultsOf(klControlFields);
const builtIn = klNames();

/** Value and slope of the traced estimate at one pair of log-probs. */
function traced(kind: string, logprob: number, refLogprob: number): { value: number; slope: number } {
  const [a, b] = [o.input("a", [1]), o.input("b", [1])];
  const value = klPenalty(a, b, kind);
  const [slope] = grad(o.sum(value), [a]);
  const found = interpret({ value, slope: slope! }, { a: [logprob], b: [refLogprob] });
  return { value: found.value!.data[0]!, slope: found.slope!.data[0]! };
}

const near = (value: number) => expect.closeTo(value, 9);
const logprobs = fc.double({ min: -40, max: 0, noNaN: true });

describe.each(builtIn)("%s", (kind) => {
  test("is the same traced and plain, and 0 for equal policies", () => {
    fc.assert(
      fc.property(logprobs, logprobs, (a, b) => {
        expect(traced(kind, a, b).value).toBeCloseTo(klEstimate(kind)(a, b), 9);
        expect(klEstimate(kind)(a, a)).toBe(0);
      }),
    );
  });
});

test("a kind with + has the value of its estimator and the gradient of k2", () => {
  for (const kind of builtIn.filter((name) => !name.endsWith("+"))) {
    fc.assert(
      fc.property(logprobs, logprobs, (a, b) => {
        const plus = traced(`${kind}+`, a, b);
        expect(plus.value).toBeCloseTo(traced(kind, a, b).value, 9);
        expect(plus.slope).toBeCloseTo(a - b, 9);
      }),
      { numRuns: 30 },
    );
  }
});

test("every estimate but k1 is at least 0, and k3 is near the exact KL on average", () => {
  const [p, q] = [
    [0.2, 0.5, 0.3],
    [0.3, 0.3, 0.4],
  ];
  const exact = p!.reduce((total, x, i) => total + x * Math.log(x / q![i]!), 0);
  const mean = (kind: string) =>
    p!.reduce((total, x, i) => total + x * klEstimate(kind)(Math.log(x), Math.log(q![i]!)), 0);
  expect(mean("k1")).toBeCloseTo(exact, 12);
  expect(mean("k3")).toBeCloseTo(exact, 12);
  fc.assert(fc.property(logprobs, logprobs, (a, b) => klEstimate("k3")(a, b) >= -1e-12));
});

test.each([
  ["k4", 'The KL kind is "k4", which does not exist. Did you mean "k1"'],
  ["full", 'The KL kind "full" needs the whole distribution'],
  ["k1++", 'The KL kind is "k1++"'],
  ["constructor", 'The KL kind is "constructor"'],
])("the kind %s is refused", (kind, message) => {
  expect(() => klEstimate(kind)).toThrow(message);
});

describe("an estimate of one's own", () => {
  const cosh = {
    name: "cosh",
    traced: (d: Node) => o.sub(o.mul(o.add(o.exp(d), o.exp(o.neg(d))), 0.5), 1),
    plain: (d: number) => Math.cosh(d) - 1,
  };

  test("is found by its name, also with a +", () => {
    registerKlEstimate(cosh);
    registerKlEstimate(cosh);
    expect(klNames().slice(-2)).toEqual(["cosh", "cosh+"]);
    expect(klEstimate("cosh")(-1, -2)).toBeCloseTo(Math.cosh(1) - 1, 12);
    expect(traced("cosh", -1, -2)).toEqual({ value: near(Math.cosh(1) - 1), slope: near(Math.sinh(1)) });
    expect(traced("cosh+", -1, -2)).toEqual({ value: near(Math.cosh(1) - 1), slope: near(1) });
  });

  test.each(["k3", "full", "k3+"])("cannot be called %s", (name) => {
    expect(() => registerKlEstimate({ ...cosh, name })).toThrow(UserError);
  });
});

describe("controllers", () => {
  test("a fixed one stays, an adaptive one follows its target by at most a fifth per horizon", () => {
    const fixed = klControl({ ...defaults, kl_coef: 0.5 });
    expect(adapt(fixed, 100, 1000)).toEqual(fixed);
    const adaptive = klControl({ type: "adaptive", kl_coef: 1, target_kl: 0.1, horizon: 100 });
    fc.assert(
      fc.property(fc.double({ min: 0, max: 10, noNaN: true }), fc.integer({ min: 1, max: 100 }), (kl, rows) => {
        const { kl_coef } = adapt(adaptive, kl, rows);
        expect(Math.abs(kl_coef - 1)).toBeLessThanOrEqual(0.2 + 1e-12);
        expect(Math.sign(kl_coef - 1)).toBe(Math.sign(kl - 0.1));
      }),
    );
  });

  test("goes on from what was saved", () => {
    const first = adapt(klControl({ ...defaults, type: "adaptive" }), 0.2, 256);
    expect(JSON.parse(JSON.stringify(first))).toEqual(first);
    expect(adapt(JSON.parse(JSON.stringify(first)), 0.05, 256)).toEqual(adapt(first, 0.05, 256));
  });

  test("refuses what cannot be", () => {
    const misspelt = "adaptative" as "adaptive"; // as a program in JavaScript may write it
    expect(() => klControl({ ...defaults, type: misspelt })).toThrow('Did you mean "adaptive"');
    expect(() => klControl({ ...defaults, type: "adaptive", horizon: 0 })).toThrow("`kl_ctrl.horizon` is 0.");
    expect(() => klControl({ ...defaults, kl_coef: Number.NaN })).toThrow(UserError);
  });
});

describe("the penalty on rewards", () => {
  const control = klControl({ ...defaults, kl_coef: 0.5 });
  const batch = {
    scores: [[0, 1], [2, 7], []],
    oldLogprobs: [[-1, -2], [-3, Number.NaN], []],
    refLogprobs: [[-2, -2], [-1, Number.NaN], []],
    mask: [[1, 1], [1, 0], []],
  };

  test("takes the weighted KL off counted tokens, and means over rows that have any", () => {
    const { rewards, metrics } = penalizeRewards(batch, { kind: "kl", control });
    expect(rewards.map((row) => [...row])).toEqual([[-0.5, 1], [3, 7], []]);
    expect(metrics).toEqual({ "actor/reward_kl_penalty": (0.5 - 2) / 2, "actor/reward_kl_penalty_coeff": 0.5 });
  });

  test("of a batch without counted tokens is 0", () => {
    const empty = { ...batch, mask: [[0, 0], [0, 0], []] };
    const { rewards, metrics } = penalizeRewards(empty, { kind: "k3", control });
    expect(rewards.map((row) => [...row])).toEqual(batch.scores);
    expect(metrics["actor/reward_kl_penalty"]).toBe(0);
  });

  test("refuses log-probs that are not finite and rows that do not match", () => {
    const wrong = { ...batch, mask: [[1, 1], [1, 1], []] };
    expect(() => penalizeRewards(wrong, { kind: "kl", control })).toThrow("`oldLogprobs` is NaN at row 1, token 1");
    const short = { ...batch, scores: [[0, 1]] };
    expect(() => penalizeRewards(short, { kind: "kl", control })).toThrow("`scores` has 1 rows");
  });
});
