/**
 * `trainyard sft` from the outside: what a run learns, writes, keeps, and how it goes on after any kind of end.
 *
 * Runs are compared by their folders alone. Where a process must die, it is a real one and dies by a real signal.
 */
import { watch } from "node:fs";
import { mkdir, open, readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TokenRow } from "../src/engine/contract.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { learningRate } from "../src/nn/schedule.ts";
import { loadTokenizer } from "../src/text/tokenizer.ts";
import { Random } from "../src/util/random.ts";
import { type Child, checksums, pause, Sandbox, sum } from "./sandbox.ts";

let box: Sandbox;
beforeAll(async () => {
  box = await Sandbox.make();
});
afterAll(() => box.remove());

const checkpoints = async (run: string): Promise<string[]> =>
  (await readdir(box.path(run)))
    .filter((name) => name.startsWith("global_step_"))
    .sort((a, b) => Number(a.slice(12)) - Number(b.slice(12)));
const pointer = (run: string) => readFile(box.path(run, "latest_checkpointed_iteration.txt"), "utf8");
const steps = (...numbers: readonly number[]) => numbers.map((n) => `global_step_${n}`);

describe("a run", () => {
  const names = ["loss", "grad_norm", "lr", "global_tokens", "total_tokens(B)", "skipped_steps"].map(
    (n) => `train/${n}`,
  );
  const timings = ["timing_s/step", "perf/throughput"];
  const memory = ["perf/max_memory_allocated_gb", "perf/cpu_memory_used_gb"];

  beforeAll(async () => {
    const result = await box.sft("whole", "trainer.total_epochs=6", "trainer.test_freq=5", "optim.lr=1e-2");
    expect(result).toMatchObject({ code: 0 });
    expect(result.said).toMatch(
      /^step 24\/24 · val\/loss .*\n(?:step 24\/24 .*\nval .*\ntrain .*\n.*\n)Done: 24 steps\./m,
    );
    const model = box.path("whole", "global_step_24", "actor");
    expect(result.said).toMatch(new RegExp(` The model is in ${model}\nTalk to it: npx trainyard chat ${model}\n$`));
  });

  test("lowers the loss on the rows it learns from and on those it does not", async () => {
    const metrics = await box.metrics("whole");
    expect(metrics.at(-1)!["train/loss"]).toBeLessThan(0.6 * metrics[0]!["train/loss"]!);
    expect(metrics.at(-1)!["val/loss"]).toBeLessThan(0.7 * metrics[4]!["val/loss"]!);
  });

  test("logs exactly these metrics at each step, and the validation loss where it validates", async () => {
    const metrics = await box.metrics("whole", { withTimings: true });
    expect(metrics).toHaveLength(24);
    for (const [index, data] of metrics.entries()) {
      const isTested = (index + 1) % 5 === 0 || index + 1 === 24;
      expect(Object.keys(data)).toEqual([...names, ...(isTested ? ["val/loss"] : []), ...timings, ...memory]);
    }
    const total = metrics.reduce((tokens, data) => tokens + data["train/global_tokens"]!, 0);
    expect(metrics.at(-1)!["train/total_tokens(B)"]).toBeCloseTo(total / 1e9, 15);
  });

  test("writes the complete config, which reads back as the same config", async () => {
    const config = JSON.parse(await readFile(box.path("whole", "config.json"), "utf8"));
    expect(config).toMatchObject({
      data: { train_files: [box.train], prompt_key: "question", multiturn: { enable: false }, truncation: "error" },
      model: { path: box.model, tokenizer_path: null },
      optim: { lr: 0.01, betas: [0.9, 0.999], weight_decay: 0.01, clip_grad: 1, lr_scheduler_type: "constant" },
      trainer: { total_epochs: 6, test_freq: 5, save_freq: -1, seed: 1, device: "cpu", engine: "embedded" },
    });
    const again = [box.path("whole", "config.json"), `trainer.default_local_dir=${box.path("again")}`];
    expect(await box.command("sft", ...again)).toMatchObject({ code: 0 });
    expect(await box.outcome("again")).toEqual(await box.outcome("whole"));
  });

  test("saves its last step as a Hugging Face folder, with the optimizer and the run's state beside it", async () => {
    expect(await checkpoints("whole")).toEqual(steps(24));
    expect(await pointer("whole")).toBe("24");
    expect(Object.keys(await checksums(box.path("whole", "global_step_24")))).toEqual([
      "actor/",
      ...["chat_template.jinja", "config.json", "model.safetensors"].map((name) => `actor/${name}`),
      ...["optimizer/", "optimizer/optimizer.safetensors", "tokenizer.json", "tokenizer_config.json"].map(
        (name) => `actor/${name}`,
      ),
      "lines.json",
      "state.json",
    ]);
    expect((await readdir(box.path("whole"))).sort()).toEqual(
      [
        "config.json",
        "global_step_24",
        "latest_checkpointed_iteration.txt",
        "log.txt",
        "metrics.jsonl",
        "set_keys.json",
      ].sort(),
    );
  });

  test("has a checkpoint that is a model to train on", async () => {
    const path = box.path("whole", "global_step_24", "actor");
    expect(await box.sft("further", `model.path=${path}`, "trainer.total_training_steps=1")).toMatchObject({ code: 0 });
    const [first] = await box.metrics("further");
    const last = (await box.metrics("whole")).at(-1);
    expect(first!["train/loss"]).toBeLessThan(1.5 * last!["train/loss"]!);
  });
});

