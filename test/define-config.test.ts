/**
 * The types of a config file, as a user's compiler sees them: declaration files as they are packed, checked with strict
 * options and without `skipLibCheck`. The README's config is right, and every single mistake in it is an error.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "..");
const folder = mkdtempSync(join(tmpdir(), "trainyard-define-"));
afterAll(() => rmSync(folder, { recursive: true }));

const readme = /```ts\n\/\/ trainyard\.config\.ts\n([\s\S]*?)```/.exec(
  readFileSync(join(root, "README.md"), "utf8"),
)![1]!;

/** A mistake: what stands in the README's config, and what is written in its place. */
const mistakes: Readonly<Record<string, readonly [from: string, to: string]>> = {
  "a misspelt section": ["trainer: {", "trainner: {"],
  "a misspelt key": ["train_files:", "train_file:"],
  "a misspelt key three levels deep": ["ppo_mini_batch_size:", "ppo_minibatch_size:"],
  "a misspelt key four levels deep": ["optim: { lr: 1e-5 }", "optim: { learning_rate: 1e-5 }"],
  "a key in the wrong section": ["rollout: { n: 8 }", "rollout: { lr: 8 }"],
  "a key of another verb": ["max_prompt_length: 128", "max_length: 128"],
  "a text for a number": ["train_batch_size: 32", 'train_batch_size: "32"'],
  "a number for a text": ['path: "Qwen/Qwen2.5-0.5B-Instruct"', "path: 7"],
  "a text for true or false": ["save_freq: 50", 'val_before_train: "false"'],
  "an unknown estimator": ['"grpo"', '"gpro"'],
  "an unknown policy loss": ["optim: { lr: 1e-5 }", 'policy_loss: { loss_mode: "gpso" }'],
  "an unknown aggregation": ["optim: { lr: 1e-5 }", 'loss_agg_mode: "token_mean"'],
  "an unknown KL estimate": ["optim: { lr: 1e-5 }", 'kl_loss_type: "k4"'],
  "an unknown logger": ["save_freq: 50", 'logger: ["wnadb"]'],
  "a reward that reads what is not there": ["({ response, groundTruth })", "({ response, truth: groundTruth })"],
  "a reward that is a text": ["? 1 : 0", '? "good" : "bad"'],
};

const right: Readonly<Record<string, string>> = {
  readme,
  "own-names": `import { defineConfig, registerAdvantage, registerKlEstimate, registerPolicyLoss } from "trainyard";
const flat = registerAdvantage({
  name: "flat", hasCritic: false, needs: [],
  compute: ({ mask }) => ({ advantages: mask.map((row) => Float64Array.from(row)), returns: [] }),
});
const kl = registerKlEstimate({ name: "own_kl", traced: (d) => d, plain: (d) => d });
const loss = registerPolicyLoss({ name: "own_loss", build: ({ logRatio, total }) => ({ loss: total(logRatio), metrics: {} }) });
export default defineConfig({
  algorithm: { adv_estimator: flat.name, kl_penalty: kl.name, own: { flat: { depth: 1 } } },
  actor_rollout_ref: { actor: { policy_loss: { loss_mode: loss.name }, kl_loss_type: "k3+" } },
});`,
  "built-on": `import { defineConfig } from "trainyard";
import base from "./readme.mts";
export default defineConfig({
  ...base,
  actor_rollout_ref: { ...base.actor_rollout_ref, actor: { ...base.actor_rollout_ref.actor, ppo_epochs: 2 } },
  trainer: { engine: "ray", nnodes: 2, experiment_name: "\${trainer.project_name}-2" },
});`,
  hooks: `import { defineConfig, defineDataGenerator, defineDataset, defineSampler, defineSft } from "trainyard";
const rows = defineDataset(async function* ({ split, files }) {
  for (const file of files) yield { prompt: file, split };
});
export default defineConfig({
  data: {
    sampler: defineSampler({
      state: { seen: [] as number[] },
      next: (state, { batchSize, random }) => Array.from({ length: batchSize }, (_, i) => i + state.seen.length + Math.floor(random())),
      update: (state, { groups }) => void state.seen.push(...groups.map(({ index }) => index)),
    }),
    custom_cls: rows,
    datagen: defineDataGenerator({ state: { made: 0 }, generate: (state, { step }) => [{ prompt: String(step + state.made++) }] }),
  },
});
export const inFiles = defineConfig({ data: { sampler: { class_path: "sampler.ts", class_name: "easy" }, custom_cls: { path: "rows.ts" } } });
export const sft = defineSft({ data: { custom_cls: rows } });`,
  "other-verbs": `import { defineEval, defineGenerate, defineRewardModel, defineSft } from "trainyard";
export const sft = defineSft({ model: { path: "m" }, trainer: { save_freq: "after_each_epoch" } });
export const reward = defineRewardModel({ data: { chosen_key: "better" } });
export const generate = defineGenerate({ data: { n_samples: 4 }, rollout: { temperature: 0.7 } });
export const evaluation = defineEval({ data: { path: "answers.parquet" } });`,
};

