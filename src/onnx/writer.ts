/**
 * A graph of ONNX nodes under construction, and the model file that holds it.
 *
 * Field numbers are those of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto). Dimensions that are
 * known only at run time are computed from one small input per symbol, `dim.<symbol>`.
 */
import type { DType } from "../graph/node.ts";
import { type Dim, type Shape, termsOf } from "../graph/shape.ts";
import { Message } from "../util/protobuf.ts";

export type Attribute = number | string | readonly number[] | { readonly float: number };
type OnnxType = DType | "i64";

const typeCodes: Record<OnnxType, number> = { f32: 1, i32: 6, i64: 7, bool: 9 };
const OPSET = 21;
const IR_VERSION = 10;
/** The operations of onnxruntime's own domain that programs use. */
const MICROSOFT = "com.microsoft";

export type Port = { readonly name: string; readonly dtype: DType; readonly shape: Shape };

export class GraphWriter {
  readonly #nodes: OnnxNode[] = [];
  readonly #initializers: Message[] = [];
  readonly #memo = new Map<string, string>();
  readonly symbols = new Set<string>();
  #count = 0;

  /** Add a node and return the names of its outputs. */
  node(type: string, inputs: readonly string[], options: NodeOptions = {}): string[] {
    const { attributes = {}, outputs = 1, contrib = false, label = type } = options;
    const names = Array.from({ length: outputs }, () => `${label}:${this.#count++}`);
    this.#nodes.push({ type, inputs, outputs: names, attributes, contrib });
    return names;
  }

  /** All outputs of the node that made this one. */
  outputsWith(name: string): readonly string[] {
    return this.#nodes.find((node) => node.outputs.includes(name))!.outputs;
  }

  /** A constant tensor; equal constants are one tensor. */
  tensor(values: readonly number[], shape: readonly number[], dtype: OnnxType): string {
    return this.once(`${dtype}[${shape}]${values.map((v) => (Object.is(v, -0) ? "-0" : v))}`, () => {
      const name = `constant:${this.#count++}`;
      const tensor = new Message();
      for (const d of shape) tensor.int(1, d);
      tensor.int(2, typeCodes[dtype]).string(8, name).bytes(9, encode(values, dtype));
      this.#initializers.push(tensor);
      return name;
    });
  }

  /** A shape as an int64 tensor: a constant if it is known now, else computed from the inputs of its symbols. */
  dims(shape: Shape): string {
    if (shape.every((d) => typeof d === "number")) return this.tensor(shape, [shape.length], "i64");
    return this.once(`dims[${shape}]`, () => {
      const parts = shape.map((d) => this.#dim(d));
      return parts.length === 1 ? parts[0]! : this.node("Concat", parts, { attributes: { axis: 0 } })[0]!;
    });
  }

  /** The whole numbers from 0 to `count`, as int64 of the given shape (with one -1). */
  range(count: Dim, shape: readonly number[]): string {
    return this.once(`range ${count} [${shape}]`, () => {
      const [end] = this.node("Squeeze", [this.dims([count])]);
      const zero = this.tensor([0], [], "i64");
      const [values] = this.node("Range", [zero, end!, this.tensor([1], [], "i64")]);
      return this.node("Reshape", [values!, this.tensor(shape, [shape.length], "i64")])[0]!;
    });
  }

  /** The name that `build` returns; it is called once per key. */
  once(key: string, build: () => string): string {
    const known = this.#memo.get(key);
    if (known !== undefined) return known;
    const name = build();
    this.#memo.set(key, name);
    return name;
  }

  #dim(value: Dim): string {
    return this.once(`dim ${value}`, () => {
      const terms = termsOf(value).map(({ factor, symbols }) => {
        for (const symbol of symbols) this.symbols.add(symbol);
        const factors = symbols.map((symbol) => `dim.${symbol}`);
        if (factor !== 1 || factors.length === 0) factors.push(this.tensor([factor], [1], "i64"));
        return factors.reduce((a, b) => this.node("Mul", [a, b])[0]!);
      });
      return terms.reduce((a, b) => this.node("Add", [a, b])[0]!);
    });
  }

