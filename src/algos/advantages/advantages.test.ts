/** Laws of the advantage estimators: each holds for every estimator it names, over random batches. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { defaultSettings } from "../../../scripts/goldens/settings.ts";
import type { Advantage, AdvantageInput, AdvantageSettings } from "./estimator.ts";
import { type advantageFields, advantageNames, findAdvantage, registerAdvantage } from "./registry.ts";

const names = advantageNames();
const settings: AdvantageSettings<typeof advantageFields> = {
  ...defaultSettings.advantage,
  gamma: 0.9,
  lam: 0.8,
  gdpo_reward_keys: ["style", "truth"],
};
const outcomeNames = names.filter((name) => /grpo|rloo|opo|gpg|gdpo|baseline$/.test(name) && !/token/.test(name));

type Token = { reward: number; counts: number; value: number; logprob: number; sumPiSquared: number; ratio: number };
type Row = { tokens: Token[]; group: string; baseline: number; style: number; truth: number };

const number = fc.integer({ min: -4096, max: 4096 }).map((n) => n / 1024);
const token: fc.Arbitrary<Token> = fc
  .record({ reward: number, counts: fc.constantFrom(0, 1, 1), value: number, p: fc.integer({ min: 1, max: 64 }) })
  .map(({ reward, counts, value, p }) => ({
    reward: counts * reward,
    counts,
    value,
    logprob: Math.log(p / 64),
    ratio: 1 + value / 8,
    sumPiSquared: (p / 64) ** 2 + (1 - p / 64) ** 2 / 3,
  }));
const row = (group: fc.Arbitrary<string>): fc.Arbitrary<Row> =>
  fc.record({
    tokens: fc.array(token, { minLength: 1, maxLength: 6 }),
    group,
    baseline: number,
    style: number,
    truth: number,
  });
/** Two groups in any order, each of two rows or more. */
const batch = fc
  .tuple(
    ...["a", "b"].map((name) => fc.array(row(fc.constant(name)), { minLength: 2, maxLength: 4 })),
    fc.array(row(fc.constantFrom("a", "b")), { maxLength: 3 }),
  )
  .map((parts) => parts.flat())
  .chain((rows) => fc.shuffledSubarray(rows, { minLength: rows.length }));

function inputOf(rows: readonly Row[]): AdvantageInput {
  const per = (of: (token: Token) => number) => rows.map(({ tokens }) => tokens.map(of));
  return {
    rewards: per((t) => t.reward),
    mask: per((t) => t.counts),
    groups: rows.map(({ group }) => group),
    values: per((t) => t.value),
    oldLogprobs: per((t) => t.logprob),
    sumPiSquared: per((t) => t.sumPiSquared),
    rolloutWeights: per((t) => t.ratio),
    baselines: rows.map(({ baseline }) => baseline),
    components: { style: rows.map(({ style }) => style), truth: rows.map(({ truth }) => truth) },
  };
}

const compute = (name: string, rows: readonly Row[], more: Partial<typeof settings> = {}) =>
  findAdvantage(name).compute(inputOf(rows), { ...settings, ...more });
const advantages = (name: string, rows: readonly Row[], more: Partial<typeof settings> = {}) =>
  compute(name, rows, more).advantages.map((entries) => [...entries]);
const scoreOf = ({ tokens }: Row) => tokens.reduce((sum, { reward }) => sum + reward, 0);
const mean = (list: readonly number[]) => list.reduce((a, b) => a + b, 0) / list.length;

function expectNear(found: readonly (readonly number[])[], expected: readonly (readonly number[])[]): void {
  expect(found.map((entries) => entries.length)).toEqual(expected.map((entries) => entries.length));
  found.flat().forEach((value, i) => {
    const want = expected.flat()[i]!;
    expect(Math.abs(value - want)).toBeLessThanOrEqual(1e-6 * (1 + Math.abs(want)));
  });
}

/** A row with one token per entry of `mask` and its reward on the last that counts. */
function episode(group: string, score: number, mask: readonly number[] = [1, 1]): Row {
  const last = mask.lastIndexOf(1);
  const tokens = mask.map((counts, t) => ({
    reward: t === last ? score : 0,
    counts,
    value: 0,
    logprob: -1,
    sumPiSquared: 0.3,
    ratio: 1,
  }));
  return { tokens, group, baseline: 0, style: score, truth: score };
}

