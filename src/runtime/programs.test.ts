/** Laws of whole programs: no pass changes the meaning of a program. */
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { lower } from "../graph/lower.ts";
import { type Node, topological } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import { evaluateShape } from "../graph/shape.ts";
import { simplify } from "../graph/simplify.ts";
import { splitSparse } from "../graph/sparse.ts";
import { grad } from "../graph/vjp.ts";
import { compile } from "../onnx/emit.ts";
import { GraphError } from "../util/errors.ts";
import { Random } from "../util/random.ts";
import { interpret } from "./interpreter.ts";
import type { Value } from "./interpreter-tensors.ts";
import { Runtime } from "./runtime.ts";
import { sharedFloats } from "./vectors.ts";

// ---------------------------------------------------------------- random programs

const bindings = { n: 3 };
const leaves = [o.input("a", ["n", 4]), o.input("b", ["n", 4]), o.input("w", [4, 4]), o.input("row", [4])];
const ids = o.input("ids", ["n"], "i32");
const random = new Random(8);
const floats = (size: number) => Float64Array.from({ length: size }, () => Math.fround(random.normal()));
const inputs = { a: floats(12), b: floats(12), w: floats(16), row: floats(4), ids: [2, 0, 2] };

/** A table that `ids` can read: a matrix of at least three rows. */
function isTable(x: Node): boolean {
  return x.shape.length === 2 && (x.shape[0] === "n" || x.shape[0] === 4);
}

/** Steps that make a node from two existing ones; those that do not fit throw and are left out. Values stay near 1. */
const steps: readonly ((x: Node, y: Node) => Node)[] = [
  o.add,
  o.sub,
  (x, y) => o.tanh(o.mul(x, y)),
  o.minimum,
  o.maximum,
  o.tanh,
  o.sigmoid,
  o.neg,
  (x) => o.exp(o.tanh(x)),
  (x) => o.add(x, 0),
  (x) => o.mul(1, x),
  (x) => o.mul(o.mul(x, 0.5), o.mul(o.constant(3), 0.5)),
  (x) => o.div(x, 1),
  (x, y) => o.where(o.greater(x, y), x, o.neg(y)),
  (x) => o.transpose(x),
  (x) => o.reshape(x, [x.shape.reduce((size, d) => (d === "n" || size === "n" ? "4*n" : Number(size) * Number(d)))]),
  (x) => o.reshape(x, ["n", 4]),
  (x) => o.reshape(x, ["2*n", 2]),
  (x) => o.sum(x, [-1], true),
  (x) => o.max(x, [0], true),
  (x) => o.softmax(x),
  (x) => (x.shape[1] === 4 ? o.slice(x, 1, 1, 3) : o.neg(x)),
  (x) => (x.shape[1] === 4 ? o.pad(x, 1, 1, 6) : o.neg(x)),
  (x, y) => (x.shape.length === 2 ? o.concat([x, y], 1) : o.neg(x)),
  (x, y) => o.broadcastTo(x, y.shape),
  (x, y) => o.tanh(o.matmul(x, y)),
  (x, y) => o.add(o.matmul(x, y, { transB: true, alpha: 0.5 }), x),
  (x, y) => o.add(x, o.matmul(x, y)),
  (x, y) => o.tanh(o.matmul(x, y, { transA: true })),
  (x, y) => o.tanh(o.linear(x, leaves[2]!, y)),
  (x, y) => (y.shape[0] === 4 ? o.rmsNorm(x, y, 1e-3) : o.neg(x)),
  (x, y) => o.gated(x, y, "silu"),
  (x, y) => o.gated(x, y, "geluTanh"),
  (x, y) => (isTable(x) && isTable(y) ? o.tokenLogprobs(x, y, ids, { softcap: null, temperature: 0.8 }) : o.neg(x)),
  (x, y) => (isTable(x) && isTable(y) ? o.tokenEntropy(x, y, { softcap: 3, temperature: 1 }) : o.neg(x)),
  (x) => (isTable(x) ? o.take(x, ids) : o.neg(x)),
  (x) => o.stopGradient(x),
];

