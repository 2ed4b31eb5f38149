import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { loadConfig, type Request } from "./file.ts";
import { parseOverride } from "./overrides.ts";
import { resolve } from "./resolve.ts";
import { sftSchema } from "./sft/schema.ts";

const roots: string[] = [];
afterAll(() => {
  for (const root of roots) rmSync(root, { recursive: true });
});

/** A folder with these files. */
function folderOf(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), "trainyard-config-"));
  roots.push(root);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return root;
}

async function load(
  files: Readonly<Record<string, string>>,
  request: Omit<Request, "folder">,
  overrides: readonly string[] = [],
) {
  const { entries, configName } = await loadConfig({ ...request, folder: folderOf(files) }, sftSchema);
  return resolve(sftSchema, [entries, overrides.map(parseOverride)], {
    configName,
    home: "/h",
    env: { NAME: "from-env" },
  });
}

const yaml = { file: "run.yaml" };

test("a YAML file sets keys, and the command line overrides it", async () => {
  const text = "model:\n  path: m\ndata:\n  max_length: 7\n  train_files: [a, b]\noptim:\n  lr: 1e-5\n";
  const { config } = await load({ "run.yaml": text }, yaml, ["data.max_length=8"]);
  expect(config).toMatchObject({
    model: { path: "m" },
    data: { max_length: 8, train_files: ["a", "b"] },
    optim: { lr: 1e-5 },
  });
});

test("an interpolation gives another key with its type, a default, a sibling or a variable of the environment", async () => {
  const text = `model: {path: "\${oc.env:NAME}/x", tokenizer_path: "\${oc.env:NONE,tok}"}
data: {max_length: "\${data.train_batch_size}", prompt_key: "\${oc.select:data.nothing,q}", response_key: "\${.prompt_key}"}
trainer: {experiment_name: "b\${data.train_batch_size}-\${trainer.seed}"}`;
  const { config } = await load({ "run.yaml": text }, yaml, ["data.train_batch_size=32"]);
  expect(config.model).toMatchObject({ path: "from-env/x", tokenizer_path: "tok" });
  expect(config.data).toMatchObject({ max_length: 32, prompt_key: "q", response_key: "q" });
  expect(config.trainer).toMatchObject({ experiment_name: "b32-1", default_local_dir: "checkpoints/gsm8k-sft/b32-1" });
});

test("a defaults list is composed in its order, with _self_ at its place", async () => {
  const files = {
    "base.yaml": "data: {max_length: 1, train_batch_size: 1}\nmodel: {path: base}\n",
    "optim/slow.yaml": "lr: 1e-9\nweight_decay: 0.5\n",
    "tune/all.yaml": "# @package _global_\ntrainer: {seed: 9}\n",
    "last.yaml": "defaults: [base, {optim: slow}, {tune: all}]\ndata: {max_length: 2}\noptim: {lr: 1e-8}\n",
    "first.yaml": "defaults: [_self_, base, {optional nothing: here}]\ndata: {max_length: 2}\n",
  };
  const last = await load(files, { configPath: ".", configName: "last" });
  expect(last.config).toMatchObject({
    data: { max_length: 2, train_batch_size: 1 },
    optim: { lr: 1e-8, weight_decay: 0.5 },
    trainer: { seed: 9 },
  });
  const first = await load(files, { configName: "first.yaml" });
  expect(first.config.data.max_length).toBe(1);
});

test("verl's own groups and configs need no file", async () => {
  const engine = await load(
    {
      "run.yaml":
        "defaults:\n  - model@model: hf_model\n  - optim@optim: fsdp\n  - profiler@profiler: profiler\n  - _self_\nmodel: {path: m}\n",
    },
    yaml,
  );
  expect(engine.config.optim.lr).toBe(1e-3);
  const older = await load({ "run.yaml": "defaults: [sft_trainer, _self_]\nmodel: {path: m}\n" }, yaml);
  expect(older.config.optim.lr).toBe(1e-5);
  expect((await load({}, { configName: "sft_trainer" }, ["model.path=m"])).config.optim.lr).toBe(1e-5);
});

