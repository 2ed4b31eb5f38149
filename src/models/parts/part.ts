/**
 * What the rest of the program knows about a kind of part: the type that every file in this folder has one value of.
 *
 * A model is a list of layers, and a layer is made of parts (`parts.ts` has the tables). A part states its parameters,
 * its graph, what decoding keeps of it per token, and what it costs. Loading, training, the cache, micro-batching and
 * the dry run go through these four functions and know no shape themselves.
 */
import type { Node } from "../../graph/node.ts";
import type { Dim } from "../../graph/shape.ts";
import type { Mix } from "../../nn/attention.ts";
import type { Fields } from "../config-fields.ts";

/** One tensor of a checkpoint. */
export type Piece = {
  /** Its name in a checkpoint of transformers. */
  readonly name: string;
  /** Other names the same tensor may be stored under, such as that of a tied head. */
  readonly aliases: readonly string[];
  readonly shape: readonly number[];
};

/** One parameter: a tensor in memory, an input of every graph. */
export type ParameterSpec = {
  /** Its path in the model's own terms: `layers.3.attention.q`. */
  readonly key: string;
  /**
   * Its name in graphs, in memory and in optimizer files: that of its tensor, or its key where it has several pieces.
   */
  readonly name: string;
  /** Linear weights are [out, in]. */
  readonly shape: readonly number[];
  /** The tensors of the checkpoint that it consists of, joined along axis 0. */
  readonly pieces: readonly Piece[];
  /** A frozen parameter has no gradient and no moments, and no optimizer step changes it. */
  readonly isTrained: boolean;
  /** How a new model starts: random numbers of the model's spread, or this number everywhere. */
  readonly initial: "normal" | number;
};

/** A parameter as a part states it: its key is relative to the part, the names of its tensors to the layer. */
export type PartParameter = Omit<ParameterSpec, "name">;

/** A parameter that is one tensor of the checkpoint and is trained. */
export function parameter(
  key: string,
  name: string,
  shape: readonly number[],
  initial: PartParameter["initial"] = "normal",
): PartParameter {
  return { key, shape, pieces: [{ name, aliases: [], shape }], isTrained: true, initial };
}

/** The weight of a linear layer, and its bias where it has one. */
export function linear(key: string, name: string, shape: readonly [number, number], hasBias: boolean): PartParameter[] {
  const weight = parameter(key, `${name}.weight`, shape);
  return hasBias ? [weight, parameter(`${key}.bias`, `${name}.bias`, [shape[0]], 0)] : [weight];
}

/** A part's parameters where the part stands: `key` is its path, `name` begins the names of its tensors. */
export function placed(parameters: readonly PartParameter[], key: string, name: string): ParameterSpec[] {
  return parameters.map((spec) => {
    const full = spec.key === "" ? key : `${key}.${spec.key}`;
    const pieces = spec.pieces.map((piece) => ({ ...piece, name: name + piece.name }));
    const [only] = pieces;
    return { ...spec, key: full, pieces, name: pieces.length === 1 && only !== undefined ? only.name : full };
  });
}

export type Named = Readonly<Record<string, Node>>;

/** What a part adds to the graph. */
export type Built = {
  readonly out: Node;
  /** Terms of the training loss that come from inside the model, such as a router's balance. */
  readonly losses?: Named;
  /** What else is worth keeping per token, such as the experts that were chosen. */
  readonly records?: Named;
};

/** Where a part stands in a model, while its graph is built. */
export type Place = {
  /** A parameter of the part, by its key. */
  parameter(key: string): Node;
  /** A linear layer of the part: its weight, and its bias where it has one. */
  linear(key: string, x: Node): Node;
  /** The place of a part inside this one. */
  within(key: string): Place;
};

/** Where an attention stands. */
export type AttentionPlace = Place & {
  readonly batch: Dim;
  readonly time: Dim;
  /** How queries mix values: over rows, over shared prefixes, or over a cache. */
  readonly mix: Mix;
  readonly window: number | null;
};

/** A tensor of the cache: for each token `heads` rows of `size` numbers. */
export type CacheTensor = { readonly name: string; readonly heads: number; readonly size: number };

/**
 * What activations are counted for. `limit`: an upper bound by which batches are cut into micro-batches. `train`: what
 * stays in memory until the gradient is known, fitted to measured peaks. `forward`: what exists at one time in a pass
 * without gradients. `prefill`: what one token takes while prompts are read. Changing `limit` or `prefill` changes how
 * batches are cut, and with it the last bits of every result.
 */
export type ActivationUse = "limit" | "train" | "forward" | "prefill";

export type CostContext = {
  readonly use: ActivationUse;
  /** Tokens of the sequence. */
  readonly length: number;
  /** Keys that a query is multiplied with, on average. */
  readonly keys: number;
};

/** What one token costs: operations of the forward pass, and bytes of activations. */
export type Cost = { readonly flops: number; readonly activationBytes: number };

/** A cost from the number of floats for each use. */
export function costOf(flops: number, floats: Readonly<Record<ActivationUse, number>>, { use }: CostContext): Cost {
  return { flops, activationBytes: 4 * floats[use] };
}

/** All that the rest of the program needs to know about one kind of part. */
export type Part<Config, At = Place> = {
  parameters(config: Config): readonly PartParameter[];
  build(x: Node, config: Config, at: At): Built;
  /** What decoding keeps per token. */
  cache(config: Config): readonly CacheTensor[];
  cost(config: Config, context: CostContext): Cost;
};

/** A config.json, as parts read it. */
export type ConfigFile = {
  readonly fields: Fields;
  readonly raw: Readonly<Record<string, unknown>>;
  /** The file's name, for messages. */
  readonly source: string;
  /** The family's name in class names of transformers, for messages. */
  readonly className: string;
  readonly maxPositions: number;
};

/** A kind of part that reads its own keys of config.json; `Traits` is what a family fixes about it. */
export type Kind<Traits, Config, At = Place> = Part<Config, At> & {
  read(traits: Traits, file: ConfigFile): Config;
};

/** A kind of attention. */
export type AttentionKind<Traits, Config> = Kind<Traits, Config, AttentionPlace> & {
  /** The size of the heads of queries and keys that a position scheme rotates. */
  rotatedSize(config: Config): number;
};

/** The layer types of config.json; they may rotate differently. */
export type LayerType = "full_attention" | "sliding_attention";

/** Cosines and sines by position, each [positions, size / 2]. */
export type RotationTables = { readonly cos: Float32Array; readonly sin: Float32Array };

/** How positions enter attention: queries and keys are rotated by tables. */
export type PositionScheme<Traits, Config> = {
  /** `size` is that of a query's head. */
  read(traits: Traits, file: ConfigFile, layer: { readonly size: number; readonly type: LayerType }): Config;
  /** The first length whose tables have the same numbers at every position as those of `length`. */
  regime(config: Config, length: number): number;
  /** Tables for `positions`; `length` is that of the sequence, which may be followed by padding. */
  tables(config: Config, positions: number, length: number): RotationTables;
  /** The keys of config.json that say this again; `byType` has the scheme of each layer type in the model. */
  write(byType: ReadonlyMap<LayerType, Config>, raw: Readonly<Record<string, unknown>>): Record<string, unknown>;
};
