/**
 * `trainyard reward` from the outside: what a reward model learns, what is saved of it, and how a run goes on after any
 * kind of end. And from the inside: that the gradient of a step is that of the Bradley-Terry loss.
 */
import { spawnSync } from "node:child_process";
import { watch } from "node:fs";
import { mkdir, readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bradleyTerry, weightedScores } from "../src/algos/losses/preference-loss.ts";
import type { TokenLoss, TokenRow } from "../src/engine/contract.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { add, exp, log, mul, neg, sum } from "../src/graph/ops.ts";
import { parameterSpecs, readConfig } from "../src/models/config.ts";
import { createModel } from "../src/models/create.ts";
import { readAll } from "../src/models/safetensors.ts";
import { scoreSamples } from "../src/rewards/reward-model.ts";
import { loadTokenizer } from "../src/text/tokenizer.ts";
import { lastToken, rewardModelSpec, scoreRows, scorerOf } from "../src/train/reward-scorer.ts";
import { Random } from "../src/util/random.ts";
import { Child, pause, Sandbox, tinyConfig } from "./sandbox.ts";

const python = process.env.TRAINYARD_TEST_PYTHON;
const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));
const things = ["cat", "sun", "tree", "seven", "word"];

/** Whether the answer is polite decides; what is asked and answered does not. */
function pair(i: number, isFlipped: boolean) {
  const answers = [`Yes please, the ${things[(3 * i) % 5]}.`, `No way, the ${things[(2 * i) % 5]}.`];
  const [chosen, rejected] = isFlipped ? answers.reverse() : answers;
  return { prompt: `Say ${things[i % 5]} ${i}`, chosen, rejected };
}

let box: Sandbox;
let engine: EmbeddedEngine;
let pairs = "";
beforeAll(async () => {
  box = await Sandbox.make();
  engine = new EmbeddedEngine({ threads: 1 });
  pairs = await box.writeLines(
    "pairs.jsonl",
    Array.from({ length: 96 }, (_, i) => pair(i, false)),
  );
});
afterAll(async () => {
  await engine.close();
  box.remove();
});

const args = (run: string, overrides: readonly string[]) => [
  "reward",
  `model.path=${box.model}`,
  `data.train_files=${pairs}`,
  "data.val_size=32",
  "data.train_batch_size=8",
  "data.max_length=128",
  "optim.lr=3e-3",
  "trainer.threads=2",
  `trainer.default_local_dir=${box.path(run)}`,
  ...overrides,
];
const reward = (run: string, ...overrides: readonly string[]) => box.command(...args(run, overrides));

