/** Laws of parts, on the models of every family: a part states all that the rest of the program relies on. */
import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { topological } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { causal } from "../../nn/attention.ts";
import { parameterSpecs, readConfig, withHead } from "../config.ts";
import { modelCost } from "../cost.ts";
import { elementCount } from "../safetensors.ts";
import { logits, parameterNodes, scores, transformer } from "../transformer.ts";

const fixtures = new URL("../../../test/fixtures/", import.meta.url).pathname;
const folders = ["logits", "logits-more"].flatMap((set) => readdirSync(fixtures + set).map((name) => `${set}/${name}`));

describe.each(folders)("the parts of %s", async (folder) => {
  const config = await readConfig(fixtures + folder);
  const specs = parameterSpecs(config);

  test("have parameters with keys of their own, each made of its pieces", () => {
    expect(new Set(specs.map(({ key }) => key)).size).toBe(specs.length);
    for (const { shape, pieces, name } of specs) {
      expect(pieces.map((piece) => piece.name)).toEqual([name]);
      expect(pieces.reduce((total, piece) => total + elementCount(piece.shape), 0)).toBe(elementCount(shape));
    }
  });

  test("use every parameter that they state", () => {
    const p = parameterNodes(config);
    const table = (scheme: { size: number }) => ["time", scheme.size / 2];
    const { hidden } = transformer(config, p, {
      ids: o.input("ids", ["batch", "time"], "i32"),
      mix: (layer) => {
        const shape = table(config.layers[layer]!.position);
        return causal({ cos: o.input("cos", shape), sin: o.input("sin", shape) });
      },
    });
    const out = config.head === "lm" ? logits(hidden, config, p) : scores(hidden, config, p);
    const used = topological([out]).flatMap((node) => (node.op === "input" ? [node.attrs.name] : []));
    expect(new Set(used)).toEqual(new Set([...specs.map(({ name }) => name), "ids", "cos", "sin"]));
  });

  // How batches are cut follows from these numbers, and with it the last bits of every result.
  test("take up memory by the formulas that cut batches", () => {
    const { vocabSize, layers } = config;
    const { width, hidden } = layers[0]!.mlp;
    const { heads, kvHeads, headDim } = layers[0]!.attention;
    for (const time of [1, 37, 4096]) {
      const limit = modelCost(config, { use: "limit", length: time, keys: time });
      expect(limit.layers.activationBytes + limit.head.activationBytes).toBe(
        4 * (layers.length * (12 * width + 6 * hidden + heads * time) + 3 * vocabSize),
      );
      const prefill = modelCost(config, { use: "prefill", length: time, keys: time });
      expect(prefill.largestLayer.activationBytes).toBe(4 * (4 * width + 3 * hidden));
      const forward = modelCost(config, { use: "forward", length: time, keys: time });
      expect(forward.largestLayer.activationBytes).toBe(4 * (2 * width + 2 * hidden));
      const keys = kvHeads * headDim;
      const perLayer =
        width * (layers[0]!.norms.mlpOut === null ? 9.2 : 13.2) +
        keys * 2.1 +
        (layers[0]!.attention.headNorm === null ? 0 : 1.5 * (heads * headDim + keys)) +
        hidden * (layers[0]!.mlp.activation === "geluTanh" ? 7.3 : 4.8) +
        heads * time * (layers[0]!.attention.softcap === null ? 0.9 : 2.9);
      const train = modelCost(config, { use: "train", length: time, keys: time });
      expect(train.layers.activationBytes / (4 * layers.length * perLayer)).toBeCloseTo(1, 12);
    }
  });

  test("take two operations for each weight of a matrix, and four for each number of a query and key", () => {
    const inLayers = specs.filter(({ key, shape }) => key.startsWith("layers.") && shape.length === 2);
    const weights = inLayers.reduce((total, { shape }) => total + elementCount(shape), 0);
    const queries = config.layers.reduce((total, { attention }) => total + attention.heads * attention.headDim, 0);
    const { layers, head } = modelCost(config, { use: "forward", length: 64, keys: 40 });
    expect(layers.flops).toBe(2 * weights + 4 * queries * 40);
    expect(head.flops).toBe(2 * config.embedding.width * (config.head === "lm" ? config.vocabSize : 1));
  });

  test("are cut alike with a value head", () => {
    const context = { use: "limit", length: 64, keys: 64 } as const;
    expect(modelCost(withHead(config, "value"), context)).toMatchObject({
      head: { activationBytes: modelCost(withHead(config, "lm"), context).head.activationBytes },
    });
  });
});
