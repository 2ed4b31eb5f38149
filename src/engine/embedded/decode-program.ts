/**
 * The graph that samples: new tokens through the model over the cache of those before, to the distribution after them.
 *
 * One program reads prompts (`batch` rows of `time` tokens), the other goes on by one token per row. The cache is an
 * input and an output of the same name but for its prefix, so that a run can be given the same arrays for both: the
 * kernel then writes the new tokens' keys and values in place.
 */
import { headLogits } from "../../graph/formulas.ts";
import { type Node, scope } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import type { ModelConfig } from "../../models/config.ts";
import { headWeight, parameterNodes, transformer } from "../../models/transformer.ts";
import { cached, cachedHeadDim } from "../../nn/layers.ts";
import { compile, type Program } from "../../onnx/emit.ts";

/** `prompts`: any number of tokens per row; `tokens`: one token per row, any rows; `few-tokens`: the same, fast for few rows. */
export type DecodeKind = "prompts" | "tokens" | "few-tokens";

export const cacheParts = ["key", "value"] as const;
export type CachePart = (typeof cacheParts)[number];
/** The cache of a layer as it is read, and as it is written. */
export const pastName = (layer: number, part: CachePart): string => `past/${layer}/${part}`;
export const presentName = (layer: number, part: CachePart): string => `present/${layer}/${part}`;

/**
 * Outputs `probs` [n, vocabulary] after the positions `reads` [n], each at its own temperature (`scale` is the
 * reciprocal), and with `hasLogits` also `logits` as they are before penalties and temperature.
 */
export function decodeProgram(config: ModelConfig, kind: DecodeKind, hasLogits: boolean): Program {
  const p = parameterNodes(config);
  const [batch, time] = ["batch", kind === "prompts" ? "time" : 1] as const;
  const size = cachedHeadDim(config.headDim);
  const shared = {
    lengths: o.input("lengths", [batch], "i32"),
    total: o.input("total", [1], "i32"),
    cos: o.input("rope.cos", ["places", size / 2]),
    sin: o.input("rope.sin", ["places", size / 2]),
    positions: o.input("positions", [batch, time], "i32"),
  };
  const outputs: Record<string, Node> = {};
  const mix = (layer: number) => {
    const past = (part: CachePart) => o.input(pastName(layer, part), [batch, config.kvHeads, "capacity", size]);
    return cached({ ...shared, key: past("key"), value: past("value") }, (attended) => {
      for (const part of cacheParts) outputs[presentName(layer, part)] = o.cacheAfter(attended, part);
    });
  };
  const hidden = transformer(config, p, { ids: o.input("ids", [batch, time], "i32"), mix });
  scope("head", () => {
    const read = o.take(hidden, o.input("reads", ["n"], "i32"));
    const logits = headLogits(read, headWeight(p), { softcap: config.logitSoftcap, temperature: 1 });
    if (hasLogits) outputs.logits = logits;
    outputs.probs = o.softmax(o.mul(logits, o.input("scale", ["n", 1])));
  });
  return compile(outputs, { hasFewRows: kind === "few-tokens" });
}