describe("saving and validating", () => {
  const tested = async (run: string) =>
    (await box.metrics(run)).flatMap((data, index) => ("val/loss" in data ? [index + 1] : []));

  // 32 rows in batches of 8 are 4 steps an epoch; the last step always counts.
  const cases: readonly { keys: readonly string[]; saved: readonly number[]; tested: readonly number[] }[] = [
    { keys: [], saved: [10], tested: [10] },
    { keys: ["trainer.save_freq=3", "trainer.test_freq=4"], saved: [3, 6, 9, 10], tested: [4, 8, 10] },
    {
      keys: ["trainer.save_freq=after_each_epoch", "trainer.test_freq=after_each_epoch"],
      saved: [4, 8, 10],
      tested: [4, 8, 10],
    },
    { keys: ["trainer.save_freq=2", "trainer.max_ckpt_to_keep=2"], saved: [8, 10], tested: [10] },
    { keys: ["data.val_files=null", "trainer.test_freq=2"], saved: [10], tested: [] },
  ];
  for (const [index, { keys, saved, tested: expected }] of cases.entries()) {
    test(`happen as told by ${keys.join(" ") || "the defaults"}`, async () => {
      const run = `often${index}`;
      expect(await box.sft(run, "trainer.total_training_steps=10", ...keys)).toMatchObject({ code: 0 });
      expect(await checkpoints(run)).toEqual(steps(...saved));
      expect(await pointer(run)).toBe("10");
      expect(await tested(run)).toEqual(expected);
    });
  }
});

