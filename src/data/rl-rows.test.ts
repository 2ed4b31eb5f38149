import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encodeChat } from "../text/chat-template.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { UserError } from "../util/errors.ts";
import { readRows, writeRows } from "./files.ts";
import { chooseSamples, encodePrompt, filterOverlong, loadRlRows, type RlOptions, rlRow } from "./rl-rows.ts";
import type { Row } from "./row.ts";

const fixtures = join(import.meta.dirname, "../../test/fixtures/data");
const tokenizer = await loadTokenizer(join(fixtures, "tokenizer"));
const rowOf = (values: Record<string, unknown>, file = "train.jsonl"): Row => ({ values, file, row: 7 });
const reader = (path: string) => async (maxRows: number) => (await readRows(path, { maxRows })).rows;
const user = (content: string) => [{ role: "user", content }];

describe("a row of verl's schema", () => {
  const values = {
    prompt: user("What is 2+3?"),
    data_source: "openai/gsm8k",
    ability: "math",
    reward_model: { style: "rule", ground_truth: "5" },
    extra_info: { index: 100, split: "train", tools_kwargs: { calc: { create_kwargs: { a: null } } } },
    agent_name: "single_turn_agent",
    difficulty: 3,
  };

  test("is read with all its fields, and keeps the columns the schema does not know", () => {
    const row = rlRow(rowOf(values));
    expect(row).toMatchObject({ prompt: values.prompt, dataSource: "openai/gsm8k", ability: "math", index: 100 });
    expect(row.toolsKwargs).toEqual({ calc: { create_kwargs: { a: null } } });
    expect(row.agentName).toBe("single_turn_agent");
    expect(row.source.values).toEqual(values);
    expect(row.interactionKwargs).toEqual({});
  });

  test("needs only a prompt", () => {
    const row = rlRow(rowOf({ question: "Why?" }), { promptKey: "question" });
    expect(row).toMatchObject({
      prompt: user("Why?"),
      dataSource: "unknown",
      index: 0,
      toolsKwargs: {},
      extraInfo: {},
    });
  });

  test("from parquet loses the nulls of absent keys", () => {
    const prompt = [{ role: "assistant", content: null, name: null, tool_calls: [{ function: { a: 1, b: null } }] }];
    const extra_info = { tools_kwargs: { calc: { x: 1 }, search: null } };
    const row = rlRow(rowOf({ prompt, extra_info }, "train.parquet"));
    expect(row.prompt).toEqual([{ role: "assistant", content: null, tool_calls: [{ function: { a: 1 } }] }]);
    expect(row.toolsKwargs).toEqual({ calc: { x: 1 } });
  });

  test.each<[Record<string, unknown>, string]>([
    [{ promt: "x" }, "train.jsonl, line 7: there is no column `prompt`. The columns are `promt`. Did you mean"],
    [
      { prompt: 3 },
      "train.jsonl, line 7, column `prompt`: expected a chat (a list of {role, content}), found the number 3",
    ],
    [{ prompt: [] }, "column `prompt`: expected a chat of at least one message, found an empty list"],
    [{ prompt: ["hi"] }, 'column `prompt[0]`: expected a message such as {role, content}, found the text "hi"'],
    [{ prompt: [{ content: "x" }] }, "column `prompt[0].role`: expected a role such as `user`, found nothing"],
    [{ prompt: [{ role: "user", content: 4 }] }, "column `prompt[0].content`: expected text, null or a list of parts"],
    [{ prompt: "x", data_source: 4 }, "column `data_source`: expected text or null, found the number 4"],
    [{ prompt: "x", reward_model: "rule" }, "column `reward_model`: expected an object such as {style, ground_truth}"],
    [{ prompt: "x", extra_info: { index: [] } }, "column `extra_info.index`: expected a number, a text or null"],
    [
      { prompt: "x", images: ["a.png"] },
      "column `images`: expected no images or videos (text only), found a list of 1",
    ],
    [
      { prompt: "x", agent_name: "tool_agent" },
      'train.jsonl, line 7, column `agent_name`: there is no agent loop "tool_agent" here.',
    ],
  ])("that does not fit names file, row and column: %j", (wrong, message) => {
    expect(() => rlRow(rowOf(wrong))).toThrow(UserError);
    expect(() => rlRow(rowOf(wrong))).toThrow(message);
  });
});

describe("max_samples", () => {
  test("without shuffle takes the first rows, and all rows when it is not positive or too large", () => {
    const first = { shuffle: false, seed: 1 };
    expect(chooseSamples(6, { ...first, maxSamples: 3 })).toEqual([0, 1, 2]);
    for (const maxSamples of [-1, 0, 9]) expect(chooseSamples(3, { ...first, maxSamples })).toEqual([0, 1, 2]);
  });

  test("with shuffle takes each row at most once, the same ones for the same seed", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 100 }),
        fc.integer({ min: 1, max: 100 }),
        fc.nat(),
        (count, maxSamples, seed) => {
          const chosen = chooseSamples(count, { maxSamples, shuffle: true, seed });
          expect(new Set(chosen).size).toBe(Math.min(count, maxSamples));
          expect(Math.max(...chosen)).toBeLessThan(count);
          expect(chooseSamples(count, { maxSamples, shuffle: true, seed })).toEqual(chosen);
        },
      ),
    );
    expect(chooseSamples(1000, { maxSamples: 5, shuffle: true, seed: 1 })).not.toEqual([0, 1, 2, 3, 4]);
  });
});

