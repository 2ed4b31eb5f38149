/** Tracing, differentiation, simplification, verification and printing of programs, without running any. */
import { describe, expect, test } from "vitest";
import { GraphError } from "../util/errors.ts";
import { check } from "./check.ts";
import { lower } from "./lower.ts";
import { atPath, makeNode, type Node, type Op, scope, topological } from "./node.ts";
import * as o from "./ops.ts";
import { print } from "./print.ts";
import { simplify } from "./simplify.ts";
import { grad } from "./vjp.ts";

const x = o.input("x", ["n", 4]);
const w = o.input("w", [3, 4]);
const f32 = (shape: readonly (number | string)[]) => ({ shape, dtype: "f32" as const });

function count(outputs: readonly Node[], op: Op): number {
  return topological(outputs).filter((node) => node.op === op).length;
}

describe("tracing", () => {
  const heads = (count: number, size = 4) => o.input(`h${count}`, ["batch", count, "n", size]);
  const plain = { scale: 1, window: null, softcap: null };
  const head = { softcap: null, temperature: 1 };
  const misfits: [string, () => Node, string][] = [
    ["add", () => o.add(x, w), "f32[n, 4] and f32[3, 4] do not fit"],
    ["add of two dtypes", () => o.add(o.cast(x, "i32"), x), "add: i32[n, 4] and f32[n, 4] do not fit"],
    ["matmul", () => o.matmul(x, w), "matmul: [n, 4] and [3, 4] do not fit"],
    ["reshape", () => o.reshape(x, ["n", 5]), "reshape: [n, 4] and [n, 5] differ in size"],
    ["transpose", () => o.transpose(x, [0, 0]), "transpose: [0,0] is not an order of the axes of [n, 4]"],
    ["broadcastTo", () => o.broadcastTo(x, [4]), "broadcastTo: [n, 4] does not spread to [4]"],
    ["sum", () => o.sum(x, [2]), "sum: axes [2] are not all in [n, 4]"],
    ["take", () => o.take(w, x), "take: the ids are f32, not i32"],
    ["where", () => o.where(x, 1, 0), "where: the condition is f32, not bool"],
    ["constant", () => o.constant([1, 2], [3]), "2 values do not fill [3]"],
    ["concat", () => o.concat([x, w], 1), "concat: f32[n, 4] and f32[3, 4] do not fit"],
    ["concat of an axis", () => o.concat([x, x], 2), "concat: "],
    ["concat of two dtypes", () => o.concat([x, o.cast(x, "i32")], 1), "concat: f32[n, 4] and i32[n, 4] do not fit"],
    ["slice of an axis", () => o.slice(x, 2, 0, 1), "slice: "],
    ["slice past the end", () => o.slice(x, 1, 2, 5), "slice: "],
    ["pad to less", () => o.pad(x, 1, 0, 3), "pad: "],
    ["pad past the end", () => o.pad(x, 1, 2, 5), "pad: "],
    ["where of two dtypes", () => o.where(o.greater(x, 0), x, o.cast(x, "i32")), "where: "],
    ["matmul of two dtypes", () => o.matmul(x, o.cast(w, "i32"), { transB: true }), "matmul: "],
    ["attention of three heads on two", () => o.attention(heads(3), heads(2), heads(2), plain), "attention: "],
    ["attention of other sizes", () => o.attention(heads(2, 8), heads(2), heads(2), plain), "attention: "],
    [
      "attention of values of another time",
      () => o.attention(heads(2), heads(2), o.input("v", ["batch", 2, "m", 4]), plain),
      "attention: ",
    ],
    ["rope of another size", () => o.rope(heads(2), o.input("cos", ["n", 3]), o.input("sin", ["n", 3])), "rope: "],
    ["a head on a vector", () => o.tokenEntropy(o.input("v", [4]), o.input("v", [4]), head), "tokenEntropy: "],
    ["a head for rows of targets", () => o.tokenLogprobs(x, w, o.input("t", ["n", 1], "i32"), head), "tokenLogprobs: "],
    ["rmsNorm of any width", () => o.rmsNorm(o.input("v", ["n"]), o.input("g", ["n"]), 1e-6), "rmsNorm: "],
    ["exp", () => o.exp(o.cast(x, "i32")), "exp: the input is i32, not f32"],
    ["rmsNorm", () => o.rmsNorm(x, w, 1e-6), "rmsNorm: f32[n, 4] and f32[3, 4] do not fit"],
  ];
  test.each(misfits)("inputs that do not fit are refused, with the path: %s", (_, build, message) => {
    const traced = () => scope("layers.3", () => scope("mlp", build));
    expect(traced).toThrow(GraphError);
    expect(traced).toThrow(`layers.3.mlp: `);
    expect(traced).toThrow(message);
  });

  test("a scope ends when the code in it throws", () => {
    expect(() => scope("inner", () => o.add(x, w))).toThrow("inner: add");
    expect(o.neg(x).path).toBe("");
  });

  test("programs may be deeper than the stack", () => {
    let deep = o.sum(x);
    for (let i = 0; i < 20_000; i++) deep = o.add(deep, 1);
    expect(topological([deep]).at(-1)).toBe(deep);
    expect(simplify(grad(deep, [x]))).toHaveLength(1);
  });

  test("every node comes once, after its inputs", () => {
    const y = o.add(o.exp(x), o.exp(x));
    const order = topological([y, o.sum(y), x]);
    expect(new Set(order).size).toBe(order.length);
    order.forEach((node, i) => {
      for (const input of node.inputs) expect(order.indexOf(input)).toBeLessThan(i);
    });
  });
});

