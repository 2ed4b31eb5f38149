/**
 * How fast this machine trains and samples a model: real passes and real sampling for a few seconds, on sizes that grow
 * as far as the time allows. Nothing is written to the disk.
 */
import type { TokenLoss, TokenRow } from "../../engine/contract.ts";
import { EmbeddedEngine } from "../../engine/embedded/engine.ts";
import type { EmbeddedModel } from "../../engine/embedded/model.ts";
import { mul, neg, sum } from "../../graph/ops.ts";
import type { SamplerLimits } from "../../rollout/request.ts";
import type { Device } from "../../runtime/devices.ts";
import { invariant } from "../../util/errors.ts";
import {
  blocksOf,
  headNames,
  type Line,
  lineThrough,
  operations,
  type Pass,
  type Rates,
  type Sampling,
  type StepPlan,
} from "./estimate.ts";

export type ProbeOptions = {
  /** The model of the first role of the plan. */
  readonly folder: string;
  readonly sampler: SamplerLimits;
  readonly device: Device;
  readonly threads: number;
  readonly signal: AbortSignal;
};

export type Probed = {
  readonly rates: Rates;
  /** The time to compile the programs, which the first step of a run needs too. */
  readonly compileSeconds: number;
};

/** Seconds that each kind of work may be measured for. */
const BUDGET = { train: 3, forward: 1.5, decode: 1.5 };

/** Measure the model of the first role of a plan. */
export async function probe(plan: StepPlan, options: ProbeOptions): Promise<Probed> {
  const { folder, sampler, device, threads, signal } = options;
  const [role] = plan.roles;
  invariant(role !== undefined, "a plan has at least one role");
  const engine = new EmbeddedEngine({ device, threads });
  try {
    const model = await engine.open({ folder, head: role.config.head, sampler });
    const head = headNames[role.config.head];
    const passOf = (kind: Pass["kind"]) => plan.passes.find((pass) => pass.kind === kind);
    const [training, forwarding] = [passOf("train"), passOf("forward")];
    const train = await measure(training, model, { budget: BUDGET.train, signal }, async (rows) => {
      await model.train(rows, lossOf(model), { micro: { rows: rows.length } });
    });
    const update = training === undefined ? 0 : await measureUpdate(model);
    const forward = await measure(forwarding, model, { budget: BUDGET.forward, signal }, async (rows) => {
      await model.forward(rows, [head], { micro: { rows: rows.length } });
    });
    const [sampling] = plan.sampling;
    const maxLength = Math.min(sampler.maxLength ?? Number.POSITIVE_INFINITY, role.config.maxPositions);
    const decode =
      sampling === undefined
        ? NOT_MEASURED
        : await measureDecoding(model, sampling, { forward: forward.line, maxLength, signal });
    const compileSeconds = train.compileSeconds + forward.compileSeconds + decode.compileSeconds;
    return { rates: { train: train.line, forward: forward.line, decode: decode.line, update }, compileSeconds };
  } finally {
    await engine.close();
  }
}

function lossOf({ config }: EmbeddedModel): TokenLoss {
  const head = headNames[config.head];
  const build: TokenLoss["build"] = ({ mask, ...tensors }) => ({ loss: neg(sum(mul(tensors[head]!, mask))) });
  return { key: `probe ${head}`, heads: [head], build };
}

type Measured = { readonly line: Line; readonly compileSeconds: number };
const NOT_MEASURED: Measured = { line: { fixed: 0, slope: 0 }, compileSeconds: 0 };

/** Time a kind of pass on a growing number of rows of its first batch. */
async function measure(
  pass: Pass | undefined,
  { config }: EmbeddedModel,
  { budget, signal }: { budget: number; signal: AbortSignal },
  run: (rows: readonly TokenRow[]) => Promise<void>,
): Promise<Measured> {
  if (pass === undefined) return NOT_MEASURED;
  const sizes = sizesUpTo(pass.batches[0] ?? []);
  const workOf = (rows: readonly TokenRow[]) =>
    blocksOf(config, rows, { rows: rows.length }).reduce((sum, block) => sum + operations(config, pass.kind, block), 0);
  const [smallest] = sizes;
  if (smallest === undefined) return NOT_MEASURED;
  const compiled = await secondsOf(() => run(smallest));
  const points = await grow(sizes, { budget, signal, workOf }, async (rows) => {
    await run(rows); // the first run of a size allocates memory, later ones do not
    return await typicalSeconds(() => run(rows));
  });
  return { line: lineThrough(points), compileSeconds: Math.max(0, compiled - points[0]!.seconds) };
}

const GROWTH = 4;
/** Attention over fewer tokens runs in another program, so no part of a long sequence is shorter than this. */
const SHORTEST = 96;

/** Parts of the first row, the whole first row, then a growing number of rows. */
function sizesUpTo(batch: readonly TokenRow[]): (readonly TokenRow[])[] {
  const rows = batch.filter(({ ids, mask }) => ids.some((_, t) => t > 0 && mask[t])); // the engine skips the others
  const [first] = rows;
  if (first === undefined) return [];
  const sizes: (readonly TokenRow[])[] = [];
  for (let part = SHORTEST; part < first.ids.length; part *= GROWTH) sizes.push([thinned(first, part)]);
  return [...sizes, ...counts(rows.length).map((count) => rows.slice(0, count))];
}

