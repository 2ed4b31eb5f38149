/**
 * A plain interpreter of traced programs: the meaning of every operation, in double precision and the simplest loops.
 *
 * It is the reference of the conformance suite, so it shares no code with `graph/lower.ts`, `graph/vjp.ts` and
 * `onnx/emit.ts`: layers are computed from their definitions, and the shape of every result is derived from the
 * values and then compared with the traced one. It is far too slow for anything but tests.
 */
import {
  type Activation,
  type AttentionAttrs,
  type CachedAttentionAttrs,
  type HeadAttrs,
  type Node,
  type NodeOf,
  type Op,
  topological,
} from "../graph/node.ts";
import { type Bindings, evaluate, evaluateShape } from "../graph/shape.ts";
import { GraphError } from "../util/errors.ts";
import {
  at,
  copy,
  fill,
  forEachIndex,
  type Index,
  map,
  perRow,
  placeOf,
  reduce,
  replaced,
  rowsOf,
  sizeOf,
  spread,
  type Value,
  zeros,
} from "./interpreter-tensors.ts";

type Run = {
  readonly inputs: Readonly<Record<string, ArrayLike<number>>>;
  readonly bindings: Bindings;
  /** The values computed so far. */
  readonly values: ReadonlyMap<Node, Value>;
};
type Rule<O extends Op> = (node: NodeOf<O>, values: readonly [Value, Value, Value, Value, Value], run: Run) => Value;

/** The values of the named outputs for the given inputs. */
export function interpret(
  outputs: Readonly<Record<string, Node>>,
  inputs: Readonly<Record<string, ArrayLike<number>>>,
  bindings: Bindings = {},
): Record<string, Value> {
  const values = new Map<Node, Value>();
  for (const node of topological(Object.values(outputs))) {
    const rule = rules[node.op] as (node: Node, values: readonly Value[], run: Run) => Value; // the table pairs the two
    const given = node.inputs.map((x) => values.get(x)!);
    const value = rule(node, given, { inputs, bindings, values });
    const traced = evaluateShape(node.shape, bindings);
    if (`${value.shape}` !== `${traced}` || value.data.length !== sizeOf(value.shape)) {
      throw new GraphError(node.path, `${node.op}: traced as [${traced}], but the values make [${value.shape}]`);
    }
    values.set(node, value);
  }
  return Object.fromEntries(Object.entries(outputs).map(([name, node]) => [name, values.get(node)!]));
}

