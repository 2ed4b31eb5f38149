import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { correctionOf } from "./config.ts";
import { type Corrected, correct, correctionMetrics, correctUpdate } from "./correct.ts";
import type { Mismatch } from "./log-ratios.ts";
import { type CorrectionConfig, correctionPresets } from "./presets.ts";
import { criteria } from "./rejection.ts";

/** Every preset of both versions, every option and level, and the ways to bound weights. */
const configs: readonly CorrectionConfig[] = [
  ...Object.keys(correctionPresets["0.7"]).map((preset) => ({ preset, version: "0.7" })),
  ...Object.keys(correctionPresets["0.9"]).map((preset) => ({ preset })),
  ...["token", "sequence", "geometric"].map((rollout_rs) => ({ rollout_rs, rollout_rs_threshold: 1.5 })),
  ...Object.keys(criteria).map((rollout_rs) => ({ rollout_rs, rollout_rs_threshold: 1.2 })),
  ...["token", "sequence"].flatMap((rollout_is) =>
    [1.3, "0.8_1.4"].flatMap((rollout_is_threshold) =>
      ["0.7", "0.9"].map((version) => ({
        rollout_is,
        rollout_is_threshold,
        version,
        rollout_is_batch_normalize: true,
        rollout_token_veto_threshold: 0.3,
      })),
    ),
  ),
];
const corrections = configs.map((config) => correctionOf(config));

/** One token: log-probs under the two policies, and whether it counts. */
type Token = readonly [training: number, rollout: number, counts: number];
const token = fc.tuple(
  fc.double({ min: -8, max: 0, noNaN: true }),
  fc.double({ min: -8, max: 0, noNaN: true }),
  fc.constantFrom(1, 1, 0),
);
const rowsOfTokens = fc
  .array(fc.array(token, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 6 })
  .filter((rows) => rows.flat().some(([, , counts]) => counts === 1));
const correction = fc.constantFrom(...corrections);

const mismatchOf = (rows: readonly (readonly Token[])[]): Mismatch => ({
  trainingLogprobs: rows.map((row) => row.map(([training]) => training)),
  rolloutLogprobs: rows.map((row) => row.map(([, rollout]) => rollout)),
  mask: rows.map((row) => row.map(([, , counts]) => counts)),
});
const numbers = (rows: Corrected["weights"]) => rows?.map((row) => [...row]) ?? null;
const holds = (law: (rows: Token[][], correction: ReturnType<typeof correctionOf>) => void) =>
  fc.assert(
    fc.property(rowsOfTokens, correction, (rows, correction) => law(rows, correction)),
    { numRuns: 400 },
  );
const near = (found: number, expected: number) =>
  expect(Math.abs(found - expected)).toBeLessThanOrEqual(1e-9 * (1 + Math.abs(expected)));