describe("what is learnt", () => {
  const start = "<|im_start|>";
  const end = "<|im_end|>";
  const system = `${start}system\nYou help.${end}\n`;
  const asked = (text: string) => `${start}user\n${text}${end}\n${start}assistant\n`;
  const tool = { type: "function", function: { name: "add", parameters: {} } };
  const toolText = '{"type": "function", "function": {"name": "add", "parameters": {}}}';

  // What is learnt stands in the odd pieces.
  const cases: readonly { what: string; row: object; keys: readonly string[]; pieces: readonly string[] }[] = [
    {
      what: "of a prompt and a response: the response with its end token",
      row: sum(21),
      keys: [],
      pieces: [`${system}${asked("21+21=?")}`, `42.${end}`],
    },
    {
      what: "of a conversation: each answer with its end token",
      row: {
        messages: [
          { role: "user", content: "1+1=?" },
          { role: "assistant", content: "2." },
          { role: "user", content: "And 2+2?" },
          { role: "assistant", content: "4." },
        ],
      },
      keys: ["data.multiturn.enable=true"],
      pieces: [`${system}${asked("1+1=?")}`, `2.${end}\n`, asked("And 2+2?"), `4.${end}\n`],
    },
    {
      what: "of a conversation with tools: the call and the answer, not the tool's result",
      row: {
        messages: [
          { role: "user", content: "1+1=?" },
          { role: "assistant", content: "", tool_calls: [{ function: { name: "add", arguments: { a: 1, b: 1 } } }] },
          { role: "tool", content: "2" },
          { role: "assistant", content: "It is 2." },
        ],
        tools: [tool],
      },
      keys: ["data.multiturn.enable=true"],
      pieces: [
        `${start}system\nYou help.\n\nFunctions:\n${toolText}${end}\n${asked("1+1=?")}`,
        `<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 1}}\n</tool_call>${end}\n`,
        `${start}user\n<result>\n2\n</result>${end}\n${start}assistant\n`,
        `It is 2.${end}\n`,
      ],
    },
  ];

  test.each(cases.map((it) => [it.what, it] as const))("%s", async (what, { row, keys, pieces }) => {
    const file = await box.writeLines("one.jsonl", [row]);
    const run = what.replaceAll(/\W/g, "-");
    const one = [
      "data.train_batch_size=1",
      "data.max_length=256",
      "trainer.total_training_steps=1",
      "data.val_files=null",
    ];
    expect(await box.sft(run, ...one, ...keys, `data.train_files=${file}`)).toMatchObject({ code: 0 });

    const tokenizer = await loadTokenizer(box.model);
    const parts = pieces.map((text) => [...tokenizer.encode(text, { addSpecialTokens: false })]);
    const mask = parts.flatMap((ids, index) => ids.map(() => index % 2));
    const [logprobs] = await logprobsOf(box.model, [{ ids: Int32Array.from(parts.flat()), mask }]);
    const loss = -logprobs!.reduce((a, b) => a + b, 0) / mask.filter(Boolean).length;
    const [first] = await box.metrics(run);
    expect(first!["train/global_tokens"]).toBe(mask.length);
    expect(first!["train/loss"]).toBeCloseTo(loss, 5);
  });

  test("ends up in the checkpoint: the response and its end are certain, the prompt is not", async () => {
    const file = await box.writeLines("sum.jsonl", [sum(3)]);
    const keys = ["data.train_batch_size=1", "trainer.total_training_steps=60", "optim.lr=1e-2", "data.val_files=null"];
    expect(await box.sft("overfit", ...keys, `data.train_files=${file}`)).toMatchObject({ code: 0 });
    const tokenizer = await loadTokenizer(box.model);
    const ids = (text: string) => [...tokenizer.encode(text, { addSpecialTokens: false })];
    const prompt = ids(`${system}${asked("3+3=?")}`);
    const row = Int32Array.from([...prompt, ...ids(`6.${end}`)]);
    const all = { ids: row, mask: new Uint8Array(row.length).fill(1) };
    const [logprobs] = await logprobsOf(box.path("overfit", "global_step_60", "actor"), [all]);
    expect(Math.min(...logprobs!.slice(prompt.length))).toBeGreaterThan(-0.1);
    const ofPrompt = logprobs!.slice(1, prompt.length);
    expect(ofPrompt.reduce((a, b) => a + b, 0) / ofPrompt.length).toBeLessThan(-3);
  });
});

async function logprobsOf(folder: string, rows: readonly TokenRow[]): Promise<Float32Array[]> {
  const engine = new EmbeddedEngine({ threads: 1 });
  try {
    const model = await engine.open({ folder });
    const outputs = await model.forward(rows, ["logprobs"], { micro: { rows: 1 } });
    return outputs.map(({ logprobs }) => logprobs!);
  } finally {
    await engine.close();
  }
}

