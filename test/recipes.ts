/**
 * A place to try verl's command lines in: small models of the families that its recipes name, files in the schema of its
 * datasets, a sandbox service. `argumentsOf` replaces the paths and the sizes of a command line and leaves the rest alone.
 */
import { mkdir, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { dirname } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { expect } from "vitest";
import { parseOverride } from "../src/config/overrides.ts";
import { ppoSchema } from "../src/config/ppo/schema.ts";
import { type AnySchema, find } from "../src/config/schema.ts";
import { sftSchema } from "../src/config/sft/schema.ts";
import { formatValue } from "../src/config/value.ts";
import { parquetBytes } from "../src/data/parquet-writer.ts";
import { createModel } from "../src/models/create.ts";
import { isFamily } from "../src/models/families.ts";
import { Sandbox, tinyConfig } from "./sandbox.ts";

/** A command line of verl: its program, what Hydra is told, and the overrides. */
export type Recipe = {
  readonly name: string;
  readonly program: string;
  readonly overrides: readonly string[];
  readonly config?: Readonly<Record<string, string>>;
};

/** The `model_type` of the models that recipes name. */
const modelTypes: readonly (readonly [name: RegExp, modelType: string])[] = [
  [/deepseek-(llm|coder)|LLaMA3|Llama-3/, "llama"],
  [/Qwen1\.5-MoE/, "qwen2_moe"],
  [/Qwen2\.5-VL/, "qwen2_5_vl"],
  [/Qwen3-VL/, "qwen3_vl"],
  [/Qwen3-\d+B-A\d+B/, "qwen3_moe"],
  [/Qwen3-/, "qwen3"],
  [/Qwen2/, "qwen2"],
  [/Mistral/, "mistral"],
  [/gemma-2-/, "gemma2"],
  [/gemma-/, "gemma"],
  [/Seed-OSS/, "seed_oss"],
  [/MiMo/, "mimo"],
  [/gpt-oss/, "gpt_oss"],
  [/GLM-4\.1V/, "glm4v"],
  [/MiniCPM-o/, "minicpmo"],
  [/DeepSeek-V3|^$/, "deepseek_v3"], // Moonlight's script leaves the path to the user
];

/** The `model_type` of a model that a recipe names. */
export function modelTypeOf(path: string): string {
  return modelTypes.find(([name]) => name.test(path))?.[1] ?? `none for ${path}`;
}

/** Rows as verl's scripts make them; those of gsm8k have what supervised fine-tuning reads too. */
const row = (i: number, source: string, truth: string) => ({
  data_source: source,
  prompt: [{ role: "user", content: `${i}+${i}=?` }],
  ability: "math",
  reward_model: { style: "rule", ground_truth: truth },
  extra_info: { split: "train", index: i, question: `${i}+${i}=?`, answer: `#### ${2 * i}` },
});
const cases = JSON.stringify({ inputs: ["1\n"], outputs: ["1\n"] });
const messages = (i: number) => [...row(i, "", "").prompt, { role: "assistant", content: `${2 * i}` }];
const files: Readonly<Record<string, (i: number) => Readonly<Record<string, unknown>>>> = {
  ...Object.fromEntries(["train", "test"].map((name) => [`gsm8k/${name}`, (i) => row(i, "openai/gsm8k", `${2 * i}`)])),
  ...Object.fromEntries(
    ["train", "test"].map((name) => [`math/${name}`, (i) => row(i, "DigitalLearningGmbH/MATH-lighteval", `${2 * i}`)]),
  ),
  ...Object.fromEntries(
    ["train", "validation"].map((name) => [
      `Eurus-2-RL-Data/${name}`,
      (i) => (i % 2 === 0 ? row(i, "codecontests", cases) : row(i, "numina_olympiads", `${i}`)),
    ]),
  ),
  "full_hh_rlhf/rl/train": (i) => row(i, "Dahoas/full-hh-rlhf", ""),
  "dapo-math-17k": (i) => row(i, "math_dapo", `${2 * i}`),
  "aime-2024": (i) => row(i, "aime_2024", `${2 * i}`),
  "geo3k/train": (i) => row(i, "hiyouga/geometry3k", `${2 * i}`),
  "geo3k/test": (i) => row(i, "hiyouga/geometry3k", `${2 * i}`),
  "multiturn/train": (i) => ({ messages: messages(i) }),
  "multiturn/test": (i) => ({ messages: messages(i) }),
  "pokemon-gpt4o-captions/train": (i) => ({ messages: messages(i) }),
  "gsm8k/responses": (i) => ({ ...row(i, "openai/gsm8k", `${2 * i}`), responses: [`#### ${2 * i}`, "#### 1"] }),
};

/** The verb of each of verl's programs. */
const verbs: Readonly<Record<string, string>> = {
  "verl.trainer.main_ppo": "ppo",
  "verl.trainer.sft_trainer": "sft",
  "verl.trainer.fsdp_sft_trainer": "sft",
  "verl.trainer.main_generation": "generate",
  "verl.trainer.main_generation_server": "generate",
  "verl.trainer.main_eval": "eval",
};

const steps = { "trainer.total_training_steps": "2", "trainer.threads": "1" };

/** Sizes that fit a small model; those that a recipe does not set are added. */
const sizes: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  ppo: {
    ...steps,
    "data.train_batch_size": "4",
    "data.max_prompt_length": "64",
    "data.max_response_length": "6",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "2",
  },
  sft: { ...steps, "data.train_batch_size": "4" },
  generate: { "trainer.threads": "1" },
};