describe("laws of every correction", () => {
  test("identical policies are left as they are: weights 1, nothing rejected, no divergence", () => {
    holds((rows, correction) => {
      const { trainingLogprobs, mask } = mismatchOf(rows);
      const same = correct({ trainingLogprobs, rolloutLogprobs: trainingLogprobs, mask }, correction);
      expect(numbers(same.mask)).toEqual(mask);
      expect(numbers(same.weights) ?? mask).toEqual(mask);
      const { "rollout_corr/training_ppl": ppl, "rollout_corr/training_log_ppl": logPpl, ...rest } = same.metrics;
      const isOne = /rollout_(is|rs)_((seq_)?(mean|max|min)|eff_sample_size|batch_norm_factor)$|ppl_ratio$/;
      for (const [name, value] of Object.entries(rest)) {
        if (name.endsWith("rollout_ppl")) expect(value).toBe(ppl);
        else if (name.endsWith("rollout_log_ppl")) expect(value).toBe(logPpl);
        else expect([name, value]).toEqual([name, isOne.test(name) ? 1 : 0]);
      }
    });
  });

  test("policies that differ by rounding lose no token, and no divergence is negative", () => {
    const noise = fc.double({ min: -1e-6, max: 1e-6, noNaN: true });
    fc.assert(
      fc.property(fc.array(noise, { minLength: 1, maxLength: 20 }), correction, (noises, correction) => {
        const near = mismatchOf([noises.map((noise): Token => [-1 + noise, -1, 1])]);
        const { mask, metrics } = correct(near, correction);
        expect(numbers(mask)).toEqual(near.mask);
        for (const [name, value] of Object.entries(metrics)) {
          if (/_k[23]_|k3_kl|fraction/.test(name)) expect(value, name).toBeGreaterThanOrEqual(0);
          if (/fraction/.test(name)) expect(value, name).toBe(0);
        }
      }),
      { numRuns: 1000 },
    );
  });

  test("what stands where the mask is 0 never matters, be it NaN or infinite", () => {
    const junk = fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e6);
    fc.assert(
      fc.property(rowsOfTokens, correction, junk, junk, (rows, correction, training, rollout) => {
        const other = rows.map((row) => row.map((token): Token => (token[2] === 0 ? [training, rollout, 0] : token)));
        expect(correct(mismatchOf(other), correction)).toEqual(correct(mismatchOf(rows), correction));
      }),
      { numRuns: 400 },
    );
  });

  test("rows without a token that counts change nothing", () => {
    holds((rows, correction) => {
      const empty: Token[] = [[-1, -3, 0]];
      const { mask, weights, metrics } = correct(mismatchOf([empty, ...rows, empty, []]), correction);
      const alone = correct(mismatchOf(rows), correction);
      expect(metrics).toEqual(alone.metrics);
      expect(numbers(mask)).toEqual([[0], ...numbers(alone.mask)!, [0], []]);
      if (alone.weights !== null) expect(numbers(weights)).toEqual([[0], ...numbers(alone.weights)!, [0], []]);
    });
  });

  test("the order of rows does not matter", () => {
    holds((rows, correction) => {
      const there = correct(mismatchOf(rows), correction);
      const back = correct(mismatchOf(rows.toReversed()), correction);
      expect(numbers(back.mask)!.toReversed()).toEqual(numbers(there.mask));
      const [weights, others] = [numbers(there.weights)?.flat(), numbers(back.weights)?.toReversed().flat()];
      weights?.forEach((weight, i) => {
        near(others![i]!, weight);
      });
      for (const [name, value] of Object.entries(there.metrics)) near(back.metrics[name]!, value);
    });
  });

  test("every number is finite, even for log-ratios of a million", () => {
    const extreme = fc.constantFrom<Token>([-1e6, -1, 1], [-1, -1e6, 1], [-1, -1.01, 1], [-1e6, 0, 0], [0, 0, 1]);
    fc.assert(
      fc.property(fc.array(fc.array(extreme, { minLength: 1 }), { minLength: 1 }), correction, (rows, correction) => {
        fc.pre(rows.flat().some(([, , counts]) => counts === 1));
        const { mask, weights, metrics } = correct(mismatchOf(rows), correction);
        const all = [...Object.values(metrics), ...mask.flatMap((row) => [...row])];
        expect([...all, ...(numbers(weights)?.flat() ?? [])].every(Number.isFinite)).toBe(true);
      }),
      { numRuns: 400 },
    );
  });

  test("shares lie between 0 and 1, and so does the effective sample size", () => {
    holds((rows, correction) => {
      for (const [name, value] of Object.entries(correct(mismatchOf(rows), correction).metrics)) {
        if (!/fraction|oob_ratio|eff_sample_size/.test(name)) continue;
        expect(value, name).toBeGreaterThanOrEqual(0);
        expect(value, name).toBeLessThanOrEqual(1 + 1e-12);
      }
    });
  });

  test("an update in bypass mode with ppo_clip has the same mask and metrics, and no weights", () => {
    holds((rows, correction) => {
      const { mask, weights, metrics } = correct(mismatchOf(rows), correction);
      const applied = correction.lossType === "ppo_clip" ? null : weights;
      expect(correctUpdate(mismatchOf(rows), correction)).toEqual({ mask, weights: applied, metrics });
    });
  });
});

