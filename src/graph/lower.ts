/**
 * Layers written out in core operations, in the forms that run fast (the measurements behind them: docs/compiler.md).
 *
 * What forward and backward share (attention weights, sigmoids, log-softmax) is written out in the same way on both
 * sides, and becomes one node when the program is simplified. Attention is cut along time into up to four parts, so
 * that queries are not multiplied with keys that all lie in their future.
 */
import { geluTanhInner, headLogits } from "./formulas.ts";
import { type AttentionAttrs, type Node, type NodeOf, type Op, rebuild } from "./node.ts";
import * as o from "./ops.ts";
import { type Dim, factorOf, over, type Shape, times } from "./shape.ts";

/** Operations that the emitter never sees. */
export type LayerOp =
  | "stopGradient"
  | "attention"
  | "attentionGradQuery"
  | "attentionGradKey"
  | "attentionGradValue"
  | "gated"
  | "tokenLogprobs"
  | "tokenEntropy";

const layers: { [O in LayerOp]: (node: NodeOf<O>) => Node } = {
  stopGradient: ({ inputs: [x] }) => x!,

  attention: (node) => {
    const [query, key, value] = node.inputs;
    const parts = attentionParts(query!, key!, value!, node.attrs);
    return o.concat(
      parts.map((part) => ungrouped(node, o.matmul(part.weights, part.value))),
      2,
    );
  },
  attentionGradQuery: (node) => {
    const parts = attentionGradParts(node);
    const scale = node.attrs.scale;
    return o.concat(
      parts.map((part) => ungrouped(node, o.matmul(part.dscores, part.key, { alpha: scale }))),
      2,
    );
  },
  attentionGradKey: (node) => {
    const alpha = node.attrs.scale;
    return sumOfPrefixes(node, (part) => o.matmul(part.dscores, part.query, { transA: true, alpha }));
  },
  attentionGradValue: (node) => sumOfPrefixes(node, (part) => o.matmul(part.weights, part.dout, { transA: true })),

  gated: ({ inputs: [gate, up], attrs }) => o.mul(activate(gate!, attrs.activation), up!),

  tokenLogprobs: ({ inputs: [hidden, weight, targets], attrs }) =>
    o.pick(o.logSoftmax(headLogits(hidden!, weight!, attrs)), targets!),
  tokenEntropy: ({ inputs: [hidden, weight], attrs }) => {
    const logprobs = o.logSoftmax(headLogits(hidden!, weight!, attrs));
    return o.neg(o.sum(o.mul(o.exp(logprobs), logprobs), [-1]));
  },
};

function activate(x: Node, activation: NodeOf<"gated">["attrs"]["activation"]): Node {
  if (activation === "silu") return o.silu(x);
  if (activation === "gelu") return o.mul(x, o.mul(o.add(o.erf(o.mul(x, Math.SQRT1_2)), 1), 0.5));
  activation satisfies "geluTanh";
  return o.mul(x, o.mul(o.add(geluTanhInner(x), 1), 0.5));
}

// ---------------------------------------------------------------- attention

/** A range of queries with the keys up to its end; query heads are grouped by their key head. */
type AttentionPart = {
  readonly query: Node; // [batch, kvHeads, group * span, size]
  readonly key: Node; // [batch, kvHeads, seen, size]
  readonly value: Node; // [batch, kvHeads, seen, valueSize]
  readonly weights: Node; // [batch, kvHeads, group * span, seen]
  readonly scores: Node; // the same, before the softmax and, where there is one, after the cap
  /** The same range of a tensor like the query or the output, with its heads grouped. */
  group(x: Node): Node;
};

/** The opposite of `group`: a range of a result like `node` [batch, heads, time, size]. */
function ungrouped(node: { readonly shape: Shape }, x: Node): Node {
  const [batch, heads, , size] = node.shape as [Dim, number, Dim, Dim]; // checked by `o.attention`
  const [, kvHeads, rows] = x.shape as [Dim, number, Dim, Dim];
  return o.reshape(x, [batch, heads, over(rows, heads / kvHeads), size]);
}