test("JSON and TypeScript files say the same as YAML", async () => {
  const value = { model: { path: "m" }, data: { max_length: 7 } };
  const files = {
    "run.json": JSON.stringify(value),
    "run.ts": `const value: { model: object } = ${JSON.stringify(value)};\nexport default value;\n`,
    "run.yaml": "model: {path: m}\ndata: {max_length: 7}\n",
  };
  const [a, b, c] = await Promise.all(["run.json", "run.ts", "run.yaml"].map((file) => load(files, { file })));
  expect(a).toEqual(c);
  expect(b).toEqual(c);
});

test("trainyard.config.ts is read when no file is named, and only then", async () => {
  const files = {
    "trainyard.config.ts": 'export default { model: { path: "implicit" } };\n',
    "run.yaml": "model: {path: named}\n",
  };
  expect((await load(files, {})).config.model.path).toBe("implicit");
  expect((await load(files, yaml)).config.model.path).toBe("named");
});

describe("a mistake in a file gives a message with its name and place", () => {
  const cases: readonly [string, Readonly<Record<string, string>>, Omit<Request, "folder">, RegExp][] = [
    ["missing", {}, yaml, /run\.yaml cannot be read: there is no such file\.$/],
    ["broken", { "run.yaml": "a: 1\nb: [1,\n" }, yaml, /run\.yaml:\d+:\d+ is not YAML: /],
    [
      "unknown key",
      { "run.yaml": "model:\n  path: m\ndata:\n  max_lenght: 3\n" },
      yaml,
      /`data\.max_lenght` in .*run\.yaml:4 is not a key of `sft`\. Nearest: `data\.max_length`/,
    ],
    [
      "wrong type",
      { "run.yaml": "model: {path: m}\ndata:\n  max_length: long\n" },
      yaml,
      /`data\.max_length` is "long" in .*run\.yaml:3;/,
    ],
    ["a list", { "run.yaml": "- a\n" }, yaml, /holds a list/],
    ["mandatory", { "run.yaml": "model: {path: ???}\n" }, yaml, /`model\.path` .*is missing/],
    ["circle", { "run.yaml": "defaults: [run]\n" }, yaml, /lead in a circle/],
    ["no such default", { "run.yaml": "defaults: [{optim: fsdb}]\n" }, yaml, /`optim: fsdb` .* Did you mean fsdp\?/],
    ["unknown resolver", { "run.yaml": "model: {path: '${now:%H}'}\n" }, yaml, /no resolver `now`/],
    [
      "not there",
      { "run.yaml": "model: {path: '${data.train_file}'}\n" },
      yaml,
      /refers to \$\{data\.train_file\}.*`data\.train_files`/,
    ],
    ["JSON", { "run.json": "{" }, { file: "run.json" }, /run\.json is not JSON/],
    ["a Python object", { "run.yaml": "model: {path: !!python/name:os.system x}\n" }, yaml, /run\.yaml:1:15 .*python/],
    ["two documents", { "run.yaml": "model: {path: m}\n---\ndata: {}\n" }, yaml, /run\.yaml:2:1 .*second document/],
    ["no export", { "run.ts": "export const a = 1;\n" }, { file: "run.ts" }, /no default export/],
    ["throws", { "run.ts": 'throw new Error("boom");\n' }, { file: "run.ts" }, /run\.ts:1 cannot be loaded: boom/],
    ["two names", { "run.yaml": "" }, { file: "run.yaml", configName: "x" }, /Both run\.yaml and --config-name/],
    ["no config name", {}, { configName: "ppo" }, /no config file ppo\.yaml.*sft_trainer_engine, sft_trainer/],
  ];
  for (const [name, files, request, message] of cases)
    test(name, async () => expect(load(files, request)).rejects.toThrow(message));
});

