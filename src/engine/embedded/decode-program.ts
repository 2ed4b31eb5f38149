/**
 * The graph that samples: new tokens through the model over the cache of those before, to the distribution after them.
 *
 * One program reads prompts (`batch` rows of `time` tokens), the other continues every row by one token. The cache is
 * an input and an output of the same name but for its prefix, so that a run can be given the same arrays for both: the
 * kernel then writes the new tokens' keys and values in place. Which tensors a layer keeps is stated by its parts.
 */
import { type Node, scope } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import type { ModelConfig } from "../../models/config.ts";
import { layerCache } from "../../models/layers.ts";
import { logits, parameterNodes, transformer } from "../../models/transformer.ts";
import { cached, cachedHeadDim } from "../../nn/attention.ts";
import { compile, type Program } from "../../onnx/emit.ts";
import { invariant } from "../../util/errors.ts";
import { byRotation } from "./rotations.ts";

/**
 * `prompts`: any number of tokens per row; `tokens`: one token per row, any rows; `few-tokens`: the same, fast for few
 * rows.
 */
export type DecodeKind = "prompts" | "tokens" | "few-tokens";

/** A tensor of a layer's cache as it is read, and as it is written. */
export const pastName = (layer: number, tensor: string): string => `past/${layer}/${tensor}`;
export const presentName = (layer: number, tensor: string): string => `present/${layer}/${tensor}`;

/**
 * Outputs `probs` [n, vocabulary] after the positions `reads` [n], each at its own temperature (`scale` is the
 * reciprocal), and with `hasLogits` also `logits` as they are before penalties and temperature.
 */
export function decodeProgram(config: ModelConfig, kind: DecodeKind, hasLogits: boolean): Program {
  const p = parameterNodes(config);
  const [batch, time] = ["batch", kind === "prompts" ? "time" : 1] as const;
  const shared = {
    lengths: o.input("lengths", [batch], "i32"),
    total: o.input("total", [1], "i32"),
    positions: o.input("positions", [batch, time], "i32"),
  };
  const widthOf = ({ size }: { size: number }) => cachedHeadDim(size) / 2;
  const rotationOf = byRotation(config, { rows: "places", widthOf }, (rotation) => rotation);
  const outputs: Record<string, Node> = {};
  const mix = (layer: number) => {
    const tensors = layerCache(config.layers[layer]!);
    const past = (name: "key" | "value") => {
      const tensor = tensors.find((kept) => kept.name === name);
      invariant(tensor !== undefined, `layer ${layer} keeps no ${name}`);
      return o.input(pastName(layer, name), [batch, tensor.heads, "capacity", tensor.size]);
    };
    return cached({ ...shared, ...rotationOf(layer), key: past("key"), value: past("value") }, (attended) => {
      for (const name of ["key", "value"] as const) outputs[presentName(layer, name)] = o.cacheAfter(attended, name);
    });
  };
  const { hidden } = transformer(config, p, { ids: o.input("ids", [batch, time], "i32"), mix });
  scope("head", () => {
    const read = o.take(hidden, o.input("reads", ["n"], "i32"));
    const all = logits(read, config, p);
    if (hasLogits) outputs.logits = all;
    outputs.probs = o.softmax(o.mul(all, o.input("scale", ["n", 1])));
  });
  return compile(outputs, { hasFewRows: kind === "few-tokens" });
}
