/** The optimizer's kernels: equal to torch, equal to a plain loop, and what their source compiles to. */
import { readFile } from "node:fs/promises";
import { totalmem } from "node:os";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { kernelsModule } from "../../scripts/kernels.ts";
import { Random } from "../util/random.ts";
import { type AdamW, adamw, gradientNorm, scatterAdd } from "./optimizer.ts";
import { Runtime } from "./runtime.ts";
import { sharedFloats, sharedInts, type VectorName, Vectors } from "./vectors.ts";

const all: readonly VectorName[] = ["weight", "grad", "first", "second"];

/** Vectors with all four parts, from the weights of each parameter. */
function vectorsOf(weights: readonly (readonly number[])[]): Vectors {
  const vectors = new Vectors(weights.map((values, i) => ({ name: `p${i}`, shape: [values.length] })));
  for (const vector of all) vectors.allocate(vector);
  write(vectors, "weight", weights);
  return vectors;
}

function write(vectors: Vectors, vector: VectorName, values: readonly (readonly number[])[]): void {
  for (const [i, list] of values.entries()) vectors.view(vector, `p${i}`).set(list);
}

function readAll(vectors: Vectors, vector: VectorName): number[] {
  return vectors.names.flatMap((name) => [...vectors.view(vector, name)]);
}

function expectNear(actual: readonly number[], expected: readonly number[], tolerance: number): void {
  expect(actual.length).toBe(expected.length);
  const misses = expected.flatMap((want, i) => {
    const got = actual[i]!;
    return Math.abs(got - want) <= tolerance * (1 + Math.abs(want)) ? [] : [`[${i}] is ${got}, not ${want}`];
  });
  expect(misses).toEqual([]);
}

// ---------------------------------------------------------------- torch

type Nested = readonly (number | Nested)[];
type Step = {
  readonly params: readonly Nested[];
  readonly exp_avg: readonly Nested[];
  readonly exp_avg_sq: readonly Nested[];
  readonly grad_norm_before_clip?: number;
};
type AdamWCase = {
  readonly name: string;
  readonly inputs: {
    readonly params: readonly Nested[];
    readonly grads_per_step: readonly (readonly Nested[])[];
    readonly lr: number;
    readonly betas: readonly [number, number];
    readonly weight_decay: number;
    readonly eps: number;
    readonly max_norm: number | null;
  };
  readonly outputs: { readonly steps: readonly Step[] };
};
type ClipCase = {
  readonly name: string;
  readonly inputs: { readonly grads: readonly Nested[]; readonly max_norm: number };
  readonly outputs: { readonly total_norm: number; readonly clipped_grads: readonly Nested[] };
};

const file = new URL("../../test/fixtures/goldens/torch_functional.json", import.meta.url);
const { cases } = JSON.parse(await readFile(file, "utf8")) as { cases: { name: string }[] }; // the fixture's own shape

/** The cases of one topic, each behind its name. */
function byName<T extends { name: string }>(prefix: string): [string, T][] {
  const found = cases.filter(({ name }) => name.startsWith(prefix)) as T[]; // a topic's cases have its type
  expect(found.length).toBeGreaterThan(0);
  return found.map((golden) => [golden.name, golden]);
}

function flat(nested: Nested): number[] {
  return nested.flatMap((entry) => (typeof entry === "number" ? [entry] : flat(entry)));
}

/** torch's clip_grad_norm_: the factor is at most 1. */
function clipFactor(norm: number, limit: number | null): number {
  return limit === null ? 1 : Math.min(1, limit / (norm + 1e-6));
}

describe("torch's values", () => {
  test.each(byName<AdamWCase>("adamw/"))("%s", (_, { inputs, outputs }) => {
    const vectors = vectorsOf(inputs.params.map(flat));
    outputs.steps.forEach((expected, i) => {
      write(vectors, "grad", inputs.grads_per_step[i]!.map(flat));
      const norm = gradientNorm(vectors.arenas);
      if (expected.grad_norm_before_clip !== undefined) expectNear([norm], [expected.grad_norm_before_clip], 1e-6);
      const { lr, betas, eps, weight_decay } = inputs;
      const gradScale = clipFactor(norm, inputs.max_norm);
      adamw(vectors.arenas, { lr, betas, eps, weightDecay: weight_decay, step: i + 1, gradScale });
      expectNear(readAll(vectors, "weight"), expected.params.flatMap(flat), 1e-6);
      expectNear(readAll(vectors, "first"), expected.exp_avg.flatMap(flat), 1e-6);
      expectNear(readAll(vectors, "second"), expected.exp_avg_sq.flatMap(flat), 1e-6);
    });
  });

  test.each(byName<ClipCase>("clip_grad_norm/"))("%s", (_, { inputs, outputs }) => {
    const vectors = vectorsOf(inputs.grads.map((grad) => flat(grad).map(() => 0)));
    write(vectors, "grad", inputs.grads.map(flat));
    const norm = gradientNorm(vectors.arenas);
    expectNear([norm], [outputs.total_norm], 1e-6);
    const clipped = readAll(vectors, "grad").map((g) => g * clipFactor(norm, inputs.max_norm));
    expectNear(clipped, outputs.clipped_grads.flatMap(flat), 1e-6);
  });
});

