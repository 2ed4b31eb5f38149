/**
 * From a program to an ONNX model: one rule per core operation.
 *
 * The table is total over what `graph/lower.ts` leaves, so an operation that cannot be emitted does not compile.
 * Operations of onnxruntime's own (`RotaryEmbedding`, `FusedMatMul`, `SimplifiedLayerNormalization`) are used where
 * they save passes over memory. `ScatterND` with repeated indices loses updates (it adds in parallel without locks),
 * so sums by index go through `ScatterElements`.
 */
import { check } from "../graph/check.ts";
import { type LayerOp, lower } from "../graph/lower.ts";
import { type DType, type Node, type NodeOf, type Op, topological } from "../graph/node.ts";
import { plus } from "../graph/shape.ts";
import { simplify } from "../graph/simplify.ts";
import { weightsLeft } from "../graph/weights-left.ts";
import { GraphError, invariant } from "../util/errors.ts";
import { type Attribute, GraphWriter, type Port, SEQUENCE } from "./writer.ts";

/** A compiled program: a model file, and what goes in and comes out. */
export type Program = {
  readonly bytes: Uint8Array;
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  /** The symbols whose values a run must bind. */
  readonly symbols: readonly string[];
};

type CoreOp = Exclude<Op, LayerOp | "input">;
type Emit<O extends Op> = (node: NodeOf<O>, w: GraphWriter, inputs: readonly string[]) => string;