describe.each(names)("%s", (name) => {
  test("gives the same advantages in whatever order the rows come", () => {
    fc.assert(
      fc.property(
        batch.chain((rows) =>
          fc.record({
            rows: fc.constant(rows),
            order: fc.shuffledSubarray([...rows.keys()], { minLength: rows.length }),
          }),
        ),
        ({ rows, order }) => {
          const found = advantages(name, rows);
          const shuffled = advantages(
            name,
            order.map((i) => rows[i]!),
          );
          expectNear(
            shuffled,
            order.map((i) => found[i]!),
          );
        },
      ),
    );
  });

  test("gives 0 where the mask is 0 and finite numbers elsewhere, for returns too", () => {
    fc.assert(
      fc.property(batch, fc.constantFrom("0.7" as const, "0.9" as const), (rows, version) => {
        const result = compute(name, rows, { version });
        for (const found of [result.advantages, result.returns]) {
          found.forEach((entries, i) => {
            expect(entries).toHaveLength(rows[i]!.tokens.length);
            entries.forEach((entry, t) => {
              if (rows[i]!.tokens[t]!.counts === 0) expect(entry).toBe(0);
              else expect(Number.isFinite(entry)).toBe(true);
            });
          });
        }
      }),
    );
  });

  test("does not look at values, log-probs and weights that are masked", () => {
    const junk = { value: Number.NaN, logprob: Number.NaN, sumPiSquared: Number.NaN, ratio: Number.NaN };
    fc.assert(
      fc.property(batch, (rows) => {
        const other = rows.map((r) => ({
          ...r,
          tokens: r.tokens.map((t) => (t.counts === 0 ? { ...t, ...junk } : t)),
        }));
        expect(advantages(name, other)).toEqual(advantages(name, rows));
      }),
    );
  });

  test("does not depend on what groups are called", () => {
    fc.assert(
      fc.property(batch, (rows) => {
        const renamed = rows.map((r) => ({ ...r, group: r.group === "a" ? "1.2" : "1.9" }));
        expect(advantages(name, renamed)).toEqual(advantages(name, rows));
      }),
    );
  });

  test("takes rows of any number type", () => {
    fc.assert(
      fc.property(batch, (rows) => {
        const input = inputOf(rows);
        const typed = { ...input, mask: input.mask.map((entries) => Uint8Array.from(entries)) };
        expect(findAdvantage(name).compute(typed, settings).advantages).toEqual(compute(name, rows).advantages);
      }),
    );
  });

  test("gives nothing for rows without a token and for no rows at all", () => {
    const empty = [episode("a", 0, [0, 0]), episode("a", 0, []), episode("b", 0, [0]), episode("b", 0, [0])];
    expect(advantages(name, empty)).toEqual([[0, 0], [], [0], [0]]);
    expect(advantages(name, [])).toEqual([]);
  });

  test("gives finite numbers when one token is all there is", () => {
    const rows = [episode("a", 3, [0, 1]), episode("a", 0, [0])];
    expect(advantages(name, rows).flat().every(Number.isFinite)).toBe(true);
  });
});

describe("tool output between the policy's tokens", () => {
  const skipping = names.filter((name) => name !== "optimal_token_baseline");

  test.each(skipping)("%s gives what it gives when the output is cut out", (name) => {
    fc.assert(
      fc.property(batch, (rows) => {
        const cut = rows.map((r) => ({ ...r, tokens: r.tokens.filter(({ counts }) => counts === 1) }));
        const kept = advantages(name, rows).map((entries, i) => entries.filter((_, t) => rows[i]!.tokens[t]!.counts));
        expectNear(kept, advantages(name, cut));
      }),
    );
  });

  test("both optimal token baselines agree where there is none", () => {
    fc.assert(
      fc.property(batch, fc.boolean(), (rows, zeroTail) => {
        const full = rows.map((r) => ({ ...r, tokens: r.tokens.map((t) => ({ ...t, counts: 1 })) }));
        const [plain, tir] = ["optimal_token_baseline", "tir_optimal_token_baseline"].map((name) =>
          advantages(name, full, { handle_zero_tail: zeroTail }),
        );
        expect(plain).toEqual(tir);
      }),
    );
  });

  test("reinforce_plus_plus credits the tokens before it, and with version 0.7 does not", () => {
    const rows = [episode("a", 1, [1, 1, 0, 0, 1])];
    const returns = (version: "0.7" | "0.9") => [
      ...findAdvantage("reinforce_plus_plus").compute(inputOf(rows), { ...settings, gamma: 0.5, version }).returns[0]!,
    ];
    expect(returns("0.9")).toEqual([0.25, 0.5, 0, 0, 1]);
    expect(returns("0.7")).toEqual([0, 0, 0, 0, 1]);
  });
});