const rules: { [O in Op]: Rule<O> } = {
  input: (node, _, { inputs, bindings }) => {
    const given = inputs[node.attrs.name];
    if (given === undefined) throw new GraphError(node.path, `input: no values were given for \`${node.attrs.name}\``);
    return { shape: evaluateShape(node.shape, bindings), data: Float64Array.from(given) };
  },
  constant: (node) => ({ shape: node.shape.map(Number), data: Float64Array.from(node.attrs.values) }),
  causalMask: ({ shape, attrs }, _, { bindings }) => {
    const offset = evaluate(attrs.offset, bindings);
    return fill(evaluateShape(shape, bindings), ([row, key]) =>
      sees(offset + row!, key!, attrs.window) ? 0 : -Infinity,
    );
  },

  add: binary((a, b) => a + b),
  sub: binary((a, b) => a - b),
  mul: binary((a, b) => a * b),
  div: (node, [a, b]) => spread([a, b], ([x, y]) => (node.dtype === "i32" ? Math.trunc(x! / y!) : x! / y!)),
  minimum: binary(Math.min),
  maximum: binary(Math.max),
  greater: binary((a, b) => Number(a > b)),
  equal: binary((a, b) => Number(a === b)),
  neg: unary((x) => -x),
  exp: unary(Math.exp),
  log: unary(Math.log),
  sqrt: unary(Math.sqrt),
  abs: unary(Math.abs),
  tanh: unary(Math.tanh),
  sigmoid: unary((x) => 1 / (1 + Math.exp(-x))),
  silu: unary((x) => x / (1 + Math.exp(-x))),
  erf: unary(erf),
  where: (_, [condition, a, b]) => spread([condition, a, b], ([c, x, y]) => (c !== 0 ? x! : y!)),
  cast: ({ dtype }, [x]) => {
    if (dtype === "bool") return map(x, (v) => Number(v !== 0));
    return dtype === "i32" ? map(x, Math.trunc) : x;
  },
  stopGradient: (_, [x]) => x,

  sum: ({ attrs }, [x]) => reduce(x, attrs.axes, 0, (total, v) => total + v),
  max: ({ attrs }, [x]) => reduce(x, attrs.axes, -Infinity, Math.max),
  softmax: (_, [x]) => perRow(x, (row) => row.map((v) => Math.exp(v - logSumExp(row)))),
  logSoftmax: (_, [x]) => perRow(x, (row) => row.map((v) => v - logSumExp(row))),

  reshape: ({ shape }, [x], { bindings }) => ({ shape: evaluateShape(shape, bindings), data: x.data }),
  transpose: ({ attrs: { order } }, [x]) => {
    const shape = order.map((axis) => x.shape[axis]!);
    return fill(shape, (index) =>
      at(
        x,
        x.shape.map((_, axis) => index[order.indexOf(axis)]!),
      ),
    );
  },
  broadcastTo: ({ shape }, [x], { bindings }) => fill(evaluateShape(shape, bindings), (index) => at(x, index)),
  slice: ({ shape, attrs: { axis, start } }, [x], { bindings }) => {
    const from = evaluate(start, bindings);
    const size = evaluate(shape[axis]!, bindings);
    return fill(replaced(x.shape, axis, size), (index) => at(x, replaced(index, axis, index[axis]! + from)));
  },
  pad: ({ shape, attrs: { axis, before } }, [x], { bindings }) => {
    const from = evaluate(before, bindings);
    const isInside = (i: number) => i >= from && i < from + x.shape[axis]!;
    return fill(replaced(x.shape, axis, evaluate(shape[axis]!, bindings)), (index) =>
      isInside(index[axis]!) ? at(x, replaced(index, axis, index[axis]! - from)) : 0,
    );
  },
  concat: ({ attrs: { axis } }, parts) => {
    const total = parts.reduce((size, part) => size + part.shape[axis]!, 0);
    return fill(replaced(parts[0].shape, axis, total), (index) => {
      let i = index[axis]!;
      let part = 0;
      while (i >= parts[part]!.shape[axis]!) i -= parts[part++]!.shape[axis]!;
      return at(parts[part]!, replaced(index, axis, i));
    });
  },

  take: (_, [table, ids]) => rowsOf(table, ids),
  scatterRows: ({ shape }, [ids, rows], { bindings }) => {
    const result = zeros(evaluateShape(shape, bindings));
    const width = rows.shape[1]!;
    rows.data.forEach((v, i) => {
      result.data[ids.data[Math.floor(i / width)]! * width + (i % width)]! += v;
    });
    return result;
  },
  pick: (_, [x, ids]) => fill(ids.shape, ([i]) => at(x, [i!, ids.data[i!]!])),
  place: ({ shape }, [given, ids], { bindings }) =>
    fill(evaluateShape(shape, bindings), ([i, j]) => (ids.data[i!] === j ? given.data[i!]! : 0)),
  rearrange: (_, [x, index]) => rowsOf(x, index),

  matmul: ({ attrs }, [a, b]) => multiply(a, b, attrs),
  gemm: ({ attrs }, [a, b, start]) => spread([multiply(a, b, attrs), start], ([x, y]) => x! + y!),

  rmsNorm: ({ attrs }, [x, weight]) =>
    perRow(x, (row) => row.map((v, i) => (v / rootMeanSquare(row, attrs.eps)) * weight.data[i]!)),
  rmsInverse: ({ attrs }, [x]) => perRow(x, (row) => Float64Array.of(1 / rootMeanSquare(row, attrs.eps))),
  rope: (_, [x, cos, sin]) => {
    const half = cos.shape[1]!;
    return fill(x.shape, (place) => {
      const [before, t, i] = [place.slice(0, -2), place.at(-2)!, place.at(-1)!]; // i counts through heads side by side
      const head = i - (i % (2 * half));
      const pair = i % half;
      const [left, right] = [at(x, [...before, t, head + pair]), at(x, [...before, t, head + pair + half])];
      const [c, s] = [at(cos, [t, pair]), at(sin, [t, pair])];
      return i - head < half ? left * c - right * s : right * c + left * s;
    });
  },
  attention: ({ attrs }, [query, key, value]) => {
    const size = value.shape[3]!;
    const result = zeros([...query.shape.slice(0, 3), size]);
    forEachQuery(query, key, attrs, ({ q, keys, weights }) => {
      for (let d = 0; d < size; d++) {
        result.data[q * size + d] = keys.reduce((total, k, j) => total + weights[j]! * value.data[k * size + d]!, 0);
      }
    });
    return result;
  },
  attentionGradQuery: ({ attrs }, values) => attentionGrads(values, attrs).query,
  attentionGradKey: ({ attrs }, values) => attentionGrads(values, attrs).key,
  attentionGradValue: ({ attrs }, values) => attentionGrads(values, attrs).value,
  cachedAttention: ({ attrs }, values) => cachedAttention(values, attrs).out,
  cacheAfter: ({ inputs: [attended], attrs }, _, { values }) => {
    const node = attended as NodeOf<"cachedAttention">; // checked by `o.cacheAfter`
    const given = node.inputs.map((x) => values.get(x)!);
    return cachedAttention(given, node.attrs)[attrs.part];
  },
  gated: ({ attrs }, [gate, up]) => spread([gate, up], ([x, y]) => activations[attrs.activation](x!) * y!),
  tokenLogprobs: ({ attrs }, [hidden, weight, targets]) =>
    fill(targets.shape, ([i]) => headLogprobs(hidden, weight, i!, attrs)[targets.data[i!]!]!),
  tokenEntropy: ({ attrs }, [hidden, weight]) =>
    fill(hidden.shape.slice(0, 1), ([i]) =>
      headLogprobs(hidden, weight, i!, attrs).reduce((entropy, logp) => entropy - Math.exp(logp) * logp, 0),
    ),
};