// ---------------------------------------------------------------- a plain loop

type State = Record<VectorName, number[]>;

/** torch's update of every entry, in double precision. */
function plainStep(state: State, o: AdamW): void {
  const [beta1, beta2] = o.betas;
  state.weight.forEach((weight, i) => {
    const g = state.grad[i]! * o.gradScale;
    state.first[i] = beta1 * state.first[i]! + (1 - beta1) * g;
    state.second[i] = beta2 * state.second[i]! + (1 - beta2) * g * g;
    const rate = state.first[i]! / (1 - beta1 ** o.step);
    const spread = Math.sqrt(state.second[i]! / (1 - beta2 ** o.step));
    state.weight[i] = weight * (1 - o.lr * o.weightDecay) - (o.lr * rate) / (spread + o.eps);
  });
}

const options = (step: number): AdamW => ({
  lr: 0.01,
  betas: [0.9, 0.99],
  eps: 1e-8,
  weightDecay: 0.1,
  step,
  gradScale: 0.7,
});

function normals(random: Random, sizes: readonly number[]): number[][] {
  return sizes.map((size) => Array.from({ length: size }, () => Math.fround(random.normal())));
}

describe("a plain loop", () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 70 }), { minLength: 1, maxLength: 5 });

  test("does the same to parameters of any sizes", () => {
    fc.assert(
      fc.property(sizes, fc.nat(), (sizes, seed) => {
        const random = new Random(seed);
        const weights = normals(random, sizes);
        const vectors = vectorsOf(weights);
        const zeros = weights.flat().map(() => 0);
        const state: State = { weight: weights.flat(), grad: zeros, first: [...zeros], second: [...zeros] };
        for (let step = 1; step <= 4; step++) {
          const grads = normals(random, sizes);
          write(vectors, "grad", grads);
          state.grad = grads.flat();
          expectNear([gradientNorm(vectors.arenas)], [Math.hypot(...state.grad)], 1e-12);
          adamw(vectors.arenas, options(step));
          plainStep(state, options(step));
        }
        for (const vector of all) expectNear(readAll(vectors, vector), state[vector], 2e-6);
      }),
      { numRuns: 40 },
    );
  });

  test("does the same to more numbers than one piece holds", () => {
    const size = 2 ** 20 + 5; // a piece holds 2^20 numbers
    const vectors = vectorsOf([Array<number>(size).fill(1)]);
    vectors.view("grad", "p0").fill(0.5);
    expect(gradientNorm(vectors.arenas)).toBeCloseTo(0.5 * Math.sqrt(size), 8);
    adamw(vectors.arenas, options(1));
    const state: State = { weight: [1], grad: [0.5], first: [0], second: [0] };
    plainStep(state, options(1));
    const weights = vectors.view("weight", "p0");
    expectNear([Math.min(...range(weights)), Math.max(...range(weights))], [state.weight[0]!, state.weight[0]!], 1e-6);
  });

  test("adds rows by index as scatterAdd does", () => {
    const into = sharedFloats(6).fill(1);
    scatterAdd(into, Int32Array.of(2, 0, 2), Float32Array.of(1, 2, 3, 4, 5, 6), 2);
    expect([...into]).toEqual([4, 5, 1, 1, 7, 9]);
  });
});

/** The smallest and the largest of many numbers. */
function range(values: Float32Array): [number, number] {
  return values.reduce<[number, number]>(
    ([low, high], v) => [Math.min(low, v), Math.max(high, v)],
    [Infinity, -Infinity],
  );
}

// ---------------------------------------------------------------- vectors

