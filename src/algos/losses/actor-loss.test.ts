/** The actor's and the critic's whole losses: their parts add up, and an engine can train with them. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { defaultSettings } from "../../../scripts/goldens/settings.ts";
import { runLoss } from "../../../scripts/goldens/traced.ts";
import { actorLoss } from "./actor-loss.ts";
import { type AggregateMode, aggregateModes, batchScalars } from "./aggregate.ts";
import { extraName, type TokenLoss } from "./token-loss.ts";
import { valueLoss } from "./value-loss.ts";

const { actor: actorDefaults, critic: criticDefaults } = defaultSettings;

const mask = [
  [1, 1, 0],
  [1, 0, 0],
  [0, 0, 0],
];
const fill = (from: number) => mask.map((row, i) => row.map((_, t) => from + 0.1 * i - 0.2 * t));
const rows = {
  mask,
  logprobs: fill(-1),
  entropy: fill(2),
  values: fill(0.5),
  oldLogprobs: fill(-0.9),
  refLogprobs: fill(-1.2),
  advantages: fill(0.3),
  rolloutWeights: fill(1),
  oldValues: fill(0),
  returns: fill(1),
};

function run(loss: TokenLoss, wrt: readonly string[], part: readonly [number, number] = [0, 3]) {
  const names = ["mask", ...loss.heads, ...(loss.extra ?? []).map(extraName)] as (keyof typeof rows)[]; // which are all there
  const given = Object.fromEntries(names.map((name) => [name, rows[name].slice(...part)]));
  return runLoss({
    build: (tensors) => loss.build(tensors),
    rows: { ...given, mask: mask.slice(...part) },
    scalars: { ...batchScalars(mask, 3) },
    wrt,
  });
}

describe("the actor's loss", () => {
  const full = { ...actorDefaults, entropy_coeff: 0.01, use_kl_loss: true, kl_loss_coef: 0.2 };

  test("is one that an engine takes", () => {
    const loss: TokenLoss = actorLoss(full, { hasRolloutWeights: true });
    expect(loss.heads).toEqual(["logprobs", "entropy"]);
    expect(loss.extra).toEqual(["oldLogprobs", "advantages", "rolloutWeights", "refLogprobs"]);
    expect(loss.scalars).toEqual(["batch_tokens", "batch_rows", "response_length"]);
  });

  test("reads entropy and reference only when they weigh something", () => {
    const { heads, extra } = actorLoss(actorDefaults);
    expect([heads, extra]).toEqual([["logprobs"], ["oldLogprobs", "advantages"]]);
  });

  test("is the policy loss minus the entropy bonus plus the KL loss, in value and gradient", () => {
    const wrt = ["logprobs", "entropy"];
    const { loss, metrics, gradients } = run(actorLoss(full), wrt);
    const plain = run(actorLoss(actorDefaults), ["logprobs"]);
    const kl = metrics["actor/kl_loss"]!;
    const entropy = metrics["actor/entropy_loss"]!;
    expect(metrics["actor/pg_loss"]).toBeCloseTo(plain.loss, 12);
    expect(entropy).toBeCloseTo((2 + 1.8 + 2.1) / 3, 12);
    expect(kl).toBeCloseTo((3 * (Math.exp(-0.2) + 0.2 - 1)) / 3, 12);
    expect(loss).toBeCloseTo(plain.loss - 0.01 * entropy + 0.2 * kl, 12);
    expect(gradients.entropy).toEqual(mask.map((row) => row.map((m) => expect.closeTo((-0.01 * m) / 3, 12))));
    const slope = (0.2 * (1 - Math.exp(-0.2))) / 3;
    const expected = plain.gradients.logprobs!.map((row, i) =>
      row.map((x, t) => expect.closeTo(x + slope * mask[i]![t]!, 12)),
    );
    expect(gradients.logprobs).toEqual(expected);
  });

  test("has a key that differs where the graph does", () => {
    const keys = [actorDefaults, full, { ...full, loss_agg_mode: "token-sum" as const }].flatMap((config) => [
      actorLoss(config).key,
      actorLoss(config, { hasRolloutWeights: true }).key,
    ]);
    expect(new Set(keys).size).toBe(6);
  });

  test("is refused for an unknown policy loss, KL kind or weight", () => {
    const unknown = { ...full, policy_loss: { ...full.policy_loss, loss_mode: "gsop" } };
    expect(() => actorLoss(unknown)).toThrow('"gspo"');
    expect(() => actorLoss({ ...full, kl_loss_type: "k5" })).toThrow('The KL kind is "k5"');
    expect(() => actorLoss({ ...full, entropy_coeff: Number.NaN })).toThrow("`entropy_coeff` is NaN.");
  });
});

describe("the critic's loss", () => {
  test("is one that an engine takes", () => {
    const loss: TokenLoss = valueLoss(criticDefaults);
    expect([loss.heads, loss.extra]).toEqual([["values"], ["oldValues", "returns"]]);
  });

  test("adds up over micro-batches", () => {
    for (const loss_agg_mode of aggregateModes as AggregateMode[]) {
      const loss = valueLoss({ ...criticDefaults, loss_agg_mode, cliprange_value: 0.2 });
      const whole = run(loss, ["values"]);
      const parts = [run(loss, ["values"], [0, 1]), run(loss, ["values"], [1, 3])];
      expect(parts[0]!.loss + parts[1]!.loss).toBeCloseTo(whole.loss, 12);
      expect(parts.flatMap(({ gradients }) => gradients.values!)).toEqual(whole.gradients.values!);
      expect(parts[0]!.metrics["critic/vpred_mean"]! + parts[1]!.metrics["critic/vpred_mean"]!).toBeCloseTo(
        whole.metrics["critic/vpred_mean"]!,
        12,
      );
    }
  });

  test("has no gradient for a value that has moved past the clip towards its return", () => {
    fc.assert(
      fc.property(fc.double({ min: -3, max: 3, noNaN: true }), fc.double({ min: -3, max: 3, noNaN: true }), (v, r) => {
        const { gradients } = runLoss({
          build: (tensors) => valueLoss(criticDefaults).build(tensors),
          rows: { mask: [[1]], values: [[v]], oldValues: [[0]], returns: [[r]] },
          scalars: { ...batchScalars([[1]], 1) },
          wrt: ["values"],
        });
        const isPast = Math.abs(v) > 0.5 && Math.abs(Math.sign(v) * 0.5 - r) > Math.abs(v - r);
        expect(gradients.values![0]![0]!).toBeCloseTo(isPast ? 0 : v - r, 9);
      }),
    );
  });

  test("is 0 with gradient 0 when no token counts", () => {
    const rows = { mask: [[0]], values: [[Number.NaN]], oldValues: [[Number.NaN]], returns: [[Number.NaN]] };
    const { build } = valueLoss(criticDefaults);
    const { loss, gradients } = runLoss({ build, rows, scalars: { ...batchScalars([[0]], 1) }, wrt: ["values"] });
    expect([loss, gradients.values![0]![0]! + 0]).toEqual([0, 0]);
  });

  test("refuses a clip range that is none", () => {
    expect(() => valueLoss({ ...criticDefaults, cliprange_value: -1 })).toThrow("`cliprange_value` is -1.");
  });
});
