/**
 * Golden cases of topic `torch_functional`: masked statistics, log-probs and entropy with their gradients, schedules,
 * AdamW and gradient clipping. Graphs run on onnxruntime, the optimizer in its kernels; padding, truncation and masks
 * are `postprocess.ts`'s.
 *
 * Departure: verl's cosine rises again after the last training step, ours holds; that part is not compared.
 */
import { z } from "zod";
import { momentsOf } from "../../src/algos/advantages/token-rows.ts";
import { headLogits } from "../../src/graph/formulas.ts";
import type { Node } from "../../src/graph/node.ts";
import * as o from "../../src/graph/ops.ts";
import { grad } from "../../src/graph/vjp.ts";
import { learningRate, type Schedule } from "../../src/nn/schedule.ts";
import { compile } from "../../src/onnx/emit.ts";
import { clipFactor } from "../../src/runtime/optimizer.ts";
import type { Runtime } from "../../src/runtime/runtime.ts";
import { sharedFloats, sharedInts, Vectors } from "../../src/runtime/vectors.ts";
import { maskedMean, maskedSum } from "../../src/util/statistics.ts";
import { check, type GoldenCase } from "./compare.ts";
import { checkPostprocess, isPostprocessCase } from "./postprocess.ts";

type Compute = (inputs: unknown, runtime: Runtime) => unknown;

const Rows = z.array(z.array(z.number()));

const computes: readonly (readonly [prefix: string, compute: Compute])[] = [
  ["masked/", maskedStatistics],
  ["logprobs+entropy/", logprobsAndEntropy],
  ["log_probs_from_logits_response", responseLogprobs],
  ["temperature", temperedLogits],
  ["lr_cosine/", rates("cosine")],
  ["lr_constant/", rates("constant")],
  ["lr_wsd/", rates("wsd")],
  ["adamw/", adamwSteps],
  ["clip_grad_norm/", clippedGradients],
];

/** What differs from the golden outputs; empty when nothing does. */
export async function checkTorchFunctional(golden: GoldenCase, runtime: Runtime): Promise<string[]> {
  if (isPostprocessCase(golden.name)) return checkPostprocess(golden);
  const compute = computes.find(([prefix]) => golden.name.startsWith(prefix))?.[1];
  if (compute === undefined) return [`${golden.name}: there is no check for this case`];
  const compared = golden.name.startsWith("lr_cosine/") ? untilTheEnd(golden) : golden;
  return check(compared, () => compute(golden.inputs, runtime));
}

// ---------------------------------------------------------------- statistics

function maskedStatistics(inputs: unknown): unknown {
  const { values: rows, mask: masks } = z.object({ values: Rows, mask: Rows }).parse(inputs);
  const [values, mask] = [rows.flat(), masks.flat()];
  const { mean, variance } = momentsOf(
    rows.map((row) => Float64Array.from(row)),
    masks,
  )!; // each case counts two or more
  const count = mask.filter((counts) => counts !== 0).length;
  const whitened = (base: number) =>
    rows.map((row) => row.map((value) => (value - mean) / Math.sqrt(variance + 1e-8) + base));
  return {
    masked_sum: maskedSum(values, mask),
    masked_mean: maskedMean(values, mask),
    "masked_mean_axis-1": rows.map((row, i) => maskedMean(row, masks[i]!)),
    masked_var_unbiased: variance,
    masked_var_biased: (variance * (count - 1)) / count,
    masked_whiten: whitened(0),
    masked_whiten_noshift: whitened(mean),
  };
}

// ---------------------------------------------------------------- log-probs

const Logits = z.array(Rows);

async function logprobsAndEntropy(inputs: unknown, runtime: Runtime): Promise<unknown> {
  const { logits, labels } = z.object({ logits: Logits, labels: Rows }).parse(inputs);
  const [, time, vocabulary] = [logits.length, logits[0]!.length, logits[0]![0]!.length];
  const head = headOver(logits.flat(), labels.flat());
  const logprobs = o.tokenLogprobs(head.hidden, head.weight, head.targets, plain);
  const entropy = o.tokenEntropy(head.hidden, head.weight, plain);
  const slope = (y: Node) => grad(o.sum(y), [head.hidden])[0]!;
  const outputs = { logprobs, entropy, dlogprobs: slope(logprobs), dentropy: slope(entropy) };
  const found = await run(runtime, outputs, head.arrays);
  const perToken = (flat: number[]) => chunks(flat, time);
  const perLogit = (flat: number[]) => chunks(chunks(flat, vocabulary), time);
  return {
    logprobs: perToken(found.logprobs),
    entropy: perToken(found.entropy),
    entropy_with_chunking: found.entropy,
    grad_logits_of_sum_logprobs: perLogit(found.dlogprobs),
    grad_logits_of_sum_entropy: perLogit(found.dentropy),
  };
}

