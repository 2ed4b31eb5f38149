/** Laws of policy losses: what micro-batches, masks, clips and equal policies may and may not change. */
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { defaultSettings } from "../../../../scripts/goldens/settings.ts";
import { type LossRun, readValues, runLoss, traceLoss } from "../../../../scripts/goldens/traced.ts";
import * as o from "../../../graph/ops.ts";
import { compile } from "../../../onnx/emit.ts";
import { Runtime } from "../../../runtime/runtime.ts";
import { sharedFloats } from "../../../runtime/vectors.ts";
import { UserError } from "../../../util/errors.ts";
import { Random } from "../../../util/random.ts";
import type { BypassLoss } from "../../correction/config.ts";
import type { ActorSettings } from "../actor-loss.ts";
import { type AggregateMode, aggregateModes, batchScalars } from "../aggregate.ts";
import { clipCandidates } from "./covariance.ts";
import { type PolicyLoss, policyTensors } from "./policy-loss.ts";
import { findPolicyLoss, policyLossNames, registerPolicyLoss } from "./registry.ts";

const [ROWS, TIME] = [4, 5];
const { actor: defaults } = defaultSettings;

/** Every built-in loss, and the second loss of bypass mode. */
const names = [...policyLossNames(), "bypass_mode/reinforce"];

function configFor(name: string, more: Partial<ActorSettings> = {}): ActorSettings {
  const [, type = "ppo_clip"] = name.split("/");
  const chosen = { dro_beta: 0.1, kl_cov_ratio: 0.3, clip_cov_ratio: 0.3, clip_cov_lb: 0.01 };
  const rollout_correction = { loss_type: type as BypassLoss }; // unknown ones are refused
  return { ...defaults, policy_loss: { ...defaults.policy_loss, ...chosen }, rollout_correction, ...more };
}

type Rows = number[][];
type Batch = { logprobs: Rows; oldLogprobs: Rows; advantages: Rows; mask: Rows; rolloutWeights: Rows };

const grid = (value: fc.Arbitrary<number>): fc.Arbitrary<Rows> =>
  fc.array(fc.array(value, { minLength: TIME, maxLength: TIME }), { minLength: ROWS, maxLength: ROWS });
const between = (min: number, max: number) => fc.double({ min, max, noNaN: true });

const batches: fc.Arbitrary<Batch> = fc.record({
  logprobs: grid(between(-3, -0.05)),
  oldLogprobs: grid(between(-3, -0.05)),
  advantages: grid(between(-2, 2)),
  mask: grid(fc.constantFrom(0, 1, 1)),
  rolloutWeights: grid(between(0.1, 2)),
});

const lossOf = (name: string): PolicyLoss => findPolicyLoss(name.split("/")[0]!);

/** One run of a loss on some rows of a batch whose counts and selections are those of the whole. */
function runOf(name: string, batch: Batch, config: ActorSettings, rows = [0, ROWS]): LossRun {
  const loss = lossOf(name);
  loss.check?.(config);
  const all = { ...batch, ...loss.prepare?.(batch, config, new Random(1)) };
  const part = Object.fromEntries(Object.entries(all).map(([key, list]) => [key, list.slice(...rows)]));
  return {
    build: (tensors) => loss.build(policyTensors(tensors, config), config),
    rows: part as typeof all, // the same keys
    scalars: { ...batchScalars(batch.mask, TIME) },
    wrt: ["logprobs"],
  };
}

const evaluate = (name: string, batch: Batch, config = configFor(name)) => runLoss(runOf(name, batch, config));
const near = (value: number) => expect.closeTo(value, 9);
const nearRows = (rows: Rows) => rows.map((row) => row.map(near));