describe("the same run", () => {
  test("in verl's older and newer spelling gives the same bytes", async () => {
    const both = ["trainer.total_training_steps=6", "optim.clip_grad=1.0"];
    const older = [`model.partial_pretrain=${box.model}`, "data.micro_batch_size=3", "optim.lr_scheduler=cosine"];
    const newer = [
      "data.use_dynamic_bsz=False",
      "data.micro_batch_size_per_gpu=3",
      "optim.lr=1e-5",
      "optim.betas=[0.9,0.95]",
      "optim.lr_warmup_steps_ratio=0.1",
      "optim.lr_scheduler_type=cosine",
    ];
    expect(await box.sft("older", ...both, ...older)).toMatchObject({ code: 0 });
    expect(await box.sft("newer", ...both, ...newer)).toMatchObject({ code: 0 });
    expect(await box.outcome("older")).toEqual(await box.outcome("newer"));
  });

  test("cut into other micro-batches has the same losses to 1e-5", async () => {
    const long = Array.from({ length: 24 }, (_, i) => ({ question: "1 + ".repeat(i), answer: "2 ".repeat(24 - i) }));
    const file = await box.writeLines("ragged.jsonl", long);
    const budget = (tokens: number) => [`data.max_token_len_per_gpu=${tokens}`];
    const fixed = (rows: number) => ["data.use_dynamic_bsz=False", `data.micro_batch_size_per_gpu=${rows}`];
    const losses: number[][] = [];
    for (const [index, keys] of [budget(8192), budget(300), budget(128), fixed(3), fixed(1)].entries()) {
      const both = [`data.train_files=${file}`, "trainer.total_training_steps=4", "trainer.test_freq=2"];
      expect(await box.sft(`cut${index}`, ...both, ...keys)).toMatchObject({ code: 0 });
      losses.push((await box.metrics(`cut${index}`)).map((data) => data["train/loss"]! + (data["val/loss"] ?? 0)));
    }
    for (const other of losses.slice(1))
      for (const [i, loss] of other.entries()) expect(Math.abs(loss - losses[0]![i]!)).toBeLessThan(1e-5);
  });
});

test("a learning-rate schedule arrives in train/lr", async () => {
  const keys = ["optim.lr=3e-3", "optim.lr_scheduler_type=cosine", "optim.lr_warmup_steps=3", "optim.min_lr_ratio=0.1"];
  expect(await box.sft("cosine", "trainer.total_training_steps=12", ...keys)).toMatchObject({ code: 0 });
  const rates = (await box.metrics("cosine")).map((data) => data["train/lr"]!);
  const schedule = { type: "cosine", lr: 3e-3, warmupSteps: 3, totalSteps: 12, minRatio: 0.1 } as const;
  expect(rates).toEqual(rates.map((_, step) => learningRate(schedule, step)));
  expect(rates[0]).toBe(0);
  expect(Math.max(...rates)).toBe(rates[3]);
  expect(rates.slice(3).every((rate, i, all) => i === 0 || rate < all[i - 1]!)).toBe(true);
});

test("a gradient that is not finite skips the step, says so and counts it", async () => {
  const broken = await box.copyModel("infinite");
  const path = join(broken, "model.safetensors");
  const file = await open(path, "r+");
  // The last number of the file belongs to the last norm.
  await file.write(Buffer.from(new Float32Array([Number.POSITIVE_INFINITY]).buffer), 0, 4, (await stat(path)).size - 4);
  await file.close();
  const { code, said } = await box.sft("skipping", `model.path=${broken}`, "trainer.total_training_steps=3");
  expect(code).toBe(0);
  for (const n of [1, 2, 3])
    expect(said).toMatch(
      new RegExp(`^warning: Step ${n}: the gradient norm is \\w+, so the step was skipped \\(${n} so far\\)\\.$`, "m"),
    );
  expect((await box.metrics("skipping")).map((data) => data["train/skipped_steps"])).toEqual([1, 2, 3]);
  const saved = await readFile(box.path("skipping", "global_step_3", "actor", "model.safetensors"));
  expect(saved.equals(await readFile(path))).toBe(true);
});