// ---------------------------------------------------------------- attention

/** The row of one query, the rows of the keys it sees, and the weights it gives them. */
type Attending = {
  readonly q: number;
  readonly keys: readonly number[];
  readonly weights: readonly number[];
  /** The slope of the cap at each score. */
  readonly slopes: readonly number[];
};

/** Visit every query [batch, heads, time] with the softmax over the keys it sees. */
function forEachQuery(query: Value, key: Value, attrs: AttentionAttrs, visit: (attending: Attending) => void): void {
  const [batch, heads, time, size] = query.shape as [number, number, number, number];
  const kvHeads = key.shape[1]!;
  const cap = attrs.softcap ?? Infinity;
  for (let row = 0; row < batch * heads * time; row++) {
    const t = row % time;
    const head = Math.floor(row / time) % heads;
    const kvHead = Math.floor(head / (heads / kvHeads));
    const base = (Math.floor(row / time / heads) * kvHeads + kvHead) * time;
    const seen = Array.from({ length: time }, (_, j) => j).filter((j) => sees(t, j, attrs.window));
    const keys = seen.map((j) => base + j);
    const state = query.data.subarray(row * size, (row + 1) * size);
    const raw = keys.map((k) => attrs.scale * dot(state, key.data, k * size));
    const scores = raw.map((s) => (cap === Infinity ? s : cap * Math.tanh(s / cap)));
    const slopes = raw.map((s) => (cap === Infinity ? 1 : 1 / Math.cosh(s / cap) ** 2));
    const total = logSumExp(scores);
    visit({ q: row, keys, weights: scores.map((s) => Math.exp(s - total)), slopes });
  }
}

/**
 * The gradient of Σ dy·attention(query, key, value), through the whole Jacobian of the softmax,
 * dw_i/ds_j = w_i (1[i=j] - w_j); the output, which the compiled form uses as a shortcut, is not used.
 */
function attentionGrads(values: readonly Value[], attrs: AttentionAttrs): Record<"query" | "key" | "value", Value> {
  const [query, key, value, , dy] = values as [Value, Value, Value, Value, Value];
  const [size, valueSize] = [query.shape[3]!, value.shape[3]!];
  const grads = { query: zeros(query.shape), key: zeros(key.shape), value: zeros(value.shape) };
  forEachQuery(query, key, attrs, ({ q, keys, weights, slopes }) => {
    const dout = dy.data.subarray(q * valueSize, (q + 1) * valueSize);
    const dweights = keys.map((k) => dot(dout, value.data, k * valueSize));
    keys.forEach((k, j) => {
      const dscore = dweights.reduce((sum, dw, i) => sum + dw * weights[i]! * ((i === j ? 1 : 0) - weights[j]!), 0);
      const draw = dscore * slopes[j]! * attrs.scale;
      for (let d = 0; d < size; d++) {
        grads.query.data[q * size + d]! += draw * key.data[k * size + d]!;
        grads.key.data[k * size + d]! += draw * query.data[q * size + d]!;
      }
      for (let d = 0; d < valueSize; d++) grads.value.data[k * valueSize + d]! += weights[j]! * dout[d]!;
    });
  });
  return grads;
}

