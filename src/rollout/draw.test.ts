/**
 * Draws against a slow and simple implementation of vLLM's order in double precision: bias and bans, penalties, temperature,
 * min-p, top-k, top-p, renormalise. `topLogprobs` of the vocabulary's size shows the whole distribution of a draw.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Random } from "../util/random.ts";
import { type Context, draw, isGreedy, needsLogits, scored, temperatureOf } from "./draw.ts";
import type { Sampling } from "./request.ts";

type Settings = Omit<Sampling, "maxNewTokens">;
type Case = {
  readonly logits: readonly number[];
  readonly settings: Settings;
  readonly prompt: readonly number[];
  readonly drawn: readonly number[];
  readonly banned: readonly number[];
};

// ---------------------------------------------------------------- the reference

const total = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

function softmax(logits: readonly number[], temperature: number): number[] {
  const peak = Math.max(...logits);
  const powers = logits.map((logit) => Math.exp((logit - peak) / temperature));
  const sum = total(powers);
  return powers.map((power) => power / sum);
}

/** The probability of each token, and how close the closest decision was. */
function reference({ logits, settings, prompt, drawn, banned }: Case): { probs: number[]; margin: number } {
  const { temperature = 1, topK = 0, topP = 1, minP = 0, logitBias = {} } = settings;
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0 } = settings;
  const isOpen = banned.length === 0 || logits.some((_, id) => !banned.includes(id));
  const adjusted = logits.map((logit, id) => {
    let value = logit + (logitBias[id] ?? 0);
    if (isOpen && banned.includes(id)) return -Infinity;
    if ([...prompt, ...drawn].includes(id)) value = value > 0 ? value / repetitionPenalty : value * repetitionPenalty;
    const count = drawn.filter((other) => other === id).length;
    return value - frequencyPenalty * count - (count > 0 ? presencePenalty : 0);
  });
  const isCold = temperature < 1e-5;
  let probs = softmax(adjusted, isCold ? 1 : temperature);
  let margin = Infinity;
  if (isCold) return { probs, margin };
  const keep = (isKept: (p: number, id: number) => boolean) => {
    probs = probs.map((p, id) => (isKept(p, id) ? p : 0));
    const mass = total(probs);
    probs = probs.map((p) => p / mass);
  };
  const peak = Math.max(...probs);
  for (const p of probs) if (minP > 0 && p !== peak) margin = Math.min(margin, Math.abs(p / peak - minP));
  keep((p) => p === peak || p >= minP * peak);
  const order = probs.map((_, id) => id).sort((a, b) => probs[b]! - probs[a]! || a - b);
  if (topK > 0 && topK < probs.length) {
    const last = probs[order[topK - 1]!]!;
    keep((p) => p >= last);
  }
  if (topP < 1) {
    let before = 0;
    const kept = new Set<number>();
    for (const id of order) {
      margin = Math.min(margin, Math.abs(before - topP));
      if (before < topP) kept.add(id);
      before += probs[id]!;
    }
    keep((_, id) => kept.has(id));
  }
  return { probs, margin };
}

// ---------------------------------------------------------------- the draw

function drawCase({ logits, settings, prompt, drawn, banned }: Case, uniform: () => number) {
  const sampling: Sampling = { maxNewTokens: 1, topLogprobs: logits.length, ...settings };
  const context: Context = { sampling, ids: [...prompt, ...drawn], promptLength: prompt.length, banned };
  const probs = Float32Array.from(softmax(logits, temperatureOf(sampling)));
  return draw(probs, needsLogits(sampling, banned) ? Float32Array.from(logits) : null, context, uniform);
}

const VOCABULARY = 40;
const tokens = (maxLength: number) => fc.array(fc.nat(VOCABULARY - 1), { maxLength });
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 2 });
/** Multiples of an eighth: ties are frequent, and other values differ by more than rounding. */
const eighths = (most: number) => fc.integer({ min: -8 * most, max: 8 * most }).map((value) => value / 8);
const settings = fc.record({
  temperature: maybe(fc.constantFrom(0, 0.125, 0.5, 0.75, 1, 1.5, 4)),
  topK: maybe(fc.integer({ min: -1, max: VOCABULARY + 2 })),
  topP: maybe(fc.constantFrom(0.01, 0.3, 0.5, 0.83, 0.95, 0.999, 1)),
  minP: maybe(fc.constantFrom(0, 0.013, 0.21, 0.77, 1)),
  repetitionPenalty: maybe(fc.constantFrom(0.5, 1, 2)),
  presencePenalty: maybe(eighths(2)),
  frequencyPenalty: maybe(eighths(2)),
  logitBias: maybe(fc.dictionary(fc.nat(VOCABULARY - 1).map(String), eighths(20), { maxKeys: 4 })),
});
const cases: fc.Arbitrary<Case> = fc.record({
  logits: fc.array(eighths(12), { minLength: VOCABULARY, maxLength: VOCABULARY }),
  // `undefined` stands for an absent field.
  settings: settings.map((given) => JSON.parse(JSON.stringify(given)) as Settings),
  prompt: tokens(6),
  drawn: tokens(6),
  banned: tokens(3),
});