async function responseLogprobs(inputs: unknown, runtime: Runtime): Promise<unknown> {
  const Inputs = z.object({ input_ids: Rows, logits: Logits, response_length: z.number() });
  const { input_ids, logits, response_length: length } = Inputs.parse(inputs);
  const before = logits.flatMap((row) => row.slice(-length - 1, -1));
  const head = headOver(
    before,
    input_ids.flatMap((row) => row.slice(-length)),
  );
  const logprobs = o.tokenLogprobs(head.hidden, head.weight, head.targets, plain);
  const found = await run(runtime, { logprobs }, head.arrays);
  return { log_probs: chunks(found.logprobs, length) };
}

async function temperedLogits(inputs: unknown, runtime: Runtime): Promise<unknown> {
  const { logits, temperature } = z.object({ logits: Rows, temperature: z.number() }).parse(inputs);
  const { hidden, weight, arrays } = headOver(logits, []);
  const found = await run(runtime, { logits: headLogits(hidden, weight, { ...plain, temperature }) }, arrays);
  return { logits: chunks(found.logits, logits[0]!.length) };
}

const plain = { softcap: null, temperature: 1 };

/** A head whose logits are given: they are its hidden states, and its matrix is the identity. */
function headOver(logits: readonly (readonly number[])[], targets: readonly number[]) {
  const size = logits[0]!.length;
  const hidden = o.input("hidden", [logits.length, size]);
  const weight = o.input("weight", [size, size]);
  const identity = Array.from({ length: size * size }, (_, i) => Number(i % (size + 1) === 0));
  return {
    hidden,
    weight,
    targets: o.input("targets", [targets.length], "i32"),
    arrays: { hidden: shared(logits.flat()), weight: shared(identity), targets: sharedInts(targets) },
  };
}

/** Compile, run, and read the named outputs. */
async function run<Name extends string>(
  runtime: Runtime,
  outputs: Record<Name, Node>,
  arrays: Readonly<Record<string, Float32Array | Int32Array>>,
): Promise<Record<Name, number[]>> {
  const program = compile(outputs);
  const results = Object.fromEntries(
    program.outputs.map(({ name, shape }) => [name, sharedFloats(shape.map(Number).reduce((a, b) => a * b, 1))]),
  );
  await runtime.run(await runtime.load(program), { arrays: { ...arrays, ...results } });
  const names = Object.keys(outputs) as Name[]; // the keys of a record of `Name`
  return Object.fromEntries(names.map((name) => [name, [...results[name]!]])) as Record<Name, number[]>; // one per name
}

// ---------------------------------------------------------------- schedules

const Rates = z.object({
  base_lr: z.number(),
  num_warmup_steps: z.number(),
  num_training_steps: z.number().default(0),
  min_lr_ratio: z.number().optional(),
  init_lr_ratio: z.number().optional(),
  num_cycles: z.number().optional(),
  stable_ratio: z.number().optional(),
  num_values: z.number(),
});

function rates(type: Schedule["type"]): Compute {
  return (inputs) => {
    const given = Rates.parse(inputs);
    const schedule: Schedule = {
      type,
      lr: given.base_lr,
      warmupSteps: given.num_warmup_steps,
      totalSteps: given.num_training_steps,
      ...(given.min_lr_ratio === undefined ? {} : { minRatio: given.min_lr_ratio }),
      ...(given.init_lr_ratio === undefined ? {} : { initRatio: given.init_lr_ratio }),
      ...(given.num_cycles === undefined ? {} : { cycles: given.num_cycles }),
      ...(given.stable_ratio === undefined ? {} : { stableRatio: given.stable_ratio }),
    };
    const count = type === "cosine" ? given.num_training_steps + 1 : given.num_values;
    return { lr: Array.from({ length: count }, (_, step) => learningRate(schedule, step)) };
  };
}