/** 1, 4, 16, … and `most` itself. */
function counts(most: number): number[] {
  const found: number[] = [];
  for (let count = 1; count < most; count *= GROWTH) found.push(count);
  return [...found, most];
}

/** A row with `count` of the tokens of another, taken at equal distances, so that the same share of them counts. */
function thinned({ ids, mask }: TokenRow, count: number): TokenRow {
  const at = (t: number) => Math.floor((t * ids.length) / count);
  return {
    ids: Int32Array.from({ length: count }, (_, t) => ids[at(t)]!),
    mask: Uint8Array.from({ length: count }, (_, t) => (mask[at(t)] || t === count - 1 ? 1 : 0)),
  };
}

type Growth<T> = { readonly budget: number; readonly signal: AbortSignal; readonly workOf: (size: T) => number };
type Point = { readonly work: number; readonly seconds: number };

/** Time one size after the other while there is time for the next; the first is always timed. */
async function grow<T>(
  sizes: readonly T[],
  { budget, signal, workOf }: Growth<T>,
  time: (size: T) => Promise<number>,
): Promise<Point[]> {
  const points: Point[] = [];
  const started = performance.now();
  for (const size of sizes) {
    signal.throwIfAborted();
    const work = workOf(size);
    const last = points.at(-1);
    const left = budget - (performance.now() - started) / 1000;
    if (last !== undefined && 2 * last.seconds * (work / last.work) > left) break;
    points.push({ work, seconds: await time(size) });
  }
  return points;
}

/** The median of five runs, of fewer where they are long; of two runs the shorter, since other programs may slow one. */
async function typicalSeconds(run: () => Promise<void>): Promise<number> {
  const times: number[] = [];
  const spent = () => times.reduce((a, b) => a + b, 0);
  while (times.length < 1 || (times.length < 5 && spent() < 0.3)) times.push(await secondsOf(run));
  return median(times);
}

/** The middle value; the lower one where there are two. */
function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[(values.length - 1) >> 1] ?? 0;
}

async function secondsOf(run: () => Promise<void>): Promise<number> {
  const started = performance.now();
  await run();
  return (performance.now() - started) / 1000;
}

/** Seconds per parameter of an optimizer step that changes no weight; the first step, which creates the moments, is not timed. */
async function measureUpdate(model: EmbeddedModel): Promise<number> {
  const rows = [{ ids: Int32Array.of(0, 0), mask: Uint8Array.of(0, 0) }];
  const step = async () => {
    await model.train(rows, lossOf(model), { micro: { rows: 1 } });
    return await secondsOf(async () => {
      await model.step({ lr: 0, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0, maxNorm: 1 });
    });
  };
  await step();
  return (await step()) / model.parameterCount;
}

/** Tokens that each probe of decoding samples. */
const NEW_TOKENS = 5;

const ONE_TOKEN = { tokens: 1, counted: 0, time: 1, isShared: false };

type Decoding = { readonly forward: Line; readonly maxLength: number; readonly signal: AbortSignal };

/** Time a decoding step on a growing number of rows, in the middle of the responses or at the longest context that can be read in time. */
async function measureDecoding(model: EmbeddedModel, sampling: Sampling, options: Decoding): Promise<Measured> {
  const { promptTokens, n, responseTokens, maxSequences } = sampling;
  const { forward, maxLength, signal } = options;
  const meanPrompt = promptTokens.reduce((a, b) => a + b, 0) / promptTokens.length;
  const perToken = forward.slope * operations(model.config, "forward", ONE_TOKEN);
  const readable = perToken > 0 ? BUDGET.decode / 4 / perToken : Number.POSITIVE_INFINITY;
  const context = Math.floor(Math.max(1, Math.min(meanPrompt + responseTokens / 2, maxLength - NEW_TOKENS, readable)));
  let compileSeconds = 0;
  let seed = 0;
  const time = async (rows: number): Promise<number> => {
    const at: number[] = [];
    const started = performance.now();
    await model.sample({
      prompt: idsOf(context, ++seed, model.config.vocabSize),
      n: rows,
      maxNewTokens: NEW_TOKENS,
      ignoreEos: true,
      seed,
      wantsText: true,
      signal,
      onToken: ({ index }) => {
        if (index === 0) at.push(performance.now());
      },
    });
    const steps = at.slice(1).map((now, i) => (now - at[i]!) / 1000);
    compileSeconds ||= (performance.now() - started) / 1000;
    return median(steps);
  };
  await time(1);
  const most = Math.min(maxSequences, promptTokens.length * n);
  const points = await grow(counts(most), { budget: BUDGET.decode, signal, workOf: (rows) => rows }, time);
  return { line: lineThrough(points), compileSeconds };
}

/** Tokens whose beginning differs from that of every other seed. */
function idsOf(length: number, seed: number, vocabSize: number): Int32Array {
  return Int32Array.from({ length }, (_, t) => (seed * 31 + t * 7) % vocabSize);
}