describe("the vectors of a model", () => {
  test("start as zeros and do not overlap", () => {
    const vectors = new Vectors([3, 1, 17, 16].map((size, i) => ({ name: `p${i}`, shape: [size] })));
    for (const vector of all) vectors.allocate(vector);
    for (const vector of all) expect(readAll(vectors, vector)).toEqual(Array(37).fill(0));
    let next = 1;
    for (const vector of all) for (const name of vectors.names) vectors.view(vector, name).fill(next++);
    next = 1;
    for (const vector of all) {
      for (const name of vectors.names) {
        expect(new Set(vectors.view(vector, name))).toEqual(new Set([next++]));
      }
    }
    expect(vectors.count).toBe(37);
  });

  test("are allocated once", () => {
    const vectors = new Vectors([{ name: "p0", shape: [2, 2] }]);
    vectors.view("weight", "p0").set([1, 2, 3, 4]);
    vectors.allocate("weight");
    expect([...vectors.view("weight", "p0")]).toEqual([1, 2, 3, 4]);
    expect(() => vectors.view("grad", "p0")).toThrow("the vector grad was not allocated");
    expect(() => vectors.view("weight", "p9")).toThrow("there is no parameter p9");
  });

  test("of frozen parameters are weights only, which no update reaches", () => {
    const parameters = [
      { name: "p0", shape: [5] },
      { name: "p1", shape: [7], isTrained: false },
      { name: "p2", shape: [3], isTrained: true },
    ];
    const vectors = new Vectors(parameters);
    const alone = new Vectors(parameters.filter(({ isTrained }) => isTrained !== false));
    for (const each of [vectors, alone]) {
      for (const vector of all) each.allocate(vector);
      for (const name of each.names) each.view("weight", name).fill(0.5);
      for (const name of each.trainedNames) each.view("grad", name).fill(0.25);
      adamw(each.arenas, options(1));
    }
    expect(vectors.count).toBe(15);
    expect(vectors.trainedNames).toEqual(["p0", "p2"]);
    expect(vectors.arenas.map(({ bytes }) => bytes)).toEqual(alone.arenas.map(({ bytes }) => bytes));
    for (const name of alone.names) expect(vectors.view("weight", name)).toEqual(alone.view("weight", name));
    expect(vectors.view("weight", "p1")).toEqual(new Float32Array(7).fill(0.5));
    for (const vector of ["grad", "first", "second"] as const) {
      expect(() => vectors.view(vector, "p1")).toThrow(`the parameter p1 is frozen: it has no ${vector}`);
    }
  });

  test("in several arenas are updated as in one", () => {
    const random = new Random(11);
    const weights = normals(random, [33, 5]);
    const grads = normals(random, [33, 5]);
    const together = vectorsOf(weights);
    write(together, "grad", grads);
    const apart = weights.map((list, i) => {
      const vectors = vectorsOf([list]);
      write(vectors, "grad", [grads[i]!]);
      return vectors;
    });
    const arenas = apart.flatMap((vectors) => vectors.arenas);
    expect(gradientNorm(arenas)).toBeCloseTo(gradientNorm(together.arenas), 12);
    adamw(together.arenas, options(1));
    adamw(arenas, options(1));
    expect(apart.flatMap((vectors) => readAll(vectors, "weight"))).toEqual(readAll(together, "weight"));
  });

  const isSmall = totalmem() < 8e9;
  test.skipIf(isSmall)("past 4 GB are in another arena (skipped on a machine with less than 8 GB)", () => {
    const half = [25_000, 25_000]; // 2.5 GB, of which only the pages that are written take memory
    const vectors = new Vectors(["a", "b"].map((name) => ({ name, shape: half })));
    expect(vectors.arenas).toHaveLength(2);
    vectors.view("weight", "a").set([1], 25_000 ** 2 - 1);
    expect(vectors.view("weight", "a").at(-1)).toBe(1);
    expect(vectors.view("weight", "b").at(-1)).toBe(0);
  });

  test("refuse a tensor that is too large for one memory, with its name and size", () => {
    const huge = () => new Vectors([{ name: "embed", shape: [300_000, 4096] }]);
    expect(huge).toThrow(/The tensor `embed` \[300000, 4096\] takes .*; the embedded engine holds tensors of up to/);
  });
});

describe("in the engine's thread", () => {
  const runtime = new Runtime({ threads: 1 });
  afterAll(() => runtime.close());

  test("the same memory is updated", async () => {
    const [here, there] = [vectorsOf([[1, 2, 3]]), vectorsOf([[1, 2, 3]])];
    for (const vectors of [here, there]) write(vectors, "grad", [[0.5, -0.25, 1]]);
    adamw(here.arenas, options(1));
    await runtime.adamw(there, options(1));
    expect(readAll(there, "weight")).toEqual(readAll(here, "weight"));
    expect(await runtime.gradientNorm(there)).toBe(gradientNorm(here.arenas));
    const into = sharedFloats(4);
    await runtime.scatterAdd(into, sharedInts([1, 1]), Float32Array.of(1, 2, 3, 4), 2);
    expect([...into]).toEqual([0, 0, 4, 6]);
  });

  test("an update without gradients is refused with a reason", async () => {
    const vectors = new Vectors([{ name: "p0", shape: [4] }]);
    await expect(runtime.adamw(vectors, options(1))).rejects.toThrow(
      "the optimizer needs weights, gradients and moments",
    );
  });
});

test("the kernels are what their source compiles to", async () => {
  const compiled = await readFile(new URL("kernels/kernels.wasm.ts", import.meta.url), "utf8");
  expect(compiled).toBe(await kernelsModule());
});
