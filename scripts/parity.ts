/**
 * Compares models with reference values from Hugging Face transformers: `npm run parity -- [--device cpu|webgpu|cuda] DIR…`.
 *
 * A folder holds a model and `reference.safetensors`: input_ids, logits, logprobs, loss and the gradient of every
 * parameter for plain rows; logits of left-padded rows; eight greedy tokens that continue the first row. It
 * prints the largest errors of each folder on one line; the exit code is 1 if an error is above its limit.
 */
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import type { TokenLoss, TokenRow } from "../src/engine/contract.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import type { EmbeddedModel } from "../src/engine/embedded/model.ts";
import { div, mul, neg, sum } from "../src/graph/ops.ts";
import { parameterSpecs } from "../src/models/config.ts";
import { readAll, type Tensor } from "../src/models/safetensors.ts";
import { devices } from "../src/runtime/devices.ts";
import { messageOf } from "../src/util/errors.ts";

export type Parity = {
  readonly logits: number;
  readonly logprobs: number;
  readonly loss: number;
  /** Relative to the largest entry of each gradient. */
  readonly gradient: number;
  readonly worstGradient: string;
  readonly leftPadded: number;
  readonly greedyMatches: number;
  readonly greedyTotal: number;
};

const limits = { logits: 2e-4, logprobs: 2e-4, loss: 2e-4, gradient: 1e-3, leftPadded: 2e-4 } as const;

/** The mean negative log-likelihood of all tokens but the first of each row. */
const meanLoss: TokenLoss = {
  key: "mean",
  heads: ["logprobs"],
  scalars: ["count"],
  build: ({ logprobs, mask, count }) => ({ loss: div(neg(sum(mul(logprobs!, mask))), count!) }),
};

/** Compare one folder. */
export async function compareFolder(engine: EmbeddedEngine, folder: string): Promise<Parity> {
  const reference = await readAll(join(folder, "reference.safetensors"));
  const get = (name: string): Tensor => {
    const tensor = reference.get(name);
    if (tensor === undefined) throw new Error(`${folder}/reference.safetensors has no ${name}`);
    return tensor;
  };
  const model = await engine.open({ folder });
  const ids = matrix(get("input_ids"));
  const rows = ids.map((row) => tokenRow(row));

  const logits = await model.logits(ids.map((row) => tokenRow(row, 0)));
  const logprobs = await model.forward(rows, ["logprobs"], { micro: { rows: 2 } });
  const wanted = floats(get("logprobs"));
  const perRow = wanted.length / ids.length;
  const logprobError = Math.max(
    ...logprobs.map((row, b) => maxDifference(row.logprobs!.subarray(1, 1 + perRow), wanted.subarray(b * perRow))),
  );

  const count = rows.reduce((total, row) => total + row.ids.length - 1, 0);
  const { loss } = await model.train(rows, meanLoss, { micro: { rows: rows.length }, scalars: { count } });
  const gradient = compareGradients(model, reference);

  const result: Parity = {
    logits: maxDifference(
      logits.flat().flatMap((row) => [...row]),
      floats(get("logits")),
    ),
    logprobs: logprobError,
    loss: Math.abs(loss! - floats(get("loss"))[0]!),
    gradient: gradient.error,
    worstGradient: gradient.name,
    leftPadded: await leftPaddedError(model, get),
    ...(await greedy(model, ids[0]!, floats(get("greedy8")))),
  };
  await model.close();
  return result;
}

function compareGradients(
  model: EmbeddedModel,
  reference: ReadonlyMap<string, Tensor>,
): { error: number; name: string } {
  let worst = { error: 0, name: "" };
  for (const { name } of parameterSpecs(model.config)) {
    const wanted = reference.get(`grad.${name}`);
    if (wanted === undefined) throw new Error(`the reference has no gradient of ${name}`);
    const values = floats(wanted);
    const scale = values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-8);
    const error = maxDifference(model.gradient(name), values) / scale;
    if (Number.isNaN(error)) return { error, name };
    if (error > worst.error) worst = { error, name };
  }
  return worst;
}

