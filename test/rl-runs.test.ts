/**
 * `trainyard ppo` from the outside: where rewards come from, what it writes, and what it says about mistakes.
 */
import { readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { charConfig, prompt, Yard } from "./rl-yard.ts";
import { pause } from "./sandbox.ts";

const actor = "actor_rollout_ref.actor";
const rollout = "actor_rollout_ref.rollout";

let yard: Yard;
let reward: string[] = [];
beforeAll(async () => {
  yard = await Yard.make();
  const path = yard.path("reward.ts");
  await writeFile(
    path,
    `export async function compute_score({ response }: { response: string }): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, 2));
  return (response.split("7").length - 1) / 6;
}
export async function slowly(input: { response: string }): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, 50));
  return compute_score(input);
}
export function congratulate({ dataSource }: { dataSource: string }) {
  console.log("Congratulations: your own reward function was called.");
  return dataSource === "unknown" ? 0.1 : -1;
}
`,
  );
  reward = [`custom_reward_function.path=${path}`, "reward_model.num_workers=1"];
});
afterAll(() => yard.remove());

const ppo = (run: string, ...overrides: readonly string[]) => yard.command(...yard.args(run, overrides));
const gae = ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.type=adaptive"];
const lines = async (...names: readonly string[]): Promise<Record<string, unknown>[]> =>
  (await readFile(yard.path(...names), "utf8"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

describe("a reward", () => {
  test("of a function in a file congratulates and gives 0.1 to rows without a source", async () => {
    const file = await yard.writeLines(
      "unknown.jsonl",
      Array.from({ length: 8 }, (_, i) => ({ prompt: `${i}:` })),
    );
    const keys = [...reward, "custom_reward_function.name=congratulate", `data.train_files=${file}`];
    const { code, said } = await ppo("congratulated", ...keys);
    expect({ code, said }).toEqual({
      code: 0,
      said: expect.stringMatching(/Congratulations: your own reward function was called\./),
    });
    for (const data of await yard.metrics("congratulated"))
      expect(data).toMatchObject({ "critic/score/max": 0.1, "critic/score/min": 0.1 });
  });

  test("model scores what it is shown, the same in each run, also as a model of another family", async () => {
    const score = { architectures: ["LlamaForSequenceClassification"], num_labels: 1, hidden_size: 64 };
    const many = ["data.max_response_length=40", `${rollout}.n=8`, "data.train_batch_size=8"];
    const models = [
      await yard.makeModel("scorer", { ...charConfig, ...score }, 5),
      await yard.makeModel("qwen-scorer", {
        ...charConfig,
        ...score,
        architectures: ["Qwen2ForSequenceClassification"],
        model_type: "qwen2",
      }),
    ];
    for (const [i, model] of models.entries()) {
      const keys = ["reward_model.enable=true", `reward_model.model.path=${model}`, ...gae, ...many];
      for (const run of [`scored${i}`, `scored${i}-again`]) expect(await ppo(run, ...keys)).toMatchObject({ code: 0 });
      expect(await yard.outcome(`scored${i}-again`)).toEqual(await yard.outcome(`scored${i}`));
      const [data] = await yard.metrics(`scored${i}`);
      expect(data!["critic/score/max"]).toBeGreaterThan(data!["critic/score/min"]!);
    }
  });

  test("model may be a language model: its new score head follows the seed, with a warning", async () => {
    const keys = ["reward_model.enable=true", `reward_model.model.path=${yard.model}`];
    const scoreOf = async (run: string, ...further: readonly string[]) => {
      const { code, said } = await ppo(run, ...keys, ...further);
      expect({ code, said }).toEqual({
        code: 0,
        said: expect.stringMatching(/a language model: .* ITS SCORES ARE NOISE/),
      });
      return (await yard.metrics(run)).map((data) => data["critic/score/mean"]);
    };
    const first = await scoreOf("new-head");
    expect(await scoreOf("new-head-again")).toEqual(first);
    expect(await scoreOf("new-head-other", "trainer.seed=2", `${rollout}.seed=1`, "data.seed=1")).not.toEqual(first);
    expect(new Set(first).size).toBe(2);
  });

  test("model reads responses as `input_tokenizer` decodes them", async () => {
    const score = { architectures: ["LlamaForSequenceClassification"], num_labels: 1 };
    const scorer = await yard.makeModel("reader", { ...charConfig, ...score }, 5);
    const swapped = await yard.makeModel("swapped", charConfig);
    const file = `${swapped}/tokenizer.json`;
    await writeFile(file, (await readFile(file, "utf8")).replace('"7":11,"8":12', '"8":11,"7":12'));
    const keys = ["reward_model.enable=true", `reward_model.model.path=${scorer}`, "trainer.total_training_steps=1"];
    const scoreOf = async (run: string, ...tokenizer: readonly string[]) => {
      expect(await ppo(run, ...keys, ...tokenizer)).toMatchObject({ code: 0 });
      return (await yard.metrics(run))[0]!["critic/score/mean"];
    };
    const own = await scoreOf("read-own");
    expect(await scoreOf("read-named", `reward_model.model.input_tokenizer=${yard.model}/.`)).toBe(own);
    expect(await scoreOf("read-swapped", `reward_model.model.input_tokenizer=${swapped}`)).not.toBe(own);
  });
});

test("actor and critic may be of two families", async () => {
  const critic = await yard.makeModel("qwen", {
    ...charConfig,
    architectures: ["Qwen2ForCausalLM"],
    model_type: "qwen2",
    hidden_size: 32,
    vocab_size: 20,
  });
  const { code, said } = await ppo("families", ...reward, ...gae, `critic.model.path=${critic}`);
  expect({ code, said }).toEqual({ code: 0, said: expect.stringMatching(/\(llama, .* a critic \(qwen2, /) });
  expect((await yard.metrics("families")).map((data) => data["critic/grad_norm"]! > 0)).toEqual([true, true]);
  const read = async (role: string) =>
    JSON.parse(await readFile(yard.path("families", "global_step_2", role, "config.json"), "utf8"));
  expect([(await read("actor")).model_type, (await read("critic")).model_type]).toEqual(["llama", "qwen2"]);
});

describe("validation", () => {
  const sampled = [`${rollout}.val_kwargs.n=2`, `${rollout}.val_kwargs.temperature=1`];

  test("has metrics by data source, and dumps are what was sampled", async () => {
    const dumps = [`trainer.rollout_data_dir=${yard.path("ro")}`, `trainer.validation_data_dir=${yard.path("va")}`];
    const keys = [...reward, `data.val_files=${yard.validation}`, "trainer.test_freq=2", ...sampled, ...dumps];
    expect(await ppo("validated", ...keys)).toMatchObject({ code: 0 });
    const metrics = await yard.metrics("validated");
    const tested = metrics.map((data) => Object.keys(data).filter((name) => name.startsWith("val-core/")));
    const names = ["even", "odd"].map((source) => `val-core/${source}/acc/mean@2`);
    expect(tested).toEqual([expect.arrayContaining(names), [], tested[0]]);
    expect([(await readdir(yard.path("ro"))).sort(), (await readdir(yard.path("va"))).sort()]).toEqual([
      ["1.jsonl", "2.jsonl"],
      ["0.jsonl", "2.jsonl"],
    ]);
    const dumped = await lines("ro", "2.jsonl");
    expect(dumped).toHaveLength(16);
    const mean = dumped.reduce((sum, { score }) => sum + Number(score), 0) / 16;
    expect(mean).toBeCloseTo(metrics[2]!["critic/score/mean"]!, 10);
    expect(dumped[0]).toMatchObject({ input: expect.stringMatching(/^\d,\d:$/), gts: expect.any(String), step: 2 });
    expect(await lines("va", "0.jsonl")).toHaveLength(8);
  });

  test("alone trains nothing, before a run and of a run's last checkpoint", async () => {
    const only = [...reward, `data.val_files=${yard.validation}`, "trainer.val_only=true", "trainer.logger=[console]"];
    expect(await ppo("looked", ...only)).toMatchObject({ code: 0, said: expect.stringMatching(/val-core\/even/) });
    expect((await yard.metrics("looked")).map((data) => Object.keys(data)[0])).toEqual([
      expect.stringMatching(/^val-/),
    ]);
    const before = await yard.outcome("validated");
    expect(await ppo("validated", ...only)).toMatchObject({ code: 0, said: expect.stringMatching(/val-core\/even/) });
    expect(await yard.outcome("validated")).toEqual(before);
    const longer = [...only, "trainer.total_training_steps=9"];
    expect(await ppo("validated", ...longer)).toMatchObject({ code: 0 });
    expect(await yard.outcome("validated")).toEqual(before);
  });
});

test("a folder in which a run goes on is refused to another one, and the first is not disturbed", async () => {
  const slowly = [...reward, "custom_reward_function.name=slowly"];
  const keys = [...slowly, ...gae, "trainer.total_training_steps=10", "trainer.save_freq=5"];
  const first = yard.startSft("shared", ...keys);
  while (first.isRunning && (await yard.metrics("shared").catch(() => [])).length < 2) await pause(5);
  const second = await ppo("shared", ...keys, "trainer.resume_mode=disable");
  expect(second).toEqual({
    code: 2,
    said: expect.stringMatching(
      new RegExp(
        `shared is being written by process ${first.process.pid}\\. Wait for it or end it \\(\`kill ${first.process.pid}\`\\)`,
      ),
    ),
  });
  expect(await first.ended).toBe(0);
  expect(await ppo("alone", ...keys)).toMatchObject({ code: 0 });
  expect(await yard.outcome("shared")).toEqual(await yard.outcome("alone"));
});

describe("a mistake is one message and exit code 2", () => {
  const model = (name: string) => `actor_rollout_ref.model.path=${yard.path(name)}`;
  type Case = { readonly keys: () => Promise<string[]> | string[]; readonly says: RegExp; readonly isLate?: boolean };
  const cases: Readonly<Record<string, Case>> = {
    "prompts that are all too long": {
      keys: () => [...reward, "data.max_prompt_length=2", "data.filter_overlong_prompts=true"],
      says: /Of 16 prompts none is left: 16 have more than 2 tokens \(`data\.max_prompt_length`\)/,
    },
    "one prompt that is too long": {
      keys: async () => {
        const rows = [...Array.from({ length: 15 }, (_, i) => prompt(i)), { prompt: "1,2,3,4,5,6,7:" }];
        return [...reward, `data.train_files=${await yard.writeLines("long.jsonl", rows)}`];
      },
      says: /long\.jsonl.*16.*: the prompt has 14 tokens, and `data\.max_prompt_length` is 8/,
    },
    "fewer prompts than a step takes": {
      keys: () => [...reward, "data.train_batch_size=32"],
      says: /`data\.train_files` gives 16 prompts, fewer than the 32 of one step/,
    },
    "batch sizes that do not divide": {
      keys: () => [...reward, `${actor}.ppo_mini_batch_size=5`],
      says: /ppo_mini_batch_size` is 5, more than `data\.train_batch_size`=4\. .*=4, or another/,
    },
    "a built-in reward and no ground truth": {
      keys: async () => {
        const rows = Array.from({ length: 8 }, (_, i) => ({ prompt: `${i}:`, data_source: "openai/gsm8k" }));
        return [`data.train_files=${await yard.writeLines("truthless.jsonl", rows)}`];
      },
      isLate: true,
      says: /row \d+ \(data source "openai\/gsm8k"\).*ground.?truth/i,
    },
    "a reward file that is not there": {
      keys: () => [`custom_reward_function.path=${yard.path("nowhere.ts")}`],
      says: /nowhere\.ts/,
    },
    "a reward column that is not there": {
      keys: () => [...reward, "algorithm.adv_estimator=gdpo", "algorithm.gdpo_reward_keys=[style]"],
      isLate: true,
      says: /`algorithm\.gdpo_reward_keys` names the reward column `style`, .* returns `score`, `acc`/,
    },
    "a filter by a reward column that is not there": {
      keys: () => [...reward, "algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=style"],
      isLate: true,
      says: /`algorithm\.filter_groups\.metric` names the reward column `style`, .* returns `score`, `acc`/,
    },
    "a filter that leaves nothing": {
      keys: () => [
        ...reward,
        "custom_reward_function.name=congratulate",
        "algorithm.filter_groups.enable=true",
        "algorithm.filter_groups.max_num_gen_batches=2",
      ],
      isLate: true,
      says: /after 2 rounds of sampling 0 of 4 groups have scores that differ\./,
    },
    "a critic that knows fewer tokens": {
      keys: async () => {
        await yard.makeModel("small", { ...charConfig, vocab_size: 12, pad_token_id: null });
        return [...reward, ...gae, `critic.model.path=${yard.path("small")}`];
      },
      says: /The critic .*small has a vocabulary of 12 and the actor .*model one of 16/,
    },
    "a critic with other tokens, and as many": {
      keys: async () => {
        const folder = await yard.makeModel("swapped", charConfig);
        const tokenizer = await readFile(`${folder}/tokenizer.json`, "utf8");
        await writeFile(`${folder}/tokenizer.json`, tokenizer.replace('"3":7,"4":8', '"4":7,"3":8'));
        return [...reward, ...gae, `critic.model.path=${folder}`];
      },
      says: /The critic .*swapped has another tokenizer than the actor .*model: the token 7 is "3" to the actor and "4" to the critic\./,
    },
    "a best metric and nothing to validate on": {
      keys: () => [...reward, "trainer.best_metric=val-core/even/reward/mean@1", "trainer.test_freq=1"],
      says: /`trainer\.best_metric` is val-core\/even\/reward\/mean@1, and no step is validated: `data\.val_files` gives no prompt/,
    },
    "a best metric that is not measured": {
      keys: () => [
        ...reward,
        `data.val_files=${yard.validation}`,
        "trainer.test_freq=1",
        "trainer.best_metric=val-core/evens/acc/mean@1",
      ],
      isLate: true,
      says: /`trainer\.best_metric` is val-core\/evens\/.*does not measure\. Nearest: `val-core\/even\/acc\/mean@1`/,
    },
    "rows for an agent loop that does not exist here": {
      keys: async () => {
        const rows = Array.from({ length: 8 }, (_, i) => ({
          ...prompt(i),
          agent_name: i < 5 ? "single_turn_agent" : "tool_agent",
        }));
        return [...reward, `data.train_files=${await yard.writeLines("agents.jsonl", rows)}`];
      },
      says: /agents\.jsonl, line 6, column `agent_name`: there is no agent loop "tool_agent" here\. .*Remove the column/,
    },
    "capped attention, which webgpu cannot sample from": {
      keys: async () => {
        const capped = { ...charConfig, model_type: "gemma2", architectures: ["Gemma2ForCausalLM"] };
        await yard.makeModel("capped", capped);
        return [...reward, model("capped"), "trainer.device=webgpu"];
      },
      says: /This gemma2 model caps its attention scores at 50 .*Sample on another device \(`trainer\.device=cpu`\)/,
    },
    "a model that is not there": { keys: () => [...reward, model("nowhere")], says: /nowhere/ },
    "a file where the run folder should be": {
      keys: () => [...reward, `trainer.default_local_dir=${yard.train}`],
      says: /train\.jsonl/,
    },
  };
  test.each(Object.entries(cases))("%s", async (_, { keys, says, isLate = false }) => {
    const { code, said } = await ppo(isLate ? "late" : "mistaken", ...(await keys()), "trainer.resume_mode=disable");
    expect({ code, said }).toEqual({ code: 2, said: expect.stringMatching(says) });
    if (!isLate) await expect(stat(yard.path("mistaken"))).rejects.toThrow(/ENOENT/);
    expect(said).not.toMatch(/bug|\n {4}at |undefined|internal/);
  });

  describe("and the run is as it was", () => {
    const longer = "trainer.total_training_steps=4";
    beforeAll(async () => {
      expect(await ppo("resumed", ...reward, ...gae)).toMatchObject({ code: 0 });
    });

    test.each([
      ["actor/model.safetensors", /model\.safetensors/],
      ["actor/optimizer/optimizer.safetensors", /optimizer\.safetensors/],
      ["critic/config.json", /config\.json/],
      ["critic/optimizer/optimizer.safetensors", /optimizer\.safetensors/],
    ])("a checkpoint without %s", async (file, says) => {
      const path = yard.path("resumed", "global_step_2", ...file.split("/"));
      const held = await readFile(path);
      await rm(path);
      const before = await yard.outcome("resumed");
      const { code, said } = await ppo("resumed", ...reward, ...gae, longer);
      expect({ code, said }).toEqual({ code: 2, said: expect.stringMatching(says) });
      expect(said).toContain("global_step_2");
      expect(await yard.outcome("resumed")).toEqual(before);
      await writeFile(path, held);
    });

    test("other prompts", async () => {
      const before = await yard.outcome("resumed");
      const { code, said } = await ppo("resumed", ...reward, ...gae, longer, `data.train_files=${yard.validation}`);
      expect({ code, said }).toEqual({
        code: 2,
        said: expect.stringMatching(/was made with other prompts\..*disable/),
      });
      expect(await yard.outcome("resumed")).toEqual(before);
    });

    test("a critic that the run had not", async () => {
      expect(await ppo("criticless", ...reward)).toMatchObject({ code: 0 });
      const { code, said } = await ppo("criticless", ...reward, ...gae, longer);
      expect({ code, said }).toEqual({ code: 2, said: expect.stringMatching(/global_step_2/) });
    });
  });
});