describe("differentiation", () => {
  test("the gradient is zeros where the loss does not depend on an input", () => {
    const [dw] = grad(o.sum(x), [w]);
    expect(dw!.shape).toEqual([3, 4]);
    expect(print({ dw: dw! })).toMatch(/broadcastTo\(%0\) : f32\[3, 4\]/);
  });

  test("gradients have the paths of the layers they belong to", () => {
    const loss = scope("head", () => o.sum(scope("tanh", () => o.tanh(x))));
    const paths = topological(grad(loss, [x])).map((node) => node.path);
    expect(new Set(paths)).toEqual(new Set(["", "head", "head.tanh"]));
  });

  test("no gradient is computed that is not asked for", () => {
    const loss = o.sum(o.matmul(x, w, { transB: true }));
    expect(count(simplify(grad(loss, [x])), "matmul")).toBe(1);
    expect(count(simplify(grad(loss, [x, w])), "matmul")).toBe(2);
  });
});

describe("simplification", () => {
  test("equal nodes become one", () => {
    const twice = [o.exp(o.mul(x, 2)), o.neg(o.exp(o.mul(x, 2)))];
    const [a, b] = simplify(twice);
    expect(b!.inputs[0]).toBe(a);
    expect(count([a!, b!], "exp")).toBe(1);
  });

  test("inputs of one name are one, wherever they were made", () => {
    const [sum] = simplify([o.add(o.exp(o.input("x", ["n", 4])), o.exp(x))]);
    expect(count([sum!], "input")).toBe(1);
    expect(count([sum!], "exp")).toBe(1);
  });

  const different: [string, Node, Node][] = [
    ["attributes", o.sum(x, [0], true), o.sum(x, [0, 1], true)],
    ["inputs in another order", o.sub(x, o.exp(x)), o.sub(o.exp(x), x)],
    ["shapes", o.reshape(x, ["2*n", 2]), o.reshape(x, ["4*n", 1])],
    ["dtypes", o.cast(x, "i32"), o.cast(x, "bool")],
    ["constants", o.constant([1, 2], [2]), o.constant([1, 3], [2])],
    ["constants of one value and two dtypes", o.constant(1), o.constant(1, [], "i32")],
    ["infinities", o.constant(Infinity), o.constant(-Infinity)],
    ["zeros", o.constant(0), o.constant(-0)],
    ["numbers that are none", o.constant(Number.NaN), o.constant(Infinity)],
  ];
  test.each(different)("nodes that differ in %s stay two", (_, a, b) => {
    const [left, right] = simplify([a, b]);
    expect(left).not.toBe(right);
  });

  test("a folded product of whole numbers is a whole number", () => {
    const [six] = simplify([o.mul(o.constant(2, [], "i32"), o.constant(3, [], "i32"))]);
    expect([six!.op, six!.dtype]).toEqual(["constant", "i32"]);
  });

  const idle: [string, Node][] = [
    ["adding 0", o.add(x, 0)],
    ["adding to 0", o.add(0, x)],
    ["multiplying with 1", o.mul(o.mul(1, x), 1)],
    ["dividing by 1", o.div(x, 1)],
    ["negating twice", o.neg(o.neg(x))],
    ["reshaping there and back", o.reshape(o.reshape(x, ["2*n", 2]), ["n", 4])],
    ["transposing there and back", o.transpose(o.transpose(x))],
    ["stopping the gradient", o.stopGradient(x)],
  ];
  test.each(idle)("%s leaves nothing behind", (_, node) => {
    expect(simplify(lower([node]))).toEqual([x]);
  });

  test("adding 0 stays where it broadcasts the other side", () => {
    const row = o.input("row", [4]);
    const [spread] = simplify([o.add(row, o.constant([0, 0], [2, 1]))]);
    expect(spread!.shape).toEqual([2, 4]);
  });

  test("chains of reshapes and of transpositions become one", () => {
    const chain = o.reshape(o.reshape(o.reshape(x, [2, "2*n"]), ["4*n"]), ["2*n", 2]);
    expect(count(simplify([chain]), "reshape")).toBe(1);
    const y = o.input("y", [2, 3, 4]);
    const [turned] = simplify([o.transpose(o.transpose(y, [1, 2, 0]), [1, 2, 0])]);
    expect(turned!.op === "transpose" && turned!.attrs.order).toEqual([2, 0, 1]);
    expect(turned!.inputs[0]).toBe(y);
  });

  test("nodes that no output needs are dropped", () => {
    const y = o.tanh(x);
    o.exp(y);
    expect(topological(simplify([y])).map((node) => node.op)).toEqual(["input", "tanh"]);
  });

  test("a sum is fused into a product that nothing else needs", () => {
    const bias = o.input("bias", [3]);
    expect(simplify([o.linear(x, w, bias)])[0]!.op).toBe("gemm");
    const product = o.matmul(x, w, { transB: true });
    const [sum, shared] = simplify([o.add(product, bias), product]);
    expect([sum!.op, shared!.op]).toEqual(["add", "matmul"]);
  });

  test("three products that are added start from each other", () => {
    const parts = ["a", "b", "c"].map((name) => o.matmul(o.input(name, ["n", 3]), w));
    const [sum] = simplify([o.add(o.add(parts[0]!, parts[1]!), parts[2]!)]);
    expect([count([sum!], "gemm"), count([sum!], "matmul"), count([sum!], "add")]).toEqual([2, 1, 0]);
  });

  test("a sum that broadcasts the product is not fused into it", () => {
    const row = o.matmul(o.input("a", [1, 4]), w, { transB: true });
    expect(simplify([o.add(row, o.input("rows", ["n", 3]))])[0]!.op).toBe("add");
  });
});