function untilTheEnd(golden: GoldenCase): GoldenCase {
  const { num_training_steps: last } = Rates.parse(golden.inputs);
  const { lr } = z.object({ lr: z.array(z.number()) }).parse(golden.outputs);
  return { ...golden, outputs: { lr: lr.slice(0, last + 1) } };
}

// ---------------------------------------------------------------- the optimizer

type Nested = number | readonly Nested[];
const Nested: z.ZodType<Nested> = z.lazy(() => z.union([z.number(), z.array(Nested)]));
const Tensors = z.array(Nested);

async function adamwSteps(inputs: unknown, runtime: Runtime): Promise<unknown> {
  const Inputs = z.object({
    params: Tensors,
    grads_per_step: z.array(Tensors),
    lr: z.number(),
    betas: z.tuple([z.number(), z.number()]),
    weight_decay: z.number(),
    eps: z.number(),
    max_norm: z.number().nullable(),
  });
  const given = Inputs.parse(inputs);
  const { vectors, write, read } = tensorsLike(given.params);
  write("weight", given.params);
  const steps = [];
  for (const [index, grads] of given.grads_per_step.entries()) {
    write("grad", grads);
    const norm = await runtime.gradientNorm(vectors);
    const gradScale = given.max_norm === null ? 1 : clipFactor(norm, given.max_norm);
    const { lr, betas, eps, weight_decay: weightDecay } = given;
    await runtime.adamw(vectors, { lr, betas, eps, weightDecay, step: index + 1, gradScale });
    steps.push({
      grad_norm_before_clip: norm,
      clipped_grads: grads.map((tensor) => scaled(tensor, gradScale)),
      params: read("weight"),
      exp_avg: read("first"),
      exp_avg_sq: read("second"),
    });
  }
  return { steps };
}

async function clippedGradients(inputs: unknown, runtime: Runtime): Promise<unknown> {
  const { grads, max_norm } = z.object({ grads: Tensors, max_norm: z.number() }).parse(inputs);
  const { vectors, write } = tensorsLike(grads);
  write("grad", grads);
  const norm = await runtime.gradientNorm(vectors);
  return { total_norm: norm, clipped_grads: grads.map((tensor) => scaled(tensor, clipFactor(norm, max_norm))) };
}

/** Vectors for nested tensors, with a way to write and read them in that form. */
function tensorsLike(tensors: readonly Nested[]) {
  const nameOf = (index: number) => `tensor ${index}`;
  const vectors = new Vectors(tensors.map((tensor, i) => ({ name: nameOf(i), shape: shapeOf(tensor) })));
  for (const vector of ["grad", "first", "second"] as const) vectors.allocate(vector);
  type VectorName = Parameters<Vectors["view"]>[0];
  return {
    vectors,
    write: (vector: VectorName, values: readonly Nested[]) =>
      values.forEach((tensor, i) => {
        vectors.view(vector, nameOf(i)).set(flat(tensor));
      }),
    read: (vector: VectorName): Nested[] =>
      tensors.map((tensor, i) => {
        const values = vectors.view(vector, nameOf(i)).values();
        return mapped(tensor, () => values.next().value!);
      }),
  };
}

const shapeOf = (tensor: Nested): number[] =>
  typeof tensor === "number" ? [] : [tensor.length, ...shapeOf(tensor[0]!)];
const flat = (tensor: Nested): number[] => (typeof tensor === "number" ? [tensor] : tensor.flatMap(flat));
const mapped = (tensor: Nested, f: (value: number) => number): Nested =>
  typeof tensor === "number" ? f(tensor) : tensor.map((part) => mapped(part, f));
const scaled = (tensor: Nested, factor: number): Nested => mapped(tensor, (value) => value * factor);

function shared(values: readonly number[]): Float32Array {
  const array = sharedFloats(values.length);
  array.set(values);
  return array;
}

function chunks<T>(list: readonly T[], size: number): T[][] {
  return Array.from({ length: list.length / size }, (_, i) => list.slice(i * size, (i + 1) * size));
}
