/** Every dataset against files that Python wrote of the same raw rows by the rules of verl's scripts (test/fixtures/data/prepare). */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type FileMetaData, parquetMetadata } from "hyparquet";
import { afterAll, describe, expect, test } from "vitest";
import { readRows } from "../files.ts";
import { datasets, findDataset } from "./datasets.ts";
import { prepare } from "./prepare.ts";

const fixtures = fileURLToPath(new URL("../../../test/fixtures/data/prepare", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-prepare-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** One file: the dataset, its raw rows, the file it makes, and verl's. */
type Case = { readonly dataset: string; readonly raw: string; readonly file: string; readonly verl: string };

const cases: readonly Case[] = [
  { dataset: "gsm8k_multiturn_sft", raw: "gsm8k", file: "train", verl: "gsm8k_sft" },
  { dataset: "gsm8k_multiturn_w_tool", raw: "gsm8k", file: "train", verl: "gsm8k_wtool" },
  { dataset: "gsm8k_tool_agent_loop", raw: "gsm8k", file: "train", verl: "gsm8k_tool" },
  { dataset: "gsm8k_multiturn_w_interaction", raw: "gsm8k", file: "train", verl: "gsm8k_inter" },
  { dataset: "math", raw: "math", file: "train", verl: "math" },
  { dataset: "dapo_multiturn_w_tool", raw: "dapo", file: "train", verl: "dapo" },
  { dataset: "aime2024_multiturn_w_tool", raw: "aime", file: "train", verl: "aime" },
  { dataset: "full_hh_rlhf", raw: "hh", file: "sft/train", verl: "hh_sft" },
  { dataset: "full_hh_rlhf", raw: "hh", file: "rm/train", verl: "hh_rm_train" },
  { dataset: "full_hh_rlhf", raw: "hh", file: "rm/test", verl: "hh_rm_test" },
  { dataset: "full_hh_rlhf", raw: "hh", file: "rl/train", verl: "hh_rl" },
  { dataset: "geo3k", raw: "geo3k", file: "train", verl: "geo3k" },
  { dataset: "geo3k_multiturn_w_tool", raw: "geo3k", file: "train", verl: "geo3k_tool" },
  { dataset: "hellaswag", raw: "hellaswag", file: "train", verl: "hellaswag" },
  { dataset: "search_r1", raw: "search", file: "train", verl: "search" },
];

async function make(name: string, localPath: string | null, to: string, part: string | null = null) {
  const dataset = findDataset(name);
  if (dataset === null) throw new Error(`no dataset ${name}`);
  const saveDir = join(folder, to);
  const signal = new AbortController().signal;
  return { saveDir, ...(await prepare({ dataset, localPath, repo: null, saveDir, part }, { env: {}, signal })) };
}

const raw = (name: string) => join(fixtures, "raw", `${name}.parquet`);
const verl = (name: string) => join(fixtures, "verl", `${name}.parquet`);
const values = async (file: string) => (await readRows(file)).rows.map((row) => row.values);

function metadataOf(file: string): FileMetaData {
  const bytes = readFileSync(file);
  return parquetMetadata(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

/** All that types a file's columns: their elements in order, the root's own (which has no column) left out. */
const schemaOf = (file: string) => metadataOf(file).schema.slice(1);

const featuresOf = (file: string) => {
  const text = metadataOf(file).key_value_metadata?.find(({ key }) => key === "huggingface")?.value;
  return text === undefined ? null : JSON.parse(text).info.features;
};

describe("a file has the rows, the columns and the types that verl's script gives it", () => {
  for (const { dataset, raw: source, file, verl: theirs } of cases) {
    test(`${dataset}: ${file}`, async () => {
      const { saveDir } = await make(dataset, raw(source), dataset);
      const ours = join(saveDir, `${file}.parquet`);
      expect(await values(ours)).toEqual(await values(verl(theirs)));
      expect(schemaOf(ours)).toEqual(schemaOf(verl(theirs)));
      // pandas writes no such description.
      if (featuresOf(verl(theirs)) !== null) expect(featuresOf(ours)).toEqual(featuresOf(verl(theirs)));
    });
  }

  test("every dataset is among these, except those of the other tests", () => {
    const tested = new Set([...cases.map(({ dataset }) => dataset), "gsm8k", "hh-rlhf", "pokemon", "multiturn"]);
    expect(datasets.map(({ name }) => name).filter((name) => !tested.has(name))).toEqual([]);
  });

  test("math: the first row is also written as JSON, letter for letter", async () => {
    const { saveDir } = await make("math", raw("math"), "math-example");
    expect(readFileSync(join(saveDir, "train_example.json"), "utf8")).toBe(
      readFileSync(join(fixtures, "verl", "math_example.json"), "utf8"),
    );
  });

  test("multiturn: two conversations and one, with verl's columns, from nothing", async () => {
    const { saveDir, files } = await make("multiturn", null, "multiturn");
    expect(files.map(({ rows }) => rows)).toEqual([2, 1]);
    expect(schemaOf(join(saveDir, "train.parquet"))).toEqual(schemaOf(verl("multiturn")));
  });

  test("pokemon: every row is in one of the two files, a tenth rounded up in the second, alike every time", async () => {
    const { saveDir } = await make("pokemon", raw("pokemon"), "pokemon");
    const [train, held] = [join(saveDir, "train.parquet"), join(saveDir, "test.parquet")];
    const all = await values(verl("pokemon"));
    const made = [...(await values(train)), ...(await values(held))];
    expect(await values(held)).toHaveLength(2);
    expect(made).toHaveLength(all.length);
    expect(made).toEqual(expect.arrayContaining(all));
    expect(schemaOf(train)).toEqual(schemaOf(verl("pokemon")));
    const again = await make("pokemon", raw("pokemon"), "pokemon-again");
    expect(await values(join(again.saveDir, "train.parquet"))).toEqual(await values(train));
  });
});

describe("hh-rlhf in its original form", () => {
  const dialogue = (...turns: readonly string[]) =>
    turns.map((turn, i) => `\n\n${i % 2 === 0 ? "Human" : "Assistant"}: ${turn}`).join("");
  const pairs = [
    { chosen: dialogue("a", "b", "c", "good"), rejected: dialogue("a", "b", "c", "bad") },
    // The sides part at the first answer already.
    { chosen: dialogue("a", "yes", "c", "d"), rejected: dialogue("a", "no") },
  ];

  test("a pair is divided where its sides start to differ, and both sides join to the original", async () => {
    const file = join(folder, "test.jsonl");
    writeFileSync(file, pairs.map((pair) => `${JSON.stringify(pair)}\n`).join(""));
    const { saveDir, missing } = await make("hh-rlhf", file, "hh-original");
    expect(missing).toEqual(["sft/train.parquet", "rm/train.parquet", "rl/train.parquet"]);
    const rows = await values(join(saveDir, "rm", "test.parquet"));
    for (const [i, row] of rows.entries()) {
      expect(String(row.prompt)).toMatch(/\n\nAssistant:$/);
      expect(`${row.prompt}${row.chosen}`).toBe(pairs[i]!.chosen);
      expect(`${row.prompt}${row.rejected}`).toBe(pairs[i]!.rejected);
    }
    expect(rows.map(({ chosen }) => chosen)).toEqual([" good", " yes\n\nHuman: c\n\nAssistant: d"]);
    const sft = await values(join(saveDir, "sft", "test.parquet"));
    expect(sft).toHaveLength(2 * rows.length);
  });

  test("`part` makes one form only", async () => {
    const { files, saveDir } = await make("full_hh_rlhf", raw("hh"), "hh-part", "rl");
    expect(files).toEqual([{ path: join(saveDir, "rl", "train.parquet"), rows: 3 }]);
    expect(existsSync(join(saveDir, "sft"))).toBe(false);
  });
});

test("a file without rows is not written, and no file at all is an error", async () => {
  // Of HellaSwag's test rows none has a label.
  const row = { activity_label: "A", ctx_a: "B", ctx_b: "c", endings: ["d", "e"], label: "1" };
  const lines = (rows: readonly object[]) => rows.map((it) => `${JSON.stringify(it)}\n`).join("");
  const unlabelled = join(folder, "hellaswag-raw", "test.jsonl");
  mkdirSync(join(folder, "hellaswag-raw"));
  writeFileSync(unlabelled, lines([{ ...row, label: "" }]));
  await expect(make("hellaswag", unlabelled, "unlabelled")).rejects.toThrow(/has no row to make .*test\.parquet of/);
  writeFileSync(join(folder, "hellaswag-raw", "train.jsonl"), lines([{ ...row, label: "" }, row]));
  const { files, missing } = await make("hellaswag", join(folder, "hellaswag-raw"), "labelled");
  expect(files.map(({ rows }) => rows)).toEqual([1]);
  expect(missing).toEqual(["validation.parquet", "test.parquet"]);
});

test("a name is found with _ or -, in any case, and as verl's script", () => {
  for (const name of ["full-hh-rlhf", "FULL_HH_RLHF", "full_hh_rlhf.py"])
    expect(findDataset(name)?.name).toBe("full_hh_rlhf");
  expect(findDataset("math_dataset.py")?.name).toBe("math");
  expect(findDataset("preprocess_search_r1_dataset")?.name).toBe("search_r1");
  expect(findDataset("gsm9k")).toBeNull();
});