describe.each(names)("%s", (name) => {
  test.each(aggregateModes)("adds up over micro-batches, %s", (mode) => {
    const config = configFor(name, { loss_agg_mode: mode as AggregateMode });
    fc.assert(
      fc.property(batches, fc.integer({ min: 1, max: ROWS - 1 }), (batch, cut) => {
        const whole = runLoss(runOf(name, batch, config));
        const parts = [[0, cut] as const, [cut, ROWS] as const].map((rows) =>
          runLoss(runOf(name, batch, config, [...rows])),
        );
        expect(parts[0]!.loss + parts[1]!.loss).toEqual(near(whole.loss));
        expect(parts.flatMap(({ gradients }) => gradients.logprobs!)).toEqual(nearRows(whole.gradients.logprobs!));
        for (const [metric, value] of Object.entries(whole.metrics)) {
          expect(parts[0]!.metrics[metric]! + parts[1]!.metrics[metric]!, metric).toEqual(near(value));
        }
      }),
      { numRuns: 15 },
    );
  });

  test("is 0 with gradient 0 when no token counts", () => {
    const garbage = Array.from({ length: ROWS }, () => Array<number>(TIME).fill(Number.NaN));
    const mask = garbage.map((row) => row.map(() => 0));
    const empty = { logprobs: garbage, oldLogprobs: garbage, advantages: garbage, mask, rolloutWeights: garbage };
    for (const mode of aggregateModes as AggregateMode[]) {
      const { loss, gradients, metrics } = evaluate(name, empty, configFor(name, { loss_agg_mode: mode }));
      expect([loss, ...gradients.logprobs!.flat(), ...Object.values(metrics)].map((x) => x + 0)).toEqual(
        Array(1 + ROWS * TIME + Object.keys(metrics).length).fill(0),
      );
    }
  });

  test("does not see what stands where the mask is 0", () => {
    fc.assert(
      fc.property(batches, fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, 500), (batch, garbage) => {
        const fouled = (rows: Rows) => rows.map((row, i) => row.map((x, t) => (batch.mask[i]![t] ? x : garbage)));
        const { mask, ...rest } = batch;
        const other = Object.fromEntries(Object.entries(rest).map(([key, rows]) => [key, fouled(rows)]));
        expect(evaluate(name, { ...batch, ...other })).toEqual(evaluate(name, batch));
      }),
      { numRuns: 15 },
    );
  });

  test("is the plain policy gradient where the policies are the same", () => {
    const mode = "seq-mean-token-mean";
    const nothing = { clip_cov_lb: 1e9, clip_cov_ub: 1e9, dro_beta: 0.1 };
    const config = configFor(name, { loss_agg_mode: mode });
    const policy_loss = { ...config.policy_loss, ...nothing };
    fc.assert(
      fc.property(batches, fc.array(between(-2, 2), { minLength: ROWS, maxLength: ROWS }), (batch, perRow) => {
        const advantages = batch.mask.map((row, i) => row.map(() => perRow[i]!));
        const rolloutWeights = batch.mask.map((row) => row.map(() => 1));
        const same = { ...batch, oldLogprobs: batch.logprobs, advantages, rolloutWeights };
        const { batch_rows: rows } = batchScalars(batch.mask, TIME);
        const expected = batch.mask.map((row, i) => {
          const length = row.reduce((a, b) => a + b, 0);
          return row.map((counts) => (counts ? -perRow[i]! / length / rows : 0));
        });
        const { gradients } = evaluate(name, same, { ...config, policy_loss });
        expect(gradients.logprobs).toEqual(expected.map((row) => row.map((x) => expect.closeTo(x, 7))));
      }),
      { numRuns: 15 },
    );
  });
});