describe("lowering", () => {
  test("lowering and simplification keep the path of a node", () => {
    const loss = scope("layers.0", () => {
      const gate = o.linear(x, w, o.input("bias", [3]));
      return o.sum(o.gated(gate, o.linear(o.input("y", ["n", 4]), o.input("v", [3, 4])), "silu"));
    });
    const nodes = topological(simplify(lower([loss, ...grad(loss, [x, w])])));
    const lost = nodes.filter(({ op, path }) => path !== "layers.0" && op !== "input" && op !== "constant");
    expect(lost.map(({ op }) => op)).toEqual([]);
  });

  test("attention multiplies a quarter of the queries at a time where time is divisible by four", () => {
    const parts = (time: number | string) => {
      const q = o.input("q", ["batch", 2, time, 4]);
      return count(simplify(lower([o.attention(q, q, q, { scale: 1, window: null, softcap: null })])), "softmax");
    };
    expect([parts(8), parts(6), parts(5), parts("4*span"), parts("2*span"), parts("time")]).toEqual([4, 2, 1, 4, 2, 1]);
  });

  test("forward and backward share the attention weights", () => {
    const [q, k, v] = ["q", "k", "v"].map((name) => o.input(name, ["batch", 2, "time", 4])) as [Node, Node, Node];
    const y = o.attention(q, k, v, { scale: 0.5, window: null, softcap: null });
    const all = simplify(lower([y, ...grad(o.sum(o.square(y)), [q, k, v])]));
    expect(count(all, "softmax")).toBe(1);
  });

  test("the gradient of a token's log-probability makes no second softmax and no one-hot matrix", () => {
    const hidden = o.input("hidden", ["n", 4]);
    const head = o.input("head", [9, 4]);
    const y = o.tokenLogprobs(hidden, head, o.input("ids", ["n"], "i32"), { softcap: null, temperature: 1 });
    const all = simplify(lower([y, ...grad(o.sum(y), [hidden, head])]));
    expect([count(all, "logSoftmax"), count(all, "place")]).toEqual([1, 0]);
  });

  test("no plain product is left with a transposed left side", () => {
    for (const [rows, columns] of [
      [5, 2],
      [2, 5],
    ] as const) {
      const y = o.matmul(o.input("a", ["n", rows]), o.input("b", ["n", columns]), { transA: true });
      const nodes = topological(simplify(lower([y])));
      expect(nodes.some((node) => node.op === "matmul" && node.attrs.transA)).toBe(false);
    }
  });
});