/** Sizes that are replaced where a recipe sets them. */
const others: Readonly<Record<string, string>> = {
  "data.gen_batch_size": "4",
  "reward_model.reward_kwargs.overlong_buffer_cfg.len": "2",
  "reward_model.reward_kwargs.max_resp_len": "6",
  "reward_model.overlong_buffer.len": "2",
  "actor_rollout_ref.rollout.n": "2",
  "actor_rollout_ref.rollout.response_length": "6",
  "rollout.response_length": "6",
};

/** The place, with models and files, until it is removed. */
export class RecipeYard extends Sandbox {
  readonly #service: Server;
  /** How often the sandbox service was asked. */
  calls = 0;

  private constructor(service: Server) {
    super();
    this.#service = service;
  }

  static override async make(): Promise<RecipeYard> {
    const service = createServer();
    const yard = new RecipeYard(service);
    const result = { status: "Finished", execution_time: 0, return_code: 0, stdout: "1\n", stderr: "" };
    service.on("request", (_, response) => {
      yard.calls += 1;
      const body = { status: "Success", message: "", compile_result: null, run_result: result };
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
    });
    await new Promise<void>((resolve) => service.listen(0, "127.0.0.1", resolve));
    for (const [name, rowOf] of Object.entries(files)) {
      const path = yard.path("data", `${name}.parquet`);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(
        path,
        parquetBytes(
          path,
          Array.from({ length: 8 }, (_, i) => rowOf(i)),
        ),
      );
    }
    for (const modelType of new Set(modelTypes.map(([, modelType]) => modelType))) await yard.#makeModel(modelType);
    await yard.#makeModel("llama", "LlamaForSequenceClassification");
    await writeFile(yard.path("reward.ts"), rewardFile);
    return yard;
  }

