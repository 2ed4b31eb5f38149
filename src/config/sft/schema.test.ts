import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { parseOverride } from "../overrides.ts";
import { resolve } from "../resolve.ts";
import { allKeys, find } from "../schema.ts";
import { formatValue } from "../value.ts";
import { sftSchema } from "./schema.ts";

const fixtures = new URL("../../../test/fixtures/", import.meta.url);

function read<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(name, fixtures), "utf8"));
}

function sft(...overrides: readonly string[]) {
  return resolve(sftSchema, [overrides.map(parseOverride)], { home: "/home/me", env: {} });
}

function problem(...overrides: readonly string[]): string {
  try {
    sft(...overrides);
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  return "";
}

type Recipe = { readonly program: string; readonly overrides: readonly string[] };
const recipes = Object.entries(read<Record<string, readonly Recipe[]>>("verl-recipes.json"))
  .filter(([file]) => file.startsWith("examples/sft/"))
  .flatMap(([file, runs]) => runs.map(({ overrides }) => ({ file, overrides })));

describe("verl's sft recipes are taken as they are, or refused by the name of the key", () => {
  for (const { file, overrides } of recipes) {
    const isLora = overrides.some((override) => override.startsWith("model.lora_rank="));
    test(file, () => {
      if (isLora) expect(problem(...overrides)).toMatch(/^`model\.lora_rank` is 32 on the command line\. LoRA/);
      else expect(sft(...overrides).config.model.path).toMatch(/\//);
    });
  }

  test("there are ten of them", () => expect(recipes).toHaveLength(10));
});

test("an fsdp_sft_trainer recipe gets that trainer's defaults", () => {
  const recipe = recipes.find(({ file }) => file.endsWith("run_gemma_2b.sh"));
  const { config, notices } = sft(...(recipe?.overrides ?? []));
  expect(config.data).toMatchObject({
    train_files: ["/home/me/data/gsm8k/train.parquet"],
    prompt_key: "extra_info",
    prompt_dict_keys: ["question"],
    response_dict_keys: ["answer"],
    micro_batch_size_per_gpu: 4,
    use_dynamic_bsz: false,
    multiturn: { enable: false },
  });
  expect(config.optim).toMatchObject({
    lr: 1e-5,
    betas: [0.9, 0.95],
    lr_scheduler_type: "cosine",
    lr_warmup_steps_ratio: 0.1,
  });
  expect(config.trainer).toMatchObject({
    default_local_dir: "/home/me/save",
    logger: ["console", "wandb"],
    console: "table",
    device: "cpu",
    total_epochs: 2,
  });
  expect(notices).toEqual([expect.stringMatching(/its defaults apply: .*optim\.lr=0\.00001/)]);
});

test.each([
  [
    ["trainer.logger=[console,swanlab,file]"],
    ["console", "file"],
    [/names swanlab, .*; metrics go to console, file\./],
  ],
  [["trainer.logger=[trackio,wandb,clearml]"], ["wandb"], [/names trackio, /, /names clearml, /]],
  [["trainer.logger=wandb", "trainer.console=verl"], ["wandb"], [/`trainer\.console`=verl has no effect/]],
  [["trainer.logger=null"], [], []],
  [[], ["console"], []],
])("%j picks the trackers %j and says what else was asked for", (overrides, logger, said) => {
  const { config, notices } = sft("model.path=m", ...overrides);
  expect(config.trainer.logger).toEqual(logger);
  expect(notices).toEqual(said.map((message) => expect.stringMatching(message)));
});

test("keys without effect are named in one notice that says what happens instead", () => {
  const { notices } = sft(
    "model.path=m",
    "model.use_liger=True",
    "engine.strategy=fsdp2",
    "engine.fsdp_size=-1",
    "engine=megatron",
    "hydra.run.dir=x",
  );
  expect(notices).toHaveLength(1);
  expect(notices[0]).toMatch(/^These keys have no effect here:\n/);
  for (const named of ["model.use_liger=true", "engine.strategy=fsdp2", "engine=megatron", "hydra.run.dir=x"])
    expect(notices[0]).toContain(named);
  expect(notices[0]).not.toContain("fsdp_size");
});

describe("every key of verl's sft configs is honoured, named or refused with its default accepted", () => {
  const trees = read<Record<string, Record<string, unknown>>>("verl-sft-keys.json");
  for (const [config, keys] of Object.entries(trees)) {
    test(`${config} (${Object.keys(keys).length} keys)`, () => {
      for (const [key, value] of Object.entries(keys)) {
        const { kind } = find(sftSchema, key);
        expect(["field", "inert", "refused"], key).toContain(kind);
        const model = key === "model.path" || key === "model.partial_pretrain" ? [] : ["model.path=m"];
        expect(problem(...model, `${key}=${formatValue(value)}`), key).toBe("");
      }
    });
  }

  test("the defaults are verl's, letter for letter, except those that cannot be", () => {
    const ours = new Set(["model.path", "trainer.device", "trainer.logger"]);
    for (const config of ["sft_trainer_engine", "sft_trainer"]) {
      for (const [key, value] of Object.entries(trees[config] ?? {})) {
        const found = find(sftSchema, key);
        // In the composed older config `optim.lr_scheduler` decides and `optim.lr_scheduler_type` is left over.
        if (found.kind !== "field" || ours.has(found.key) || value === null) continue;
        if (config === "sft_trainer" && key === "optim.lr_scheduler_type") continue;
        expect(sftSchema.configs[config]?.[found.key] ?? found.field.default, key).toEqual(value);
      }
    }
  });
});

describe("a mistake is answered with the key, the value and the way out", () => {
  const cases: readonly [string, string, RegExp][] = [
    [
      "unknown key",
      "data.train_batchsize=4",
      /`data\.train_batchsize` on the command line is not a key of `sft`\. Nearest: `data\.train_batch_size`/,
    ],
    ["key without its section", "lr=4", /Nearest: `optim\.lr`/],
    ["key with nothing close", "optim.learning_rate=1", /Below `optim` there are lr, betas, weight_decay, /],
    ["key of another world", "qqqqqqqq=1", /Keys begin with data, model, optim, trainer; /],
    [
      "wrong type",
      "data.train_batch_size=abc",
      /`data\.train_batch_size` is "abc" on the command line; it takes a whole number of at least 1\./,
    ],
    ["fraction", "data.train_batch_size=1.5", /is 1\.5 .* whole number/],
    ["not a choice", "data.truncation=middle", /it takes `error`, `left` or `right`/],
    ["another engine", "trainer.engine=megatron", /it takes `embedded` or `ray`/],
    ["unknown device", "trainer.device=npu", /`cpu`, `webgpu` or `cuda`/],
    ["unknown tracker", "trainer.logger=wandbb", /`trainer\.logger` is "wandbb", .*Did you mean "wandb"\?/],
    ["no tracker that is here", "trainer.logger=[swanlab,clearml]", /names swanlab, .* Choose from mlflow, /],
    [
      "needed key deleted",
      "~data.max_length",
      /`~data\.max_length` deletes a key that sft needs\. Set it instead, for example data\.max_length=1024/,
    ],
    ["other value deleted", "~data.max_length=5", /`data\.max_length` is 1024/],
    ["section set", "trainer=3", /`trainer` on the command line holds other keys/],
    [
      "unknown group",
      "engine=megatrom",
      /The choices are fsdp, megatron, veomni, torchtitan, automodel\. Did you mean megatron\?/,
    ],
    ["null where none is", "trainer.experiment_name=null", /is null .* a text that is not empty/],
    ["row longer than a pass", "data.max_token_len_per_gpu=100", /at least 1024/],
    ["no path to resume from", "trainer.resume_mode=resume_path", /`trainer\.resume_from_path` is missing/],
    [
      "two spellings",
      "model.partial_pretrain=other",
      /`model\.path` is m and `model\.partial_pretrain` is other .* two spellings/,
    ],
  ];
  for (const [name, override, message] of cases)
    test(name, () => expect(problem("model.path=m", override)).toMatch(message));

  test("all of them at once", () => {
    const message = problem("a=1", "data.max_length=x", "model.lora_rank=8");
    expect(message.split("\n")).toHaveLength(4);
    expect(message).toMatch(/`model\.path` \(also spelt `model\.partial_pretrain`\) is missing/);
  });

  test("keys that refer to each other", () => {
    const circle = [
      "trainer.project_name=${trainer.experiment_name}",
      "trainer.experiment_name=${trainer.project_name}",
    ];
    expect(problem("model.path=m", ...circle)).toMatch(
      /refers to itself: trainer\.project_name -> trainer\.experiment_name -> trainer\.project_name/,
    );
  });
});

test("a later override wins, text keys keep what was typed, and a deletion takes the value away", () => {
  const { config } = sft(
    "model.path=m",
    "optim.lr=1",
    "optim.lr=2e-5",
    "trainer.experiment_name=1.0",
    "data.val_files=a",
    "~data.val_files",
  );
  expect(config.optim.lr).toBe(2e-5);
  expect(config.trainer.default_local_dir).toBe("checkpoints/gsm8k-sft/1.0");
  expect(config.data.val_files).toEqual([]);
});

test("dicts of the user's own keys are merged and can lose a key", () => {
  const kwargs = (...more: string[]) => sft("model.path=m", ...more).config.data.apply_chat_template_kwargs;
  expect(
    kwargs(
      "+data.apply_chat_template_kwargs.enable_thinking=false",
      "data.apply_chat_template_kwargs={a:{b:1}}",
      "++data.apply_chat_template_kwargs.a.c=2",
    ),
  ).toEqual({
    enable_thinking: false,
    a: { b: 1, c: 2 },
  });
  expect(kwargs("data.apply_chat_template_kwargs={a:1,b:2}", "~data.apply_chat_template_kwargs.a")).toEqual({ b: 2 });
});

test("a prompt or response column makes rows single-turn, unless said otherwise", () => {
  const isMultiturn = (...more: string[]) => sft("model.path=m", ...more).config.data.multiturn.enable;
  expect(isMultiturn()).toBe(true);
  expect(isMultiturn("data.prompt_key=q")).toBe(false);
  expect(isMultiturn("data.prompt_key=q", "data.multiturn.enable=true")).toBe(true);
});

test("a key that means the device is honoured only when it is given", () => {
  expect(sft("model.path=m").config.trainer.device).toBe("cpu");
  expect(sft("model.path=m", "trainer.device=cuda").config.trainer.device).toBe("cuda");
});

test("any overrides give a config or a UserError", () => {
  const keys = [
    ...allKeys(sftSchema),
    "data",
    "optim",
    "engine",
    "__proto__",
    "data.__proto__.x",
    "constructor",
    "a.b",
  ];
  const values = fc.constantFrom(
    "1",
    "-1",
    "null",
    "true",
    "x",
    "[1,a]",
    "{a: {b: 1}}",
    "${data.max_length}",
    "${data}",
    "???",
    "{}",
  );
  const override = fc.tuple(fc.constantFrom("", "+", "~"), fc.constantFrom(...keys), values);
  fc.assert(
    fc.property(fc.array(override, { maxLength: 6 }), (parts) => {
      problem("model.path=m", ...parts.map(([op, key, value]) => `${op}${key}${op === "~" ? "" : `=${value}`}`));
    }),
    { numRuns: 300 },
  );
  expect(Object.hasOwn(Object.prototype, "x")).toBe(false);
});
