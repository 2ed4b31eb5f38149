/** Laws of running: where numbers are read and written, what is refused, and that runs do not leak memory. */
import { InferenceSession, Tensor } from "onnxruntime-node";
import { afterAll, describe, expect, test } from "vitest";
import { makeNode, type Node } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import { type Bindings, evaluateShape } from "../graph/shape.ts";
import { grad } from "../graph/vjp.ts";
import { compile } from "../onnx/emit.ts";
import { SEQUENCE } from "../onnx/writer.ts";
import { UserError } from "../util/errors.ts";
import { Random } from "../util/random.ts";
import { type Device, sessionOptions } from "./devices.ts";
import { interpret } from "./interpreter.ts";
import { Runtime, type RuntimeOptions } from "./runtime.ts";
import { sharedFloats, sharedInts } from "./vectors.ts";
import { EXPECTED_ERROR } from "./zero-copy.ts";

const opened: Runtime[] = [];
afterAll(() => Promise.all(opened.map((runtime) => runtime.close())));

function open(options: RuntimeOptions = {}): Runtime {
  const runtime = new Runtime({ threads: 2, ...options });
  opened.push(runtime);
  return runtime;
}

const runtime = open();
const random = new Random(3);

function floats(size: number): Float32Array<SharedArrayBuffer> {
  return copyToShared(Array.from({ length: size }, () => random.normal()));
}

function copyToShared(values: ArrayLike<number>): Float32Array<SharedArrayBuffer> {
  const array = sharedFloats(values.length);
  array.set(values);
  return array;
}

type Outputs = Readonly<Record<string, Node>>;
type Arrays = Readonly<Record<string, Float32Array | Int32Array>>;

/** Run and return every output as a plain array. */
async function run(
  on: Runtime,
  outputs: Outputs,
  inputs: Arrays,
  bindings: Bindings = {},
): Promise<Record<string, number[]>> {
  const program = compile(outputs);
  const results = program.outputs.map(({ name, shape }) => {
    return [name, sharedFloats(evaluateShape(shape, bindings).reduce((a, b) => a * b, 1))] as const;
  });
  await on.run(await on.load(program), { bindings, arrays: { ...inputs, ...Object.fromEntries(results) } });
  return Object.fromEntries(results.map(([name, array]) => [name, [...array]]));
}

/** A small transformer-like loss with everything a training step has. */
const tiny = (() => {
  const ids = o.input("ids", ["batch*time"], "i32");
  const table = o.input("table", [32, 16]);
  const gain = o.input("gain", [16]);
  const rows = o.rmsNorm(o.take(table, ids), gain, 1e-6);
  const heads = o.transpose(o.reshape(rows, ["batch", "time", 2, 8]), [0, 2, 1, 3]);
  const mixed = o.attention(heads, heads, heads, { scale: 0.3, window: null, softcap: null });
  const hidden = o.reshape(o.transpose(mixed, [0, 2, 1, 3]), ["batch*time", 16]);
  const logprobs = o.tokenLogprobs(o.add(rows, hidden), table, ids, { softcap: null, temperature: 1 });
  const loss = o.neg(o.sum(logprobs));
  const [dtable, dgain] = grad(loss, [table, gain]);
  const bindings = { batch: 3, time: 17 };
  const given = {
    ids: sharedInts(Array.from({ length: 51 }, () => random.int(32))),
    table: floats(512),
    gain: floats(16),
  };
  return { outputs: { loss, dtable: dtable!, dgain: dgain! }, inputs: given, bindings };
})();

describe("outputs", () => {
  test("are the same bits whether they are written in place or copied", async () => {
    const inPlace = await run(runtime, tiny.outputs, tiny.inputs, tiny.bindings);
    const copied = await run(open({ copyMode: "copy" }), tiny.outputs, tiny.inputs, tiny.bindings);
    expect(inPlace).toEqual(copied);
    const expected = interpret(tiny.outputs, tiny.inputs, tiny.bindings);
    expect(Math.abs(inPlace.loss![0]! / expected.loss!.data[0]! - 1)).toBeLessThan(1e-5);
  });

  test("are the same bits in two engines with as many threads", async () => {
    const [a, b] = await Promise.all([1, 2].map(() => run(open(), tiny.outputs, tiny.inputs, tiny.bindings)));
    expect(a).toEqual(b);
  });

  test("are the same bits every time", async () => {
    const first = await run(runtime, tiny.outputs, tiny.inputs, tiny.bindings);
    for (let i = 0; i < 20; i++) expect(await run(runtime, tiny.outputs, tiny.inputs, tiny.bindings)).toEqual(first);
  });

  test("of whole numbers, of one value twice, of an input and of a constant arrive", async () => {
    const ids = o.input("ids", [3], "i32");
    const next = o.add(ids, 1);
    const [a, b, c, d] = [0, 0, 0, 0].map(() => sharedInts([9, 9, 9]));
    const arrays = { ids: sharedInts([4, 5, 6]), a: a!, b: b!, c: c!, d: d! };
    const program = compile({ a: next, b: next, c: ids, d: o.constant([1, 2, 3], [3], "i32") });
    await runtime.run(await runtime.load(program), { arrays });
    expect([a, b, c, d].map((array) => [...array!])).toEqual([
      [5, 6, 7],
      [5, 6, 7],
      [4, 5, 6],
      [1, 2, 3],
    ]);
  });

  test("sums by index are exact and the same every time, however often an index repeats", async () => {
    // Multiples of 1/8 whose sums single precision holds exactly, 4096 rows onto 7 places.
    const [rows, width] = [4096, 64];
    const out = o.scatterRows(o.input("ids", [rows], "i32"), o.input("rows", [rows, width]), 7);
    const ids = sharedInts(Array.from({ length: rows }, () => random.int(7)));
    const values = Float32Array.from({ length: rows * width }, () => (random.int(64) - 16) / 8);
    const expected = [...interpret({ out }, { ids, rows: values }).out!.data];
    for (const threads of [1, 2, 4]) {
      const engine = open({ threads });
      for (let i = 0; i < 5; i++) expect(await run(engine, { out }, { ids, rows: values })).toEqual({ out: expected });
    }
  });
});