test("the distribution of a draw is the reference's", () => {
  fc.assert(
    fc.property(cases, (given) => {
      const { probs, margin } = reference(given);
      fc.pre(margin > 1e-6);
      const { top } = drawCase(given, () => 0.5);
      const found = new Map(top.map(({ id, logprob }) => [id, logprob]));
      probs.forEach((p, id) => {
        if (p > 1e-30) expect(found.get(id), `token ${id}`).toBeCloseTo(Math.log(p), 4);
        else if (found.has(id)) expect(found.get(id), `token ${id}`).toBeLessThan(-69);
      });
      expect(total(top.map(({ logprob }) => Math.exp(logprob)))).toBeCloseTo(1, 5);
      for (let i = 1; i < top.length; i++) {
        const isInOrder = top[i - 1]!.logprob > top[i]!.logprob || top[i - 1]!.id < top[i]!.id;
        expect(top[i - 1]!.logprob >= top[i]!.logprob && isInOrder, "likeliest first, then by id").toBe(true);
      }
    }),
    { numRuns: 600 },
  );
});

test("the drawn token is in the distribution, with its log-prob there", () => {
  fc.assert(
    fc.property(cases, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (given, uniform) => {
      const { id, logprob, top } = drawCase(given, () => uniform);
      expect(top.find((token) => token.id === id)?.logprob).toBe(logprob);
      expect(logprob).toBeGreaterThan(-Infinity);
    }),
    { numRuns: 300 },
  );
});

test("a smaller `topLogprobs` gives the first tokens of a larger one", () => {
  fc.assert(
    fc.property(cases, fc.integer({ min: 0, max: VOCABULARY }), (given, count) => {
      const all = drawCase(given, () => 0.3).top;
      const some = drawCase({ ...given, settings: { ...given.settings, topLogprobs: count } }, () => 0.3).top;
      expect(some).toEqual(all.slice(0, count));
    }),
    { numRuns: 200 },
  );
});

describe("greedy", () => {
  test("takes the likeliest token, of equal ones the lowest id, and uses no random number", () => {
    fc.assert(
      fc.property(cases, fc.constantFrom(0, 1e-6), (given, temperature) => {
        const cold = { ...given, settings: { ...given.settings, temperature } };
        const { probs } = reference(cold);
        const { id, logprob } = drawCase(cold, () => expect.fail("a number was drawn"));
        expect(id).toBe(probs.indexOf(Math.max(...probs)));
        expect(logprob).toBeCloseTo(Math.log(probs[id]!), 4);
      }),
      { numRuns: 200 },
    );
  });
  test("is what a temperature below 1e-5 means", () => {
    expect([0, 9e-6, 1e-5, 1].map((temperature) => isGreedy({ maxNewTokens: 1, temperature }))).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });
});

describe("a banned token is not drawn", () => {
  const logits = [50, 1, 0, -3];
  const plain = { logits, prompt: [0], drawn: [], banned: [0] };
  test.each<Settings>([{}, { temperature: 0 }, { temperature: 0.1 }, { temperature: 1e-4 }, { logitBias: { 0: 1e6 } }])(
    "not even if the probabilities of all others are 0: %j",
    (given) => {
      for (const uniform of [0, 0.5, 1 - 1e-12]) {
        const { id, logprob } = drawCase({ ...plain, settings: given }, () => uniform);
        expect(id).not.toBe(0);
        expect(Number.isFinite(logprob)).toBe(true);
      }
    },
  );
  test("unless all tokens are banned", () => {
    expect(drawCase({ ...plain, banned: [0, 1, 2, 3], settings: {} }, () => 0.5).id).toBe(0);
  });
});

test("a bias is added before the repetition penalty reads the sign of a logit", () => {
  const given = { logits: [-1, 0], settings: { repetitionPenalty: 2, logitBias: { 0: 3 } }, prompt: [0], banned: [] };
  const { top } = drawCase({ ...given, drawn: [] }, () => 0);
  expect(top[0]!.logprob - top[1]!.logprob).toBeCloseTo(1, 6); // (-1 + 3) / 2 against 0
});

