import { readdirSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { type ModelConfig, type ParameterSpec, parameterSpecs, parseConfig, readConfig, withHead } from "./config.ts";
import { configText } from "./config-text.ts";
import { readAll, writeSafetensors } from "./safetensors.ts";
import { type LoadOptions, loadParameters, openWeights, saveParameters } from "./weights.ts";

let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "trainyard-weights-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));
const newFolder = () => mkdtemp(join(dir, "folder-"));
const fixture = (path: string) => new URL(`../../test/fixtures/${path}`, import.meta.url).pathname;

async function load(folder: string, config: ModelConfig, options?: LoadOptions) {
  const parameters = new Map<string, Float32Array>();
  const allocate = (spec: ParameterSpec) => {
    const into = new Float32Array(new SharedArrayBuffer(4 * spec.shape.reduce((a, b) => a * b, 1)));
    parameters.set(spec.name, into);
    return into;
  };
  return { parameters, ...(await loadParameters(folder, parameterSpecs(config), allocate, options)) };
}

/** Values that differ from parameter to parameter and are bfloat16 numbers, so both dtypes keep them. */
function sampleParameters(config: ModelConfig): Map<string, Float32Array> {
  return new Map(
    parameterSpecs(config).map(({ name, shape }, which) => {
      const count = shape.reduce((a, b) => a * b, 1);
      return [name, Float32Array.from({ length: count }, (_, i) => ((i % 120) - 60 + (which % 7)) / 64)];
    }),
  );
}

const tiny = (extra: object = {}) =>
  parseConfig(
    {
      model_type: "llama",
      architectures: ["LlamaForCausalLM"],
      vocab_size: 20,
      hidden_size: 8,
      intermediate_size: 12,
      num_hidden_layers: 2,
      num_attention_heads: 2,
      ...extra,
    },
    "config.json",
  );

/** A folder whose model.safetensors holds the given tensors under the given names. */
async function folderOf(
  tensors: Iterable<[name: string, data: Float32Array, shape: readonly number[]]>,
): Promise<string> {
  const folder = await newFolder();
  const sources = [...tensors].map(([name, data, shape]) => ({ name, shape, data: () => data }));
  await writeSafetensors(join(folder, "model.safetensors"), sources, { dtype: "F32" });
  return folder;
}

/** The tensors of a config, renamed by `rename`; null leaves one out. */
function tensorsOf(config: ModelConfig, rename: (name: string) => string | null = (name) => name) {
  const values = sampleParameters(config);
  return parameterSpecs(config).flatMap(({ name, shape }): [string, Float32Array, readonly number[]][] => {
    const renamed = rename(name);
    return renamed === null ? [] : [[renamed, values.get(name)!, shape]];
  });
}

describe("a parameter of several tensors", () => {
  const config = tiny();
  const [gate, up] = ["model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"];
  const parts = parameterSpecs(config);
  /** The gate and up projections of the first layer as one parameter. */
  const joined: ParameterSpec = {
    key: "layers.0.mlp.gateUp",
    name: "layers.0.mlp.gateUp",
    shape: [24, 8],
    pieces: [gate, up].flatMap((name) => parts.find((spec) => spec.name === name)!.pieces),
    isTrained: true,
    initial: "normal",
  };
  const specs = [...parts.filter(({ name }) => name !== gate && name !== up), joined];
  const loadJoined = async (folder: string) => {
    const parameters = new Map<string, Float32Array>();
    await loadParameters(folder, specs, ({ name, shape }) => {
      expect(parameters.has(name)).toBe(false); // one array for all its pieces
      const into = new Float32Array(shape.reduce((a, b) => a * b, 1));
      parameters.set(name, into);
      return into;
    });
    return parameters;
  };

  test("holds them one after the other along axis 0", async () => {
    const values = sampleParameters(config);
    const parameters = await loadJoined(await folderOf(tensorsOf(config)));
    expect(parameters.get(joined.name)).toEqual(Float32Array.from([...values.get(gate!)!, ...values.get(up!)!]));
    expect(parameters.size).toBe(parts.length - 1);
  });

  test.each([Number.MAX_SAFE_INTEGER, 500])(
    "is written back as the tensors it was read from (shards of %d)",
    async (maxShardBytes) => {
      const parameters = await loadJoined(await folderOf(tensorsOf(config)));
      const folder = join(await newFolder(), "model");
      await saveParameters(folder, config, specs, ({ name }) => parameters.get(name)!, { dtype: "F32", maxShardBytes });
      expect((await load(folder, config)).parameters).toEqual(sampleParameters(config));
      expect((await openWeights(folder)).tensors.size).toBe(parts.length);
    },
  );

  test("is refused by the name of the tensor that is missing", async () => {
    const folder = await folderOf(tensorsOf(config, (name) => (name === up ? null : name)));
    await expect(loadJoined(folder)).rejects.toThrow(`has no tensor "${up}"`);
  });
});

describe("every parameter of a reference folder is the tensor of its name", () => {
  for (const name of readdirSync(fixture("logits"))) {
    test(name, async () => {
      const folder = fixture(`logits/${name}`);
      const { parameters, uninitialised, unexpected } = await load(folder, await readConfig(folder));
      const files = (await readdir(folder)).filter((file) => /^model.*\.safetensors$/.test(file));
      const stored = new Map(
        (await Promise.all(files.map((file) => readAll(join(folder, file))))).flatMap((all) => [...all]),
      );
      for (const [parameter, values] of parameters) expect(values).toEqual(stored.get(parameter)?.data);
      expect(uninitialised).toEqual([]);
      expect(unexpected).toEqual([]);
    });
  }
});

describe("a model that is saved and loaded is the same model", () => {
  for (const dtype of ["F32", "BF16"] as const) {
    for (const maxShardBytes of [Number.MAX_SAFE_INTEGER, 1000]) {
      test(`${dtype}, shards of at most ${maxShardBytes} bytes`, async () => {
        const config = tiny({ rope_parameters: { rope_type: "default", rope_theta: 5e5 } });
        const values = sampleParameters(config);
        const folder = join(await newFolder(), "a", "model");
        await saveParameters(folder, config, parameterSpecs(config), ({ name }) => values.get(name)!, {
          dtype,
          maxShardBytes,
        });
        const back = await readConfig(folder);
        expect({ ...back, raw: null }).toEqual({ ...config, raw: null });
        expect((await load(folder, back)).parameters).toEqual(values);
        expect((await readdir(folder)).includes("model.safetensors.index.json")).toBe(maxShardBytes === 1000);
      });
    }
  }

  const configs: { name: string; config: object }[] = [
    ...JSON.parse(readFileSync(fixture("configs.json"), "utf8")),
    ...readdirSync(fixture("rope")).map((file) => ({
      name: file,
      ...JSON.parse(readFileSync(fixture(`rope/${file}`), "utf8")),
    })),
  ];
  test.each(configs)("its config.json too: $name", ({ config: raw }) => {
    const config = parseConfig(raw, "config.json");
    const saved = parseConfig(JSON.parse(configText(config, "BF16")), "config.json");
    expect({ ...saved, raw: null }).toEqual({ ...config, raw: null });
  });

  test("numbers that transformers wants as floats are written as floats, counts are not", () => {
    const text = configText(tiny({ final_logit_softcapping: 30, rope_scaling: { type: "linear", factor: 2 } }), "F32");
    for (const line of ['"final_logit_softcapping": 30.0', '"rope_theta": 10000.0', '"factor": 2.0']) {
      expect(text).toContain(`${line},\n`);
    }
    expect(text).toContain('"hidden_size": 8,\n');
  });

  test("a critic's config.json says one label and its own class", () => {
    const saved = JSON.parse(configText(withHead(tiny(), "value"), "F32"));
    expect(saved).toMatchObject({ architectures: ["LlamaForTokenClassification"], id2label: { 0: "LABEL_0" } });
    expect(parseConfig(saved, "config.json").head).toBe("value");
  });
});

describe("tensors are found under the names of any wrapper", () => {
  const wrappers: Record<string, (name: string) => string> = {
    "a base model without `model.`": (name) => name.replace(/^model\./, ""),
    "torch.compile": (name) => `_orig_mod.${name}`,
    "torch.compile inside": (name) => name.replace(/^model\./, "model._orig_mod."),
    DDP: (name) => `module.${name}`,
    FSDP: (name) => `_fsdp_wrapped_module.${name.replace(/(layers\.\d+\.)/, "$1_fsdp_wrapped_module.")}`,
  };
  for (const [name, wrap] of Object.entries(wrappers)) {
    test(name, async () => {
      const config = tiny();
      const { parameters, unexpected } = await load(await folderOf(tensorsOf(config, wrap)), config);
      expect(parameters).toEqual(sampleParameters(config));
      expect(unexpected).toEqual([]);
    });
  }

  test("two tensors for one parameter are refused", async () => {
    const twice = [
      ...tensorsOf(tiny(), (name) => `module.${name}`),
      ...tensorsOf(tiny(), (name) => `_orig_mod.${name}`),
    ];
    await expect(load(await folderOf(twice), tiny())).rejects.toThrow("which are both model.embed_tokens.weight");
  });
});

describe("a tied head", () => {
  const config = tiny({ tie_word_embeddings: true });
  const shape = [20, 8];
  const embedding = sampleParameters(config).get("model.embed_tokens.weight")!;

  test("is not written", async () => {
    const folder = await newFolder();
    const values = sampleParameters(config);
    await saveParameters(folder, config, parameterSpecs(config), ({ name }) => values.get(name)!, { dtype: "F32" });
    expect([...(await openWeights(folder)).tensors.keys()]).not.toContain("lm_head.weight");
  });

  test("may be stored beside the embedding", async () => {
    const folder = await folderOf([...tensorsOf(config), ["lm_head.weight", embedding, shape]]);
    expect((await load(folder, config)).unexpected).toEqual([]);
  });

  test("may be stored instead of the embedding", async () => {
    const folder = await folderOf(tensorsOf(config, (name) => name.replace("model.embed_tokens", "lm_head")));
    expect((await load(folder, config)).parameters.get("model.embed_tokens.weight")).toEqual(embedding);
  });

  test("that differs from the embedding is refused", async () => {
    const folder = await folderOf([...tensorsOf(config), ["lm_head.weight", embedding.map((x) => x + 1), shape]]);
    await expect(load(folder, config)).rejects.toThrow('"tie_word_embeddings": false');
  });
});

test("a critic made from a language model has its head left to be initialised, if asked", async () => {
  const folder = await folderOf(tensorsOf(tiny()));
  const critic = withHead(tiny(), "value");
  const { uninitialised, unexpected, parameters } = await load(folder, critic, { allowNewHead: true });
  expect(uninitialised.map((spec) => spec.name)).toEqual(["score.weight", "score.bias"]);
  expect(unexpected).toEqual(["lm_head.weight"]);
  expect(parameters.get("score.weight")).toEqual(new Float32Array(8));
  await expect(load(folder, critic)).rejects.toThrow('no "score.weight" (and 1 more)');
});

test("frequencies that old checkpoints store are not reported, other extras are", async () => {
  const extra = (name: string): [string, Float32Array, number[]] => [name, new Float32Array(1), [1]];
  const extras = [extra("model.layers.0.self_attn.rotary_emb.inv_freq"), extra("adapter.weight")];
  const folder = await folderOf([...tensorsOf(tiny()), ...extras]);
  expect((await load(folder, tiny())).unexpected).toEqual(["adapter.weight"]);
});

describe("weights that cannot be used are refused in a sentence that names the thing", () => {
  const sharded = fixture("logits/qwen2_v5_sharded_bf16");
  /** The sharded fixture after a change. */
  const changed = (change: (folder: string) => Promise<void>) => async () => {
    const folder = await newFolder();
    await cp(sharded, folder, { recursive: true });
    await change(folder);
    return { folder, config: await readConfig(folder) };
  };
  const editIndex = (edit: (map: Record<string, string>) => void) => async (folder: string) => {
    const path = join(folder, "model.safetensors.index.json");
    const index = JSON.parse(await readFile(path, "utf8"));
    edit(index.weight_map);
    await writeFile(path, JSON.stringify(index));
  };
  const single = (rename: (name: string) => string | null) => async () => ({
    folder: await folderOf(tensorsOf(tiny(), rename)),
    config: tiny(),
  });
  const index = (text: string) => changed((folder) => writeFile(join(folder, "model.safetensors.index.json"), text));

  const cases: Record<string, [make: () => Promise<{ folder: string; config: ModelConfig }>, ...parts: string[]]> = {
    "a folder that is not there": [async () => ({ folder: join(dir, "none"), config: tiny() }), "none is not there"],
    "a folder without weights": [
      async () => ({ folder: await newFolder(), config: tiny() }),
      "neither model.safetensors",
    ],
    "pickled weights": [
      async () => {
        const folder = await newFolder();
        await writeFile(join(folder, "pytorch_model.bin"), "");
        return { folder, config: tiny() };
      },
      "It has pytorch_model.bin",
    ],
    "a missing shard": [
      changed((folder) => rm(join(folder, "model-00003-of-00007.safetensors"))),
      "model-00003-of-00007.safetensors is not there",
      "index",
    ],
    "a tensor its shard does not hold": [
      changed(
        editIndex((map) => {
          map["model.norm.weight"] = "model-00001-of-00007.safetensors";
        }),
      ),
      '"model.norm.weight" in model-00001-of-00007.safetensors',
    ],
    "a shard outside the folder": [
      changed(
        editIndex((map) => {
          map["model.norm.weight"] = "../secret.safetensors";
        }),
      ),
      "outside its folder",
    ],
    "an index that is not JSON": [index("{"), "index.json is not JSON"],
    "an index without its map": [index("{}"), "`weight_map`"],
    "a tensor that is missing": [
      single((name) => (name === "model.layers.1.mlp.up_proj.weight" ? null : name)),
      'no tensor "model.layers.1.mlp.up_proj.weight"',
      '"model.layers.0.mlp.up_proj.weight"',
    ],
    "an untied head that is missing": [
      single((name) => (name === "lm_head.weight" ? null : name)),
      'no "lm_head.weight"',
      '"tie_word_embeddings": true',
    ],
    "a tensor of another shape": [
      async () => ({ folder: await folderOf(tensorsOf(tiny({ vocab_size: 21 }))), config: tiny() }),
      '"model.embed_tokens.weight" has the shape [21, 8]',
      "[20, 8]",
    ],
  };
  for (const [name, [make, ...parts]] of Object.entries(cases)) {
    test(name, async () => {
      const { folder, config } = await make();
      const error = await load(folder, config).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(UserError);
      for (const part of parts) expect(String(error)).toContain(part);
    });
  }
});

describe("saving over an older save", () => {
  const config = tiny();
  const values = sampleParameters(config);
  const save = (folder: string, options: { maxShardBytes?: number; tokenizerFrom?: string } = {}) =>
    saveParameters(folder, config, parameterSpecs(config), ({ name }) => values.get(name)!, {
      dtype: "F32",
      ...options,
    });

  test("leaves no file of the older one, and the files of others", async () => {
    const folder = await newFolder();
    await writeFile(join(folder, "optimizer.bin"), "kept");
    await save(folder, { maxShardBytes: 2000 });
    await save(folder);
    expect((await readdir(folder)).sort()).toEqual(["config.json", "model.safetensors", "optimizer.bin"]);
    await save(folder, { maxShardBytes: 2000 });
    expect(await readdir(folder)).not.toContain("model.safetensors");
    expect((await load(folder, config)).parameters).toEqual(values);
  });

  test("that stops half-way leaves the older one as it was", async () => {
    const folder = await newFolder();
    await save(folder);
    const before = await readFile(join(folder, "model.safetensors"));
    let count = 0;
    const stopping = (spec: ParameterSpec) => {
      if (++count > 5) throw new Error("the engine is gone");
      return values.get(spec.name)!.map((x) => x + 1);
    };
    const specs = parameterSpecs(config);
    const attempt = (to: string) => saveParameters(to, config, specs, stopping, { dtype: "F32", maxShardBytes: 500 });
    await expect(attempt(folder)).rejects.toThrow("the engine is gone");
    expect((await readdir(folder)).sort()).toEqual(["config.json", "model.safetensors"]);
    expect((await readFile(join(folder, "model.safetensors"))).equals(before)).toBe(true);

    const parent = await newFolder();
    await expect(attempt(join(parent, "new"))).rejects.toThrow("the engine is gone");
    expect(await readdir(parent)).toEqual([]);
  });

  test("into a path that leads through a file gives an error that says so", async () => {
    const file = join(await newFolder(), "plain");
    await writeFile(file, "");
    await expect(save(join(file, "model"))).rejects.toThrow("cannot be written");
    await expect(save(file)).rejects.toThrow("cannot be written");
  });

  test("copies the tokenizer, and nothing else of its folder", async () => {
    const [source, folder] = [await newFolder(), await newFolder()];
    for (const name of ["tokenizer.json", "chat_template.jinja", "README.md"])
      await writeFile(join(source, name), name);
    await mkdir(join(source, "onnx"));
    await save(folder, { tokenizerFrom: source });
    expect((await readdir(folder)).sort()).toEqual([
      "chat_template.jinja",
      "config.json",
      "model.safetensors",
      "tokenizer.json",
    ]);
  });
});