describe("the verifier", () => {
  const matmul = { transA: false, transB: true, alpha: 1 };
  const broken: [string, () => Record<string, Node>, string][] = [
    ["a missing input", () => ({ y: makeNode("add", [x], {}, x) }), "add: has 1 inputs, not 2"],
    ["an input too many", () => ({ y: makeNode("exp", [x, x], {}, x) }), "exp: has 2 inputs, not 1"],
    ["a size that changes", () => ({ y: makeNode("reshape", [x], {}, f32(["n", 5])) }), "reshape: the shape is [n, 5]"],
    [
      "a softmax that changes size",
      () => ({ y: makeNode("softmax", [x], {}, f32(["n"])) }),
      "softmax: the shape is [n]",
    ],
    [
      "a product of the wrong size",
      () => ({ y: makeNode("matmul", [x, w], matmul, f32(["n", 4])) }),
      "matmul: the shape is [n, 4] where the inputs say [n, 3]",
    ],
    [
      "a spelling that is not canonical",
      () => ({ y: makeNode("exp", [x], {}, f32(["n", "span*4"])) }),
      "exp: the shape [n, span*4] is not in canonical form",
    ],
    [
      "two inputs of one name",
      () => ({ y: o.sum(x), z: o.input("x", [4]) }),
      "input: `x` is declared twice, differently",
    ],
    [
      "a product with its axes swapped",
      () => ({ y: makeNode("matmul", [x, w], matmul, f32([3, "n"])) }),
      "matmul: the shape is [3, n]",
    ],
    ["a sum of shapes that cannot be broadcast", () => ({ y: makeNode("add", [x, w], {}, x) }), "add: "],
    [
      "an elementwise result of another shape",
      () => ({ y: makeNode("mul", [x, x], {}, f32(["n", 5])) }),
      "mul: the shape is [n, 5]",
    ],
    ["a sum of two dtypes", () => ({ y: makeNode("add", [x, o.cast(x, "i32")], {}, x) }), "add: "],
    [
      "attention of another size than its values",
      () => {
        const [query, value] = [o.input("q", [1, 2, 3, 4]), o.input("v", [1, 2, 3, 6])];
        return { y: makeNode("attention", [query, query, value], { scale: 1, window: null, softcap: null }, query) };
      },
      "attention: the shape is [1, 2, 3, 4] where the inputs say [1, 2, 3, 6]",
    ],
  ];
  test.each(broken)("%s is found, with the operation and the path", (_, build, message) => {
    const outputs = atPath("layers.3.attn", () => {
      const made = build();
      return Object.fromEntries(Object.entries(made).map(([name, node]) => [name, o.neg(node)]));
    });
    expect(() => check(outputs)).toThrow(GraphError);
    expect(() => check(outputs)).toThrow("layers.3.attn: ");
    expect(() => check(outputs)).toThrow(message);
  });

  test("a gradient and its lowered and simplified forms pass", () => {
    const q = o.input("q", ["batch", 4, "4*span", 2]);
    const k = o.input("k", ["batch", 2, "4*span", 2]);
    const loss = o.sum(o.attention(q, k, k, { scale: 1, window: 3, softcap: 2 }));
    const grads = grad(loss, [q, k]);
    const named = (nodes: readonly Node[]) => Object.fromEntries(nodes.map((node, i) => [`g${i}`, node]));
    expect(() => check(named(grads))).not.toThrow();
    expect(() => check(named(lower(grads)))).not.toThrow();
    expect(() => check(named(simplify(lower(grads))))).not.toThrow();
  });
});