describe("starting again", () => {
  const six = "trainer.total_training_steps=6";
  beforeAll(async () => {
    expect(await box.sft("first", six, "trainer.save_freq=2")).toMatchObject({ code: 0 });
  });

  test("a finished run says so and changes nothing", async () => {
    const before = await box.outcome("first");
    const { code, said } = await box.sft("first", six, "trainer.save_freq=2");
    expect({ code, said }).toEqual({
      code: 0,
      said: expect.stringMatching(
        /^Training is already complete \(6 steps\)\. .* Raise `trainer\.total_training_steps` to .*\nTalk to it: npx trainyard chat .*global_step_6\/actor\n$/,
      ),
    });
    expect(await box.outcome("first")).toEqual(before);
  });

  test("with more epochs goes on as if they had been asked for at once", async () => {
    expect(await box.sft("grown", "trainer.total_epochs=1")).toMatchObject({ code: 0 });
    expect(await box.sft("grown", "trainer.total_epochs=2")).toMatchObject({ code: 0 });
    expect(await box.sft("at-once", "trainer.total_epochs=2", "trainer.test_freq=4")).toMatchObject({ code: 0 });
    expect(await box.outcome("grown")).toEqual(await box.outcome("at-once"));
  });

  test("with resume_mode=disable starts over and ends alike", async () => {
    const before = await box.outcome("first");
    const { code, said } = await box.sft("first", six, "trainer.save_freq=2", "trainer.resume_mode=disable");
    expect(code).toBe(0);
    expect(said).toMatch(/Starting over in .*first/);
    expect(await box.outcome("first")).toEqual(before);
  });

  test("from resume_from_path, another run's checkpoint, ends alike", async () => {
    const from = `trainer.resume_from_path=${box.path("first", "global_step_2")}`;
    const { code, said } = await box.sft("branch", six, "trainer.resume_mode=resume_path", from);
    expect(code).toBe(0);
    expect(said).toMatch(/Resuming from .*first\/global_step_2\. The run folder is .*branch\./);
    const own = { "lines.json": expect.any(String) }; // its metrics begin after step 2
    expect((await box.outcome("branch")).files).toEqual({ ...(await box.outcome("first")).files, ...own });
    expect(await box.metrics("branch")).toEqual((await box.metrics("first")).slice(2));
  });

  test("with other data is refused, and the run is as it was", async () => {
    const before = await box.outcome("first");
    const { code, said } = await box.sft("first", "trainer.total_epochs=9", "data.train_max_samples=16");
    expect(code).toBe(2);
    expect(said).toMatch(/The checkpoint was made with 32 training rows, and now there are 16\. .*resume_mode=disable/);
    expect(await box.outcome("first")).toEqual(before);
  });
});

/** When to kill: after the n-th change of a file in the run folder and a moment more, or that long after the start. */
type Moment = { readonly change: RegExp | null; readonly count: number; readonly delayMs: number };

const moments: readonly [what: string, change: RegExp | null][] = [
  ["starting", null],
  ["training or validating", /^latest_checkpointed_iteration\.txt$/],
  ["saving", /^\.global_step_\d+\.[0-9a-f]{8}\.tmp$/],
  ["starting again", null],
  ["logging", /^metrics\.jsonl$/],
  ["saving again", /^\.global_step_\d+\.[0-9a-f]{8}\.tmp$/],
];