test("`scored` gives a token's own log-prob", () => {
  const probs = Float32Array.from([0.5, 0.125, 0.375]);
  expect(scored(probs, 1, 2)).toEqual({
    id: 1,
    logprob: Math.log(0.125),
    top: [
      { id: 0, logprob: Math.log(0.5) },
      { id: 2, logprob: Math.log(0.375) },
    ],
  });
});

// ---------------------------------------------------------------- frequencies

const DRAWS = 20_000;

/** The standard score of the chi-square statistic (Wilson and Hilferty's approximation); rare tokens count together. */
function surprise(counts: readonly number[], probs: readonly number[]): number {
  let [statistic, classes, rareExpected, rareCount] = [0, 0, 0, 0];
  const add = (count: number, expected: number) => {
    statistic += (count - expected) ** 2 / expected;
    classes++;
  };
  probs.forEach((p, id) => {
    if (p * DRAWS >= 5) add(counts[id]!, p * DRAWS);
    else {
      rareExpected += p * DRAWS;
      rareCount += counts[id]!;
    }
  });
  if (rareExpected > 0) add(rareCount, rareExpected);
  const df = classes - 1;
  return (Math.cbrt(statistic / df) - (1 - 2 / (9 * df))) / Math.sqrt(2 / (9 * df));
}

describe("drawn frequencies match the distribution", () => {
  const random = new Random(5, "logits");
  const logits = Array.from({ length: VOCABULARY }, () => Math.fround(random.normal(0, 2)));
  const plain = { logits, prompt: [1, 2, 3], drawn: [3, 3, 4], banned: [] };
  const frequencies = (given: Case) => {
    const draws = new Random(6, "draws");
    const counts = logits.map(() => 0);
    const one = { ...given, settings: { ...given.settings, topLogprobs: 0 } };
    for (let i = 0; i < DRAWS; i++) counts[drawCase(one, () => draws.uniform()).id]!++;
    return counts;
  };
  test.each<Settings>([
    {},
    { temperature: 0.7 },
    { temperature: 1.6 },
    { topK: 7 },
    { topP: 0.8 },
    { minP: 0.05 },
    { temperature: 1.3, topK: 20, topP: 0.9, minP: 0.02 },
    { repetitionPenalty: 1.3, presencePenalty: 0.5, frequencyPenalty: 0.25, logitBias: { 9: 2 } },
  ])("%j", (given) => {
    const { probs } = reference({ ...plain, settings: given });
    const counts = frequencies({ ...plain, settings: given });
    expect(surprise(counts, probs)).toBeLessThan(3.7);
    counts.forEach((count, id) => {
      if (probs[id] === 0) expect(count).toBe(0);
    });
  });
  test("and a temperature that is wrong by a tenth is noticed", () => {
    const { probs } = reference({ ...plain, settings: { temperature: 1.1 } });
    expect(surprise(frequencies({ ...plain, settings: {} }), probs)).toBeGreaterThan(3.7);
  });
});

// ---------------------------------------------------------------- speed

describe("128 rows of 151,936 tokens are sampled quickly", () => {
  const random = new Random(7, "rows");
  const vocabulary = 151_936;
  // Peaked as trained models are; nearly flat as new ones are; quite flat.
  const rows = [3, 0.05, 0].map((spread) => {
    const logits = Float32Array.from({ length: vocabulary }, () => random.normal(0, spread));
    let sum = 0;
    for (const logit of logits) sum += Math.exp(logit);
    return logits.map((logit) => Math.exp(logit) / sum);
  });
  test.each<Settings & { ms: number }>([
    { ms: 2000 },
    { topP: 0.95, ms: 5000 },
    { topK: 50, topP: 0.9, minP: 0.001, ms: 5000 },
    { topLogprobs: 20, ms: 5000 },
    { topLogprobs: vocabulary, topP: 0.5, ms: 20_000 },
  ])("%j", ({ ms, ...given }) => {
    const context = { sampling: { maxNewTokens: 1, ...given }, ids: [1], promptLength: 1, banned: [] };
    const start = performance.now();
    const count = given.topLogprobs === vocabulary ? 4 : 128;
    for (let i = 0; i < count; i++) draw(rows[i % rows.length]!, null, context, () => random.uniform());
    expect(performance.now() - start).toBeLessThan(ms);
  });
});