test("a printed program names every node, its type, its attributes and its path", () => {
  const bias = o.input("bias", [3]);
  const y = scope("layers.0.mlp", () => o.tanh(o.linear(x, w, bias)));
  const loss = o.sum(o.mul(y, 0.5));
  expect(print({ loss, y })).toMatchInlineSnapshot(`
    "@x : f32[n, 4]
    @w : f32[3, 4]
    %2 = matmul(@x, @w) {transB} : f32[n, 3]  # layers.0.mlp
    @bias : f32[3]
    %4 = add(%2, @bias) : f32[n, 3]  # layers.0.mlp
    %5 = tanh(%4) : f32[n, 3]  # layers.0.mlp
    %6 = constant() {values=[0.5]} : f32[]
    %7 = mul(%5, %6) : f32[n, 3]
    %8 = sum(%7) {axes=[0,1]} : f32[1, 1]
    %9 = reshape(%8) : f32[]
    return loss = %9, y = %5"
  `);
  const [simple] = simplify(lower(grad(loss, [w])));
  expect(print({ dw: simple! })).toMatchInlineSnapshot(`
    "%0 = constant() {values=[1]} : f32[]
    %1 = reshape(%0) : f32[1, 1]
    %2 = broadcastTo(%1) : f32[n, 3]
    %3 = constant() {values=[0.5]} : f32[]
    %4 = mul(%2, %3) : f32[n, 3]
    @x : f32[n, 4]
    @w : f32[3, 4]
    @bias : f32[3]
    %8 = gemm(@x, @w, @bias) {transB} : f32[n, 3]  # layers.0.mlp
    %9 = tanh(%8) : f32[n, 3]  # layers.0.mlp
    %10 = mul(%9, %9) : f32[n, 3]  # layers.0.mlp
    %11 = sub(%0, %10) : f32[n, 3]  # layers.0.mlp
    %12 = mul(%4, %11) : f32[n, 3]  # layers.0.mlp
    %13 = transpose(%12) {order=[1,0]} : f32[3, n]  # layers.0.mlp
    %14 = matmul(%13, @x) : f32[3, 4]  # layers.0.mlp
    return dw = %14"
  `);
});

test("printing the same program twice gives the same text", () => {
  const build = () => {
    const a = o.input("a", ["n", 4]);
    const loss = o.sum(o.rmsNorm(a, o.input("g", [4]), 1e-6));
    return print({ loss, da: grad(loss, [a])[0]! });
  };
  expect(build()).toBe(build());
});