describe("rewards that are all equal", () => {
  const score = fc.double({ min: -100, max: 100, noNaN: true });
  const groups = fc.array(fc.constantFrom("a", "a", "b", "b"), { minLength: 2, maxLength: 9 });
  const mask = [1, 0, 1];

  test.each(outcomeNames)("%s gives exactly 0, with and without division by the spread", (name) => {
    fc.assert(
      fc.property(score, groups, fc.boolean(), (value, labels, normByStd) => {
        const rows = ["a", "a", "b", "b", ...labels].map((group) => episode(group, value, mask));
        expect(
          advantages(name, rows, { norm_adv_by_std_in_grpo: normByStd })
            .flat()
            .every((entry) => Math.abs(entry) === 0),
        ).toBe(true);
      }),
    );
  });

  test("reinforce_plus_plus without discount gives exactly 0", () => {
    fc.assert(
      fc.property(score, (value) => {
        const rows = [1, 2, 3].map(() => episode("a", value, mask));
        const found = advantages("reinforce_plus_plus", rows, { gamma: 1 });
        expect(found.flat().every((entry) => Math.abs(entry) === 0)).toBe(true);
      }),
    );
  });
});

describe("a group of one", () => {
  const rows = [episode("alone", 2), episode("pair", 1), episode("pair", 0)];
  test.each([
    ["grpo", 2 / (1 + 1e-6)],
    ["grpo_vectorized", 2 / (1 + 1e-6)],
    ["rloo", 2],
    ["rloo_vectorized", 0],
    ["opo", 2],
    ["gpg", 2 * (3 / 2)], // two of three rows earned something
    ["optimal_token_baseline", 2],
    ["tir_optimal_token_baseline", 2],
  ])("has with %s the advantage %d", (name, expected) => {
    expect(advantages(name, rows)[0]).toEqual([expected, expected]);
  });

  test("is refused by grpo_passk, with its name", () => {
    expect(() => advantages("grpo_passk", rows)).toThrow('Group "alone" has one row');
  });
});