const emitters: { [O in CoreOp]: Emit<O> } = {
  constant: (node, w) => w.tensor(node.attrs.values, node.shape.map(Number), node.dtype),
  causalMask: (node, w) => {
    const { offset, window } = node.attrs;
    const rows = one(w, "Add", [w.range(node.shape[0]!, [-1, 1]), w.dims([offset])]);
    const columns = w.range(node.shape[1]!, [1, -1]);
    let hidden = one(w, "Greater", [columns, rows]);
    if (window !== null) {
      const last = one(w, "Sub", [rows, w.tensor([window - 1], [1], "i64")]);
      hidden = one(w, "Or", [hidden, one(w, "Less", [columns, last])]);
    }
    return one(w, "Where", [hidden, w.tensor([-Infinity], [], "f32"), w.tensor([0], [], "f32")]);
  },

  add: direct("Add"),
  sub: direct("Sub"),
  mul: direct("Mul"),
  div: direct("Div"),
  minimum: direct("Min"),
  maximum: direct("Max"),
  neg: direct("Neg"),
  exp: direct("Exp"),
  log: direct("Log"),
  sqrt: direct("Sqrt"),
  abs: direct("Abs"),
  tanh: direct("Tanh"),
  sigmoid: direct("Sigmoid"),
  silu: (node, w, inputs) =>
    // One pass, and the sigmoid is not kept for the backward pass: it is computed again where it is used.
    w.node("QuickGelu", inputs, { attributes: { alpha: { float: 1 } }, contrib: true, label: labelOf(node) })[0]!,
  erf: direct("Erf"),
  greater: direct("Greater"),
  equal: direct("Equal"),
  where: direct("Where"),
  cast: (node, w, inputs) => one(w, "Cast", inputs, node, { to: castCodes[node.dtype] }),

  sum: (node, w, [x]) => one(w, "ReduceSum", [x!, w.tensor(node.attrs.axes, [node.attrs.axes.length], "i64")], node),
  max: (node, w, [x]) => one(w, "ReduceMax", [x!, w.tensor(node.attrs.axes, [node.attrs.axes.length], "i64")], node),
  softmax: direct("Softmax"),
  logSoftmax: direct("LogSoftmax"),

  reshape: (node, w, [x]) => {
    const unknown = node.shape.filter((d) => typeof d === "string").length;
    // One unknown dimension is left to the runtime; with more of them the shape is computed.
    const shape = node.shape.map((d) => (typeof d === "string" ? -1 : d));
    return one(w, "Reshape", [x!, unknown === 1 ? w.dims(shape) : w.dims(node.shape)], node);
  },
  transpose: (node, w, inputs) => one(w, "Transpose", inputs, node, { perm: node.attrs.order }),
  broadcastTo: (node, w, [x]) => one(w, "Expand", [x!, w.dims(node.shape)], node),
  slice: (node, w, [x]) => {
    const { axis, start } = node.attrs;
    const end = plus(start, node.shape[axis]!);
    return one(w, "Slice", [x!, w.dims([start]), w.dims([end]), w.tensor([axis], [1], "i64")], node);
  },
  pad: (node, w, [x]) => {
    const { axis, before } = node.attrs;
    const size = w.dims([node.inputs[0]!.shape[axis]!]);
    const rest = one(w, "Sub", [one(w, "Sub", [w.dims([node.shape[axis]!]), size]), w.dims([before])]);
    const pads = one(w, "Concat", [w.dims([before]), rest], undefined, { axis: 0 });
    return one(w, "Pad", [x!, pads, w.tensor([0], [], "f32"), w.tensor([axis], [1], "i64")], node);
  },
  concat: (node, w, inputs) => one(w, "Concat", inputs, node, { axis: node.attrs.axis }),

  take: direct("Gather"),
  scatterRows: (node, w, [ids, rows]) => {
    const zeros = one(w, "Expand", [w.tensor([0], [], "f32"), w.dims(node.shape)]);
    const column = one(w, "Unsqueeze", [ids!, w.tensor([1], [1], "i64")]);
    const places = one(w, "Expand", [column, w.dims(node.inputs[1]!.shape)]);
    return one(w, "ScatterElements", [zeros, places, rows!], node, { axis: 0, reduction: "add" });
  },
  pick: (node, w, [x, ids]) => {
    const column = one(w, "Unsqueeze", [ids!, w.tensor([1], [1], "i64")]);
    const picked = one(w, "GatherElements", [x!, column], node, { axis: 1 });
    return one(w, "Squeeze", [picked, w.tensor([1], [1], "i64")]);
  },
  place: (node, w, [values, ids]) => {
    const axis = w.tensor([1], [1], "i64");
    const column = one(w, "Cast", [one(w, "Unsqueeze", [ids!, axis])], undefined, { to: INT64 });
    const hit = one(w, "Equal", [w.range(node.shape[1]!, [1, -1]), column]);
    return one(w, "Where", [hit, one(w, "Unsqueeze", [values!, axis]), w.tensor([0], [], "f32")], node);
  },
  rearrange: (node, w, [x, index]) => one(w, "Gather", [x!, index!], node),

  matmul: (node, w, inputs) => {
    const { transA, transB, alpha } = node.attrs;
    if (node.shape.length === 2) return one(w, "Gemm", inputs, node, gemmAttributes(node.attrs));
    if (!transA && !transB && alpha === 1) return one(w, "MatMul", inputs, node);
    const attributes = { transA: Number(transA), transB: Number(transB), alpha: { float: alpha } };
    return w.node("FusedMatMul", inputs, { attributes, contrib: true, label: labelOf(node) })[0]!;
  },
  gemm: (node, w, inputs) => one(w, "Gemm", inputs, node, gemmAttributes(node.attrs)),

  rmsNorm: (node, w, inputs) =>
    one(w, "SimplifiedLayerNormalization", inputs, node, { axis: -1, epsilon: { float: node.attrs.eps } }),
  rmsInverse: (node, w, [x]) => {
    // The norm's second output would be this, but the webgpu kernel leaves it empty; on the cpu the sum costs 0.1 %.
    const width = Number(node.inputs[0]!.shape.at(-1));
    const squares = one(w, "ReduceSumSquare", [x!, w.tensor([-1], [1], "i64")], node);
    const mean = one(w, "Mul", [squares, w.tensor([1 / width], [], "f32")]);
    const root = one(w, "Sqrt", [one(w, "Add", [mean, w.tensor([node.attrs.eps], [], "f32")])]);
    return one(w, "Reciprocal", [root]);
  },
  rope: (node, w, [x, cos, sin]) => {
    const inputs = [x!, w.tensor([0], [1], "i64"), cos!, sin!];
    return w.node("RotaryEmbedding", inputs, { contrib: true, label: labelOf(node) })[0]!;
  },
  cachedAttention: (node, w, inputs) => {
    const [query, key, value, cacheKey, cacheValue, lengths, total, cos, sin, positions] = inputs;
    const last = one(w, "Sub", [lengths!, w.tensor([1], [1], "i32")]); // the kernel expects the index of the last token
    const places = one(w, "Cast", [positions!], undefined, { to: INT64 });
    const given = [query!, key!, value!, cacheKey!, cacheValue!, last, total!, cos!, sin!, places];
    const { heads, kvHeads, scale, softcap, window } = node.attrs;
    const attributes = {
      num_heads: heads,
      kv_num_heads: kvHeads,
      do_rotary: 1,
      scale: { float: scale },
      ...(softcap === null ? {} : { softcap: { float: softcap } }),
      ...(window === null ? {} : { local_window_size: window }),
    };
    return w.node("GroupQueryAttention", given, { attributes, outputs: 3, contrib: true, label: labelOf(node) })[0]!;
  },
  cacheAfter: (node, w, [attended]) => w.outputsWith(attended!)[node.attrs.part === "key" ? 1 : 2]!,
};