/** New tokens over a cache, and the cache with them: row by row, token by token, head by head. */
function cachedAttention(
  values: readonly Value[],
  attrs: CachedAttentionAttrs,
): Record<"out" | "key" | "value", Value> {
  const [query, newKey, newValue, oldKey, oldValue, lengths, total, cos, sin, positions] = values as [
    ...[Value, Value, Value, Value, Value],
    ...[Value, Value, Value, Value, Value],
  ];
  const [batch, time] = query.shape as [number, number];
  const size = oldKey.shape[3]!;
  const cap = attrs.softcap ?? Infinity;
  const out = zeros(query.shape);
  const [key, value] = [copy(oldKey), copy(oldValue)];
  const turned = (x: Value, [b, t, head]: Index) => {
    const position = at(positions, [b!, t!]);
    return Float64Array.from({ length: size }, (_, i) => {
      const pair = i % (size / 2);
      const [left, right] = [pair, pair + size / 2].map((j) => at(x, [b!, t!, head! * size + j]));
      const [c, s] = [at(cos, [position, pair]), at(sin, [position, pair])];
      return i === pair ? left! * c - right! * s : right! * c + left! * s;
    });
  };
  forEachIndex([batch, time, attrs.kvHeads], ([b, t, head]) => {
    const start = time === total.data[0] ? 0 : lengths.data[b!]! - time;
    if (start + t! >= lengths.data[b!]!) return;
    const place = placeOf(key.shape, [b!, head!, start + t!, 0]);
    key.data.set(turned(newKey, [b!, t!, head!]), place);
    for (let i = 0; i < size; i++) value.data[place + i] = at(newValue, [b!, t!, head! * size + i]);
  });
  forEachIndex([batch, time, attrs.heads], ([b, t, head]) => {
    const start = time === total.data[0] ? 0 : lengths.data[b!]! - time;
    const kvHead = Math.floor(head! / (attrs.heads / attrs.kvHeads));
    const seen = Array.from({ length: key.shape[2]! }, (_, j) => j).filter((j) => sees(start + t!, j, attrs.window));
    const q = turned(query, [b!, t!, head!]);
    const scores = seen.map((j) => {
      const raw = attrs.scale * dot(q, key.data, placeOf(key.shape, [b!, kvHead, j, 0]));
      return cap === Infinity ? raw : cap * Math.tanh(raw / cap);
    });
    const sum = logSumExp(scores);
    for (let i = 0; i < size; i++) {
      out.data[placeOf(out.shape, [b!, t!, head! * size + i])] = seen.reduce(
        (mixed, j, n) => mixed + Math.exp(scores[n]! - sum) * at(value, [b!, kvHead, j, i]),
        0,
      );
    }
  });
  return { out, key, value };
}

/** A position sees itself and earlier ones, at most `window` positions together. */
function sees(position: number, key: number, window: number | null): boolean {
  return key <= position && (window === null || key > position - window);
}

function dot(a: Float64Array, b: Float64Array, from: number): number {
  return a.reduce((total, v, i) => total + v * b[from + i]!, 0);
}

// ---------------------------------------------------------------- the other layers

const activations: Record<Activation, (x: number) => number> = {
  silu: (x) => x / (1 + Math.exp(-x)),
  gelu: (x) => (x / 2) * (1 + erf(x / Math.SQRT2)),
  geluTanh: (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

/** The log-probability of every token after one row of hidden states. */
function headLogprobs(hidden: Value, weight: Value, row: number, { softcap, temperature }: HeadAttrs): number[] {
  const width = hidden.shape[1]!;
  const state = hidden.data.subarray(row * width, (row + 1) * width);
  const logits = Array.from({ length: weight.shape[0]! }, (_, token) => {
    const raw = dot(state, weight.data, token * width);
    return (softcap === null ? raw : softcap * Math.tanh(raw / softcap)) / temperature;
  });
  const total = logSumExp(logits);
  return logits.map((v) => v - total);
}

function rootMeanSquare(row: Float64Array, eps: number): number {
  return Math.sqrt(row.reduce((sum, v) => sum + v * v, 0) / row.length + eps);
}

function logSumExp(row: ArrayLike<number>): number {
  const values = Array.from(row);
  const largest = Math.max(...values);
  return largest + Math.log(values.reduce((sum, v) => sum + Math.exp(v - largest), 0));
}

/** erf x = 2/√π · e^(-x²) · Σ 2ⁿ x^(2n+1) / (1·3·5…(2n+1)); its terms have one sign, so nothing cancels. */
function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x;
  let sum = 0;
  for (let n = 1; sum + term !== sum; n++) {
    sum += term;
    term *= (2 * x * x) / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

function multiply(a: Value, b: Value, { transA, transB, alpha }: NodeOf<"matmul">["attrs"]): Value {
  const [rows, inner] = transA ? a.shape.slice(-2).reverse() : a.shape.slice(-2);
  const columns = b.shape.at(transB ? -2 : -1)!;
  return fill([...a.shape.slice(0, -2), rows!, columns], (index) => {
    const leading = index.slice(0, -2);
    const [i, j] = index.slice(-2) as [number, number];
    let total = 0;
    for (let k = 0; k < inner!; k++) {
      total += at(a, [...leading, ...(transA ? [k, i] : [i, k])]) * at(b, [...leading, ...(transB ? [j, k] : [k, j])]);
    }
    return alpha * total;
  });
}

// ---------------------------------------------------------------- rules that many operations share

function unary(f: (x: number) => number): Rule<Op> {
  return (_, [x]) => map(x, f);
}

function binary(f: (a: number, b: number) => number): Rule<Op> {
  return (_, [a, b]) => spread([a, b], ([x, y]) => f(x!, y!));
}