async function killAt(child: Child, folder: string, { change, count, delayMs }: Moment): Promise<void> {
  const changed = new Promise<void>((resolve) => {
    let seen = 0;
    const watcher = watch(folder, (_event, name) => {
      if (change?.test(name ?? "") && ++seen === count) resolve();
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

describe("a run killed again and again ends with the bytes of one that was not", () => {
  const cases: readonly { cut: string; seed: number; keys: readonly string[] }[] = [
    { cut: "dynamic micro-batches, a checkpoint each step", seed: 11, keys: ["trainer.save_freq=1"] },
    {
      cut: "fixed micro-batches, a checkpoint every other step",
      seed: 12,
      keys: ["trainer.save_freq=2", "data.use_dynamic_bsz=False", "data.micro_batch_size_per_gpu=3"],
    },
  ];
  test.each(cases.map((it) => [it.cut, it] as const))("%s", { timeout: 120_000 }, async (_, { seed, keys }) => {
    const all = [
      "trainer.total_epochs=6",
      "trainer.test_freq=1",
      "trainer.max_ckpt_to_keep=2",
      "optim.lr=1e-2",
      ...keys,
    ];
    const whole = `whole${seed}`;
    expect(await box.sft(whole, ...all)).toMatchObject({ code: 0 });

    const random = new Random(seed);
    const run = `killed${seed}`;
    await mkdir(box.path(run));
    for (const [what, change] of moments) {
      const delayMs = random.uniform() * (change === null ? 500 : 12);
      const child = box.startSft(run, ...all);
      await killAt(child, box.path(run), { change, count: 1 + random.int(3), delayMs });
      expect([what, await child.ended, child.said]).toEqual([what, "SIGKILL", expect.not.stringMatching(/bug|Error/)]);
    }
    const last = box.startSft(run, ...all);
    expect(await last.ended).toBe(0);
    expect(last.said).toMatch(/Resuming from /);
    expect(await box.outcome(run)).toEqual(await box.outcome(whole));
    expect(await checkpoints(run)).toEqual(await checkpoints(whole));
    expect((await readdir(box.path(run))).filter((name) => name.startsWith(".") || name === "run.lock")).toEqual([]);
  });
});

describe("Ctrl-C", () => {
  test("saves, says how to go on and exits 130; going on ends with the bytes of an unbroken run", async () => {
    // Validation that is due at the step of the interrupt still happens, so no metric is lost.
    const all = ["trainer.total_epochs=12", "trainer.test_freq=2"];
    const child = box.startSft("interrupted", ...all);
    await child.saying(/^step 2\//m);
    child.process.kill("SIGINT");
    expect(await child.ended).toBe(130);
    const [, step, total] = /Stopped after step (\d+) of (\d+) and saved\./.exec(child.said) ?? [];
    expect(child.said).toMatch(/The same command resumes from .*interrupted\.\n$/);
    expect(total).toBe("48");
    expect(await pointer("interrupted")).toBe(step);
    expect(await box.sft("interrupted", ...all)).toMatchObject({ code: 0 });
    expect(await box.sft("uninterrupted", ...all)).toMatchObject({ code: 0 });
    expect(await box.outcome("interrupted")).toEqual(await box.outcome("uninterrupted"));
  });

  test("while validating saves the step that is being validated", async () => {
    const child = box.startSft("slow", ...(await slowValidation()));
    await child.saying(/The run folder is/);
    await pause(700); // the first step takes half of that, validating it far more
    child.process.kill("SIGINT");
    expect(await child.ended).toBe(130);
    expect(child.said).toMatch(/Stopping, .*step 1\/8 .*val\/loss .*Stopped after step 1 of 8 and saved\./s);
    expect(await pointer("slow")).toBe("1");
  });

  test("pressed twice exits at once", async () => {
    const child = box.startSft("twice", ...(await slowValidation()));
    await child.saying(/The run folder is/);
    await pause(300);
    child.process.kill("SIGINT");
    await child.saying(/Stopping/);
    await pause(400); // within 300 ms it would be the same press
    const pressed = performance.now();
    child.process.kill("SIGINT");
    expect(await child.ended).toBe("SIGINT"); // a shell reports it as 130
    expect(performance.now() - pressed).toBeLessThan(1000);
    expect(child.said).not.toMatch(/step 1|Stopped/);
  });

  /** Keys that make validating one step take seconds: many rows, one by one. */
  async function slowValidation(): Promise<string[]> {
    const file = await box.writeLines(
      "many.jsonl",
      Array.from({ length: 3000 }, (_, i) => sum(i)),
    );
    const oneByOne = ["data.use_dynamic_bsz=False", "data.micro_batch_size_per_gpu=1"];
    return [`data.val_files=${file}`, "trainer.test_freq=1", "trainer.total_epochs=2", ...oneByOne];
  }
});