describe("the length of a prompt", () => {
  const rows = ["a", "abc", "abcde"].map((text) => rlRow(rowOf({ prompt: text })));
  const lengthOf = (text: string) => encodeChat(tokenizer, user(text), { addGenerationPrompt: true }).length;

  test("is that of the templated prompt: one token too many is left out", () => {
    const kept = filterOverlong(rows, tokenizer, { maxPromptLength: lengthOf("abc") });
    expect(kept.prompts.map(({ row }) => row.promptText)).toEqual(["a", "abc"]);
    expect(kept).toMatchObject({ overlong: 1, refused: 0, firstRefusal: null });
  });

  test("includes the tools and the template's variables", () => {
    const maxPromptLength = lengthOf("abcde");
    const tools = [{ type: "function", function: { name: "calc" } }];
    expect(filterOverlong(rows, tokenizer, { maxPromptLength }).overlong).toBe(0);
    expect(filterOverlong(rows, tokenizer, { maxPromptLength, tools }).overlong).toBe(3);
    expect(filterOverlong(rows, tokenizer, { maxPromptLength, extra: { enable_thinking: false } }).overlong).toBe(3);
  });

  test("of a prompt that the template refuses is unknown: the row is left out and counted", () => {
    const template = "{{ raise_exception('no system here') if messages[0].role == 'system' }}{{ messages[0].content }}";
    const system = rlRow(rowOf({ prompt: [{ role: "system", content: "x" }] }));
    const kept = filterOverlong([...rows, system], tokenizer, { maxPromptLength: 100, template });
    expect(kept).toMatchObject({ overlong: 0, refused: 1 });
    expect(kept.prompts.map(({ row }) => row)).toEqual(rows);
    expect(kept.firstRefusal).toContain("train.jsonl, line 7");
    expect(kept.firstRefusal).toContain("no system here");
  });

  test("is cut as data.truncation says, and error names the row", () => {
    const whole = encodePrompt(rows[2]!, tokenizer, { maxPromptLength: 1000, truncation: "error" });
    const limit = { maxPromptLength: 6 };
    expect(encodePrompt(rows[2]!, tokenizer, { ...limit, truncation: "left" })).toEqual(whole.slice(-6));
    expect(encodePrompt(rows[2]!, tokenizer, { ...limit, truncation: "right" })).toEqual(whole.slice(0, 6));
    expect([...encodePrompt(rows[2]!, tokenizer, { ...limit, truncation: "middle" })]).toEqual([
      ...whole.slice(0, 3),
      ...whole.slice(-3),
    ]);
    expect(() => encodePrompt(rows[2]!, tokenizer, { ...limit, truncation: "error" })).toThrow(
      `train.jsonl, line 7: the prompt has ${whole.length} tokens, and \`data.max_prompt_length\` is 6`,
    );
  });

  test("of a plain text without a chat template is that of the text", () => {
    const bare = { ...tokenizer, chatTemplate: null };
    const ids = encodePrompt(rows[1]!, bare, { maxPromptLength: 10, truncation: "error" });
    expect(bare.decode(ids)).toBe("abc");
  });
});

describe("prompts of files", () => {
  const options: RlOptions = {
    maxSamples: -1,
    shuffle: false,
    seed: 1,
    filterOverlongPrompts: false,
    maxPromptLength: 512,
    truncation: "error",
  };

  test("are the same from parquet and from jsonl", async () => {
    const dir = await mkdtemp(join(tmpdir(), "trainyard-rl-"));
    const { rows: source } = await readRows(join(fixtures, "rows.jsonl"));
    const path = join(dir, "rows.parquet");
    await writeRows(
      path,
      source.map(({ values }) => values),
    );
    const fromParquet = await loadRlRows(reader(path), tokenizer, options);
    const fromLines = await loadRlRows(reader(join(fixtures, "rows.jsonl")), tokenizer, options);
    await rm(dir, { recursive: true });
    const comparable = ({ prompts }: typeof fromLines) =>
      prompts.map(({ row: { source: _, ...row }, ids }) => ({ row, ids }));
    expect(comparable(fromParquet)).toEqual(comparable(fromLines));
  });

  test("are chosen before they are filtered", async () => {
    const file = join(fixtures, "rows.jsonl");
    const chosen = await loadRlRows(reader(file), tokenizer, {
      ...options,
      maxSamples: 4,
      filterOverlongPrompts: true,
    });
    expect(chosen.prompts.map(({ row }) => row.index)).toEqual([0, 1, 2, 3]);
  });

  test("of which none is short enough are refused with the counts", async () => {
    const short = { ...options, filterOverlongPrompts: true, maxPromptLength: 3 };
    await expect(loadRlRows(reader(join(fixtures, "rows.jsonl")), tokenizer, short)).rejects.toThrow(
      "Of 23 prompts none is left: 23 have more than 3 tokens",
    );
  });
});