describe("a run", () => {
  beforeAll(async () => {
    const result = await reward("whole", "trainer.total_epochs=3", "trainer.test_freq=6");
    expect(result).toMatchObject({ code: 0 });
    expect(result.said).toMatch(
      /% of 32 held-out pairs are ranked right.*\nDone: 24 steps\. .*global_step_24\/reward\nReward with it: .*reward_model\.model\.path=\S*global_step_24\/reward …\n$/,
    );
  });

  test("ranks pairs that it has not seen, and the loss falls", async () => {
    const metrics = await box.metrics("whole");
    expect(metrics[0]!["train/loss"]).toBeCloseTo(Math.LN2, 1);
    expect(metrics.at(-1)).toMatchObject({ "val/accuracy": 1 });
    expect(metrics.at(-1)!["val/loss"]).toBeLessThan(0.1);
  });

  test("logs the loss, accuracy, margin and scores of each batch, and of the held-out pairs where it validates", async () => {
    const of = (part: string) =>
      ["loss", "accuracy", "margin", "chosen_score", "rejected_score"].map((name) => `${part}/${name}`);
    const others = ["grad_norm", "lr", "global_tokens", "total_tokens(B)", "skipped_steps"].map((n) => `train/${n}`);
    for (const [index, data] of (await box.metrics("whole")).entries()) {
      const isTested = (index + 1) % 6 === 0;
      expect(Object.keys(data)).toEqual([...of("train"), ...others, ...(isTested ? of("val") : [])]);
      expect(data["train/margin"]).toBeCloseTo(data["train/chosen_score"]! - data["train/rejected_score"]!, 10);
    }
  });

  test("saves a sequence classifier of one label that names its padding token", async () => {
    const { head, raw } = await readConfig(box.path("whole", "global_step_24", "reward"));
    const { padId } = await loadTokenizer(box.model);
    expect({ head, classes: raw.architectures, pad: raw.pad_token_id, labels: raw.id2label }).toEqual({
      head: "score",
      classes: ["LlamaForSequenceClassification"],
      pad: padId,
      labels: { 0: "LABEL_0" },
    });
  });

  test("can be trained on from its own checkpoint, with the head that it has", async () => {
    const model = `model.path=${box.path("whole", "global_step_24", "reward")}`;
    expect(await reward("further", model, "trainer.total_training_steps=1")).toMatchObject({ code: 0 });
    expect((await box.metrics("further"))[0]!["train/accuracy"]).toBe(1);
  });

  test("has a checkpoint that scores samples of another model's tokenizer and template", async () => {
    const folder = box.path("whole", "global_step_24", "reward");
    const tokenizer = await loadTokenizer(folder);
    const actor = await loadTokenizer(fileURLToPath(new URL("fixtures/data/tokenizer", import.meta.url)));
    const model = await engine.open({ folder });
    const scorer = scorerOf(model, 512);
    const samples = ["Yes please, the moon.", "No way, the moon."].map((text) => ({
      prompt: "Say moon",
      promptIds: actor.encode("anything"),
      responseIds: actor.encode(`${text}<|im_end|>`, { addSpecialTokens: false }),
    }));
    const options = {
      tokenizer,
      inputTokenizer: actor,
      padId: tokenizer.padId,
      maxLength: 128,
      truncation: "left",
    } as const;
    const [polite, rude] = await scoreSamples(scorer, samples, options);
    await model.close();
    expect(polite! - rude!).toBeGreaterThan(1);
  });
});

test("preferences that follow no rule are not learnt: held-out pairs stay at chance", async () => {
  const random = new Random(5);
  const file = await box.writeLines(
    "coin.jsonl",
    Array.from({ length: 400 }, (_, i) => pair(i, random.uniform() < 0.5)),
  );
  const keys = [`data.train_files=${file}`, "data.val_size=200", "trainer.total_epochs=1"];
  expect(await reward("coin", ...keys)).toMatchObject({ code: 0 });
  const accuracy = (await box.metrics("coin")).at(-1)!["val/accuracy"]!;
  expect(Math.abs(accuracy - 0.5)).toBeLessThan(0.15); // four standard deviations of 200 coins
});

test("a language model as reward model gets a new score head; a reward model keeps its own", async () => {
  expect(await rewardModelSpec({ key: "k", path: "lm", folder: box.model, seed: 7 })).toEqual({
    folder: box.model,
    head: "score",
    seed: 7,
  });
  const scorer = box.path("scorer-of-its-own");
  await createModel(scorer, { ...tinyConfig, architectures: ["LlamaForSequenceClassification"], num_labels: 1 }, 1);
  expect(await rewardModelSpec({ key: "k", path: "rm", folder: scorer, seed: 7 })).toEqual({ folder: scorer });
});