/** The padding of left-padded rows is removed; only tokens where the mask is 1 are compared. */
async function leftPaddedError(model: EmbeddedModel, get: (name: string) => Tensor): Promise<number> {
  const ids = matrix(get("input_ids"));
  const mask = matrix(get("attention_mask"));
  const wanted = floats(get("logits_leftpad"));
  const time = ids[0]!.length;
  const { vocabSize } = model.config;
  const starts = mask.map((row) => row.indexOf(1));
  const logits = await model.logits(ids.map((row, b) => tokenRow(row.slice(starts[b]), 0)));
  const errors = logits.flatMap((row, b) =>
    row.map((values, i) => maxDifference(values, wanted.subarray((b * time + starts[b]! + i) * vocabSize))),
  );
  return Math.max(...errors);
}

async function greedy(model: EmbeddedModel, prompt: readonly number[], wanted: ArrayLike<number>) {
  const expected = Array.from(wanted).slice(-8);
  const ids = [...prompt];
  for (let i = 0; i < expected.length; i++) {
    const row = tokenRow(ids, ids.length - 1);
    const [logits] = (await model.logits([row]))[0]!;
    ids.push(logits!.indexOf(Math.max(...logits!)));
  }
  const made = ids.slice(prompt.length);
  return { greedyMatches: made.filter((id, i) => id === expected[i]).length, greedyTotal: expected.length };
}

/** A row whose mask is 1 from token `from` on. */
function tokenRow(ids: readonly number[], from = 1): TokenRow {
  return { ids: Int32Array.from(ids), mask: ids.map((_, t) => Number(t >= from)) };
}

function floats(tensor: Tensor): Float64Array {
  return Float64Array.from(tensor.data as ArrayLike<number | bigint>, Number);
}

function matrix(tensor: Tensor): number[][] {
  const values = [...floats(tensor)];
  const [, columns] = tensor.shape as [number, number];
  return Array.from({ length: values.length / columns }, (_, i) => values.slice(i * columns, (i + 1) * columns));
}

/** The largest difference over the entries of `a`; NaN if any entry is NaN. */
function maxDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let worst = 0;
  for (let i = 0; i < a.length; i++) {
    worst = Math.max(worst, Math.abs(a[i]! - b[i]!)); // a NaN is kept
  }
  return worst;
}

/** Whether every figure is within its limit. */
export function passes(parity: Parity): boolean {
  const within = Object.entries(limits).every(([name, limit]) => parity[name as keyof typeof limits] <= limit);
  return within && parity.greedyMatches === parity.greedyTotal;
}

async function main(args: readonly string[]): Promise<number> {
  const { values, positionals: folders } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: { device: { type: "string", default: "cpu" } },
  });
  const device = devices.find((name) => name === values.device);
  if (folders.length === 0 || device === undefined) {
    console.error("Name the folders to compare: npm run parity -- [--device cpu|webgpu|cuda] DIR…");
    return 2;
  }
  const engine = new EmbeddedEngine({ device });
  let misses = 0;
  for (const folder of folders) {
    try {
      const p = await compareFolder(engine, folder);
      const isGood = passes(p);
      if (!isGood) misses++;
      const figure = (value: number) => value.toExponential(1);
      console.log(
        `${isGood ? "ok  " : "MISS"} ${basename(folder).padEnd(24)} logits ${figure(p.logits)}  logprobs ${figure(p.logprobs)}  ` +
          `loss ${figure(p.loss)}  gradient ${figure(p.gradient)} (${p.worstGradient})  left-padded ${figure(p.leftPadded)}  ` +
          `greedy ${p.greedyMatches}/${p.greedyTotal}`,
      );
    } catch (error) {
      misses++;
      console.log(`MISS ${basename(folder).padEnd(24)} ${messageOf(error)}`);
    }
  }
  await engine.close();
  console.log(`${folders.length - misses} passed, ${misses} failed`);
  return misses === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
