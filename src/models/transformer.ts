/**
 * The transformer that every supported family is a configuration of: token ids in, hidden states out.
 *
 * Sequences are rows of a batch. How their tokens see each other is the caller's: `causal` for rows that begin at
 * position 0 and end in padding, `cached` for rows that go on. Parameters are graph inputs under their Hugging Face
 * names.
 */
import { type DType, type Node, scope } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import { type Dim, times } from "../graph/shape.ts";
import { attention, type LinearParams, type Mix, mlp, type NormParams, norm } from "../nn/layers.ts";
import { invariant } from "../util/errors.ts";
import { type ModelConfig, type ParameterRole, parameterSpecs } from "./config.ts";

/** Parameters as graph inputs, found by role. */
export type ParameterNodes = {
  readonly byName: ReadonlyMap<string, Node>;
  find(role: ParameterRole, layer?: number): Node | undefined;
};

export function parameterNodes(config: ModelConfig, dtype: DType = "f32"): ParameterNodes {
  const byName = new Map<string, Node>();
  const byRole = new Map<string, Node>();
  for (const spec of parameterSpecs(config)) {
    const node = o.input(spec.name, spec.shape, dtype);
    byName.set(spec.name, node);
    byRole.set(`${spec.role} ${spec.layer ?? ""}`, node);
  }
  return { byName, find: (role, layer) => byRole.get(`${role} ${layer ?? ""}`) };
}

export type Sequences = {
  readonly ids: Node; // [batch, time]
  /** Attention's core, by layer. */
  readonly mix: (layer: number) => Mix;
};

/** The hidden states before the head, [batch * time, width]. */
export function transformer(config: ModelConfig, p: ParameterNodes, { ids, mix }: Sequences): Node {
  const [batch, time] = ids.shape as [Dim, Dim];
  const rows = times(batch, time);
  const need = (role: ParameterRole, layer?: number): Node => {
    const node = p.find(role, layer);
    invariant(node !== undefined, `the model has no ${role}`);
    return node;
  };
  let x = scope("embed", () => {
    const embedded = o.take(need("embedding"), o.reshape(ids, [rows]));
    return config.embedScale === 1 ? embedded : o.mul(embedded, config.embedScale);
  });
  for (let layer = 0; layer < config.layers; layer++) {
    x = scope(`layers.${layer}`, () => block(x, config, { batch, time, layer, mix: mix(layer) }, p));
  }
  return scope("norm", () => norm(x, normParams(config, need("finalNorm"))));
}

type Place = { readonly batch: Dim; readonly time: Dim; readonly layer: number; readonly mix: Mix };

function block(x: Node, config: ModelConfig, { batch, time, layer, mix }: Place, p: ParameterNodes): Node {
  const find = (role: ParameterRole) => p.find(role, layer);
  const linear = (role: ParameterRole, bias: ParameterRole): LinearParams => ({
    weight: find(role)!,
    bias: find(bias),
  });
  const optionalNorm = (role: ParameterRole): NormParams | undefined => {
    const weight = find(role);
    return weight && normParams(config, weight);
  };
  const normed = (y: Node, role: ParameterRole) => {
    const params = optionalNorm(role);
    return params === undefined ? y : norm(y, params);
  };
  const { heads, kvHeads, headDim, attentionScale: scale, attentionSoftcap: softcap } = config;
  const shape = { batch, time, heads, kvHeads, headDim, scale, softcap, window: config.windows[layer] ?? null };
  const attended = scope("attention", () => {
    const projections = {
      q: linear("q", "qBias"),
      k: linear("k", "kBias"),
      v: linear("v", "vBias"),
      o: linear("o", "oBias"),
    };
    const norms = { qNorm: optionalNorm("qNorm"), kNorm: optionalNorm("kNorm") };
    const mixed = attention(normed(x, "attentionNorm"), { ...projections, ...norms }, shape, mix);
    return o.add(x, normed(mixed, "attentionPostNorm"));
  });
  return scope("mlp", () => {
    const params = { gate: linear("gate", "gateBias"), up: linear("up", "upBias"), down: linear("down", "downBias") };
    const fed = mlp(normed(attended, "mlpNorm"), params, config.activation);
    return o.add(attended, normed(fed, "mlpPostNorm"));
  });
}

function normParams(config: ModelConfig, weight: Node): NormParams {
  return { weight, eps: config.normEps, offset: config.normOffset };
}

/** The matrix of the language-model head, [vocabulary, width]. */
export function headWeight(p: ParameterNodes): Node {
  const weight = p.find("lmHead") ?? p.find("embedding");
  invariant(weight !== undefined, "the model has no head");
  return weight;
}

/** The output of a value or score head for each row, [rows]. */
export function scores(hidden: Node, p: ParameterNodes): Node {
  const weight = p.find("score");
  invariant(weight !== undefined, "the model has no value head");
  const column = o.linear(hidden, weight, p.find("scoreBias"));
  return o.reshape(column, [hidden.shape[0]!]);
}