describe("a clipped token has no gradient", () => {
  const far = Math.log(1.5);
  const cases: readonly [name: string, moved: number, advantage: number][] = [
    ["vanilla", far, 1],
    ["vanilla", -far, -1],
    ["vanilla", Math.log(3.5), -1],
    ["gspo", far, 1],
    ["gspo", -far, -1],
    ["clip_cov", far, 1],
    ["clip_cov", -far, -1],
    ["geo_mean", far, 1],
    ["geo_mean", -far, -1],
    ["bypass_mode", far, 1],
    ["bypass_mode", -far, -1],
    ["dppo_tv", 2, 1],
    ["dppo_tv", -2, -1],
    ["dppo_kl", 2, 1],
    ["dppo_kl", -2, -1],
  ];
  const batchOf = (moved: number, advantage: number): Batch => {
    const all = (value: number) => Array.from({ length: ROWS }, () => Array<number>(TIME).fill(value));
    const old = moved > 1.9 ? -2.5 : -0.3;
    const [logprobs, oldLogprobs] = [all(old + moved), all(old)];
    return { logprobs, oldLogprobs, advantages: all(advantage), mask: all(1), rolloutWeights: all(1) };
  };

  test.each(cases)("%s, log-ratio %f, advantage %f", (name, moved, advantage) => {
    expect(evaluate(name, batchOf(moved, advantage)).gradients.logprobs!.flat().map(Math.abs)).toEqual(
      Array(ROWS * TIME).fill(0),
    );
  });

  test.each(cases.filter(([, moved]) => moved !== Math.log(3.5)))(
    "but it may come back: %s, log-ratio %f, advantage of the other sign than %f",
    (name, moved, advantage) => {
      const slopes = evaluate(name, batchOf(moved, -advantage)).gradients.logprobs!.flat();
      expect(slopes.every((slope) => Math.sign(slope) === Math.sign(advantage))).toBe(true);
    },
  );

  test.each(["cispo", "sapo", "gpg", "dro"])("%s has none to clip", (name) => {
    expect(
      evaluate(name, batchOf(far, 1))
        .gradients.logprobs!.flat()
        .every((slope) => slope !== 0),
    ).toBe(true);
  });
});

describe("the selection by covariance", () => {
  test("takes the tokens whose covariance is highest", () => {
    const logprobs = [[-1, -1, -0.1, -3]];
    const advantages = [[0, 0, 2, -2]];
    const batch = { logprobs, oldLogprobs: logprobs, advantages, mask: [[1, 1, 1, 1]] };
    const half = configFor("kl_cov");
    const policy_loss = { ...half.policy_loss, kl_cov_ratio: 0.5 };
    const { isSelected } = lossOf("kl_cov").prepare!(batch, { ...half, policy_loss }, new Random(0));
    expect(isSelected!.map((row) => [...row])).toEqual([[0, 0, 1, 1]]);
  });

  test("draws as many candidates as the quota allows, at random, the same for the same seed", () => {
    fc.assert(
      fc.property(batches, fc.nat(), (batch, seed) => {
        const config = configFor("clip_cov");
        const draw = () => lossOf("clip_cov").prepare!(batch, config, new Random(seed)).isSelected!;
        const candidates = clipCandidates(batch, config);
        const chosen = draw().flatMap((row, i) => [...row].flatMap((mark, t) => (mark ? [[i, t]] : [])));
        const quota = Math.max(Math.trunc(0.3 * batchScalars(batch.mask, TIME).batch_tokens), 1);
        expect(chosen).toHaveLength(Math.min(quota, candidates.length));
        expect(candidates).toEqual(expect.arrayContaining(chosen));
        expect(draw()).toEqual(draw());
      }),
    );
  });

  test("refuses log-probs that are not finite", () => {
    const rows = [[Number.NaN]];
    const batch = { logprobs: rows, oldLogprobs: rows, advantages: [[1]], mask: [[1]] };
    expect(() => lossOf("kl_cov").prepare!(batch, configFor("kl_cov"), new Random(0))).toThrow(
      "`logprobs` is NaN at row 0, token 0",
    );
  });
});