describe("the gradient of a step", () => {
  /** The loss of one pair as one graph, which needs both sides in one micro-batch. */
  const coupled: TokenLoss = {
    key: "Bradley-Terry of one pair",
    heads: ["scores"],
    extra: ["sign"],
    build: ({ scores, sign }) => ({ loss: log(add(exp(neg(sum(mul(scores!, sign!)))), 1)) }),
  };
  const ids = [
    [5, 9, 11, 7],
    [5, 9, 30, 31, 32, 8],
  ].map((row) => Int32Array.from(row));

  test("made of forward scores is that of the loss differentiated as a whole, however it is cut", async () => {
    const model = await engine.open({ folder: box.model, head: "score", seed: 3 });
    const names = parameterSpecs(model.config).map(({ name }) => name);
    const gradients = () => names.map((name) => model.gradient(name).slice());
    const step = { lr: 0, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0, maxNorm: 1 } as const;

    const signed = ids.map(
      (row, i): TokenRow => ({
        ids: row,
        mask: lastToken(row),
        extra: { sign: [...lastToken(row)].map((m) => (i === 0 ? m : -m)) },
      }),
    );
    const { loss } = await model.train(signed, coupled, { micro: { rows: 2 } });
    const wanted = gradients();
    await model.step(step);

    const [chosen, rejected] = await scoreRows(model, ids, { micro: { rows: 1 } });
    const result = bradleyTerry({ chosen: [chosen!], rejected: [rejected!], margins: [0] });
    expect(result.metrics.loss).toBeCloseTo(loss!, 5);
    const weights = [result.chosenWeights[0]!, result.rejectedWeights[0]!];
    const rows = ids.map(
      (row, i): TokenRow => ({
        ids: row,
        mask: lastToken(row),
        extra: { weight: [...lastToken(row)].map((m) => m * weights[i]!) },
      }),
    );
    await model.train(rows, weightedScores, { micro: { rows: 1 } });
    gradients().forEach((gradient, k) => {
      const largest = Math.max(...wanted[k]!.map(Math.abs));
      const error = Math.max(...gradient.map((value, i) => Math.abs(value - wanted[k]![i]!)));
      expect(error, names[k]).toBeLessThanOrEqual(1e-4 * largest);
    });
    await model.close();
  });
});

describe.skipIf(!python)("transformers (needs Python with it)", () => {
  test("loads the checkpoint whole and gives the same scores, padding included", async () => {
    expect(await reward("saved", "trainer.total_training_steps=4")).toMatchObject({ code: 0 });
    const folder = box.path("saved", "global_step_4", "reward");
    const { padId } = await loadTokenizer(folder);
    const rows = [
      [5, 9, 11, 7, 30, 31],
      [5, 9, 40, 8],
    ].map((row) => Int32Array.from(row));
    const model = await engine.open({ folder });
    const ours = await scorerOf(model, 64).score(rows);
    await model.close();
    const padded = rows.map((row) => [...row, ...Array(6 - row.length).fill(padId)]);
    const out = box.path("logits.safetensors");
    const script = fileURLToPath(new URL("python/logits.py", import.meta.url));
    const request = JSON.stringify({ ids: padded, folders: [folder], out });
    const { status, stderr } = spawnSync(python!, [script], { input: request, encoding: "utf8" });
    expect(status, stderr).toBe(0);
    const theirs = (await readAll(out)).get("0")!.data;
    ours.forEach((score, i) => {
      expect(score).toBeCloseTo(Number(theirs[i]), 4);
    });
  });
});

describe("what cannot work is said in one message, and leaves no folder behind", () => {
  type Case = { readonly what: string; readonly rows: readonly object[]; readonly says: RegExp } & Changes;
  type Changes = { readonly keys?: readonly string[]; readonly vocabSize?: number };
  const cases: readonly Case[] = [
    {
      what: "equal sides",
      rows: [pair(0, false), { chosen: "A", rejected: "A" }],
      says: /bad\.jsonl, line 2: `chosen` and `rejected` are the same/,
    },
    { what: "one side missing", rows: [{ chosen: "A" }], says: /bad\.jsonl, line 1: there is no column `rejected`/ },
    {
      what: "too few pairs",
      rows: [pair(0, false)],
      keys: ["data.val_size=1"],
      says: /`data\.val_size` is 1, and .* gives 1 pairs/,
    },
    {
      what: "pairs that are cut to the same",
      rows: [pair(1, false)],
      keys: ["data.max_length=4", "data.truncation=right", "data.val_size=0"],
      says: /`data\.train_files` gives no pair to learn from/,
    },
    {
      what: "another model's tokenizer",
      rows: [pair(1, false)],
      vocabSize: 400,
      says: /bad\.jsonl, line 1: the tokenizer in .* gives the token \d+ .* `vocab_size` is 400/,
    },
  ];
  test.each(cases)("$what", async ({ what, rows, says, keys = [], vocabSize }) => {
    const file = await box.writeLines("bad.jsonl", rows);
    const model = await box.copyModel(what.replaceAll(/\W/g, "-"));
    if (vocabSize !== undefined) await createModel(model, { ...tinyConfig, vocab_size: vocabSize }, 1);
    const { code, said } = await reward("bad", `data.train_files=${file}`, `model.path=${model}`, ...keys);
    expect(said).toMatch(says);
    expect(said).not.toMatch(/\n\s+at |internal:|undefined/);
    expect(code).toBe(2);
    expect(await readdir(box.root)).not.toContain("bad");
  });
});

