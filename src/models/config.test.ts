import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import {
  type ModelConfig,
  parameterSpecs,
  parseAnyConfig,
  parseConfig,
  positionsOf,
  readConfig,
  withHead,
} from "./config.ts";
import { configText } from "./config-text.ts";
import type { Layer } from "./layers.ts";
import { readAll } from "./safetensors.ts";

const fixture = (path: string) => new URL(`../../test/fixtures/${path}`, import.meta.url).pathname;

/** Made by building each model with transformers; see `parameters` for its tensors. */
const cases: {
  name: string;
  config: Record<string, unknown>;
  expected: { parameters: Record<string, number[]>; theta: number; [fact: string]: unknown };
}[] = JSON.parse(readFileSync(fixture("configs.json"), "utf8"));

/** What transformers says about a model, in the fixture's names. */
function factsOf({ layers, embedding, norm, headConfig, maxPositions }: ModelConfig, { attention, mlp }: Layer) {
  return {
    activation: mlp.activation,
    windows: layers.map(({ window }) => window),
    attentionScale: attention.scale,
    headDim: attention.headDim,
    kvHeads: attention.kvHeads,
    normEps: norm.eps,
    maxPositions,
    attentionSoftcap: attention.softcap,
    logitSoftcap: headConfig.softcap,
    embedScale: embedding.scale,
  };
}

describe("a config means what it means in transformers", () => {
  for (const { name, config, expected } of cases) {
    test(name, () => {
      const { parameters, theta, ...facts } = expected;
      const parsed = parseConfig(config, "config.json");
      expect(Object.fromEntries(parameterSpecs(parsed).map((spec) => [spec.name, spec.shape]))).toEqual(parameters);
      for (const layer of parsed.layers) expect(factsOf(parsed, layer)).toMatchObject(facts);
      expect(positionsOf(parsed)).toMatchObject([{ theta, scaling: { type: "default" } }]);
    });
  }
});

describe("the parameters of each reference folder are those with a gradient in its reference values", () => {
  for (const folder of readdirSync(fixture("logits"))) {
    test(folder, async () => {
      const specs = parameterSpecs(await readConfig(fixture(`logits/${folder}`)));
      const reference = await readAll(fixture(`logits/${folder}/reference.safetensors`));
      const gradients = [...reference].filter(([name]) => name.startsWith("grad."));
      expect(new Map(specs.map((spec) => [`grad.${spec.name}`, spec.shape]))).toEqual(
        new Map(gradients.map(([name, tensor]) => [name, tensor.shape])),
      );
    });
  }
});

const sizes = {
  vocab_size: 96,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};
const llama = { model_type: "llama", architectures: ["LlamaForCausalLM"], ...sizes };

describe("both spellings of the rotary embedding give the same model", () => {
  const scaling = { rope_type: "linear", factor: 4 };
  const four = parseConfig({ ...llama, rope_theta: 5e5, rope_scaling: scaling }, "config.json").layers;
  const spellings: Record<string, object> = {
    "rope_parameters, as transformers 5 saves it": { rope_parameters: { rope_theta: 5e5, ...scaling } },
    "the old key `type`": { rope_theta: 5e5, rope_scaling: { type: "linear", factor: 4 } },
    "theta beside rope_parameters": { rope_theta: 5e5, rope_parameters: scaling },
    "theta inside wins over theta beside": { rope_theta: 1, rope_parameters: { rope_theta: 5e5, ...scaling } },
    "rope_scaling wins over rope_parameters": {
      rope_theta: 5e5,
      rope_scaling: scaling,
      rope_parameters: { rope_type: "default", rope_theta: 1 },
    },
    "rope_parameters by layer type": {
      rope_parameters: {
        full_attention: { rope_theta: 5e5, ...scaling },
        sliding_attention: { rope_theta: 5e5, ...scaling },
      },
    },
  };
  for (const [name, keys] of Object.entries(spellings)) {
    test(name, () => expect(parseConfig({ ...llama, ...keys }, "config.json").layers).toEqual(four));
  }
});

describe("layers of two types may rotate differently", () => {
  const rope_parameters = {
    full_attention: { rope_type: "linear", factor: 8, rope_theta: 1e6 },
    sliding_attention: { rope_type: "default", rope_theta: 1e4 },
  };
  const raw = { ...llama, model_type: "gemma2", num_hidden_layers: 4, rope_parameters };
  const config = parseConfig(raw, "config.json");

  test("each layer has the scheme of its type, and layers of one type have the same value", () => {
    expect(config.layers.map(({ window }) => window)).toEqual([4096, null, 4096, null]);
    expect(config.layers.map(({ position }) => position.theta)).toEqual([1e4, 1e6, 1e4, 1e6]);
    expect(positionsOf(config)).toMatchObject([
      { theta: 1e4, scaling: { type: "default" } },
      { theta: 1e6, scaling: { type: "linear", factor: 8 } },
    ]);
  });

  test("and are saved as they were read", () => {
    const saved = JSON.parse(configText(config, "F32"));
    expect(saved).toMatchObject({ rope_parameters, rope_scaling: null });
    expect(parseConfig(saved, "config.json").layers).toEqual(config.layers);
  });

  test("a type that the model has no layer of is not looked at", () => {
    const full = { ...llama, rope_parameters };
    expect(positionsOf(parseConfig(full, "config.json"))).toMatchObject([{ theta: 1e6 }]);
  });
});

