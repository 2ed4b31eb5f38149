import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadTokenizer } from "../text/tokenizer.ts";
import { isUndecidable, type PreferenceOptions, preferenceEncoder } from "./preference-rows.ts";
import type { Row } from "./row.ts";

const tokenizer = await loadTokenizer(join(import.meta.dirname, "../../test/fixtures/data/tokenizer"));
const plain = { ...tokenizer, chatTemplate: null };
const rowOf = (values: Record<string, unknown>): Row => ({ values, file: "pairs.jsonl", row: 7 });
const options: PreferenceOptions = {
  chosenKey: "chosen",
  rejectedKey: "rejected",
  promptKey: "prompt",
  marginKey: null,
  maxLength: 1000,
  truncation: "error",
  padId: null,
};
const encode = preferenceEncoder(tokenizer, options);
const system = "<|im_start|>system\nHelp.<|im_end|>\n";
const turn = (role: string, content: string) => `<|im_start|>${role}\n${content}<|im_end|>\n`;
const user = (content: string) => ({ role: "user", content });
const assistant = (content: string) => ({ role: "assistant", content });

describe("both sides become the text that the template gives", () => {
  const asked = `${system}${turn("user", "Q")}`;
  const cases: readonly { what: string; row: Record<string, unknown>; chosen: string }[] = [
    {
      what: "whole dialogues in hh-rlhf's form",
      row: {
        chosen: "\n\nHuman: Q\n\nAssistant: A\n\nand more\n\nHuman: R\n\nAssistant: S",
        rejected: "\n\nHuman: Q\n\nAssistant: B",
      },
      chosen: `${asked}${turn("assistant", "A\n\nand more")}${turn("user", "R")}${turn("assistant", "S")}`,
    },
    {
      what: "lists of messages",
      row: { chosen: [user("Q"), assistant("A")], rejected: [user("Q"), assistant("B")] },
      chosen: `${asked}${turn("assistant", "A")}`,
    },
    {
      what: "whole lists beside a prompt that repeats their beginning",
      row: { prompt: "Q", chosen: [user("Q"), assistant("A")], rejected: [user("Q"), assistant("B")] },
      chosen: `${asked}${turn("assistant", "A")}`,
    },
    {
      what: "a prompt and two answers",
      row: { prompt: "Q", chosen: "A", rejected: "B" },
      chosen: `${asked}${turn("assistant", "A")}`,
    },
    {
      what: "a prompt in hh-rlhf's form and two answers",
      row: { prompt: "\n\nHuman: Q\n\nAssistant:", chosen: "A", rejected: "B" },
      chosen: `${asked}${turn("assistant", "A")}`,
    },
    {
      what: "messages of the prompt and messages of the answers",
      row: { prompt: [user("Q")], chosen: [assistant("A")], rejected: [assistant("B")] },
      chosen: `${asked}${turn("assistant", "A")}`,
    },
    { what: "texts of no known form, with the end token", row: { chosen: "A", rejected: "B" }, chosen: "A<|im_end|>" },
  ];
  test.each(cases)("$what", ({ row, chosen }) => {
    expect(tokenizer.decode(encode(rowOf(row)).chosen)).toBe(chosen);
  });

  test("a dialogue without a chat template stays a text", () => {
    const text = "\n\nHuman: Q\n\nAssistant: A";
    const pair = preferenceEncoder(plain, options)(rowOf({ chosen: text, rejected: `${text}!` }));
    expect(tokenizer.decode(pair.chosen)).toBe(`${text}<|im_end|>`);
    const answer = preferenceEncoder(plain, options)(rowOf({ prompt: "Q: ", chosen: "A", rejected: "B" }));
    expect(tokenizer.decode(answer.rejected)).toBe("Q: B<|im_end|>");
  });
});

describe("what cannot be learnt from is named by file, line and column", () => {
  const cases: readonly {
    what: string;
    row: Record<string, unknown>;
    says: RegExp;
    keys?: Partial<PreferenceOptions>;
  }[] = [
    {
      what: "no rejected column",
      row: { chosen: "A", rejectd: "B" },
      says: /^pairs\.jsonl, line 7: there is no column `rejected`\. .* `data\.rejected_key=rejectd`\?$/,
    },
    { what: "null", row: { chosen: "A", rejected: null }, says: /line 7, column `rejected`: .* found null\.$/ },
    { what: "an empty text", row: { chosen: "", rejected: "B" }, says: /column `chosen`: .* found an empty text\.$/ },
    {
      what: "an empty list",
      row: { chosen: "A", rejected: [] },
      says: /column `rejected`: expected a chat of at least/,
    },
    { what: "a number", row: { chosen: 1, rejected: "B" }, says: /column `chosen`: .* found the number 1\.$/ },
    {
      what: "a conversation that the user ends",
      row: { chosen: [user("Q"), assistant("A")], rejected: [user("Q")] },
      says: /column `rejected\[0\]\.role`: expected the assistant, whose answer is scored, found the text "user"\.$/,
    },
    {
      what: "equal sides",
      row: { chosen: [user("Q"), assistant("A")], rejected: "\n\nHuman: Q\n\nAssistant: A" },
      says: /^pairs\.jsonl, line 7: `chosen` and `rejected` are the same \d+ tokens, so neither is preferred\./,
    },
    {
      what: "a side that is too long",
      row: { chosen: "A".repeat(50), rejected: "B" },
      says: /line 7: a side has \d+ tokens, and `data\.max_length` is 8\. .*`data\.truncation`/,
      keys: { maxLength: 8 },
    },
    {
      what: "a margin that is no number",
      row: { chosen: "A", rejected: "B", lead: "much" },
      says: /column `lead`: expected a number, found the text "much"\.$/,
      keys: { marginKey: "lead" },
    },
  ];
  test.each(cases)("$what", ({ row, says, keys = {} }) => {
    expect(() => preferenceEncoder(tokenizer, { ...options, ...keys })(rowOf(row))).toThrow(says);
  });
});

test("a margin column is read", () => {
  const pair = preferenceEncoder(tokenizer, { ...options, marginKey: "lead" })(
    rowOf({ chosen: "A", rejected: "B", lead: 2 }),
  );
  expect(pair.margin).toBe(2);
});

test("a long side is cut where `truncation` says, and a pair whose sides become equal is reported", () => {
  const row = rowOf({ chosen: "same start, A", rejected: "same start, B" });
  const cut = (truncation: "left" | "right") =>
    preferenceEncoder(tokenizer, { ...options, maxLength: 3, truncation })(row);
  expect([cut("left").chosen.length, cut("left").isCut, isUndecidable(cut("left"))]).toEqual([3, true, false]);
  expect(isUndecidable(cut("right"))).toBe(true);
});

test("no side ends in the padding token, whatever the template or the cut leaves", () => {
  const padId = tokenizer.eosId!;
  const whole = encode(rowOf({ chosen: "A", rejected: "B" })).chosen;
  expect(whole.at(-1)).toBe(padId);
  const padded = preferenceEncoder(tokenizer, { ...options, padId })(rowOf({ chosen: "A", rejected: "B" })).chosen;
  expect([...padded]).toEqual([...whole.subarray(0, -1)]);
});