const otherMistakes: Readonly<Record<string, string>> = {
  sft: "defineSft({ model: { pth: 'm' } })",
  "sft with a key of ppo": "defineSft({ algorithm: { adv_estimator: 'grpo' } })",
  reward: "defineRewardModel({ data: { chosen: 'better' } })",
  "a key of a hook": "defineConfig({ data: { sampler: { path: 'sampler.ts' } } })",
  "another kind of hook": "defineConfig({ data: { sampler: ((await import('trainyard')).defineDataset(() => [])) } })",
  generate: "defineGenerate({ rollout: { temprature: 1 } })",
  eval: "defineEval({ eval: { pass_score: 'half' } })",
};

const compiler = join(root, "node_modules/typescript/bin/tsc");
const tsc = (...args: readonly string[]) =>
  spawnSync(process.execPath, [compiler, "--pretty", "false", ...args], { cwd: folder, encoding: "utf8" }).stdout;

let output = "";
beforeAll(() => {
  const built = join(folder, "node_modules/trainyard");
  mkdirSync(join(folder, "node_modules"), { recursive: true });
  expect(tsc("-p", join(root, "tsconfig.build.json"), "--emitDeclarationOnly", "--outDir", join(built, "dist"))).toBe(
    "",
  );
  writeFileSync(join(built, "package.json"), readFileSync(join(root, "package.json")));
  symlinkSync(join(root, "node_modules"), join(built, "node_modules"), "junction"); // what the package depends on
  const files: Record<string, string> = { ...right };
  for (const [index, [from, to]] of Object.values(mistakes).entries())
    files[`mistake-${index}`] = readme.replace(from, to);
  for (const [index, call] of Object.values(otherMistakes).entries())
    files[`other-${index}`] = `import { ${/\w+/.exec(call)} } from "trainyard";\nexport default ${call};`;
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, `${name}.mts`), text);
  const compilerOptions = {
    // Those of `tsc --init`, without `skipLibCheck`.
    module: "nodenext",
    target: "esnext",
    types: [],
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: true,
    strict: true,
    verbatimModuleSyntax: true,
    isolatedModules: true,
    noUncheckedSideEffectImports: true,
    moduleDetection: "force",
    skipLibCheck: false,
    allowImportingTsExtensions: true,
    noEmit: true,
  };
  const names = Object.keys(files).map((name) => `${name}.mts`);
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: names }));
  output = tsc("-p", folder);
}, 120_000);

const errorsOf = (name: string) => output.split("\n").filter((line) => line.startsWith(`${name}.mts(`));

test("declaration files and right configs have no error", () => {
  expect(output.split("\n").filter((line) => /^\S/.test(line) && !/^(mistake|other)-\d+\.mts\(/.test(line))).toEqual(
    [],
  );
});

describe("the compiler flags in the README's config", () => {
  test.each(Object.entries(mistakes).map(([what, [from, to]], index) => ({ what, from, to, index })))(
    "$what",
    ({ from, to, index }) => {
      const line = readme.slice(0, readme.indexOf(from)).split("\n").length;
      expect(readme).not.toBe(readme.replace(from, to));
      expect(errorsOf(`mistake-${index}`)).toContainEqual(
        expect.stringMatching(new RegExp(`^mistake-\\d+\\.mts\\(${line},`)),
      );
    },
  );
});

describe("the compiler flags in a config of", () => {
  test.each(Object.keys(otherMistakes).map((what, index) => ({ what, index })))("$what", ({ index }) => {
    expect(errorsOf(`other-${index}`)).toHaveLength(1);
  });
});