describe("the sequence that ends the copying of outputs", () => {
  const x = o.input("x", [2]);

  test("makes onnxruntime throw exactly the expected error, after it has filled the buffers", async () => {
    const session = await InferenceSession.create(
      compile({ y: o.mul(x, 2) }).bytes,
      sessionOptions({ device: "cpu", threads: 1 }),
    );
    const y = new Float32Array(2);
    const running = session.run(
      { x: new Tensor("float32", Float32Array.of(3, 4), [2]) },
      { [SEQUENCE]: null, y: new Tensor("float32", y, [2]) },
    );
    // If a release throws another error, or none, `zero-copy.ts` must be looked at again.
    await expect(running).rejects.toThrow(new Error(EXPECTED_ERROR));
    expect([...y]).toEqual([6, 8]);
    await session.release();
  });

  test("does not hide any other error", async () => {
    const table = o.input("table", [2, 2]);
    const beyond = { y: o.take(table, o.input("ids", [1], "i32")) };
    for (const copyMode of ["zero-copy", "copy"] as const) {
      const failed = run(open({ copyMode }), beyond, { table: floats(4), ids: sharedInts([7]) });
      await expect(failed).rejects.toThrow(/out of/i);
    }
  });
});

describe("arrays", () => {
  const acc = o.input("acc", ["n", 4]);
  const step = o.input("step", ["n", 4]);

  test.each(["zero-copy", "copy"] as const)(
    "an output may be an input's array: accumulation (%s)",
    async (copyMode) => {
      const engine = open({ copyMode });
      const program = await engine.load(compile({ next: o.add(acc, step) }));
      const total = copyToShared(Array<number>(12).fill(0));
      for (let i = 0; i < 5; i++) {
        await engine.run(program, {
          bindings: { n: 3 },
          arrays: { acc: total, next: total, step: copyToShared(Array<number>(12).fill(i)) },
        });
      }
      expect([...total]).toEqual(Array(12).fill(10));
    },
  );

  test.each(["zero-copy", "copy"] as const)(
    "an output may be the array its product starts from (%s)",
    async (copyMode) => {
      const [m, k, n] = [37, 19, 53];
      const [a, b, c] = [o.input("a", [m, k]), o.input("b", [k, n]), o.input("c", [m, n])];
      const y = makeNode("gemm", [a, b, c], { transA: false, transB: false, alpha: 0.5 }, c);
      const given = { a: floats(m * k), b: floats(k * n), c: floats(m * n) };
      const engine = open({ copyMode });
      const { y: apart } = await run(engine, { y }, given);
      await engine.run(await engine.load(compile({ y })), { arrays: { ...given, y: given.c } });
      expect([...given.c]).toEqual(apart);
    },
  );

  test("that are bound once serve many runs, and later ones replace earlier ones", async () => {
    const program = await runtime.load(compile({ next: o.add(acc, step) }));
    const next = sharedFloats(4);
    const weights = await runtime.bind({ acc: copyToShared([1, 2, 3, 4]), next });
    const bindings = { n: 1 };
    await runtime.run(program, { bindings, groups: [weights], arrays: { step: copyToShared([1, 1, 1, 1]) } });
    expect([...next]).toEqual([2, 3, 4, 5]);
    const arrays = { step: copyToShared([1, 1, 1, 1]), acc: copyToShared([0, 0, 0, 0]) };
    await runtime.run(program, { bindings, groups: [weights], arrays });
    expect([...next]).toEqual([1, 1, 1, 1]);
    await runtime.unbind(weights);
    await expect(runtime.run(program, { bindings, groups: [weights], arrays })).rejects.toThrow("next");
  });

  test("that are not in shared memory can be read", async () => {
    const { y } = await run(runtime, { y: o.neg(o.input("x", [2])) }, { x: Float32Array.of(1, -2) });
    expect(y).toEqual([-1, 2]);
  });

  test("that are not in shared memory cannot be written, and are refused", async () => {
    const program = await runtime.load(compile({ y: o.neg(o.input("x", [2])) }));
    const arrays = { x: copyToShared([1, 2]), y: new Float32Array(2) };
    await expect(runtime.run(program, { arrays })).rejects.toThrow("y");
  });
});

