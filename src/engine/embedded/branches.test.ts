/** Sequences that share a prefix have the same results together as one by one. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import * as o from "../../graph/ops.ts";
import { parameterSpecs, readConfig } from "../../models/config.ts";
import { Random } from "../../util/random.ts";
import type { TokenLoss, TokenRow } from "../contract.ts";
import { cutGroups, prefixGroups, tokensInGroup } from "./branches.ts";
import { EmbeddedEngine } from "./engine.ts";
import { cut } from "./micro-batches.ts";

const fixtures = join(import.meta.dirname, "../../../test/fixtures/logits");
const engine = new EmbeddedEngine({ threads: 1 });
afterAll(() => engine.close());

/** A loss in which every output and input matters, and tokens of a row matter to each other. */
const loss: TokenLoss = {
  key: "test of branches",
  heads: ["logprobs", "entropy"],
  extra: ["weights"],
  scalars: ["scale"],
  build: ({ logprobs, entropy, weights, mask, scale }) => {
    const perRow = o.sum(o.mul(o.mul(o.add(logprobs!, o.mul(entropy!, 0.3)), weights!), mask), [1]);
    return { loss: o.mul(o.sum(o.square(perRow)), scale!), metrics: { tokens: o.sum(mask) } };
  },
};

type Group = { readonly prompt: number; readonly responses: readonly number[] };

function rowsOf(groups: readonly Group[], vocabSize: number, seed: number): TokenRow[] {
  const random = new Random(seed);
  const ids = (length: number) => Array.from({ length }, () => random.int(vocabSize));
  return groups.flatMap(({ prompt, responses }) => {
    const shared = ids(prompt);
    return responses.map((length) => {
      const row = Int32Array.from([...shared, ...ids(length)]);
      // Some tokens within a response do not count, such as the output of a tool.
      const mask = [...row.keys()].map((t) => (t < prompt || t === prompt + 2 ? 0 : 1));
      return { ids: row, mask, extra: { weights: [...row.keys()].map(() => random.normal(0, 1)) } };
    });
  });
}

const groups: readonly Group[] = [
  { prompt: 12, responses: [5, 1, 9, 4] },
  { prompt: 19, responses: [7, 7, 3] },
  { prompt: 3, responses: [4, 6] }, // too short to share
  { prompt: 30, responses: [8] },
];
const long: readonly Group[] = [
  { prompt: 101, responses: [99, 130, 4] },
  { prompt: 120, responses: [97, 2] },
];

const cases = [
  ...readdirSync(fixtures).map((name) => [name, "short", groups] as const),
  ...["llama", "gemma2", "qwen3"].map((name) => [name, "long (attention in parts)", long] as const),
];

describe("sequences that share a prefix have the outputs and gradients that they have alone", () => {
  test.each(cases)("%s, %s", async (name, _, given) => {
    const model = await engine.open({ folder: join(fixtures, name) });
    const rows = rowsOf(given, model.config.vocabSize, 7);
    const scalars = { scale: 0.01 };
    const names = parameterSpecs(model.config).map((spec) => spec.name);
    const together = await model.forward(rows, ["logprobs", "entropy"], { micro: { maxTokens: 4096 } });
    const whole = await model.train(rows, loss, { micro: { maxTokens: 4096 }, scalars });
    const gradient = names.map((parameter) => model.gradient(parameter).slice());
    await model.step({ lr: 0, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0, maxNorm: 1 });

    const sums: Record<string, number> = {};
    for (const [i, row] of rows.entries()) {
      const [alone] = await model.forward([row], ["logprobs", "entropy"], { micro: { rows: 1 } });
      expect(distance(together[i]!.logprobs!, alone!.logprobs!)).toBeLessThan(2e-5);
      expect(distance(together[i]!.entropy!, alone!.entropy!)).toBeLessThan(2e-5);
      const part = await model.train([row], loss, { micro: { rows: 1 }, scalars });
      for (const [key, value] of Object.entries(part)) sums[key] = (sums[key] ?? 0) + value;
    }
    expect(whole.tokens).toBe(sums.tokens);
    expect(Math.abs(whole.loss! - sums.loss!)).toBeLessThan(1e-5 * Math.abs(sums.loss!));
    for (const [i, parameter] of names.entries()) {
      const expected = model.gradient(parameter);
      const scale = Math.max(1e-6, ...expected.map(Math.abs));
      expect(distance(gradient[i]!, expected) / scale, parameter).toBeLessThan(1e-4);
    }
    await model.close();
  });
});

function distance(a: ArrayLike<number>, b: ArrayLike<number>): number {
  expect(a.length).toBe(b.length);
  let most = 0;
  for (let i = 0; i < a.length; i++) most = Math.max(most, Math.abs(a[i]! - b[i]!));
  return most;
}

describe("prefix groups", async () => {
  const config = await readConfig(join(fixtures, readdirSync(fixtures)[0]!));
  const heads = ["logprobs"] as const;

  test("every row is in one block, whatever the limits, and blocks of prefix groups keep to them", () => {
    const group = fc.record({
      prompt: fc.integer({ min: 1, max: 40 }),
      responses: fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 6 }),
    });
    const micro = fc.oneof(
      fc.record({ rows: fc.integer({ min: 1, max: 8 }) }),
      fc.record({ maxTokens: fc.integer({ min: 1, max: 300 }) }),
    );
    fc.assert(
      fc.property(fc.array(group, { minLength: 1, maxLength: 8 }), micro, (given, limit) => {
        const rows = rowsOf(given, 50, 3);
        const blocks = cut(rows, limit, { heads, config });
        expect(blocks.flatMap(({ indices }) => indices).sort((a, b) => a - b)).toEqual([...rows.keys()]);
        for (const { groups: batch, indices } of blocks) {
          if (batch === null) continue;
          if ("rows" in limit) expect(indices.length).toBeLessThanOrEqual(limit.rows);
          else if (indices.length > 1)
            expect(batch.reduce((sum, own) => sum + tokensInGroup(own), 0)).toBeLessThanOrEqual(limit.maxTokens);
        }
      }),
      { numRuns: 200 },
    );
  });

  test("a prompt of 20 tokens with 8 responses of 10 computes 99 tokens, not 240", () => {
    const rows = rowsOf([{ prompt: 20, responses: Array(8).fill(10) }], 50, 3);
    const { shared, alone } = prefixGroups(rows, [...rows.keys()], { heads, config });
    expect(alone).toEqual([]);
    expect(shared.map(tokensInGroup)).toEqual([19 + 8 * 10]);
    expect(cutGroups(shared, { maxTokens: 4096 }, 4096)).toHaveLength(1);
  });

  test("rows without a token that counts are in no prefix group", () => {
    const [first, second] = rowsOf([{ prompt: 20, responses: [5, 5] }], 50, 3);
    const rows = [first!, { ...second!, mask: second!.mask && Array(25).fill(0) }];
    expect(prefixGroups(rows, [0, 1], { heads, config })).toEqual({ shared: [], alone: [0, 1] });
  });
});