function attentionParts(query: Node, key: Node, value: Node, attrs: AttentionAttrs): AttentionPart[] {
  const [batch, heads, time] = query.shape as [Dim, number, Dim, Dim]; // checked by `o.attention`
  const kvHeads = key.shape[1] as number;
  const count = [4, 2, 1].find((n) => factorOf(time) % n === 0)!;
  const span = over(time, count);
  const rows = times(heads / kvHeads, span);
  return Array.from({ length: count }, (_, i) => {
    const start = times(span, i);
    const end = times(span, i + 1);
    const group = (x: Node) => o.reshape(o.slice(x, 2, start, end), [batch, kvHeads, rows, x.shape[3]!]);
    const seenKey = o.slice(key, 2, 0, end);
    const raw = o.matmul(group(query), seenKey, { transB: true, alpha: attrs.scale / (attrs.softcap ?? 1) });
    const scores = attrs.softcap === null ? raw : o.mul(o.tanh(raw), attrs.softcap);
    const mask = o.causalMask(span, end, { offset: start, window: attrs.window });
    const perHead = o.reshape(scores, [batch, kvHeads, heads / kvHeads, span, end]);
    const weights = o.reshape(o.softmax(o.add(perHead, mask)), scores.shape);
    return { query: group(query), key: seenKey, value: o.slice(value, 2, 0, end), weights, scores: raw, group };
  });
}

type GradNode = NodeOf<"attentionGradQuery"> | NodeOf<"attentionGradKey"> | NodeOf<"attentionGradValue">;
type AttentionGradPart = AttentionPart & { readonly dout: Node; readonly dscores: Node };

function attentionGradParts({ inputs, attrs }: GradNode): AttentionGradPart[] {
  const [query, key, value, out, dy] = inputs as [Node, Node, Node, Node, Node]; // made by the rule of `attention`
  return attentionParts(query, key, value, attrs).map((part) => {
    const dout = part.group(dy);
    const dweights = o.matmul(dout, part.value, { transB: true });
    const delta = o.sum(o.mul(dout, part.group(out)), [-1], true); // = Σ weights · dweights, without reading either
    const dcapped = o.mul(part.weights, o.sub(dweights, delta));
    const dscores = attrs.softcap === null ? dcapped : o.mul(dcapped, o.sub(1, o.square(o.tanh(part.scores))));
    return { ...part, dout, dscores };
  });
}

/** The sum over parts of tensors that are as long as the keys of the part. */
function sumOfPrefixes(node: GradNode, piece: (part: AttentionGradPart) => Node): Node {
  const time = node.shape[2]!;
  return attentionGradParts(node)
    .map((part) => o.pad(piece(part), 2, 0, time))
    .reduce((a, b) => o.add(a, b));
}

// ---------------------------------------------------------------- matrix products

/**
 * A plain product with a transposed left side, by transposing the narrower of the two tall matrices: the kernels are
 * fastest on rows times columns, and transposing activations is cheap compared with the product.
 */
function lowerMatmul(node: NodeOf<"matmul">): Node {
  const [a, b] = node.inputs as [Node, Node];
  const { transA, transB, alpha } = node.attrs;
  if (!transA || a.shape.length !== 2 || node.shape.includes(1)) return node;
  const [rows, columns] = node.shape;
  const isWide = !transB && typeof rows === "number" && typeof columns === "number" && rows > columns;
  if (isWide) return o.transpose(o.matmul(o.transpose(b), a, { alpha }));
  return o.matmul(o.transpose(a), b, { transB, alpha });
}

// ---------------------------------------------------------------- the pass

/** The same outputs, with every layer written out. */
export function lower(outputs: readonly Node[]): Node[] {
  return rebuild(outputs, expand);
}

function expand(node: Node): Node {
  if (node.op === "matmul") return lowerMatmul(node);
  if (!isLayer(node.op)) return node;
  return (layers[node.op] as (node: Node) => Node)(node); // the table's type pairs each rule with its operation
}

function isLayer(op: Op): op is LayerOp {
  return op in layers;
}