  /** A small model, or for a family that is not there a folder that has nothing but its config. */
  async #makeModel(modelType: string, className?: string): Promise<void> {
    const folder = this.#modelPath(modelType, className);
    const shape = { ...tinyConfig, num_hidden_layers: 1, head_dim: 16, initializer_range: 0.2, model_type: modelType };
    const config = { ...shape, architectures: className === undefined ? undefined : [className], num_labels: 1 };
    if (isFamily(modelType)) await createModel(folder, config, 1);
    else {
      await mkdir(folder, { recursive: true });
      await writeFile(`${folder}/config.json`, JSON.stringify(config));
    }
    await this.addTokenizer(folder);
  }

  #modelPath(modelType: string, className = "causal"): string {
    return this.path("models", modelType, className);
  }

  /** The command of a recipe: paths and sizes replaced, nothing else. */
  argumentsOf({ name, program, overrides, config = {} }: Recipe): string[] {
    const verb = verbs[program] ?? program;
    const size = sizes[verb] ?? {};
    const replaced = overrides.map((override) => this.#replace(override, { ...others, ...size }));
    const given = new Set(replaced.map((override) => override.replace(/^\+*|=.*/gs, "")));
    const added = Object.entries(size).filter(([key]) => !given.has(key));
    const folder =
      verb === "ppo" || verb === "sft" ? [`trainer.default_local_dir=${formatValue(this.path("runs", name))}`] : [];
    return [
      verb,
      ...Object.entries(config).map(([flag, value]) => `--${flag}=${value}`),
      ...replaced.filter((override) => !override.startsWith("trainer.default_local_dir=")),
      ...added.map(([key, value]) => `${key}=${value}`),
      ...folder,
    ];
  }

  #replace(override: string, size: Readonly<Record<string, string>>): string {
    const [, op = "", key = "", value = ""] = /^([+~]*)([^=]*)=?(.*)$/s.exec(override) ?? [];
    if (!override.includes("=")) return override;
    const isRewardModel = key === "reward_model.model.path" || key === "reward.reward_model.model_path";
    if (isRewardModel && /-RM-|-Reward-/.test(value))
      return `${key}=${this.#modelPath("llama", "LlamaForSequenceClassification")}`;
    if (isRewardModel || /model\.(path|partial_pretrain|input_tokenizer)$/.test(key))
      return `${key}=${this.#modelPath(modelTypeOf(value))}`;
    if (key.endsWith("sandbox_fusion.url")) return `${key}=${this.url}`;
    if (key.endsWith("custom_reward_function.path") && value !== "null") return `${key}=${this.path("reward.ts")}`;
    return `${op}${key}=${size[key] ?? value.replaceAll("~/", `${this.root}/`)}`;
  }

  /** Two steps of a recipe are taken, every number is one, and nothing is passed over in silence. */
  async expectSteps(recipe: Recipe): Promise<void> {
    const args = this.argumentsOf(recipe);
    const { code, said } = await this.command(...args);
    expect(code, said).toBe(0);
    expect(unmentioned(args, said)).toEqual([]);
    const rewardModel = args.find((arg) => arg.startsWith("reward_model.model.path=")) ?? "";
    expect(said.includes("ITS SCORES ARE NOISE")).toBe(rewardModel.endsWith("/causal")); // verl's scripts name two
    const step = args[0] === "sft" ? "train/loss" : "actor/grad_norm";
    const metrics = (await this.metrics(`runs/${recipe.name}`)).filter((data) => step in data);
    expect(metrics).toHaveLength(2);
    for (const data of metrics)
      for (const [key, value] of Object.entries(data)) expect([key, Number.isFinite(value)]).toEqual([key, true]);
  }

  /** A recipe ends with exit code 2 and says why. */
  async expectRefusal(recipe: Recipe, message: RegExp): Promise<void> {
    const { code, said } = await this.command(...this.argumentsOf(recipe));
    expect(said).toMatch(message);
    expect(code).toBe(2);
  }

  get url(): string {
    const address = this.#service.address();
    return `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}/run_code`;
  }

  override remove(): void {
    this.#service.close();
    this.#service.closeAllConnections();
    super.remove();
  }
}

const rewardFile = `export const compute_score = () => ({ score: Math.random(), accuracy: 1, format: 0 });
export const compute_score_batch = (inputs: readonly unknown[]) => inputs.map(() => Math.random());
`;

/** Keys of a command that have no effect here and that nothing was said about. */
function unmentioned([verb = "", ...args]: readonly string[], said: string): string[] {
  const schema: AnySchema | undefined = { ppo: ppoSchema, sft: sftSchema }[verb];
  if (schema === undefined) return [];
  const last = new Map(
    args.filter((arg) => !arg.startsWith("--")).map((arg) => [parseOverride(arg).path, parseOverride(arg).value]),
  );
  return [...last].flatMap(([path, value]) => {
    const found = find(schema, path);
    if (found.kind === "unknown") return [path];
    if (found.kind !== "inert" || found.inert.same.some((same) => isDeepStrictEqual(same, value))) return [];
    return said.includes(`${path}=`) ? [] : [path];
  });
}