describe("what the formulas say", () => {
  const perRow = (name: string, rows: readonly Row[], more: Partial<typeof settings> = {}) =>
    advantages(name, rows, more).map((entries, i) => entries[rows[i]!.tokens.findIndex(({ counts }) => counts === 1)]);
  const counted = batch.map((rows) => rows.filter(({ tokens }) => tokens.some(({ counts }) => counts === 1)));
  const others = (rows: readonly Row[], i: number) => rows.filter((r, k) => r.group === rows[i]!.group && k !== i);

  test("rloo is the reward less the mean of the other rewards, and n/(n-1) times the centred reward", () => {
    fc.assert(
      fc.property(batch, (rows) => {
        const found = perRow("rloo", rows);
        const centred = perRow("grpo", rows, { norm_adv_by_std_in_grpo: false });
        rows.forEach((r, i) => {
          if (found[i] === undefined) return; // no token to credit
          const rest = others(rows, i).map(scoreOf);
          expect(found[i]).toBeCloseTo(scoreOf(r) - mean(rest), 9);
          expect(found[i]).toBeCloseTo((centred[i]! * (rest.length + 1)) / rest.length, 9);
        });
      }),
    );
  });

  test("grpo is the same for rewards moved and stretched alike, but for its epsilon", () => {
    const rows = [episode("a", 1), episode("a", 0), episode("a", 0.5)];
    const stretched = [episode("a", 103), episode("a", 100), episode("a", 101.5)];
    expectNear(
      advantages("grpo", stretched),
      advantages("grpo", rows).map((r) => r.map((x) => x * (1 + 1.3e-6))),
    );
    expect(perRow("grpo", rows)[0]).toBeCloseTo(1, 5);
  });

  test("grpo_vectorized is grpo, unless 0.7's floor under the spread is asked for", () => {
    fc.assert(
      fc.property(batch, (rows) => {
        expect(advantages("grpo_vectorized", rows)).toEqual(advantages("grpo", rows));
      }),
    );
    const close = [episode("a", 1), episode("a", 1.00001)];
    expect(perRow("grpo_vectorized", close)[1]).toBeCloseTo(Math.SQRT1_2, 0);
    expect(perRow("grpo_vectorized", close, { version: "0.7" })[1]).toBeCloseTo(0.005, 5);
  });

  test("grpo_passk credits only the best of a group, with its lead, and nobody where two are best", () => {
    fc.assert(
      fc.property(counted, (rows) => {
        fc.pre(rows.every((_, i) => others(rows, i).length > 0));
        const found = perRow("grpo_passk", rows, { norm_adv_by_std_in_grpo: false });
        rows.forEach((r, i) => {
          const best = Math.max(...others(rows, i).map(scoreOf));
          expect(found[i]).toBeCloseTo(Math.max(scoreOf(r) - best, 0), 9);
        });
      }),
    );
  });

  test("opo's advantages times lengths cancel within a group", () => {
    fc.assert(
      fc.property(batch, (rows) => {
        const found = advantages("opo", rows).map((entries) => entries.reduce((a, b) => a + b, 0));
        for (const group of ["a", "b"]) {
          const sum = found.reduce((total, own, i) => total + (rows[i]!.group === group ? own : 0), 0);
          expect(sum).toBeCloseTo(0, 9);
        }
      }),
    );
  });

  test("whitened advantages have mean 0 and variance 1 over the tokens that count", () => {
    fc.assert(
      fc.property(batch, fc.constantFrom("gae", "reinforce_plus_plus", "gdpo"), (rows, name) => {
        const counts = rows.flatMap(({ tokens }) => tokens.map((t) => t.counts));
        const found = advantages(name, rows)
          .flat()
          .filter((_, i) => counts[i] === 1);
        fc.pre(found.length > 1 && found.some((x) => Math.abs(x) > 0.1));
        expect(mean(found)).toBeCloseTo(0, 6);
        const variance = found.reduce((sum, x) => sum + x * x, 0) / (found.length - 1);
        expect(variance).toBeGreaterThan(0.99);
        expect(variance).toBeLessThan(1.0001);
      }),
    );
  });

  test("gae's returns are the reward to go when gamma and lambda are 1, whatever the critic says", () => {
    fc.assert(
      fc.property(batch, (rows) => {
        const remax = compute("remax", rows).returns.map((entries) => [...entries]);
        const found = compute("gae", rows, { gamma: 1, lam: 1 }).returns.map((entries) => [...entries]);
        expectNear(found, remax);
      }),
    );
  });

  test("remax takes the greedy answer's reward off the reward to go", () => {
    const greedy = { ...episode("a", 1, [1, 0, 1]), baseline: 0.75 };
    expect(advantages("remax", [greedy])).toEqual([[0.25, 0, 0.25]]);
  });

  test("gdpo gives a small part of the reward the same say as a large one", () => {
    fc.assert(
      fc.property(batch, (rows) => {
        fc.pre(["a", "b"].every((g) => new Set(rows.filter((r) => r.group === g).map((r) => r.style)).size > 1));
        // The other part is left out: what remains of two parts that cancel is small, and whitening makes it large.
        const quiet = rows.map((r) => ({ ...r, truth: 0 }));
        const louder = quiet.map((r) => ({ ...r, style: r.style * 1000 }));
        const [soft, loud] = [advantages("gdpo", quiet).flat(), advantages("gdpo", louder).flat()];
        soft.forEach((value, i) => {
          expect(Math.abs(value - loud[i]!)).toBeLessThan(0.02); // epsilon is 1e-6 beside a spread of 1e-3 or more
        });
      }),
    );
  });

  test("an optimal token baseline leaves the longest answer's tail its own return", () => {
    const rows = [episode("a", 1, [1, 1, 1, 1]), episode("a", 0, [1, 1])];
    expect(advantages("tir_optimal_token_baseline", rows)[0]!.slice(2)).toEqual([1, 1]);
    const tail = advantages("tir_optimal_token_baseline", rows, { handle_zero_tail: false })[0]!.slice(2);
    for (const entry of tail) expect(entry).toBeCloseTo(0, 6);
  });
});

