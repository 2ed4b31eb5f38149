/**
 * docs/extending.md, done: each kind of thing is one file, taken out of the page, and one line of a table.
 *
 * What is added to the source is added to a copy of it, which is then type-checked and run as a program. The estimator and
 * the loss with config keys are run by `docs.test.ts`, the verb by `src/cli/add-verb.test.ts`.
 */
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readAll } from "../src/models/safetensors.ts";
import { charConfig, Yard } from "./rl-yard.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const page = await readFile(join(root, "docs/extending.md"), "utf8");

/** The block of the page whose first line names a file. */
function blockOf(file: string): string {
  const blocks = [...page.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, text = ""]) => text);
  const found = blocks.find((text) => text.startsWith(`// ${file}`));
  if (found === undefined) throw new Error(`docs/extending.md has no block for ${file}`);
  return found;
}

/** Run Node on some arguments; the output is everything it printed. */
function run(args: readonly string[], cwd: string): Promise<{ code: unknown; output: string }> {
  return new Promise((done) => {
    execFile(process.execPath, args, { cwd, timeout: 170_000 }, (error, stdout, stderr) =>
      done({ code: error?.code ?? 0, output: stdout + stderr }),
    );
  });
}

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

describe("a loss that reads another tensor", () => {
  const config = (loss: string) => `${loss}
import { defineConfig } from "trainyard";
export default defineConfig({
  data: { train_files: "train.jsonl", train_batch_size: 4, max_prompt_length: 8, max_response_length: 6 },
  actor_rollout_ref: {
    model: { path: "model" },
    actor: { ppo_mini_batch_size: 2, policy_loss: { loss_mode: "surprise" }, optim: { lr: 1e-2 } },
    rollout: { n: 4 },
  },
  algorithm: { adv_estimator: "grpo" },
  custom_reward_function: ({ response }) => response.split("7").length - 1,
  trainer: { total_training_steps: 2, save_freq: -1, default_local_dir: "run", logger: [], threads: 1 },
});
`;
  const train = async (loss: string) => {
    await writeFile(yard.path("trainyard.config.ts"), config(loss));
    return await run([join(root, "bin/trainyard.js"), "ppo"], yard.root);
  };

  test("trains with what it prepares", { timeout: 120_000 }, async () => {
    const { code, output } = await train(blockOf("surprise.ts"));
    expect([code, output]).toEqual([0, expect.stringContaining("the loss surprise")]);
    expect((await yard.metrics("run")).map((data) => data["actor/pg_loss"])).toEqual([
      expect.any(Number),
      expect.any(Number),
    ]);
  });

  test("ends the run with its name and the tensor's where nobody provides it", { timeout: 120_000 }, async () => {
    const unprepared = blockOf("surprise.ts").replace(/ {2}prepare:.*?\n {2}\}\),\n/s, "");
    const { code, output } = await train(unprepared);
    expect([code, output]).toEqual([2, expect.stringMatching(/`actor`.*`surprise`/)]);
  });
});

describe("a kind of part", () => {
  let copy: string;
  beforeAll(async () => {
    await mkdir(join(root, ".cache"), { recursive: true });
    copy = await mkdtemp(join(root, ".cache/extending-"));
    const isWanted = (path: string) => !path.endsWith(".test.ts");
    for (const name of ["bin", "src", "package.json", "tsconfig.json"])
      await cp(join(root, name), join(copy, name), { recursive: true, filter: isWanted });
  });
  afterAll(() => rm(copy, { recursive: true, force: true }));

  /** Replace a text that a file of the copy has once. */
  async function edit(file: string, before: string, after: string): Promise<void> {
    const text = await readFile(join(copy, file), "utf8");
    expect(text.split(before)).toHaveLength(2);
    await writeFile(join(copy, file), text.replace(before, after));
  }

  test("is a file and a row: its parameter is loaded, trained, sampled with and saved", {
    timeout: 300_000,
  }, async () => {
    await writeFile(join(copy, "src/models/parts/scaled.ts"), blockOf("src/models/parts/scaled.ts"));
    const [row] = /const feedForwards = \{ gated, scaled \};/.exec(page) ?? [""];
    await edit("src/models/parts/parts.ts", "const feedForwards = { gated };", row);
    await edit(
      "src/models/parts/parts.ts",
      "import { rope } from",
      'import { scaled } from "./scaled.ts";\nimport { rope } from',
    );
    const [family] = /scaled: \{ \.\.\.llama,.*?\} \}/.exec(page) ?? [""];
    await edit("src/models/families.ts", "  qwen2,\n  qwen3:", `  ${family},\n  qwen2,\n  qwen3:`);
    await edit("src/models/families.ts", 'export type Family = "llama"', 'export type Family = "scaled" | "llama"');

    await writeFile(
      join(copy, "tsconfig.json"),
      `{ "extends": "../../tsconfig.json", "include": ["src/models", "src/runtime"] }\n`,
    );
    const compiler = join(root, "node_modules/typescript/bin/tsc");
    expect((await run([compiler, "--project", copy, "--noEmit", "--pretty", "false"], copy)).output).toBe("");

    const made = join(copy, "make.ts");
    const config = { ...charConfig, model_type: "scaled", architectures: ["ScaledForCausalLM"] };
    await cp(yard.model, yard.path("scaled"), { recursive: true });
    await writeFile(
      made,
      `import { createModel } from "./src/models/create.ts";
await createModel(${JSON.stringify(yard.path("new"))}, ${JSON.stringify(config)}, 1);\n`,
    );
    expect(await run([made], copy)).toEqual({ code: 0, output: "" });
    for (const name of ["config.json", "model.safetensors"])
      await cp(yard.path("new", name), yard.path("scaled", name));

    const reward = yard.path("reward.ts");
    await writeFile(reward, 'export const compute_score = ({ response }) => response.split("7").length - 1;\n');
    const keys = [`actor_rollout_ref.model.path=${yard.path("scaled")}`, `custom_reward_function.path=${reward}`];
    const { code, output } = await run([join(copy, "bin/trainyard.js"), ...yard.args("scaled-run", keys)], copy);
    expect([code, output]).toEqual([0, expect.stringContaining("(scaled, ")]);
    const saved = await readAll(yard.path("scaled-run", "global_step_2", "actor", "model.safetensors"));
    const scale = saved.get("model.layers.0.mlp.scale");
    expect(scale?.shape).toEqual([charConfig.hidden_size]);
    const values = Array.from(scale!.data, Number);
    expect(values.some((value) => value !== 1)).toBe(true);
    expect(values.every((value) => Math.abs(value - 1) < 0.2)).toBe(true);
  });
});
