/** The library as a program uses it: a model that samples, computes log-probs and is trained, and the verbs as functions. */
import { mkdtempSync, rmSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { defineConfig, type LoadedModel, loadModel, ops, type TokenLoss, trainRl, UserError } from "../src/index.ts";
import { readMetrics } from "../src/run/metrics.ts";
import { setLevel } from "../src/util/log.ts";

const folder = join(import.meta.dirname, "../examples/quickstart/model");
const out = mkdtempSync(join(tmpdir(), "trainyard-library-"));
const question = [{ role: "user", content: "12+34=?" }];

beforeAll(() => setLevel("quiet"));
afterAll(() => {
  setLevel("info");
  rmSync(out, { recursive: true, force: true });
});

describe("a loaded model", () => {
  let model: LoadedModel;
  beforeAll(async () => {
    model = await loadModel(folder, { threads: 1 });
  });
  afterAll(() => model.close());

  test("computes for the tokens of its samples the log-probs that they were sampled with", async () => {
    const { samples } = await model.generate(question, { n: 4, seed: 3, temperature: 1.5, maxNewTokens: 6 });
    const pairs = samples.map(({ ids }) => ({ prompt: question, response: ids }));
    const logprobs = await model.logprobs(pairs, { temperature: 1.5 });
    for (const [i, sample] of samples.entries()) {
      expect(logprobs[i]!.length).toBe(sample.ids.length);
      for (const [t, logprob] of sample.logprobs.entries()) expect(logprobs[i]![t]).toBeCloseTo(logprob, 4);
    }
  });

  test("answers a text like a chat of that one message, and like a prompt with the template applied", async () => {
    const greedy = { temperature: 0, maxNewTokens: 6 };
    const answer = await model.chat(question, greedy);
    expect(answer).toBe("46");
    expect(await model.chat("12+34=?", greedy)).toBe(answer);
    const { promptIds, samples } = await model.generate("<|user|>12+34=?<|end|><|assistant|>", greedy);
    expect(samples[0]!.text).toBe(answer);
    expect(promptIds).toEqual((await model.generate(question, greedy)).promptIds);
  });

  test("gives a text the log-probs of its tokens", async () => {
    const ids = [...model.tokenizer.encode("46")];
    const [text, tokens] = await model.logprobs([
      { prompt: question, response: "46" },
      { prompt: question, response: ids },
    ]);
    expect(text).toEqual(tokens);
    await expect(model.logprobs([{ prompt: question, response: "" }])).rejects.toThrow(/response "" has no tokens/);
  });

  test("is trained with a loss, and the folder that it is saved to has the new weights", async () => {
    const likelier: TokenLoss = {
      key: "likelier",
      heads: ["logprobs"],
      build: ({ logprobs, mask }) => ({ loss: ops.neg(ops.sum(ops.mul(logprobs!, mask))) }),
    };
    const { promptIds } = await model.generate(question, { maxNewTokens: 1 });
    const response = [...model.tokenizer.encode("99")];
    const ids = Int32Array.of(...promptIds, ...response);
    const mask = new Uint8Array(ids.length).fill(1, promptIds.length);
    const chance = async (of: LoadedModel) =>
      (await of.logprobs([{ prompt: question, response }]))[0]!.reduce((sum, it) => sum + it, 0);
    const before = await chance(model);
    for (let step = 0; step < 3; step++) {
      await model.train([{ ids, mask }], likelier, { micro: { rows: 1 } });
      await model.step({ lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0, maxNorm: 1 });
    }
    const after = await chance(model);
    expect(after).toBeGreaterThan(before + 1);
    await model.save(join(out, "saved"));
    await using saved = await loadModel(join(out, "saved"), { threads: 1 });
    expect(await chance(saved)).toBeCloseTo(after, 4);
  });
});

describe("a verb as a function", () => {
  const train = join(out, "train.jsonl");
  const config = defineConfig({
    data: { train_files: train, train_batch_size: 4, max_prompt_length: 16, max_response_length: 4 },
    actor_rollout_ref: { model: { path: folder }, actor: { ppo_mini_batch_size: 4 }, rollout: { n: 2 } },
    algorithm: { adv_estimator: "grpo" },
    custom_reward_function: ({ response }: { readonly response: string }) => response.length,
    trainer: { total_training_steps: 2, default_local_dir: join(out, "run"), logger: [], threads: 1 },
  });

  test("takes what a config file would hold, a reward function included", async () => {
    const rows = Array.from({ length: 8 }, (_, i) => ({ prompt: `${i}+${i}=?`, data_source: "sums" }));
    await writeFile(train, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
    await trainRl(config);
    const metrics = await readMetrics(join(out, "run"));
    expect(metrics.map(({ step }) => step)).toEqual([1, 2]);
    expect(metrics[0]!.data["critic/score/mean"]).toBeGreaterThan(0.5);
  });

  test("refuses an unknown key, with the nearest", async () => {
    // Safe: the compiler would refuse it too, and what is tested is the message at run time.
    const wrong = { ...config, trainer: { ...config.trainer, total_training_step: 2 } } as typeof config;
    await expect(trainRl(wrong)).rejects.toThrow(UserError);
    await expect(trainRl(wrong)).rejects.toThrow(/trainer\.total_training_step`.*`trainer\.total_training_steps`/);
  });
});
