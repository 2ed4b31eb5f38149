/**
 * `trainyard data` as a user sees it: files equal to verl's, rows on a screen, and findings in the messages of training.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parquetMetadata } from "hyparquet";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../src/cli/main.ts";
import { readRows, writeRows } from "../src/data/files.ts";
import { textWidth } from "../src/track/text-width.ts";
import { DatasetHub } from "./dataset-hub.ts";
import { checksums, Sandbox } from "./sandbox.ts";

const shared = fileURLToPath(new URL("../../shared/data", import.meta.url));
const python = process.env.TRAINYARD_TEST_PYTHON;

let box: Sandbox;
beforeAll(async () => {
  box = await Sandbox.make();
});
afterAll(() => box.remove());

type Said = { readonly code: number; readonly out: string; readonly said: string };

/** Run a command in this process; gives what it wrote to stdout and to stderr. */
async function data(args: readonly string[], env: Record<string, string> = {}): Promise<Said> {
  const streams = [process.stdout, process.stderr] as const;
  const writes = streams.map((stream) => stream.write);
  const texts = ["", ""];
  for (const [i, stream] of streams.entries())
    stream.write = (chunk: string | Uint8Array) => {
      texts[i] += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
      return true;
    };
  try {
    const code = await main(["data", ...args], { HF_HUB_OFFLINE: "1", ...env });
    return { code, out: texts[0]!, said: texts[1]! };
  } finally {
    for (const [i, stream] of streams.entries()) stream.write = writes[i]!;
  }
}