  /**
   * The bytes of the finished model. `values` names the tensor behind each output port. The model's first output is an
   * empty sequence: see `runtime/zero-copy.ts`.
   */
  finish(inputs: readonly Port[], outputs: readonly Port[], values: readonly string[]): Uint8Array {
    const renamed = this.#nameOutputs(outputs, values);
    this.#nodes.push({
      type: "SequenceEmpty",
      inputs: [],
      outputs: [SEQUENCE],
      attributes: { dtype: 1 },
      contrib: false,
    });
    const graph = new Message();
    for (const node of this.#nodes)
      graph.message(
        1,
        nodeMessage(node, (name) => renamed.get(name) ?? name),
      );
    graph.string(2, "program");
    for (const tensor of this.#initializers) graph.message(5, tensor);
    for (const port of inputs) graph.message(11, valueInfo(port.name, tensorType(port.dtype, port.shape)));
    for (const symbol of this.symbols) graph.message(11, valueInfo(`dim.${symbol}`, tensorType("i64", [1])));
    graph.message(12, valueInfo(SEQUENCE, new Message().message(4, new Message().message(1, tensorType("f32", null)))));
    for (const port of outputs) graph.message(12, valueInfo(port.name, tensorType(port.dtype, port.shape)));
    const model = new Message().int(1, IR_VERSION).string(2, "trainyard").message(7, graph);
    model.message(8, new Message().string(1, "").int(2, OPSET));
    return model.message(8, new Message().string(1, MICROSOFT).int(2, 1)).finish();
  }

  /** Tensors that become outputs get the ports' names; an input, a constant or an output that has a name is copied. */
  #nameOutputs(outputs: readonly Port[], values: readonly string[]): Map<string, string> {
    const made = new Set(this.#nodes.flatMap((node) => node.outputs));
    const renamed = new Map<string, string>();
    outputs.forEach((port, i) => {
      const value = values[i]!;
      if (made.has(value) && !renamed.has(value)) renamed.set(value, port.name);
      else
        this.#nodes.push({ type: "Identity", inputs: [value], outputs: [port.name], attributes: {}, contrib: false });
    });
    return renamed;
  }
}

/** The name of the empty sequence that every model has as its first output. */
export const SEQUENCE = "sequence";

type OnnxNode = {
  readonly type: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, Attribute>>;
  readonly contrib: boolean;
};

type NodeOptions = {
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly outputs?: number;
  /** The node is one of onnxruntime's own. */
  readonly contrib?: boolean;
  readonly label?: string;
};

function attribute(name: string, value: Attribute): Message {
  const message = new Message().string(1, name);
  if (typeof value === "string") return message.string(4, value).int(20, 3);
  if (typeof value === "number") return message.int(3, value).int(20, 2);
  if ("float" in value) return message.float(2, value.float).int(20, 1);
  for (const entry of value) message.int(8, entry);
  return message.int(20, 7);
}

function nodeMessage(node: OnnxNode, rename: (name: string) => string): Message {
  const message = new Message();
  for (const name of node.inputs) message.string(1, rename(name));
  for (const name of node.outputs) message.string(2, rename(name));
  message.string(3, node.outputs[0]!).string(4, node.type);
  for (const [name, value] of Object.entries(node.attributes)) message.message(5, attribute(name, value));
  return node.contrib ? message.string(7, MICROSOFT) : message;
}

function valueInfo(name: string, type: Message): Message {
  return new Message().string(1, name).message(2, type);
}

/** A TypeProto of a tensor; a null shape is any shape. */
function tensorType(dtype: OnnxType, shape: Shape | null): Message {
  const tensor = new Message().int(1, typeCodes[dtype]);
  if (shape !== null) {
    const dims = new Message();
    for (const d of shape)
      dims.message(1, typeof d === "number" ? new Message().int(1, d) : new Message().string(2, d));
    tensor.message(2, dims);
  }
  return new Message().message(1, tensor);
}

function encode(values: readonly number[], dtype: OnnxType): Uint8Array {
  const arrays = {
    f32: () => Float32Array.from(values),
    i32: () => Int32Array.from(values),
    i64: () => BigInt64Array.from(values, BigInt),
    bool: () => Uint8Array.from(values),
  };
  return new Uint8Array(arrays[dtype]().buffer);
}
