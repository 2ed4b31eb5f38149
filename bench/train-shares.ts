/**
 * Where the time of one training step goes: the engine's own graph on real weights, profiled by onnxruntime, and the
 * kernels of the optimizer.
 *
 * The session is made here and not by the runtime because a profiled session is slower. Every time is the best of a few
 * runs; different ways of running take turns.
 */
import { InferenceSession, Tensor } from "onnxruntime-node";
import { gradName, type TrainProgram, trainProgram } from "../src/engine/embedded/programs.ts";
import { RotationCache } from "../src/engine/embedded/rotations.ts";
import { layOutRows } from "../src/engine/embedded/rows.ts";
import { Scratch } from "../src/engine/embedded/scratch.ts";
import { input, matmul } from "../src/graph/ops.ts";
import { evaluateShape } from "../src/graph/shape.ts";
import { type ModelConfig, parameterSpecs, readConfig } from "../src/models/config.ts";
import { loadParameters } from "../src/models/weights.ts";
import { compile } from "../src/onnx/emit.ts";
import type { Port } from "../src/onnx/writer.ts";
import { sessionOptions } from "../src/runtime/devices.ts";
import { adamw, gradientNorm, scatterAdd } from "../src/runtime/optimizer.ts";
import { Vectors } from "../src/runtime/vectors.ts";
import { type CopyMode, runInto } from "../src/runtime/zero-copy.ts";
import { invariant } from "../src/util/errors.ts";
import { profiledRun, timed } from "./profile-run.ts";
import { serve } from "./serve.ts";
import { batchOf, jobSchema, meanLoss, type Shares, type TrainJob } from "./train-job.ts";

const REPEATS = 3;

await serve(async (value) => {
  const job = jobSchema.parse(value);
  return { answer: () => measure(job), close: async () => {} };
});

async function measure(job: TrainJob): Promise<Shares> {
  const config = await readConfig(job.folder);
  const options = sessionOptions({ device: "cpu", threads: job.threads });
  const tokens = job.rows.flat().length;
  const before = await bestPlainProduct(config, tokens, options);
  const step = await prepare(config, job);
  const copies = await copyCost(step, options);
  const { wall, profile } = await profiledRun({ ...step, bytes: step.program.bytes }, options, REPEATS);
  const after = await bestPlainProduct(config, tokens, options);
  const operations = [...profile.operations].map(([name, seconds]) => ({ name, seconds }));
  return {
    run: wall,
    graph: profile.seconds,
    products: profile.products,
    copies,
    optimizer: optimizerCost(step, job),
    plain: before.flopsPerSecond > after.flopsPerSecond ? before : after,
    operations: operations.toSorted((a, b) => b.seconds - a.seconds),
  };
}

type Numbers = Float32Array | Int32Array;
type PreparedStep = TrainProgram & {
  readonly feeds: Record<string, Tensor>;
  readonly fetches: Record<string, Tensor>;
  readonly vectors: Vectors;
  readonly arrays: Readonly<Record<string, Numbers>>;
};

/** Everything that one run of the training graph reads and writes. */
async function prepare(config: ModelConfig, job: TrainJob): Promise<PreparedStep> {
  const specs = parameterSpecs(config);
  const vectors = new Vectors(specs);
  await loadParameters(job.folder, specs, ({ name }) => vectors.view("weight", name));
  for (const vector of ["grad", "first", "second"] as const) vectors.allocate(vector);

  const { rows, count } = batchOf(job);
  const scratch = new Scratch();
  const rotations = new RotationCache(config);
  const tables = (time: number, longest: number) => rotations.tables(time, longest);
  const layout = layOutRows(rows, [...rows.keys()], { heads: meanLoss.heads, extra: [], config, scratch, tables });
  invariant(layout !== null, "every row has tokens that count");
  const arrays: Record<string, Numbers> = { ...layout.arrays, "scalar/count": Float32Array.of(count) };
  for (const name of vectors.names) {
    arrays[name] = vectors.view("weight", name);
    arrays[gradName(name)] = vectors.view("grad", name);
  }

  const built = trainProgram({ config, specs }, meanLoss, { isAdding: false, form: layout.form });
  const tensors = (ports: readonly Port[]) =>
    Object.fromEntries(
      ports.map((port) => {
        const shape = evaluateShape(port.shape, layout.bindings);
        arrays[port.name] ??= scratch.floats(port.name, product(shape));
        return [port.name, tensorOf(arrays[port.name]!, shape)];
      }),
    );
  const feeds = tensors(built.program.inputs);
  for (const [symbol, value] of Object.entries(layout.bindings)) {
    if (!built.program.symbols.includes(symbol)) continue;
    feeds[`dim.${symbol}`] = new Tensor("int64", BigInt64Array.of(BigInt(value)), [1]);
  }
  return { ...built, feeds, fetches: tensors(built.program.outputs), vectors, arrays };
}

