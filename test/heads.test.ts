/**
 * Value and reward heads compute what transformers' token and sequence classification with one label computes: the
 * output at every position, and the gradient of half its mean square. test/python/make_reference.py made the folders.
 */
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import type { HeadName, TokenLoss, TokenRow } from "../src/engine/contract.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { div, mul, square, sum } from "../src/graph/ops.ts";
import { parameterSpecs } from "../src/models/config.ts";
import { readAll, type Tensor } from "../src/models/safetensors.ts";

const engine = new EmbeddedEngine();
afterAll(() => engine.close());

/** A value belongs to the token it was seen before, a score to the token it was seen after. */
const cases: readonly { folder: string; head: HeadName; shift: 0 | 1 }[] = [
  { folder: "llama_value", head: "values", shift: 1 },
  { folder: "qwen2_value", head: "values", shift: 1 },
  { folder: "llama_score", head: "scores", shift: 0 },
  { folder: "qwen2_score", head: "scores", shift: 0 },
];

const halfMeanSquare = (head: HeadName): TokenLoss => ({
  key: `half the mean square of ${head}`,
  heads: [head],
  scalars: ["count"],
  build: (tensors) => ({ loss: div(sum(mul(square(tensors[head]!), tensors.mask)), mul(tensors.count!, 2)) }),
});

const numbers = (tensor: Tensor): number[] => Array.from(tensor.data as ArrayLike<number | bigint>, Number);

describe.each(cases)("$folder is equal to transformers", ({ folder, head, shift }) => {
  const path = fileURLToPath(new URL(`fixtures/logits-more/${folder}`, import.meta.url));

  async function open() {
    const reference = await readAll(`${path}/reference.safetensors`);
    const [batch, time] = reference.get("input_ids")!.shape as [number, number];
    const matrix = (name: string) => {
      const values = numbers(reference.get(name)!);
      return Array.from({ length: batch }, (_, b) => values.slice(b * time, (b + 1) * time));
    };
    const rows = matrix("input_ids").map((ids): TokenRow => ({ ids: Int32Array.from(ids), mask: ids.map(() => 1) }));
    return { reference, outputs: matrix("outputs"), rows, time, model: await engine.open({ folder: path }) };
  }

  test("in its outputs", async () => {
    const { outputs, rows, time, model } = await open();
    const made = await model.forward(rows, [head], { micro: { rows: rows.length } });
    made.forEach((row, b) => {
      for (let t = shift; t < time; t++) expect(row[head]![t]).toBeCloseTo(outputs[b]![t - shift]!, 4);
    });
    await model.close();
  });

  test("in its loss and every gradient", async () => {
    const { reference, rows, time, model } = await open();
    const count = rows.length * (time - shift);
    const { loss } = await model.train(rows, halfMeanSquare(head), { micro: { rows: 1 }, scalars: { count } });
    expect(loss).toBeCloseTo(numbers(reference.get("loss")!)[0]!, 4);
    for (const { name } of parameterSpecs(model.config)) {
      const wanted = numbers(reference.get(`grad.${name}`)!);
      const largest = Math.max(...wanted.map(Math.abs));
      const error = Math.max(...wanted.map((value, i) => Math.abs(model.gradient(name)[i]! - value)));
      expect(error / largest, name).toBeLessThan(1e-3);
    }
    await model.close();
  });
});
