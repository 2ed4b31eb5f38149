/**
 * A place for reinforcement learning: a temporary folder with a model of one small layer that knows sixteen characters,
 * prompts, and a reward. `play` runs in this process with a reward at hand; `args` are those of a real command.
 */
import { cp, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parseOverride } from "../src/config/overrides.ts";
import { ppoSchema } from "../src/config/ppo/schema.ts";
import { resolve } from "../src/config/resolve.ts";
import { createModel } from "../src/models/create.ts";
import type { RewardFunction } from "../src/rewards/reward.ts";
import { trainRl } from "../src/train/rl/run.ts";
import { setLevel } from "../src/util/log.ts";
import { checksums, Sandbox } from "./sandbox.ts";

const tokenizer = fileURLToPath(new URL("fixtures/text/wordlevel/", import.meta.url));

/** Digits, a comma, a colon and four special tokens; 1 ends a response. */
export const charConfig = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 16,
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: false,
  initializer_range: 0.2,
  bos_token_id: null,
  eos_token_id: 1,
  pad_token_id: 2,
};

/** The share of sevens, with columns beside it. */
export const sevens: RewardFunction = ({ response }) => {
  const share = response.split("7").length - 1;
  return { score: share / 6, acc: share > 0 ? 1 : 0, early: response.length < 6 ? 1 : 0 };
};

export const prompt = (i: number) => ({
  prompt: `${i % 10},${(3 * i) % 10}:`,
  data_source: i % 2 === 0 ? "even" : "odd",
  reward_model: { style: "rule", ground_truth: `${i}` },
  extra_info: { index: i },
});

export class Yard extends Sandbox {
  /** Make the model, sixteen prompts to train on and four to validate on. */
  static override async make(): Promise<Yard> {
    const yard = new Yard();
    await yard.makeModel("model", charConfig);
    const rows = Array.from({ length: 20 }, (_, i) => prompt(i));
    await yard.writeLines("train.jsonl", rows.slice(0, 16));
    await yard.writeLines("val.jsonl", rows.slice(16));
    return yard;
  }

  /** A model of its own under a name, with the characters' tokenizer. */
  async makeModel(name: string, config: Readonly<Record<string, unknown>>, seed = 1): Promise<string> {
    const folder = this.path(name);
    await createModel(folder, config, seed);
    for (const file of ["tokenizer.json", "tokenizer_config.json"])
      await cp(`${tokenizer}${file}`, `${folder}/${file}`);
    return folder;
  }

  /** The keys of a run in the folder `run`; later ones win. */
  keys(run: string, overrides: readonly string[] = []): string[] {
    return [
      `actor_rollout_ref.model.path=${this.model}`,
      `data.train_files=${this.train}`,
      "data.train_batch_size=4",
      "data.max_prompt_length=8",
      "data.max_response_length=6",
      "actor_rollout_ref.rollout.n=4",
      "actor_rollout_ref.actor.ppo_mini_batch_size=2",
      "actor_rollout_ref.actor.optim.lr=1e-2",
      "critic.optim.lr=1e-2",
      "algorithm.adv_estimator=grpo",
      "trainer.total_training_steps=2",
      "trainer.save_freq=2",
      "trainer.logger=[]",
      "trainer.threads=1",
      `trainer.default_local_dir=${this.path(run)}`,
      ...overrides,
    ];
  }

  override args(run: string, overrides: readonly string[] = []): string[] {
    return ["ppo", ...this.keys(run, overrides)];
  }

  /** Train in this process, with a reward at hand; the result is the run's metrics, timings aside. */
  async play(
    run: string,
    overrides: readonly string[] = [],
    reward: RewardFunction = sevens,
    signal: AbortSignal = AbortSignal.any([]),
  ): Promise<Record<string, number>[]> {
    const { config } = resolve(ppoSchema, [this.keys(run, overrides).map(parseOverride)], { home: "/", env: {} });
    const custom = { ...config.custom_reward_function, function: { kind: "function", run: reward } as const };
    setLevel("quiet");
    try {
      await trainRl({ ...config, custom_reward_function: custom }, { signal, env: {} });
    } finally {
      setLevel("info");
    }
    return await this.metrics(run);
  }

  /** With what people look at, and the best model. */
  override async outcome(run: string): Promise<Outcome> {
    const rollouts = await readFile(this.path(run, "rollouts.jsonl"), "utf8");
    const best = await checksums(this.path(run, "best"));
    return { ...(await super.outcome(run)), rollouts: rollouts.split("\n"), best };
  }
}

type Outcome = Awaited<ReturnType<Sandbox["outcome"]>> & {
  readonly rollouts: readonly string[];
  readonly best: Readonly<Record<string, string>>;
};