describe("a config of any family", () => {
  test("of a family that loads here is read in full", () => {
    expect(parseAnyConfig(llama, "config.json")).toEqual(parseConfig(llama, "config.json"));
  });

  test.each<[string, object, number]>([
    ["max_position_embeddings", { max_position_embeddings: 2048 }, 2048],
    ["n_positions", { n_positions: 1024, n_ctx: 512 }, 1024],
    ["max_seq_len", { max_seq_len: 128 }, 128],
    ["no limit", {}, Infinity],
  ])("has the length that transformers calls %s", (_, keys, maxPositions) => {
    const found = parseAnyConfig({ model_type: "other", vocab_size: 7, ...keys }, "config.json");
    expect(found).toMatchObject({ family: "other", vocabSize: 7, maxPositions, head: "lm" });
  });

  test("has the sizes of its text model if it has other parts, too", () => {
    const text_config = { vocab_size: 9, max_position_embeddings: 32 };
    const raw = { model_type: "other", text_config, architectures: ["OtherForSequenceClassification"], num_labels: 1 };
    expect(parseAnyConfig(raw, "config.json")).toMatchObject({ vocabSize: 9, maxPositions: 32, head: "score", raw });
  });

  test.each<[string, object, RegExp]>([
    ["quantised weights", { vocab_size: 7, quantization_config: {} }, /weights are quantised/],
    ["no vocabulary", {}, /`vocab_size` is missing/],
    ["more labels than one", { vocab_size: 7, architectures: ["OForTokenClassification"] }, /has 2 labels/],
  ])("is refused with %s", (_, keys, message) => {
    expect(() => parseAnyConfig({ model_type: "other", ...keys }, "config.json")).toThrow(message);
  });
});

test("a critic made from a tied language model has a score instead of a head of its own", () => {
  const config = withHead(parseConfig({ ...llama, tie_word_embeddings: true }, "config.json"), "value");
  expect(parameterSpecs(config).slice(-2)).toMatchObject([
    { name: "score.weight", shape: [1, 32] },
    { name: "score.bias", shape: [1] },
  ]);
});

describe("a config that cannot be used is refused in a sentence with the file, the key and the value", () => {
  const yarn = { rope_type: "yarn" };
  const refusals: [name: string, config: unknown, ...parts: string[]][] = [
    ["not an object", [], "the file is []", "an object"],
    ["no family", sizes, "`model_type` is missing", "llama, mistral, qwen2, qwen3, gemma, gemma2"],
    ["another family", { ...llama, model_type: "qwen2_moe" }, '"qwen2_moe"', "Supported are llama"],
    ["a name every object has", { ...llama, model_type: "toString" }, '"toString"', "Supported are"],
    ["a missing size", { ...llama, hidden_size: undefined }, "`hidden_size` is missing", "whole number"],
    ["a size in quotes", { ...llama, hidden_size: "32" }, '`hidden_size` is "32"', "whole number"],
    ["a size of zero", { ...llama, vocab_size: 0 }, "`vocab_size` is 0"],
    ["heads that do not divide", { ...llama, num_key_value_heads: 3 }, "`num_attention_heads` is 4", "3 key-value"],
    ["default kv heads that do not divide", { ...llama, model_type: "qwen2" }, "is absent", "default is 32"],
    ["a width heads do not divide", { ...llama, hidden_size: 30 }, "`hidden_size` is 30", "`head_dim`"],
    ["an odd head", { ...llama, head_dim: 7 }, "7 dimensions"],
    ["an unknown activation", { ...llama, hidden_act: "relu" }, '`hidden_act` is "relu"', "gelu_pytorch_tanh"],
    ["quantised weights", { ...llama, quantization_config: { quant_method: "gptq" } }, "quantised (gptq)", "F32"],
    ["bidirectional attention", { ...llama, use_bidirectional_attention: true }, "`use_bidirectional_attention`"],
    ["another head", { ...llama, architectures: ["LlamaForQuestionAnswering"] }, "LlamaForQuestionAnswering"],
    ["two labels", { ...llama, architectures: ["LlamaForSequenceClassification"] }, "2 labels", "num_labels=1"],
    ["too few layer types", { ...llama, model_type: "gemma2", layer_types: ["full_attention"] }, "1 entries"],
    ["an unknown rope", { ...llama, rope_scaling: { rope_type: "mrope" } }, '"mrope"', "longrope"],
    ["rope without its factor", { ...llama, rope_scaling: yarn }, "`rope_scaling.factor` is missing"],
    ["a rope factor in quotes", { ...llama, rope_scaling: { ...yarn, factor: "4" } }, '`rope_scaling.factor` is "4"'],
    [
      "rope factors of another size",
      { ...llama, rope_parameters: { rope_type: "longrope", short_factor: [1, 2], long_factor: [1, 2, 3, 4] } },
      "`rope_parameters.short_factor` has 2 numbers",
      "needs 4",
    ],
    ["a part of each head rotated", { ...llama, partial_rotary_factor: 0.5 }, "`partial_rotary_factor` is 0.5"],
  ];
  for (const [name, config, ...parts] of refusals) {
    test(name, () => {
      const error = caught(() => parseConfig(config, "some/config.json"));
      expect(error).toBeInstanceOf(UserError);
      for (const part of ["some/config.json", ...parts]) expect(String(error)).toContain(part);
    });
  }

  test("a sliding layer in a model whose windows are off", () => {
    const config = {
      ...llama,
      model_type: "qwen2",
      num_key_value_heads: 4,
      layer_types: Array(2).fill("sliding_attention"),
    };
    expect(() => parseConfig(config, "config.json")).toThrow("`use_sliding_window` is not true");
  });

  test("a folder without a config", async () => {
    await expect(readConfig(fixture("nowhere"))).rejects.toThrow("nowhere/config.json is not there");
  });
});

function caught(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  return undefined;
}