/** One message and exit code 2. */
function expectOneMessage({ code, said, out }: Said, message: RegExp): void {
  expect(said).toMatch(message);
  expect(said.trimEnd().split("\n")).toHaveLength(1);
  expect(said).not.toMatch(/\n\s+at |internal:|undefined|\[object|bug in trainyard/);
  expect(out).toBe("");
  expect(code).toBe(2);
}

const values = async (file: string) => (await readRows(file)).rows.map((row) => row.values);

function metadataOf(file: string) {
  const bytes = readFileSync(file);
  return parquetMetadata(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

describe.skipIf(!existsSync(join(shared, "gsm8k-verl")))("GSM8K (skipped without ../shared/data)", () => {
  const splits = { train: 7473, test: 1319 } as const;
  const verls = (split: string) => join(shared, "gsm8k-verl", `${split}.parquet`);

  beforeAll(async () => {
    const from = ["--local_dataset_path", join(shared, "gsm8k"), "--local_save_dir", box.path("gsm8k")];
    expect(await data(["gsm8k", ...from])).toMatchObject({ code: 0 });
  });

  test("every column of every row is that of verl's file", async () => {
    for (const [split, count] of Object.entries(splits)) {
      const rows = await values(box.path("gsm8k", `${split}.parquet`));
      expect(rows).toHaveLength(count);
      expect(rows).toEqual(await values(verls(split)));
    }
  });

  test("the schema is that of verl's file, and so is its description for `datasets`", () => {
    for (const split of Object.keys(splits)) {
      const [ours, theirs] = [metadataOf(box.path("gsm8k", `${split}.parquet`)), metadataOf(verls(split))];
      expect(ours.schema.slice(1)).toEqual(theirs.schema.slice(1));
      const description = ({ key_value_metadata: pairs }: typeof ours) =>
        JSON.parse(pairs?.find(({ key }) => key === "huggingface")?.value ?? "null");
      expect(description(ours)).toEqual(description(theirs));
    }
  });

  test.skipIf(!python)(
    "pyarrow reads the same table from both (skipped unless TRAINYARD_TEST_PYTHON names a Python that has it)",
    () => {
      const code = `
import sys, pyarrow.parquet as pq
for ours, theirs in zip(sys.argv[1::2], sys.argv[2::2]):
    a, b = pq.read_table(ours), pq.read_table(theirs)
    print(a.schema.remove_metadata().equals(b.schema.remove_metadata()), a.to_pylist() == b.to_pylist())`;
      const files = Object.keys(splits).flatMap((split) => [box.path("gsm8k", `${split}.parquet`), verls(split)]);
      expect(execFileSync(python!, ["-c", code, ...files]).toString()).toBe("True True\nTrue True\n");
    },
  );

  test("validate finds no error and no warning in it", async () => {
    const { code, out } = await data(["validate", box.path("gsm8k", "test.parquet"), "data.train_batch_size=256"]);
    expect(out).toMatch(/1319 rows, checked for `trainyard ppo`[\s\S]*`trainyard ppo` would take these rows\.\n$/);
    expect(out).not.toMatch(/error|warning/);
    expect(code).toBe(0);
  });
});

describe("preparing", () => {
  const questions = [1, 2, 3].map((i) => ({ question: `${i}+${i}?`, answer: `Add.\n#### ${i * 1000},${i}` }));
  const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

  test("gives the same for jsonl, json, gzipped and parquet files", async () => {
    const { gzipSync } = await import("node:zlib");
    const files = {
      "a/train.jsonl": Buffer.from(lines(questions)),
      "b/train.json": Buffer.from(JSON.stringify(questions)),
      "c/train.jsonl.gz": gzipSync(lines(questions)),
    };
    await writeRows(box.path("d", "train.parquet"), questions);
    for (const [name, bytes] of Object.entries(files)) {
      await mkdir(box.path(name, ".."), { recursive: true });
      await writeFile(box.path(name), bytes);
    }
    const made = [];
    for (const folder of ["a", "b", "c", "d"]) {
      const save = box.path("made", folder);
      const { code, out, said } = await data(["gsm8k", "--local-dataset-path", box.path(folder), "--local_dir", save]);
      expect({ code, out }).toEqual({ code: 0, out: `${save}/train.parquet  3 rows\n` });
      expect(said).toMatch(/The source has no rows for test\.parquet\./);
      made.push((await checksums(save))["train.parquet"]);
    }
    expect(new Set(made).size).toBe(1);
  });

  test("downloads what it needs from the hub, once, and says when it cannot", async () => {
    const hub = new DatasetHub("openai/gsm8k", {
      "README.md": Buffer.from("about"),
      "main/train-00000-of-00001.jsonl": Buffer.from(lines(questions)),
      "main/test-00000-of-00001.jsonl": Buffer.from(lines(questions.slice(1))),
      "socratic/train-00000-of-00001.jsonl": Buffer.from(lines(questions)),
    });
    await hub.start();
    const env = { HF_ENDPOINT: hub.endpoint, HF_HOME: box.path("hf"), HF_HUB_OFFLINE: "0" };
    const to = (folder: string) => ["--local_save_dir", box.path("from-hub", folder)];
    try {
      expect(await data(["gsm8k", ...to("first")], env)).toMatchObject({ code: 0 });
      expect(hub.seen.filter((path) => path.includes("/resolve/"))).toHaveLength(2);
    } finally {
      await hub.stop();
    }
    expect(await data(["gsm8k", ...to("second")], env)).toMatchObject({ code: 0 });
    expect(await checksums(box.path("from-hub", "second"))).toEqual(await checksums(box.path("from-hub", "first")));
    expectOneMessage(
      await data(["math", ...to("third")], env),
      /dataset DigitalLearningGmbH\/MATH-lighteval is not in the cache .* cannot be reached .*--local_dataset_path\.$/m,
    );
    expect(existsSync(box.path("from-hub", "third"))).toBe(false);
  });

  const save = ["--local_save_dir", "SAVE"];
  type Case = {
    readonly what: string;
    readonly says: RegExp;
    readonly args: readonly string[];
    /** What the raw file holds, and its name. */
    readonly rows?: readonly object[];
    readonly text?: string;
    readonly name?: string;
  };
  const cases: readonly Case[] = [
    {
      what: "a solution without a number",
      rows: [...questions, { question: "?", answer: "no idea" }],
      says: /train\.jsonl, line 4, column `answer`: expected a solution that ends in #### and a number/,
      args: ["gsm8k", "--local_dataset_path", "FILE"],
    },
    {
      what: "rows of another dataset",
      rows: questions,
      says: /line 1: there is no column `problem`, .* The columns are `question`, `answer`\./,
      args: ["math", "--local_dataset_path", "FILE"],
    },
    {
      what: "a line that is not JSON",
      text: `${lines(questions)}{"question": \n`,
      says: /train\.jsonl, line 4, column 13: not JSON/,
      args: ["gsm8k", "--local_dataset_path", "FILE"],
    },
    {
      what: "a value of another type",
      rows: [{ question: 3, answer: "#### 3" }],
      says: /line 1, column `question`: expected text, found the number 3\./,
      args: ["gsm8k_multiturn_sft", "--local_dataset_path", "FILE"],
    },
    {
      what: "a split that no file is made of",
      rows: questions,
      name: "test.jsonl",
      says: /test\.jsonl has the split test, and train is looked for\. A file's name says its split/,
      args: ["dapo_multiturn_w_tool", "--local_dataset_path", "FILE"],
    },
    {
      what: "a path that is not there",
      says: /nowhere does not exist\./,
      args: ["gsm8k", "--local_dataset_path", "nowhere"],
    },
    { what: "a misspelt name", says: /`gsm9k` is no dataset .* Did you mean gsm8k\?/, args: ["gsm9k"] },
    { what: "a file instead of a name", says: /Write trainyard data show rows\.parquet/, args: ["rows.parquet"] },
    { what: "a split of a dataset that has none", says: /gsm8k has one form only/, args: ["gsm8k", "--split", "rm"] },
    {
      what: "an unknown form",
      says: /`--split` is dpo; it should be one of sft, rm, rl\./,
      args: ["hh-rlhf", "--split", "dpo"],
    },
    { what: "HDFS", says: /nothing is copied to HDFS here/, args: ["gsm8k", "--hdfs_dir", "hdfs://there"] },
  ];
  for (const { what, says, rows, text, name = "train.jsonl", args } of cases) {
    test(`${what} is one message, and nothing is written`, async () => {
      const place = box.path("bad", what.replaceAll(/\W/g, "-"));
      await mkdir(join(place, "raw"), { recursive: true });
      const file = join(place, "raw", name);
      if (rows !== undefined || text !== undefined) await writeFile(file, text ?? lines(rows ?? []));
      const given = [...args, ...save].map((it) => (it === "FILE" ? file : it === "SAVE" ? join(place, "made") : it));
      expectOneMessage(await data(given), says);
      expect(readdirSync(place)).toEqual(["raw"]);
    });
  }

  test("a bad row leaves the files of an earlier run as they were", async () => {
    const raw = await box.writeLines("again-train.jsonl", questions);
    const args = ["gsm8k", "--local_dataset_path", raw, "--local_save_dir", box.path("again")];
    expect(await data(args)).toMatchObject({ code: 0 });
    const before = await checksums(box.path("again"));
    await box.writeLines("again-train.jsonl", [...questions, {}]);
    expect(await data(args)).toMatchObject({ code: 2 });
    expect(await checksums(box.path("again"))).toEqual(before);
  });

  test("raw rows are never overwritten, and rows of an earlier run are not read as raw ones", async () => {
    await mkdir(box.path("same"), { recursive: true });
    const raw = await box.writeLines("same/train.jsonl", questions);
    const below = ["gsm8k", "--local_dataset_path", box.path("same"), "--local_save_dir", box.path("same", "made")];
    for (let i = 0; i < 2; i++) expect(await data(below)).toMatchObject({ code: 0 });
    await writeRows(box.path("same", "train.parquet"), questions);
    const over = ["gsm8k", "--local_dataset_path", box.path("same"), "--local_save_dir", box.path("same")];
    expectOneMessage(await data(over), /same\/train\.parquet would be read and overwritten\./);
    expect(await values(box.path("same", "train.parquet"))).toEqual(await values(raw));
  });

  test("--help lists every dataset with a line", async () => {
    const { datasets } = await import("../src/data/prepare/datasets.ts");
    const { out, code } = await data(["--help"]);
    for (const { name, summary } of datasets) expect(out).toContain(`${name.padEnd(29)}  ${summary}\n`);
    expect(code).toBe(0);
  });
});

describe("show", () => {
  const hostile = "\u001b[31mred\u001b]0;title\u0007 \u009b2J \r\u202e 日本語 👩‍👩‍👧 ";
  const rows = [
    {
      prompt: [
        { role: "user\u001b[1m", content: hostile.repeat(200) },
        { role: "assistant", content: null, tool_calls: [{ function: { name: "add" } }] },
      ],
      "na\u001bme": hostile,
      list: Array.from({ length: 30 }, (_, i) => ({ i })),
      deep: { a: { b: [1, 2] } },
      empty: "",
      none: null,
    },
    { prompt: "a text", list: [], deep: null },
  ];

  test("no character of a file can control the terminal, and no line is wider than it", async () => {
    const file = await box.writeLines("hostile.jsonl", rows);
    const { out, code } = await data(["show", file]);
    expect(code).toBe(0);
    expect(out.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\u202a-\u202e]/u);
    const [, ...lines] = out.split("\n"); // the first is the file's own name
    for (const line of lines) expect(textWidth(line)).toBeLessThanOrEqual(80);
  });

  test("a conversation is shown turn by turn, and what is cut is counted", async () => {
    const long = Array.from({ length: 400 }, (_, i) => `word${i}`).join(" ");
    const file = await box.writeLines("long.jsonl", [
      {
        messages: [
          { role: "user", content: long },
          { role: "assistant", content: "two\nlines" },
        ],
      },
    ]);
    const cut = await data(["show", file]);
    expect(cut.out).toMatch(/^long\.jsonl|: 1 row, 1 column\n/);
    expect(cut.out).toMatch(/user +│ word0 word1 .*\n(.*\n)*? +│ … (\d+) more characters in \d+ lines/);
    expect(cut.out).toMatch(/assistant │ two\n +│ lines\n/);
    const whole = await data(["show", file, "--full"]);
    const words = (text: string) => text.match(/word\d+/g) ?? [];
    expect(words(whole.out)).toHaveLength(400);
    const left = Number(/… (\d+) more/.exec(cut.out)?.[1]);
    const missing = words(whole.out).slice(words(cut.out).length).join(" ");
    // Spaces at line ends are not counted.
    expect(Math.abs(left - missing.length)).toBeLessThan(40);
  });

  test("--from and --rows choose the rows, by the numbers of the messages", async () => {
    const file = box.path("many.parquet");
    await writeRows(
      file,
      Array.from({ length: 50 }, (_, i) => ({ i, text: `t${i}` })),
    );
    const { out } = await data(["show", file, "--from", "41", "--rows", "2"]);
    expect(out).toMatch(/: 50 rows, 2 columns\n\n {2}i {5}int64\n {2}text {2}string\n\n── row 41 ─/);
    expect(out.match(/── row \d+/g)).toEqual(["── row 41", "── row 42"]);
    expect(out).toMatch(/text {2}t40\n/);
    expectOneMessage(await data(["show", file, "--from", "51"]), /`--from` is 51, and .* has 50 rows\./);
  });

  test("the schema of a parquet file is the file's, not a guess from its rows", async () => {
    const raw = fileURLToPath(new URL("fixtures/data/prepare/raw/hellaswag.parquet", import.meta.url));
    expect((await data(["show", raw])).out).toMatch(/\n {2}ind +int32\n/);
  });
});

describe("validate", () => {
  const rl = (question: unknown, truth: unknown, more: object = {}) => ({
    data_source: "openai/gsm8k",
    prompt: question === null ? null : [{ role: "user", content: question }],
    reward_model: { style: "rule", ground_truth: truth },
    extra_info: { index: 0 },
    ...more,
  });
  const chat = (answer: unknown) => [
    { role: "user", content: "Hello" },
    { role: "assistant", content: answer },
  ];

  type Case = {
    readonly what: string;
    readonly rows: readonly object[];
    readonly finds: readonly RegExp[];
    readonly args?: readonly string[];
    readonly code: 0 | 2;
    readonly needsModel?: boolean;
  };
  const cases: readonly Case[] = [
    {
      what: "sound rows",
      rows: [rl("a", "1"), rl("b", "2")],
      finds: [],
      args: [
        "data.train_batch_size=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "critic.ppo_mini_batch_size=2",
      ],
      code: 0,
    },
    {
      what: "no ground truth",
      rows: [rl("a", "1"), rl("b", null), rl("c", null)],
      finds: [/^error: 2 of 3 rows \(2, 3\): `reward_model\.ground_truth` of row 2 is null/m],
      code: 2,
    },
    {
      what: "no scorer",
      rows: [rl("a", "1", { data_source: "openai/gsm9k" })],
      finds: [
        /^error: 1 of 1 row \(1\): There is no built-in scorer .* "openai\/gsm9k"\. Did you\s+mean "openai\/gsm8k"/m,
      ],
      code: 2,
    },
    {
      what: "no scorer is needed with a reward function",
      rows: [rl("a", null, { data_source: "mine" })],
      finds: [/^warning: .*the reward function gets null/m],
      args: ["custom_reward_function.path=reward.ts"],
      code: 0,
    },
    {
      what: "a prompt that is null",
      rows: [rl("a", "1"), rl(null, "1")],
      finds: [/^error: 1 of 2 rows \(2\): column `prompt`: expected a chat/m],
      code: 2,
    },
    {
      what: "rows for an agent loop that does not exist here",
      rows: [rl("a", "1", { agent_name: "single_turn_agent" }), rl("b", "1", { agent_name: "tool_agent" })],
      finds: [/^error: 1 of 2 rows \(2\): column `agent_name`: there is no agent loop "tool_agent" here/m],
      code: 2,
    },
    {
      what: "the same prompt twice",
      rows: [rl("a", "1"), rl("b", "1"), rl("a", "2")],
      finds: [/^warning: 1 of 3 rows \(3\): the prompt is that of row 1 again/m],
      code: 0,
    },
    {
      what: "fewer rows than a step takes, by default",
      rows: [rl("a", "1")],
      finds: [/^warning: The file gives 1 prompt, fewer than the 1024/m],
      code: 0,
    },
    {
      what: "tests of a program that are not JSON",
      rows: [rl("a", "x", { data_source: "apps" })],
      finds: [/^error: .*which is not JSON/m],
      code: 2,
    },
    {
      what: "a prompt that is too long",
      rows: [rl("a", "1"), rl("long ".repeat(300), "1")],
      finds: [
        /^error: 1 of 2 rows \(2\): the prompt has \d+ tokens, and `data\.max_prompt_length` is 512/m,
        /^note: The prompts have \d+ to \d+ tokens/m,
      ],
      code: 2,
      needsModel: true,
    },
    {
      what: "a prompt that is left out",
      rows: [rl("a", "1"), rl("long ".repeat(300), "1")],
      finds: [/^warning: 1 of 2 rows \(2\): .* the row is left out/m],
      args: ["data.filter_overlong_prompts=true"],
      code: 0,
      needsModel: true,
    },
    { what: "sound conversations", rows: [{ messages: chat("Hi") }], finds: [], code: 0 },
    {
      what: "an empty response",
      rows: [{ messages: chat("Hi") }, { messages: chat("") }],
      finds: [/^warning: 1 of 2 rows \(2\): a response is empty/m],
      code: 0,
    },
    {
      what: "nothing to learn",
      rows: [{ messages: chat("Hi").slice(0, 1) }],
      finds: [/^warning: 1 of 1 row \(1\): there is no token to learn/m],
      code: 0,
    },
    {
      what: "a message without a role",
      rows: [{ messages: [{ content: "?" }] }],
      finds: [/^error: .*column `messages\[0\]\.role`: expected a role/m],
      code: 2,
    },
    {
      what: "prompts and responses by their names",
      rows: [{ question: "1+1?", answer: "2" }],
      finds: [/^note: .*data\.prompt_key=question\s+data\.response_key=answer/m],
      code: 0,
    },
    {
      what: "a response that is too long",
      rows: [{ messages: chat("long ".repeat(600)) }],
      finds: [/^error: .*tokens, and `data\.max_length` is 1024/m],
      code: 2,
      needsModel: true,
    },
    {
      what: "equal sides",
      rows: [{ prompt: "q", chosen: "a", rejected: "a" }],
      finds: [/^error: .*neither is preferred/m],
      code: 2,
    },
    { what: "sound pairs", rows: [{ prompt: "q", chosen: "a", rejected: "b" }], finds: [], code: 0 },
    {
      what: "a prompt to generate from that is a number",
      rows: [{ prompt: 7 }],
      finds: [/^error: .*column `prompt`: expected a chat/m],
      code: 2,
    },
  ];
  for (const { what, rows, finds, args = [], code, needsModel = false } of cases) {
    test(what, async () => {
      const file = await box.writeLines("check.jsonl", rows);
      for (const model of needsModel ? [["--model", box.model]] : [[], ["--model", box.model]]) {
        const said = await data(["validate", file, ...model, ...args]);
        for (const finding of finds) expect(said.out.replaceAll("\n  ", " ")).toMatch(finding);
        if (finds.length === 0) expect(said.out).not.toMatch(/^(error|warning)/m);
        expect(said.out).toMatch(code === 0 ? /would take these rows/ : /would stop: \d+ error/);
        expect(said.code).toBe(code);
      }
    });
  }

  test("an error has the message that training stops with, word for word", async () => {
    const plain = (text: string) => text.replaceAll(/\s+/g, " ");
    const bad = [
      { question: "1+1=?", answer: 2 },
      { question: "1+1=?" },
      { question: ["x"], answer: "2." },
      { question: "1+1=?", answer: "long ".repeat(300) },
    ];
    for (const row of bad) {
      const file = await box.writeLines("word.jsonl", [{ question: "0+0=?", answer: "0." }, row]);
      const keys = ["data.prompt_key=question", "data.response_key=answer", "data.max_length=128"];
      const trained = await box.sft("never", `data.train_files=${file}`, ...keys);
      const checked = await data(["validate", file, "--for", "sft", "--model", box.model, ...keys]);
      expect([trained.code, checked.code]).toEqual([2, 2]);
      const complaint = trained.said
        .trim()
        .replace(`${file}, line 2`, "")
        .replace(/^[,:] */, "");
      expect(plain(checked.out)).toContain(plain(`error: 1 of 2 rows (2): ${complaint}`));
    }
    expect(existsSync(box.path("never"))).toBe(false);
  });

  test("an error in a prompt has the message that training stops with, word for word", async () => {
    const plain = (text: string) => text.replaceAll(/\s+/g, " ");
    const bad = [
      rl(null, "1"),
      rl("a", "1", { images: ["x"] }),
      rl("long ".repeat(300), "1"),
      rl("a", "1", { extra_info: 3 }),
    ];
    for (const row of bad) {
      const file = await box.writeLines("word.jsonl", [rl("0", "1"), row]);
      const run = [`actor_rollout_ref.model.path=${box.model}`, `trainer.default_local_dir=${box.path("never")}`];
      const trained = await box.command("ppo", ...run, `critic.model.path=${box.model}`, `data.train_files=${file}`);
      const checked = await data(["validate", file, "--model", box.model]);
      expect([trained.code, checked.code]).toEqual([2, 2]);
      const complaint = trained.said
        .trim()
        .split("\n")
        .at(-1)!
        .replace(`${file}, line 2`, "")
        .replace(/^[,:] */, "");
      expect(plain(checked.out)).toContain(plain(`error: 1 of 2 rows (2): ${complaint}`));
    }
  });

  test("bad arguments are one message", async () => {
    const file = await box.writeLines("odd.jsonl", [{ a: 1 }]);
    const sound = await box.writeLines("sound.jsonl", [rl("a", "1")]);
    const table: readonly (readonly [readonly string[], RegExp])[] = [
      [["validate"], /There is no file to check\./],
      [["validate", box.path("nowhere.jsonl")], /nowhere\.jsonl does not exist\. Check the path\./],
      [["validate", file], /has the columns `a`, which do not show which verb they are for\. Name it with --for ppo/],
      [["validate", sound, "--for", "dpo"], /`--for` is "dpo"; it should be one of auto, ppo/],
      [["validate", sound, "data.max_promt_length=3"], /data\.max_promt_length.*data\.max_prompt_length/],
      [["validate", sound, "data.train_files=x"], /`data\.train_files` is not set here/],
      [["validate", sound, "--model", box.path("no-model")], /no folder|no-model/],
      [["show", box.path("nowhere.jsonl")], /nowhere\.jsonl does not exist\. Check the path\./],
      [["show"], /There is no file to show\./],
    ];
    for (const [args, message] of table) expectOneMessage(await data(args), message);
  });
});