describe("weights", () => {
  const weightsOf = (rows: readonly (readonly Token[])[], config: CorrectionConfig) =>
    numbers(correct(mismatchOf(rows), correctionOf(config)).weights)!;

  test("are the ratio of probabilities, of a token or of the product over its row, up to the threshold", () => {
    holds((rows) => {
      const tokens = weightsOf(rows, { rollout_is: "token", rollout_is_threshold: 1.5 });
      const sequences = weightsOf(rows, { rollout_is: "sequence", rollout_is_threshold: 1.5 });
      rows.forEach((row, i) => {
        const logs = row.map(([training, rollout, counts]) => (training - rollout) * counts);
        const total = logs.reduce((a, b) => a + b, 0);
        const product = Math.exp(Math.max(-20, Math.min(20, total))); // verl's safety bound
        row.forEach(([, , counts], t) => {
          near(tokens[i]![t]!, counts * Math.min(Math.exp(logs[t]!), 1.5));
          near(sequences[i]![t]!, counts * Math.min(product, 1.5));
        });
      });
    });
  });

  test("outside two bounds are 0, inside as they are", () => {
    holds((rows) => {
      const free = weightsOf(rows, { rollout_is: "token", rollout_is_threshold: 1e9 });
      const inside = weightsOf(rows, { rollout_is: "token", rollout_is_threshold: "0.5_2.0" });
      expect(inside).toEqual(free.map((row) => row.map((weight) => (weight >= 0.5 && weight <= 2 ? weight : 0))));
    });
  });

  test("have mean 1 when normalised, over tokens or over rows", () => {
    holds((rows) => {
      const normalised = { rollout_is_threshold: 1.5, rollout_is_batch_normalize: true };
      const tokens = weightsOf(rows, { ...normalised, rollout_is: "token" });
      const counted = tokens.flatMap((row, i) => row.filter((_, t) => rows[i]![t]![2] === 1));
      near(counted.reduce((a, b) => a + b, 0) / counted.length, 1);
      const sequences = weightsOf(rows, { ...normalised, rollout_is: "sequence" }).map((row) => Math.max(...row));
      const filled = sequences.filter((weight) => weight > 0);
      near(filled.reduce((a, b) => a + b, 0) / filled.length, 1);
    });
  });

  test.each(["token", "sequence"])("that are all out of bounds at level %s leave a sample size of 0", (rollout_is) => {
    const config = { rollout_is, rollout_is_threshold: "0.9_1.1", rollout_is_batch_normalize: true };
    const { weights, metrics } = correct(mismatchOf([[[-3, -1, 1]], [[-1, -2, 1]]]), correctionOf(config));
    expect(numbers(weights)).toEqual([[0], [0]]);
    expect(metrics).toMatchObject({
      "rollout_corr/rollout_is_eff_sample_size": 0,
      "rollout_corr/rollout_is_oob_ratio": 1,
      "rollout_corr/rollout_is_batch_norm_factor": 1,
    });
  });
});

describe("rejection", () => {
  const maskOf = (rows: readonly (readonly Token[])[], config: CorrectionConfig) =>
    numbers(correct(mismatchOf(rows), correctionOf(config)).mask)!;
  const option = fc.constantFrom(...Object.keys(criteria));

  test("by several options keeps what each of them keeps", () => {
    fc.assert(
      fc.property(rowsOfTokens, option, option, (rows, first, second) => {
        const bound = (name: string) => ({ rollout_rs: name, rollout_rs_threshold: name.endsWith("k1") ? 2.5 : 0.5 });
        const both = { rollout_rs: `${first}, ${second}`, rollout_rs_threshold: "" };
        const [a, b] = [bound(first), bound(second)];
        const thresholds =
          first === second ? `${a.rollout_rs_threshold}` : `${a.rollout_rs_threshold},${b.rollout_rs_threshold}`;
        const [one, other] = [maskOf(rows, a), maskOf(rows, b)];
        expect(maskOf(rows, { ...both, rollout_rs_threshold: thresholds })).toEqual(
          one.map((row, i) => row.map((keep, t) => keep * other[i]![t]!)),
        );
      }),
    );
  });

  test.each([
    ["token", "token_k1"],
    ["sequence", "seq_sum_k1"],
    ["geometric", "seq_mean_k1"],
  ])("at level %s of 0.7 is %s of 0.9 with inverse bounds", (level, option) => {
    holds((rows) => {
      const old = { rollout_rs: level, rollout_rs_threshold: 3.1, rollout_rs_threshold_lower: 0.7 };
      expect(maskOf(rows, old)).toEqual(
        maskOf(rows, { rollout_rs: option, rollout_rs_threshold: `${1 / 3.1}_${1 / 0.7}` }),
      );
    });
  });

  test("of rows takes all of a row or nothing", () => {
    holds((rows, correction) => {
      const isByRow = correction.rejections.every(
        (r) => (r.kind === "ratio" ? r.level : r.option).match(/^token/) === null,
      );
      fc.pre(isByRow);
      correct(mismatchOf(rows), correction).mask.forEach((kept, i) => {
        const before = rows[i]!.map(([, , counts]) => counts);
        expect([before, before.map(() => 0)]).toContainEqual([...kept]);
      });
    });
  });

  test("by veto takes every row with a token that training finds all but impossible", () => {
    const rows: Token[][] = [
      [
        [-12, -1, 1],
        [-1, -1, 1],
      ], // a ratio of e^-11, below 1e-4
      [
        [-1, -12, 1],
        [-1, -1, 1],
      ],
      [
        [-12, -1, 0],
        [-1, -1, 1],
      ],
    ];
    const config = { rollout_token_veto_threshold: 1e-4, version: "0.7" };
    const { mask, metrics } = correct(mismatchOf(rows), correctionOf(config));
    expect(numbers(mask)).toEqual([
      [0, 0],
      [1, 1],
      [0, 1],
    ]);
    near(metrics["rollout_corr/rollout_is_veto_fraction"]!, 1 / 3);
    near(metrics["rollout_corr/rollout_is_catastrophic_token_fraction"]!, 1 / 5);
  });
});