const programs = fc
  .array(fc.tuple(fc.nat(steps.length - 1), fc.nat(99), fc.nat(99)), { minLength: 1, maxLength: 14 })
  .map((choices) => {
    const pool = [...leaves];
    for (const [step, i, j] of choices) {
      try {
        pool.push(steps[step]!(pool[i % pool.length]!, pool[j % pool.length]!));
      } catch (error) {
        if (!(error instanceof GraphError)) throw error;
      }
    }
    return pool.slice(-3);
  });

function named(nodes: readonly Node[]): Record<string, Node> {
  return Object.fromEntries(nodes.map((node, i) => [`out${i}`, node]));
}

function meaning(nodes: readonly Node[]): Value[] {
  return Object.values(interpret(named(nodes), inputs, bindings));
}

function expectNear(actual: readonly Value[], expected: readonly Value[], tolerance: number): void {
  expect(actual.map(({ shape }) => shape)).toEqual(expected.map(({ shape }) => shape));
  expected.forEach(({ data }, i) => {
    const bound = tolerance * Math.max(1, ...data.map(Math.abs));
    data.forEach((want, j) => {
      expect(Math.abs(actual[i]!.data[j]! - want)).toBeLessThanOrEqual(bound);
    });
  });
}

/** A scalar made of all outputs, and its gradient with respect to every leaf. */
function gradients(outputs: readonly Node[]): Node[] {
  const loss = outputs.map((y) => o.sum(o.tanh(y))).reduce((a, b) => o.add(a, b));
  return grad(loss, leaves);
}

describe("random programs", () => {
  test("mean the same after lowering and simplification", () => {
    fc.assert(
      fc.property(programs, (outputs) => {
        expectNear(meaning(simplify(lower(outputs))), meaning(outputs), 1e-12);
      }),
      { numRuns: 500, seed: 1 },
    );
  });

  test("have gradients that mean the same after lowering and simplification", () => {
    fc.assert(
      fc.property(programs, (outputs) => {
        const grads = gradients(outputs);
        expectNear(meaning(simplify(lower(grads))), meaning(grads), 1e-10);
      }),
      { numRuns: 100, seed: 2 },
    );
  });

  test("are not simpler when they are simplified again", () => {
    fc.assert(
      fc.property(programs, (outputs) => {
        const once = simplify(lower(outputs));
        expect(topological(simplify(once)).length).toBe(topological(once).length);
      }),
      { numRuns: 100, seed: 3 },
    );
  });

  const runtime = new Runtime({ threads: 1 });
  afterAll(() => runtime.close());

  test("give in onnxruntime what the interpreter gives", async () => {
    await fc.assert(
      fc.asyncProperty(programs, async (outputs) => {
        const program = compile(named(outputs));
        const shapes = program.outputs.map(({ shape }) => evaluateShape(shape, bindings));
        const results = shapes.map((shape) => sharedFloats(shape.reduce((a, b) => a * b, 1)));
        const { ids, ...rest } = inputs;
        const given = Object.entries(rest).map(([name, values]) => [name, Float32Array.from(values)] as const);
        const arrays = {
          ...Object.fromEntries(given),
          ids: Int32Array.from(ids),
          ...Object.fromEntries(results.map((array, i) => [`out${i}`, array])),
        };
        await runtime.run(await runtime.load(program), { bindings, arrays });
        const actual = results.map((array, i) => ({ shape: shapes[i]!, data: Float64Array.from(array) }));
        expectNear(actual, meaning(outputs), 1e-4);
      }),
      { numRuns: 100, seed: 4 },
    );
  });
});

