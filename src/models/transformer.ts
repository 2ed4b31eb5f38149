/**
 * The graph of a model: token ids in, hidden states out, through the layers that its config lists.
 *
 * Sequences are rows of a batch. How their tokens see each other is the caller's choice (`mix`): `causal` for rows that
 * begin at position 0 and end in padding, `branching` for rows that share a prefix, `cached` for rows that are
 * continued. Parameters are graph inputs under the names of their specs.
 */
import { type Node, scope } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import type { Dim } from "../graph/shape.ts";
import type { Mix } from "../nn/attention.ts";
import { invariant } from "../util/errors.ts";
import { type ModelConfig, type ParameterSpec, parameterSpecs } from "./config.ts";
import type { Layer } from "./layers.ts";
import { heads } from "./parts/heads.ts";
import type { Built, Place } from "./parts/part.ts";
import { attentionPart, feedForwardPart, type Norm, normPart } from "./parts/parts.ts";
import { tokenEmbedding } from "./parts/token-embedding.ts";

/** Parameters as graph inputs. */
export type ParameterNodes = {
  readonly specs: readonly ParameterSpec[];
  readonly byName: ReadonlyMap<string, Node>;
  /** By the key of the parameter. */
  find(key: string): Node | undefined;
};

export function parameterNodes(
  config: ModelConfig,
  specs: readonly ParameterSpec[] = parameterSpecs(config),
): ParameterNodes {
  const byName = new Map(specs.map(({ name, shape }) => [name, o.input(name, shape)]));
  const byKey = new Map(specs.map(({ key, name }) => [key, byName.get(name)]));
  if (config.headConfig.isTied) byKey.set("head.lm", byKey.get("embedding"));
  return { specs, byName, find: (key) => byKey.get(key) };
}

/** The place of a part in a model, by the path of its parameters. */
function placeOf(path: string, p: ParameterNodes): Place {
  const full = (key: string) => (key === "" ? path : `${path}.${key}`);
  const parameter = (key: string): Node => {
    const node = p.find(full(key));
    invariant(node !== undefined, `the model has no parameter ${full(key)}`);
    return node;
  };
  return {
    parameter,
    linear: (key, x) => o.linear(x, parameter(key), p.find(full(`${key}.bias`))),
    within: (key) => placeOf(full(key), p),
  };
}

export type Sequences = {
  readonly ids: Node; // [batch, time]
  /** How attention mixes values, by layer. */
  readonly mix: (layer: number) => Mix;
};

/** What a model's graph gives: hidden states before the head, and what parts return besides, by their paths. */
export type Transformed = {
  readonly hidden: Node; // [batch * time, width]
  readonly losses: Readonly<Record<string, Node>>;
  readonly records: Readonly<Record<string, Node>>;
};

export function transformer(config: ModelConfig, p: ParameterNodes, { ids, mix }: Sequences): Transformed {
  const [batch, time] = ids.shape as [Dim, Dim]; // as `Sequences` says
  const losses: Record<string, Node> = {};
  const records: Record<string, Node> = {};
  const collect = (path: string, built: Built): Node => {
    for (const [name, node] of Object.entries(built.losses ?? {})) losses[`${path}.${name}`] = node;
    for (const [name, node] of Object.entries(built.records ?? {})) records[`${path}.${name}`] = node;
    return built.out;
  };
  let x = scope("embed", () => tokenEmbedding.build(ids, config.embedding, placeOf("embedding", p)).out);
  config.layers.forEach((layer, index) => {
    const at = { batch, time, mix: mix(index), path: `layers.${index}` };
    x = scope(at.path, () => buildLayer(x, layer, at, { p, collect }));
  });
  return { hidden: scope("norm", () => normed(x, config.norm, placeOf("norm", p))), losses, records };
}

type LayerPlace = { readonly batch: Dim; readonly time: Dim; readonly mix: Mix; readonly path: string };
type Building = { readonly p: ParameterNodes; collect(path: string, built: Built): Node };

function buildLayer(x: Node, layer: Layer, { batch, time, mix, path }: LayerPlace, { p, collect }: Building): Node {
  const { attention, mlp, norms, window } = layer;
  const attended = scope("attention", () => {
    const at = placeOf(`${path}.attention`, p);
    const input = normed(x, norms.attention, at.within("norm"));
    const built = attentionPart(attention).build(input, attention, { ...at, batch, time, mix, window });
    return o.add(x, normed(collect(`${path}.attention`, built), norms.attentionOut, at.within("outNorm")));
  });
  return scope("mlp", () => {
    const at = placeOf(`${path}.mlp`, p);
    const built = feedForwardPart(mlp).build(normed(attended, norms.mlp, at.within("norm")), mlp, at);
    return o.add(attended, normed(collect(`${path}.mlp`, built), norms.mlpOut, at.within("outNorm")));
  });
}

function normed(x: Node, config: Norm | null, at: Place): Node {
  return config === null ? x : normPart(config).build(x, config, at).out;
}

/** The matrix of the language-model head, [vocabulary, width]. */
export function headWeight(p: ParameterNodes): Node {
  return placeOf("head", p).parameter("lm");
}

/** The logits of rows of hidden states, [rows, vocabulary]. */
export function logits(hidden: Node, config: ModelConfig, p: ParameterNodes): Node {
  return heads.lm.build(hidden, config.headConfig, placeOf("head", p)).out;
}

/** The output of a value or score head for rows of hidden states, [rows]. */
export function scores(hidden: Node, config: ModelConfig, p: ParameterNodes): Node {
  return heads.score.build(hidden, config.headConfig, placeOf("head", p)).out;
}