const INT64 = 7;
const castCodes: Record<DType, number> = { f32: 1, i32: 6, bool: 9 };

function direct(type: string): Emit<Op> {
  return (node, w, inputs) => one(w, type, inputs, node);
}

function one(
  w: GraphWriter,
  type: string,
  inputs: readonly string[],
  node?: { readonly op: Op; readonly path: string },
  attributes: Readonly<Record<string, Attribute>> = {},
): string {
  return w.node(type, inputs, { attributes, ...(node === undefined ? {} : { label: labelOf(node) }) })[0]!;
}

function labelOf(node: { readonly op: Op; readonly path: string }): string {
  return node.path === "" ? node.op : `${node.path}.${node.op}`;
}

function gemmAttributes({ transA, transB, alpha }: NodeOf<"gemm">["attrs"]): Record<string, Attribute> {
  return { transA: Number(transA), transB: Number(transB), alpha: { float: alpha } };
}

export type CompileOptions = {
  /** The program's batches have few rows, so that products are faster with the weight on the left. */
  readonly hasFewRows?: boolean;
};

/** Compile named outputs: lower, simplify, check, emit. */
export function compile(outputs: Readonly<Record<string, Node>>, { hasFewRows = false }: CompileOptions = {}): Program {
  const names = Object.keys(outputs);
  check(outputs);
  const taken = new Set([SEQUENCE]);
  for (const node of topological(Object.values(outputs))) if (node.op === "input") taken.add(node.attrs.name);
  for (const name of names) {
    if (taken.has(name))
      throw new GraphError(outputs[name]!.path, `an output cannot be called \`${name}\`: the name is taken`);
  }
  const lowered = lower(Object.values(outputs));
  const nodes = simplify(hasFewRows ? weightsLeft(lowered) : lowered);
  check(Object.fromEntries(names.map((name, i) => [name, nodes[i]!])));
  const w = new GraphWriter();
  const emitted = new Map<Node, string>();
  const inputs = new Map<string, Port>();
  for (const node of topological(nodes)) {
    if (node.op === "input") {
      inputs.set(node.attrs.name, { name: node.attrs.name, dtype: node.dtype, shape: node.shape });
      emitted.set(node, node.attrs.name);
      continue;
    }
    const emit = emitters[node.op as CoreOp] as Emit<Op>; // `lower` leaves core operations only
    invariant(emit !== undefined, `${node.op} was not lowered`);
    emitted.set(
      node,
      emit(
        node,
        w,
        node.inputs.map((x) => emitted.get(x)!),
      ),
    );
  }
  const ports = nodes.map((node, i): Port => ({ name: names[i]!, dtype: node.dtype, shape: node.shape }));
  const values = nodes.map((node) => emitted.get(node)!);
  const bytes = w.finish([...inputs.values()], ports, values);
  return { bytes, inputs: [...inputs.values()], outputs: ports, symbols: [...w.symbols] };
}