describe("the interpreter", () => {
  const x = o.input("x", ["n", 2]);

  test("names an input it was not given, and one of another size", () => {
    expect(() => interpret({ x }, {}, { n: 2 })).toThrow("input: no values were given for `x`");
    expect(() => interpret({ x }, { x: [1, 2, 3] }, { n: 2 })).toThrow("input: traced as [2,2]");
  });

  test("finds a shape that was traced wrongly", () => {
    const broken = { ...o.exp(x), shape: [2, "n"] };
    expect(() => interpret({ broken }, { x: [1, 2, 3, 4, 5, 6] }, { n: 3 })).toThrow(
      "exp: traced as [2,3], but the values make [3,2]",
    );
  });

  test("computes erf as tables have it", () => {
    const points = [0, 0.5, 1, 2, 3.5, -1, 9];
    const { y } = interpret({ y: o.erf(o.input("x", [7])) }, { x: points });
    const table = [
      0, 0.5204998778130465, 0.8427007929497149, 0.9953222650189527, 0.9999992569016276, -0.8427007929497149, 1,
    ];
    expectNear([y!], [{ shape: [7], data: Float64Array.from(table) }], 1e-15);
  });
});

describe("gradients where a function has none", () => {
  const a = o.input("a", [3]);
  const b = o.input("b", [3]);
  const slopesOf = (y: Node) => {
    const [da, db] = grad(o.sum(y), [a, b]);
    const { first, second } = interpret({ first: da!, second: db! }, { a: [1, 2, 3], b: [1, 3, 2] });
    return [[...first!.data], [...second!.data]];
  };

  test("of two equal numbers the first has the gradient of minimum and maximum", () => {
    expect(slopesOf(o.minimum(a, b))).toEqual([
      [1, 1, 0],
      [0, 0, 1],
    ]);
    expect(slopesOf(o.maximum(a, b))).toEqual([
      [1, 0, 1],
      [0, 1, 0],
    ]);
  });

  test("a clamped number has it on the bounds and not beyond", () => {
    expect(slopesOf(o.clamp(a, 1, 2))[0]).toEqual([1, 1, 0]);
  });

  test("equal largest numbers share it", () => {
    const [dx] = grad(o.max(a), [a]);
    expect([...interpret({ dx: dx! }, { a: [2, 2, 1] }).dx!.data]).toEqual([0.5, 0.5, 0]);
  });

  test("nothing flows through stopGradient", () => {
    expect(slopesOf(o.mul(o.stopGradient(a), b))).toEqual([
      [0, 0, 0],
      [1, 2, 3],
    ]);
  });

  test("the gradient of attention is not differentiated again", () => {
    const q = o.input("q", [1, 1, 2, 2]);
    const [dq] = grad(o.sum(o.attention(q, q, q, { scale: 1, window: null, softcap: null })), [q]);
    expect(() => grad(o.sum(dq!), [q])).toThrow("internal: the gradient of attention is not differentiated again");
  });
});

test("a gradient's dense part and its rows make the whole", () => {
  const table = o.input("table", [5, 2]);
  const ids = o.input("ids", ["n"], "i32");
  const rows = o.take(table, ids);
  const tied = o.tokenLogprobs(rows, table, ids, { softcap: null, temperature: 1 });
  const given = { table: floats(10), ids: [1, 4, 1] };
  for (const loss of [o.sum(tied), o.sum(o.square(rows)), o.sum(o.square(table))]) {
    const [whole] = grad(loss, [table]);
    const { dense, rows } = splitSparse(whole!);
    const parts = rows.map(({ ids, rows }) => o.scatterRows(ids, rows, 5));
    const sum = [...(dense === null ? [] : [dense]), ...parts].reduce((a, b) => o.add(a, b));
    expect(dense === null || topological([dense]).every(({ op }) => op !== "scatterRows")).toBe(true);
    const values = interpret({ whole: whole!, sum }, given, { n: 3 });
    expectNear([values.sum!], [values.whole!], 1e-12);
  }
});
