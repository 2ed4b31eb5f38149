/**
 * `trainyard ppo` from the outside: how a run goes on after any kind of end, where rewards and samples come from, what
 * it writes, and what it says about mistakes. Where a process must die, it is a real one and dies by a real signal.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Random } from "../src/util/random.ts";
import { charConfig, killAt, prompt, Yard } from "./rl-yard.ts";
import { pause } from "./sandbox.ts";

const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));
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
export function congratulate({ dataSource }: { dataSource: string }) {
  console.log("Congratulations!!! You have called my_reward_function successfully!!!");
  return dataSource === "unknown" ? 0.1 : -1;
}
`,
  );
  reward = [`custom_reward_function.path=${path}`, "reward_model.num_workers=1"];
});
afterAll(() => yard.remove());

const ppo = (run: string, ...overrides: readonly string[]) => yard.command(...yard.args(run, overrides));
const pointer = (run: string) => readFile(yard.path(run, "latest_checkpointed_iteration.txt"), "utf8");
const gae = ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.type=adaptive"];
const lines = async (...names: readonly string[]): Promise<Record<string, unknown>[]> =>
  (await readFile(yard.path(...names), "utf8"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

describe("a run that is ended", () => {
  const all = () => [
    ...[...reward, ...gae, `${actor}.ppo_epochs=2`, `${actor}.shuffle=true`, `data.val_files=${yard.validation}`],
    ...["trainer.total_training_steps=24", "trainer.test_freq=2", "trainer.save_freq=1"],
    "trainer.max_actor_ckpt_to_keep=2",
  ];
  beforeAll(async () => {
    expect(await ppo("whole", ...all())).toMatchObject({ code: 0 });
  });

  const moments: readonly (readonly [what: string, change: RegExp | null, withinMs: number])[] = [
    ["starting", null, 1000],
    ["sampling or updating", /^latest_checkpointed_iteration\.txt$/, 80],
    ["saving", /^\.global_step_\d+\.[0-9a-f]{8}\.tmp$/, 12],
    ["logging", /^metrics\.jsonl$/, 3],
    ["sampling or updating again", /^latest_checkpointed_iteration\.txt$/, 80],
  ];
  test("by kill -9, five times in a row, ends with the bytes of one that was not", { timeout: 120_000 }, async () => {
    const random = new Random(3);
    await mkdir(yard.path("killed"));
    for (const [what, change, withinMs] of moments) {
      const child = yard.startSft("killed", ...all());
      const moment = { change, count: 1 + random.int(2), delayMs: random.uniform() * withinMs };
      await killAt(child, yard.path("killed"), moment);
      expect([what, await child.ended, child.said]).toEqual([what, "SIGKILL", expect.not.stringMatching(/bug|Error/)]);
    }
    const last = await ppo("killed", ...all());
    expect(last).toMatchObject({ code: 0, said: expect.stringMatching(/Going on from /) });
    expect(await yard.outcome("killed")).toEqual(await yard.outcome("whole"));
    expect((await readdir(yard.path("killed"))).sort()).toEqual((await readdir(yard.path("whole"))).sort());
  });

  test("by Ctrl-C is saved and exits 130; going on gives the unbroken run", { timeout: 120_000 }, async () => {
    const seldom = [...all(), "trainer.save_freq=24"];
    const child = yard.startSft("interrupted", ...seldom);
    while (child.isRunning && (await yard.metrics("interrupted").catch(() => [])).length < 3) await pause(5);
    child.process.kill("SIGINT");
    expect(await child.ended).toBe(130);
    const [, step] = /Stopped after step (\d+) of 24 and saved\. The same command goes on from/.exec(child.said) ?? [];
    expect(await pointer("interrupted")).toBe(step);
    expect(await ppo("interrupted", ...seldom)).toMatchObject({ code: 0 });
    expect(await yard.outcome("interrupted")).toEqual(await yard.outcome("whole"));
  });
});

describe("a reward", () => {
  test("of a function in a file congratulates and gives 0.1 to rows without a source", async () => {
    const file = await yard.writeLines(
      "unknown.jsonl",
      Array.from({ length: 8 }, (_, i) => ({ prompt: `${i}:` })),
    );
    const keys = [...reward, "custom_reward_function.name=congratulate", `data.train_files=${file}`];
    const { code, said } = await ppo("congratulated", ...keys);
    expect({ code, said }).toEqual({ code: 0, said: expect.stringMatching(/Congratulations!!!/) });
    for (const data of await yard.metrics("congratulated"))
      expect(data).toMatchObject({ "critic/score/max": 0.1, "critic/score/min": 0.1 });
  });

  test("model scores what it is shown, the same in each run, also as a model of another family", async () => {
    const score = { architectures: ["LlamaForSequenceClassification"], num_labels: 1, hidden_size: 64 };
    const many = ["data.max_response_length=40", `${rollout}.n=8`, "data.train_batch_size=8"];
    const models = [
      await yard.makeModel("scorer", { ...charConfig, ...score }, 5),
      await yard.makeModel("qwen-scorer", {
        ...{ ...charConfig, ...score, architectures: ["Qwen2ForSequenceClassification"], model_type: "qwen2" },
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
});

test("actor and critic may be of two families", async () => {
  const critic = await yard.makeModel("qwen", {
    ...{ ...charConfig, architectures: ["Qwen2ForCausalLM"], model_type: "qwen2", hidden_size: 32, vocab_size: 20 },
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

describe("samples from a server", () => {
  const servers: ChildProcess[] = [];
  afterAll(async () => {
    for (const server of servers) {
      server.kill("SIGTERM");
      if (server.exitCode === null && server.signalCode === null) await once(server, "close");
    }
  });

  /** Start `trainyard serve` in a process of its own; the result is its address. */
  async function serve(...flags: readonly string[]): Promise<string> {
    const args = [launcher, "serve", yard.model, "--port=0", "--threads=1", ...flags];
    const server = spawn(process.execPath, args, {
      stdio: ["ignore", "pipe", "ignore"],
      env: { ...process.env, HF_HUB_OFFLINE: "1" },
    });
    servers.push(server);
    let said = "";
    for await (const chunk of server.stdout) {
      said += chunk;
      const [address] = /http:\/\/127\.0\.0\.1:\d+/.exec(said) ?? [];
      if (address !== undefined) return address;
    }
    throw new Error(`The server ended: ${said}`);
  }

  test("are those of the weights after each update", async () => {
    const url = await serve("--allow-reload");
    const keys = [...reward, ...gae, `${rollout}.base_url=[${url}/v1]`, "trainer.total_training_steps=3"];
    const corrected = ["algorithm.rollout_correction.preset=decoupled_token_is"];
    expect(await ppo("served", ...keys, ...corrected)).toMatchObject({ code: 0 });
    const metrics = await yard.metrics("served");
    expect(metrics).toHaveLength(3);
    for (const data of metrics) {
      expect(data["training/rollout_probs_diff_max"]).toBeLessThan(1e-4);
      expect(data["rollout_corr/rollout_is_mean"]).toBeCloseTo(1, 3);
      expect(data["actor/grad_norm"]).toBeGreaterThan(0);
    }
    // The log-probs above are of weights that changed, so the server has been given them; the copies are gone.
    expect(await readdir(yard.path("served"))).not.toContain("rollout_weights");
  });

  test("of one that may not be given weights are refused before the first step", async () => {
    const url = await serve();
    const { code, said } = await ppo("unserved", ...reward, `${rollout}.base_url=[${url}/v1]`);
    expect({ code, said }).toEqual({ code: 2, said: expect.stringMatching(/refused the new weights.*--allow-reload/) });
    await expect(yard.metrics("unserved")).resolves.toEqual([]);
  });
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
      keys: () => [...reward, `${actor}.ppo_mini_batch_size=3`],
      says: /ppo_mini_batch_size` is 3, which does not divide `data\.train_batch_size`=4/,
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
        ...[...reward, "custom_reward_function.name=congratulate", "algorithm.filter_groups.enable=true"],
        "algorithm.filter_groups.max_num_gen_batches=2",
      ],
      isLate: true,
      says: /After 2 rounds of sampling 0 of 4 groups have scores that differ\./,
    },
    "a critic that knows fewer tokens": {
      keys: async () => {
        await yard.makeModel("small", { ...charConfig, vocab_size: 12, pad_token_id: null });
        return [...reward, ...gae, `critic.model.path=${yard.path("small")}`];
      },
      says: /The critic .*small has a vocabulary of 12 and the actor .*model one of 16/,
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
