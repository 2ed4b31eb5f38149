/** What is in a compiled model: the nodes it must have, and those it must not. */
import { describe, expect, test } from "vitest";
import { type Node, scope } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import { grad } from "../graph/vjp.ts";
import { GraphError } from "../util/errors.ts";
import { compile } from "./emit.ts";
import { SEQUENCE } from "./writer.ts";

// ---------------------------------------------------------------- reading a model back

type Fields = ReadonlyMap<number, readonly Uint8Array[]>;

/** The length-delimited fields of a message, by number (https://protobuf.dev/programming-guides/encoding). */
function fieldsOf(bytes: Uint8Array): Fields {
  const fields = new Map<number, Uint8Array[]>();
  let at = 0;
  const varint = () => {
    let result = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[at++]!;
      result += (byte % 128) * scale;
      if (byte < 128) return result;
    }
  };
  while (at < bytes.length) {
    const key = varint();
    if (key % 8 === 0) varint();
    else {
      const length = key % 8 === 5 ? 4 : varint();
      const value = bytes.subarray(at, at + length);
      at += length;
      fields.set(Math.floor(key / 8), [...(fields.get(Math.floor(key / 8)) ?? []), value]);
    }
  }
  return fields;
}

type Emitted = { readonly type: string; readonly inputs: string[]; readonly outputs: string[] };
type Model = { readonly nodes: readonly Emitted[]; readonly inputs: string[]; readonly outputs: string[] };

/** Field numbers are those of onnx.proto. */
function readModel(bytes: Uint8Array): Model {
  const text = (values: readonly Uint8Array[] = []) => values.map((value) => new TextDecoder().decode(value));
  const graph = fieldsOf(fieldsOf(bytes).get(7)![0]!);
  const nodes = (graph.get(1) ?? []).map(fieldsOf).map((node) => ({
    type: text(node.get(4))[0]!,
    inputs: text(node.get(1)),
    outputs: text(node.get(2)),
  }));
  const names = (field: number) => (graph.get(field) ?? []).map((value) => text(fieldsOf(value).get(1))[0]!);
  return { nodes, inputs: names(11), outputs: names(12) };
}

function types(outputs: Readonly<Record<string, Node>>): string[] {
  return readModel(compile(outputs).bytes)
    .nodes.map(({ type }) => type)
    .filter((type) => type !== "SequenceEmpty");
}

// ---------------------------------------------------------------- laws

const x = o.input("x", ["n", 4]);
const w = o.input("w", [3, 4]);

describe("a compiled model", () => {
  test("has the same bytes whenever the same program is traced", () => {
    const trace = () => {
      const q = o.input("q", ["batch", 4, "4*span", 2]);
      const k = o.input("k", ["batch", 2, "4*span", 2]);
      const y = o.attention(q, k, k, { scale: 0.5, window: null, softcap: null });
      const loss = o.sum(o.square(y));
      const [dq, dk] = grad(loss, [q, k]);
      return compile({ loss, dq: dq!, dk: dk! });
    };
    expect(trace()).toEqual(trace());
  });

  test("has equal nodes once and no unused nodes", () => {
    const y = o.exp(o.mul(x, 2));
    o.log(y);
    expect(types({ a: o.neg(y), b: o.sqrt(o.exp(o.mul(x, 2))) })).toEqual(["Mul", "Exp", "Neg", "Sqrt"]);
  });

  test("makes a norm and its inverse in one node", () => {
    const g = o.input("g", [4]);
    const loss = o.sum(o.tanh(o.rmsNorm(x, g, 1e-6)));
    const [dx] = grad(loss, [x]);
    const names = types({ loss, dx: dx! });
    expect(names.filter((type) => type === "SimplifiedLayerNormalization")).toHaveLength(1);
  });

  test("has an empty sequence as its first output, and the program's outputs after it in their order", () => {
    const { outputs, nodes } = readModel(compile({ z: o.exp(x), a: o.neg(x) }).bytes);
    expect(outputs).toEqual([SEQUENCE, "z", "a"]);
    expect(nodes.find(({ type }) => type === "SequenceEmpty")?.outputs).toEqual([SEQUENCE]);
  });

  test("takes one small input per symbol that it computes with, and names it", () => {
    const spread = compile({ y: o.broadcastTo(o.input("s", []), ["n", "4*span"]) });
    expect(readModel(spread.bytes).inputs).toEqual(["s", "dim.n", "dim.span"]);
    expect(spread.symbols).toEqual(["n", "span"]);
    expect(compile({ y: o.exp(x) }).symbols).toEqual([]);
  });

  test("passes one value to two outputs, an input to an output, and a constant to an output", () => {
    const y = o.exp(x);
    const { nodes } = readModel(compile({ a: y, b: y, c: x, d: o.constant([1, 2], [2]) }).bytes);
    expect(nodes.map(({ type }) => type)).toEqual(["Exp", "Identity", "Identity", "Identity", "SequenceEmpty"]);
    expect(nodes.map(({ outputs }) => outputs[0]).sort()).toEqual(["a", "b", "c", "d", SEQUENCE]);
    expect(nodes[1]!.inputs).toEqual(["a"]);
  });

  test("defines every name once and before it is used", () => {
    const q = o.input("q", ["batch", 2, "4*span", 2]);
    const loss = o.sum(o.attention(q, q, q, { scale: 1, window: 5, softcap: 3 }));
    const { nodes, inputs } = readModel(compile({ loss, dq: grad(loss, [q])[0]! }).bytes);
    const defined = new Set(inputs);
    for (const node of nodes) {
      for (const name of node.inputs) expect(defined.has(name) || name.startsWith("constant:")).toBe(true);
      for (const name of node.outputs) {
        expect(defined.has(name)).toBe(false);
        defined.add(name);
      }
    }
  });

  test("has nodes whose names say where they were traced", () => {
    const y = scope("layers.0", () => o.tanh(scope("mlp", () => o.matmul(x, w, { transB: true }))));
    const { nodes } = readModel(compile({ y: o.neg(y) }).bytes);
    expect(nodes[0]!.outputs[0]).toMatch(/^layers\.0\.mlp\.matmul:/);
    expect(nodes[1]!.outputs[0]).toMatch(/^layers\.0\.tanh:/);
  });

  test("adds while it multiplies", () => {
    expect(types({ y: o.linear(x, w, o.input("bias", [3])) })).toEqual(["Gemm"]);
  });

  test("has no one-hot matrix and no sum by ScatterND in the gradient of a language model's head", () => {
    const table = o.input("table", [9, 4]);
    const ids = o.input("ids", ["n"], "i32");
    const y = o.tokenLogprobs(o.take(table, ids), table, ids, { softcap: null, temperature: 1 });
    const names = types({ dtable: grad(o.sum(y), [table])[0]! });
    expect(names).not.toContain("OneHot");
    expect(names).not.toContain("ScatterND");
    expect(names.filter((type) => type === "LogSoftmax")).toHaveLength(1);
  });
});

describe("a program is refused", () => {
  test.each(["x", SEQUENCE])("when an output is called %s, a name that is taken", (name) => {
    expect(() => compile({ [name]: o.exp(x) })).toThrow(GraphError);
    expect(() => compile({ [name]: o.exp(x) })).toThrow(`\`${name}\``);
  });

  test("when one name stands for two inputs", () => {
    expect(() => compile({ y: o.sum(x), z: o.sum(o.input("x", [2])) })).toThrow("`x` is declared twice, differently");
  });
});