describe("onnxruntime gives what the interpreter gives", () => {
  const runtime = new Runtime({ threads: 1 });
  afterAll(() => runtime.close());
  const random = new Random(3);
  const normal = (mean: number, std: number): Rows =>
    Array.from({ length: ROWS }, () => Array.from({ length: TIME }, () => Math.fround(random.normal(mean, std))));
  const batch: Batch = {
    logprobs: normal(-1, 0.2),
    oldLogprobs: normal(-1, 0.2),
    advantages: normal(0, 1),
    mask: normal(0.5, 1).map((row) => row.map((x) => Number(x > 0))),
    rolloutWeights: normal(1, 0.1),
  };

  async function runOnnx(run: LossRun) {
    const { outputs, inputs, width } = traceLoss(run);
    const program = compile(outputs);
    const results = program.outputs.map(({ name, shape }) => {
      return [name, sharedFloats(shape.map(Number).reduce((a, b) => a * b, 1))] as const;
    });
    const found = Object.fromEntries(results);
    const given = Object.entries(inputs).map(([name, values]) => {
      const array = sharedFloats(values.length);
      array.set(values);
      return [name, array] as const;
    });
    await runtime.run(await runtime.load(program), { arrays: { ...Object.fromEntries(given), ...found } });
    return readValues((name) => found[name]!, Object.keys(outputs), width);
  }

  test.each(names)("%s", async (name) => {
    const run = runOf(name, batch, configFor(name));
    const expected = runLoss(run);
    const close = (value: number) => expect.closeTo(value, 5);
    expect(await runOnnx(run)).toEqual({
      loss: close(expected.loss),
      gradients: { logprobs: expected.gradients.logprobs!.map((row) => row.map(close)) },
      metrics: Object.fromEntries(Object.entries(expected.metrics).map(([key, value]) => [key, close(value)])),
    });
  });

  test.each(names)("%s is finite however far the policies are apart", async (name) => {
    for (const [logprobs, oldLogprobs] of [
      [normal(-200, 0), normal(0, 0)],
      [normal(0, 0), normal(-200, 0)],
    ]) {
      const far = { ...batch, logprobs: logprobs!, oldLogprobs: oldLogprobs! };
      const { loss, gradients, metrics } = await runOnnx(runOf(name, far, configFor(name)));
      for (const value of [loss, ...gradients.logprobs!.flat(), ...Object.values(metrics)])
        expect(Number.isFinite(value)).toBe(true);
    }
  });
});

describe("the table of losses", () => {
  test("names what is near an unknown name", () => {
    expect(() => findPolicyLoss("vanila")).toThrow(
      '`policy_loss.loss_mode` is "vanila", which does not exist. Did you mean "vanilla"? Known: vanilla, gspo,',
    );
  });

  test("takes users' own losses, and refuses to give a name twice", () => {
    const own: PolicyLoss = {
      name: "squared",
      build: (terms) => ({
        loss: terms.total(o.square(terms.logRatio)),
        metrics: { "actor/moved": terms.mean(o.abs(terms.logRatio)) },
      }),
    };
    expect(registerPolicyLoss(own)).toBe(own);
    expect(registerPolicyLoss(own)).toBe(own);
    expect(findPolicyLoss("squared")).toBe(own);
    expect(() => registerPolicyLoss({ ...own })).toThrow('There is a policy loss "squared" already.');
    expect(() => registerPolicyLoss({ ...own, name: "vanilla" })).toThrow(UserError);
  });
});

describe("a mistake in a key is told", () => {
  const [batch] = fc.sample(batches, 1);
  const policy = (more: object) => ({ policy_loss: { ...configFor("vanilla").policy_loss, ...more } });
  const cases: readonly [name: string, config: Partial<ActorSettings>, message: string][] = [
    ["vanilla", { clip_ratio_c: 1 }, "`clip_ratio_c` is 1:"],
    ["vanilla", { clip_ratio_low: -0.1 }, "`clip_ratio_low` is -0.1."],
    ["vanilla", { clip_ratio_high: null, clip_ratio: Number.NaN }, "`clip_ratio_high` is NaN."],
    ["vanilla", { loss_agg_mode: "token-men" as AggregateMode }, 'Did you mean "token-mean"'],
    ["vanilla", { loss_scale_factor: 0 }, "`loss_scale_factor` is 0:"],
    ["sapo", { tau_neg: 0 }, "`tau_neg` is 0:"],
    ["dro", policy({ dro_beta: null }), "`policy_loss.dro_beta` is null,"],
    ["clip_cov", policy({ clip_cov_ratio: 0 }), "`policy_loss.clip_cov_ratio` is 0."],
    ["kl_cov", policy({ kl_cov_ratio: -1 }), "`policy_loss.kl_cov_ratio` is -1."],
    [
      "bypass_mode",
      { rollout_correction: { loss_type: "ppo" as BypassLoss } },
      '`rollout_correction.loss_type` is "ppo"',
    ],
  ];
  test.each(cases)("%s %o", (name, config, message) => {
    expect(() => evaluate(name, batch!, configFor(name, config))).toThrow(message);
  });
});