test("a batch calculated by hand gives those numbers", () => {
  const batch = {
    trainingLogprobs: [
      [-1, -0.5, -2],
      [-0.2, -3, 0],
    ],
    rolloutLogprobs: [
      [-1.2, -0.5, -1],
      [-0.2, -1, 0],
    ],
    mask: [
      [1, 1, 1],
      [1, 1, 0],
    ],
  };
  const { metrics, weights } = correct(batch, correctionOf({ preset: "decoupled_token_is", version: "0.7" }));
  const expected = {
    rollout_is_mean: 0.744923,
    rollout_is_std: 0.292498,
    rollout_is_eff_sample_size: 0.892837,
    training_ppl: 4.082151,
    rollout_ppl: 2.140861,
    kl: 0.56,
    k3_kl: 0.304923,
    log_ppl_diff: 0.633333,
    ppl_ratio: 2.011943,
    chi2_token: -0.270905,
    chi2_seq: -0.889894,
  };
  for (const [name, value] of Object.entries(expected))
    expect(metrics[`rollout_corr/${name}`], name).toBeCloseTo(value, 5);
  expect(weights![0]![0]).toBeCloseTo(1.221403, 5);
  expect(correctionMetrics(batch)["rollout_corr/kl"]).toBeCloseTo(0.56, 9);
});

describe("a batch that does not fit is refused", () => {
  const good = { trainingLogprobs: [[-1, -1]], rolloutLogprobs: [[-1, -2]], mask: [[1, 1]] };
  test.each<[string, Partial<Mismatch>, string]>([
    ["rows are missing", { rolloutLogprobs: [] }, "`rollout log-probs` has 0 rows where the response mask has 1"],
    ["a row is short", { trainingLogprobs: [[-1]] }, "Row 0 of `training log-probs` has 1 entries"],
    ["nothing counts", { mask: [[0, 0]] }, "None of the 1 rows of the response mask has a token that counts"],
    ["a log-prob is NaN", { rolloutLogprobs: [[-1, Number.NaN]] }, "`rollout log-probs` is NaN at row 0, token 1"],
    ["one is infinite", { trainingLogprobs: [[Number.NEGATIVE_INFINITY, -1]] }, "is -Infinity at row 0, token 0"],
  ])("when %s", (_, change, message) => {
    const run = () => correct({ ...good, ...change }, correctionOf({ rollout_is: "token" }));
    expect(run).toThrow(UserError);
    expect(run).toThrow(message);
  });

  test("when metrics are asked of nothing", () => {
    expect(() => correctionMetrics({ ...good, mask: [[0, 0]] })).toThrow("None of the 1 rows");
  });
});