test("a checkpoint of another kind of run, or of other pairs, is not gone on from", async () => {
  expect(await box.sft("sft-run", "trainer.total_training_steps=1")).toMatchObject({ code: 0 });
  const path = ["trainer.resume_mode=resume_path", `trainer.resume_from_path=${box.path("sft-run", "global_step_1")}`];
  const other = await reward("other", ...path);
  expect(other.said).toMatch(/sft-run\/global_step_1 is not a checkpoint of `trainyard reward`\./);
  expect(other.code).toBe(2);
  expect(await reward("again", "trainer.total_training_steps=2")).toMatchObject({ code: 0 });
  const moved = await reward(
    "again",
    "trainer.total_training_steps=3",
    "data.chosen_key=rejected",
    "data.rejected_key=chosen",
  );
  expect(moved.said).toMatch(/was made with other training rows/);
  expect(moved.code).toBe(2);
});

describe("a run killed again and again ends with the bytes of one that was not", () => {
  const moments: readonly [what: string, change: RegExp | null][] = [
    ["starting", null],
    ["saving", /^\.global_step_\d+\.[0-9a-f]{8}\.tmp$/],
    ["training", /^latest_checkpointed_iteration\.txt$/],
    ["logging", /^metrics\.jsonl$/],
  ];

  async function killAt(child: Child, folder: string, change: RegExp | null, delayMs: number): Promise<void> {
    const changed = new Promise<void>((resolve) => {
      const watcher = watch(folder, (_, name) => {
        if (change?.test(name ?? "")) resolve();
      });
      child.ended.then(() => {
        watcher.close();
        resolve();
      });
    });
    if (change !== null) await changed;
    await pause(delayMs);
    child.process.kill("SIGKILL");
    await child.ended;
  }

  test("with a checkpoint and a validation each step", { timeout: 120_000 }, async () => {
    const keys = ["trainer.total_epochs=3", "trainer.test_freq=1", "trainer.save_freq=1", "trainer.max_ckpt_to_keep=2"];
    expect(await reward("unbroken", ...keys)).toMatchObject({ code: 0 });
    const random = new Random(21);
    await mkdir(box.path("killed"));
    for (const [what, change] of moments) {
      const child = new Child([process.execPath, launcher, ...args("killed", keys)], box.root);
      await killAt(child, box.path("killed"), change, random.uniform() * (change === null ? 500 : 12));
      expect([what, await child.ended, child.said]).toEqual([what, "SIGKILL", expect.not.stringMatching(/bug|Error/)]);
    }
    const last = await reward("killed", ...keys);
    expect(last).toMatchObject({ code: 0 });
    expect(last.said).toMatch(/Resuming from /);
    expect(await box.outcome("killed")).toEqual(await box.outcome("unbroken"));
  });

  test("by Ctrl-C, which saves and exits 130", { timeout: 60_000 }, async () => {
    const keys = ["trainer.total_epochs=6", "trainer.test_freq=2"];
    const child = new Child([process.execPath, launcher, ...args("interrupted", keys)], box.root);
    await child.saying(/^step 2\//m);
    child.process.kill("SIGINT");
    expect(await child.ended).toBe(130);
    expect(child.said).toMatch(
      /Stopped after step \d+ of 48 and saved\. The same command resumes from .*interrupted\.\n$/,
    );
    expect(await reward("interrupted", ...keys)).toMatchObject({ code: 0 });
    expect(await reward("uninterrupted", ...keys)).toMatchObject({ code: 0 });
    expect(await box.outcome("interrupted")).toEqual(await box.outcome("uninterrupted"));
    expect(await readFile(box.path("interrupted", "log.txt"), "utf8")).toMatch(/Stopped after step/);
  });
});