function tensorOf(data: Numbers, shape: readonly number[]): Tensor {
  return data instanceof Float32Array ? new Tensor("float32", data, shape) : new Tensor("int32", data, shape);
}

/** How much longer a run takes when every output is copied out of the runtime. */
async function copyCost(step: PreparedStep, options: InferenceSession.SessionOptions): Promise<number> {
  const session = await InferenceSession.create(step.program.bytes, options);
  const best: Record<CopyMode, number> = { "zero-copy": Infinity, copy: Infinity };
  await runInto(session, step.feeds, step.fetches, "zero-copy"); // the first run fills the runtime's memory
  for (let i = 0; i < REPEATS; i++) {
    for (const mode of ["zero-copy", "copy"] as const) {
      const seconds = await timed(() => runInto(session, step.feeds, step.fetches, mode));
      best[mode] = Math.min(best[mode], seconds);
    }
  }
  await session.release();
  return best.copy - best["zero-copy"];
}

/** The work after the graph: rows into the embedding's gradient, the norm, AdamW. */
function optimizerCost({ vectors, arrays, rowGradients }: PreparedStep, job: TrainJob): number {
  let best = Infinity;
  for (let i = 0; i <= REPEATS; i++) {
    const start = performance.now();
    for (const { parameter, rows, ids, width } of rowGradients) {
      // A program's rows are floats and its ids whole numbers.
      scatterAdd(vectors.view("grad", parameter), arrays[ids] as Int32Array, arrays[rows] as Float32Array, width);
    }
    const norm = gradientNorm(vectors.arenas);
    adamw(vectors.arenas, { ...job.optimizer, step: i + 1, gradScale: Math.min(1, job.optimizer.maxNorm / norm) });
    best = Math.min(best, (performance.now() - start) / 1000);
  }
  return best;
}

/** The fastest product among the model's own shapes and a square one, plain and with the weight transposed. */
async function bestPlainProduct(
  { layers, vocabSize }: ModelConfig,
  tokens: number,
  options: InferenceSession.SessionOptions,
): Promise<Shares["plain"]> {
  const { width, hidden } = layers[0]!.mlp;
  const shapes = [
    [tokens, width, hidden],
    [tokens, hidden, width],
    [tokens, width, vocabSize],
    [1024, 1024, 1024],
  ] as const;
  let best = { shape: "", flopsPerSecond: 0 };
  for (const [rows, inner, columns] of shapes) {
    for (const transB of [false, true]) {
      const right = transB ? [columns, inner] : [inner, columns];
      const { bytes } = compile({ y: matmul(input("x", [rows, inner]), input("w", right), { transB }) });
      const session = await InferenceSession.create(bytes, options);
      const feeds = { x: filled([rows, inner]), w: filled(right) };
      const fetches = { y: filled([rows, columns]) };
      for (let i = 0; i < 2 * REPEATS; i++) {
        const seconds = await timed(() => runInto(session, feeds, fetches, "zero-copy"));
        const flopsPerSecond = (2 * rows * inner * columns) / seconds;
        if (flopsPerSecond > best.flopsPerSecond) best = { shape: `${rows}x${inner}x${columns}`, flopsPerSecond };
      }
      await session.release();
    }
  }
  return best;
}

function filled(shape: readonly number[]): Tensor {
  return new Tensor(
    "float32",
    Float32Array.from({ length: product(shape) }, (_, i) => (i % 17) / 17 - 0.5),
    shape,
  );
}

function product(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}