test("a syntax error in a TypeScript config is shown with its line", () => {
  const folder = folderOf({ "run.ts": 'export default {\n  model: { path: "m" } data: 3,\n};\n' });
  const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, [launcher, "sft", "run.ts"], {
    cwd: folder,
    encoding: "utf8",
  });
  expect(status).toBe(2);
  expect(stderr).toMatch(/run\.ts:2 cannot be loaded: Expected .*\n {2}model: .* data: 3,\n +\^\^\^\^\n$/);
});

describe("a TypeScript config says which verb it is for", () => {
  const defined = (definer: string, keys: string) =>
    `import { ${definer} } from "trainyard";\nexport default ${definer}(${keys});\n`;
  const ppo = defined("defineConfig", "{ data: { train_batch_size: 3 }, actor_rollout_ref: { rollout: { n: 3 } } }");
  const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));
  const trainyard = (files: Readonly<Record<string, string>>, ...args: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [launcher, ...args, "--cfg", "job"], {
      cwd: folderOf(files),
      encoding: "utf8",
    });
    return { code: status, stdout, stderr };
  };
  const needed = {
    sft: ["model.path=m"],
    eval: ["data.path=a"],
    generate: ["model.path=m", "data.path=a", "data.output_path=b.jsonl"],
  };

  test.each(Object.entries(needed))("%s leaves a trainyard.config.ts of ppo alone, with a note", (verb, keys) => {
    const { code, stdout, stderr } = trainyard({ "trainyard.config.ts": ppo }, verb, ...keys);
    expect(stderr).toBe(
      `trainyard.config.ts is a config of \`trainyard ppo\`, so \`trainyard ${verb}\` does not read it.\n`,
    );
    expect(code).toBe(0);
    expect(stdout).not.toMatch(/train_batch_size: 3|n_samples: 3/);
  });

  test("a named file of another verb is refused", () => {
    const { code, stderr } = trainyard({ "run.ts": ppo }, "sft", "run.ts", "model.path=m");
    expect(stderr).toBe(
      "run.ts is a config of `trainyard ppo`, and this is `trainyard sft`. Run trainyard ppo run.ts, or write a config for `sft` with `defineSft`.\n",
    );
    expect(code).toBe(2);
  });

  test.each([
    ["sft", "defineSft", "{ model: { path: 'm' }, data: { max_length: 3 } }", /max_length: 3/],
    [
      "reward",
      "defineRewardModel",
      "{ model: { path: 'm' }, data: { train_files: 'a', max_length: 3 } }",
      /max_length: 3/,
    ],
    [
      "generate",
      "defineGenerate",
      "{ model: { path: 'm' }, data: { path: 'a', output_path: 'b.jsonl', n_samples: 3 } }",
      /n_samples: 3/,
    ],
    ["eval", "defineEval", "{ data: { path: 'a', group_key: 'level' } }", /group_key: level/],
    ["ppo", "defineConfig", "{ actor_rollout_ref: { model: { path: 'm' }, rollout: { n: 3 } } }", /"n": 3/],
  ])("%s reads its own (%s), also where it was copied", (verb, definer, keys, shows) => {
    const files = {
      "base.ts": defined(definer, keys),
      "trainyard.config.ts": 'import base from "./base.ts";\nexport default { ...base };\n',
    };
    const { code, stdout, stderr } = trainyard(files, verb);
    expect(stderr).toMatch(/^Config: trainyard\.config\.ts$/m);
    expect(stdout).toMatch(shows);
    expect(code).toBe(0);
    const other = verb === "sft" ? "eval" : "sft";
    expect(trainyard(files, other, "trainyard.config.ts")).toMatchObject({ code: 2 }); // the mark was copied
  });

  test("one that does not say it is read by every verb", () => {
    const files = { "trainyard.config.ts": "export default { data: { max_length: 3 } };\n" };
    expect(trainyard(files, "sft", "model.path=m").stdout).toMatch(/max_length: 3/);
    expect(trainyard(files, "reward", "model.path=m", "data.train_files=a").stdout).toMatch(/max_length: 3/);
  });
});
