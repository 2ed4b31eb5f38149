import { afterAll, describe, expect, test } from "vitest";
import { compile } from "../onnx/emit.ts";
import { Runtime } from "../runtime/runtime.ts";
import { sharedFloats } from "../runtime/vectors.ts";
import { Random } from "../util/random.ts";
import { lower } from "./lower.ts";
import { type Activation, type Node, topological } from "./node.ts";
import * as o from "./ops.ts";
import { evaluateShape } from "./shape.ts";
import { simplify } from "./simplify.ts";
import { weightsLeft } from "./weights-left.ts";

const [WIDTH, HIDDEN, ROWS] = [24, 40, 5];
const x = o.input("x", ["n", WIDTH]);

type LinearParams = { readonly weight: Node; readonly bias?: Node };
type MlpParams = { readonly gate: LinearParams; readonly up: LinearParams; readonly down: LinearParams };

const linear = (input: Node, p: LinearParams): Node => o.linear(input, p.weight, p.bias);
const mlp = (input: Node, p: MlpParams, activation: Activation): Node =>
  linear(o.gated(linear(input, p.gate), linear(input, p.up), activation), p.down);

/** Weights as a model has them: [outputs, inputs]. */
function params(name: string, [outputs, inputs]: readonly [number, number], hasBias: boolean): LinearParams {
  const weight = o.input(`${name}.weight`, [outputs, inputs]);
  return hasBias ? { weight, bias: o.input(`${name}.bias`, [outputs]) } : { weight };
}
const up = (name: string, hasBias = false) => params(name, [HIDDEN, WIDTH], hasBias);
const down = (hasBias = false) => params("down", [WIDTH, HIDDEN], hasBias);
const gatedMlp = (hasBias: boolean, activation: Activation) =>
  mlp(x, { gate: up("gate", hasBias), up: up("up", hasBias), down: down(hasBias) }, activation);

const gate = linear(x, up("gate"));
const normed = o.rmsNorm(x, o.input("norm.weight", [WIDTH]), 1e-6);
const programs: Record<string, Node> = {
  "a gated MLP": gatedMlp(false, "silu"),
  "a gated MLP with biases": gatedMlp(true, "silu"),
  "a gated MLP with GELU": gatedMlp(false, "gelu"),
  "a gated MLP with GELU's approximation": gatedMlp(false, "geluTanh"),
  "a block's half, with norm and residual": o.add(
    x,
    mlp(normed, { gate: up("gate"), up: up("up"), down: down() }, "silu"),
  ),
  "a scaled product of a product": o.matmul(gate, down().weight, { transB: true, alpha: 0.5 }),
  "a scaled product": o.matmul(x, up("gate").weight, { transB: true, alpha: 0.5 }),
  "a product beside a column, a row and a number": o.add(
    o.mul(o.mul(gate, o.input("column", ["n", 1])), o.input("row", [1, HIDDEN])),
    1.5,
  ),
  "a product that is used twice": o.add(linear(o.sigmoid(gate), down()), o.sum(gate, [1], true)),
  "a product of two products": o.matmul(gate, linear(x, up("up")), { transB: true }),
  "a difference of a product and its own rows' sum": o.sub(gate, o.sum(gate, [1], true)),
};

const transposes = (output: Node) => topological([output]).filter(({ op }) => op === "transpose").length;
const turned = (output: Node) => simplify(weightsLeft(lower([output])))[0]!;

const runtime = new Runtime();
afterAll(() => runtime.close());

async function run(output: Node, hasFewRows: boolean): Promise<Float32Array> {
  const program = compile({ y: output }, { hasFewRows });
  const random = (name: string) => new Random(3, name);
  const size = (shape: Node["shape"]) => evaluateShape(shape, { n: ROWS }).reduce((a, b) => a * b, 1);
  const arrays: Record<string, Float32Array> = { y: sharedFloats(size(output.shape)) };
  for (const { name, shape } of program.inputs) {
    const values = random(name);
    arrays[name] = sharedFloats(size(shape)).map(() => values.normal(0, 0.5));
  }
  await runtime.run(await runtime.load(program), { bindings: { n: ROWS }, arrays });
  return arrays.y!;
}

test.each(Object.keys(programs))("%s gives the same numbers with the weights on the left", async (name) => {
  const [plain, few] = [await run(programs[name]!, false), await run(programs[name]!, true)];
  const scale = plain.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  expect(scale).toBeGreaterThan(0.01);
  plain.forEach((value, i) => {
    expect(Math.abs(value - few[i]!) / scale, `entry ${i}`).toBeLessThan(2e-6);
  });
});

describe("elementwise operations between two products stay transposed", () => {
  test.each(["silu", "gelu", "geluTanh"] as const)(
    "in an MLP with %s, only its result is transposed back",
    (activation) => {
      expect(transposes(turned(gatedMlp(false, activation)))).toBe(1);
    },
  );
  test("a product alone is transposed back once, and its input is not transposed", () => {
    expect(transposes(turned(linear(x, up("gate"))))).toBe(1);
  });
  test("a product without a weight stays as it is", () => {
    const square = o.matmul(o.sigmoid(x), o.tanh(x), { transB: true });
    expect(turned(square)).toEqual(simplify(lower([square]))[0]);
  });
});