describe("a run is refused", () => {
  const program = compile({ y: o.neg(o.input("x", ["n", 2])) });
  const x = sharedFloats(6);
  const y = sharedFloats(6);
  const wrong: [string, Arrays, Bindings, string][] = [
    ["an input is missing", { y }, { n: 3 }, "no array was given for x"],
    ["an output is missing", { x }, { n: 3 }, "no array was given for y"],
    ["an array has another size", { x: sharedFloats(5), y }, { n: 3 }, "x is f32[3,2], but the array holds 5 f32"],
    [
      "an array has another dtype",
      { x: sharedInts([1, 2, 3, 4, 5, 6]), y },
      { n: 3 },
      "x is f32[3,2], but the array holds 6 i32",
    ],
    ["a symbol is not bound", { x, y }, {}, "the dimension `n` of n is not bound"],
  ];
  test.each(wrong)("when %s, and the engine can still be used", async (_, arrays, bindings, message) => {
    const executable = await runtime.load(program);
    await expect(runtime.run(executable, { arrays, bindings })).rejects.toThrow(message);
    await runtime.run(executable, { arrays: { x, y }, bindings: { n: 3 } });
  });

  test("when a symbol that no array's shape has is not bound", async () => {
    const ones = o.broadcastTo(o.input("x", []), ["n"]);
    const executable = await runtime.load(compile({ y: o.sum(ones) }));
    const failed = runtime.run(executable, { arrays: { x: sharedFloats(1), y: sharedFloats(1) } });
    await expect(failed).rejects.toThrow("the dimension `n`");
  });
});

describe("programs", () => {
  test("that are equal are compiled once", async () => {
    const trace = (factor: number) => compile({ y: o.mul(o.input("x", ["n"]), factor) });
    const [first, same, other] = await Promise.all(
      [trace(2), trace(2), trace(3)].map((program) => runtime.load(program)),
    );
    expect(same!.id).toBe(first!.id);
    expect(other!.id).not.toBe(first!.id);
  });

  test("serve any size without being compiled again", async () => {
    const y = o.sum(o.square(o.input("x", ["n"])));
    for (const n of [1, 5, 64, 3])
      expect(await run(runtime, { y }, { x: sharedFloats(n).fill(2) }, { n })).toEqual({ y: [4 * n] });
  });

  test("are run in the order they were asked for", async () => {
    const x = o.input("x", [1]);
    const program = await runtime.load(compile({ y: o.add(o.mul(x, 2), 1) }));
    const value = copyToShared([0]);
    await Promise.all(Array.from({ length: 10 }, () => runtime.run(program, { arrays: { x: value, y: value } })));
    expect(value[0]).toBe(2 ** 10 - 1);
  });
});

describe("an engine", () => {
  test("that was closed refuses later calls and waiting ones", async () => {
    const engine = open();
    const program = await engine.load(compile({ y: o.neg(o.input("x", [1])) }));
    const waiting = engine.run(program, { arrays: { x: sharedFloats(1), y: sharedFloats(1) } }).then(
      () => "done",
      (error: Error) => error.message,
    );
    await engine.close();
    expect(["done", "the engine was closed"]).toContain(await waiting);
    await expect(engine.load(compile({ y: o.input("x", [1]) }))).rejects.toThrow("the engine was closed");
    await engine.close();
  });

  test.each<Device>(["webgpu", "cuda"])(
    "on %s computes the same, or says that there is no such device",
    async (device) => {
      const engine = open({ device });
      const x = copyToShared([1, 2, 3]);
      try {
        expect(await run(engine, { y: o.mul(o.input("x", [3]), 2) }, { x })).toEqual({ y: [2, 4, 6] });
      } catch (error) {
        expect(error).toBeInstanceOf(UserError);
        expect(error).toHaveProperty(
          "message",
          expect.stringContaining(`The device \`${device}\` cannot be used here`),
        );
        expect(error).toHaveProperty("message", expect.stringContaining("trainer.device=cpu"));
      }
    },
  );
});

describe("a thousand runs", () => {
  const MB = 2 ** 20;

  test.each(["zero-copy", "copy"] as const)("do not leak memory (%s)", async (copyMode) => {
    const engine = open({ copyMode, threads: 1 });
    const x = o.input("x", [MB / 4]);
    const program = await engine.load(compile({ y: o.add(x, 1), total: o.sum(x) }));
    const arrays = { x: sharedFloats(MB / 4), y: sharedFloats(MB / 4), total: sharedFloats(1) };
    const repeat = async (count: number) => {
      for (let i = 0; i < count; i++) await engine.run(program, { arrays });
      return process.memoryUsage().rss / MB;
    };
    const before = await repeat(200);
    const after = await repeat(1000);
    // Keeping every result would take 1,000 MB; copies that wait for the collector may take some.
    expect(after - before).toBeLessThan(copyMode === "copy" ? 120 : 40);
  });
});

test("an engine can be closed at once, while its thread still starts", async () => {
  for (let i = 0; i < 10; i++) await new Runtime().close();
});