describe("what is refused", () => {
  const rows = [episode("a", 1), episode("a", 0)];
  const input = inputOf(rows);

  test.each(names)("%s refuses a reward that is not finite, with its place", (name) => {
    for (const reward of [Number.NaN, Infinity, -Infinity]) {
      const rewards = [
        [0, 1],
        [0, reward],
      ];
      const asked = { ...settings, gdpo_reward_keys: [] };
      const act = () => findAdvantage(name).compute({ ...input, rewards }, asked);
      expect(act).toThrow(`\`rewards\` is ${reward} at row 1, token 1`);
    }
  });

  test.each([
    ["gae", "values", Number.NaN],
    ["optimal_token_baseline", "oldLogprobs", Number.NaN],
    ["tir_optimal_token_baseline", "sumPiSquared", Infinity],
    ["optimal_token_baseline", "rolloutWeights", Number.NaN],
  ] as const)("%s refuses %s of %d", (name, part, junk) => {
    const bad = [
      [-1, -1],
      [junk, -1],
    ];
    const act = () => findAdvantage(name).compute({ ...input, [part]: bad }, settings);
    expect(act).toThrow(`\`${part}\` is ${junk} at row 1, token 0`);
  });

  test.each([
    ["rewards of another length", "grpo", { rewards: [[0, 1], [0]] }, "Row 1 of `rewards` has 1 entries"],
    ["values with fewer rows", "gae", { values: [[0, 1]] }, "`values` has 1 rows"],
    ["groups for other rows", "rloo", { groups: ["a"] }, "`groups` has 1 entries where the response mask has 2 rows"],
    ["baselines for other rows", "remax", { baselines: [1] }, "`baselines` has 1 entries"],
    ["a baseline that is not a number", "remax", { baselines: [1, Number.NaN] }, "`baselines` is NaN at row 1"],
    [
      "a part of the reward that is not a number",
      "gdpo",
      { components: { style: [1, 2], truth: [Infinity, 0] } },
      "`truth` is Infinity at row 0",
    ],
    [
      "rewards without the part asked for",
      "gdpo",
      { components: { stile: [1, 2], truth: [1, 2] } },
      "Did you mean stile?",
    ],
    ["rewards without parts", "gdpo", { components: {} }, "they have no parts"],
  ])("%s", (_, name, part, message) => {
    expect(() => findAdvantage(name).compute({ ...input, ...part }, settings)).toThrow(message);
  });

  test("a batch without what the estimator needs, with the way to it", () => {
    const { rewards, mask, groups } = input;
    const act = (name: string) => () => findAdvantage(name).compute({ rewards, mask, groups }, settings);
    expect(act("gae")).toThrow("needs `values`");
    expect(act("remax")).toThrow("greedy answer");
    expect(act("optimal_token_baseline")).toThrow("needs `oldLogprobs`");
  });

  test("weights for another number of parts", () => {
    expect(() => advantages("gdpo", rows, { gdpo_reward_weights: [1] })).toThrow("has 1 numbers for the 2 columns");
  });

  test("rewards too large to add up or to compare", () => {
    expect(() => advantages("grpo", [episode("a", 1.7e308), episode("a", -1.7e308)])).toThrow("too far apart");
    expect(() => advantages("reinforce_plus_plus", [episode("a", 1e300), episode("a", -1e300)])).toThrow("whitened");
  });
});

describe("the registry", () => {
  const constant = (name: string, value: number): Advantage => ({
    name,
    paper: "",
    hasCritic: false,
    needs: [],
    compute({ mask }) {
      const rows = mask.map((entries) => new Float64Array(entries.length).fill(value));
      return { advantages: rows, returns: rows };
    },
  });

  test("names the nearest estimators when there is none of a name", () => {
    expect(() => findAdvantage("grop")).toThrow(
      '`algorithm.adv_estimator` is "grop", which does not exist. Did you mean "grpo"',
    );
    expect(() => findAdvantage("GAE")).toThrow("Known: gae, reinforce_plus_plus");
  });

  test("finds what a user registered, as often as it is registered", () => {
    const mine = constant("mine", 7);
    registerAdvantage(mine);
    registerAdvantage(mine);
    expect(advantages("mine", [episode("a", 1)])).toEqual([[7, 7]]);
    expect(advantageNames()).toContain("mine");
  });

  test("refuses a second estimator of one name", () => {
    expect(() => registerAdvantage(constant("grpo", 1))).toThrow('There is an advantage estimator "grpo" already');
  });

  test("does not pass on what a user's estimator makes of finite rewards, if it is not finite", () => {
    registerAdvantage(constant("broken", Number.NaN));
    expect(() => advantages("broken", [episode("a", 1)])).toThrow("The advantages that broken computes for row 0");
  });

  test("says which estimators train a critic", () => {
    expect(names.filter((name) => findAdvantage(name).hasCritic)).toEqual(["gae"]);
  });
});
