import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { encodeChat, type Message } from "../text/chat-template.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { UserError } from "../util/errors.ts";
import type { Row } from "./row.ts";
import {
  multiTurnEncoder,
  type SftLimits,
  type SftRow,
  type SingleTurnOptions,
  singleTurnEncoder,
} from "./sft-rows.ts";

const tokenizer = await loadTokenizer(join(import.meta.dirname, "../../test/fixtures/data/tokenizer"));
const rowOf = (values: Record<string, unknown>, file = "train.jsonl"): Row => ({ values, file, row: 3 });
const wide: SftLimits = { maxLength: 1000, truncation: "error" };
const pair: SingleTurnOptions = { ...wide, promptKey: "prompt", responseKey: "response" };

const textOf = ({ ids }: SftRow) => tokenizer.decode(ids);
/** The learnt tokens as text, one piece per stretch. */
function learnt({ ids, lossMask }: SftRow): string[] {
  const pieces: number[][] = [];
  ids.forEach((id, i) => {
    if (lossMask[i] !== 1) return;
    if (lossMask[i - 1] === 1) pieces.at(-1)?.push(id);
    else pieces.push([id]);
  });
  return pieces.map((piece) => tokenizer.decode(piece));
}

describe("a prompt and a response", () => {
  const encode = singleTurnEncoder(tokenizer, pair);

  test("become template + response + end token, and exactly response and end token are learnt", () => {
    const row = encode(rowOf({ prompt: "2+3?", response: "5é" }));
    expect(textOf(row)).toBe(
      "<|im_start|>system\nHelp.<|im_end|>\n<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n5é<|im_end|>",
    );
    expect(learnt(row)).toEqual(["5é<|im_end|>"]);
  });

  test("may be a chat and a response", () => {
    const chat = [
      { role: "system", content: "S" },
      { role: "user", content: "U" },
    ];
    expect(textOf(encode(rowOf({ prompt: chat, response: "R" })))).toBe(
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nR<|im_end|>",
    );
  });

  test("may be nested in other columns, in keys and lists of one element", () => {
    const nested = {
      ...pair,
      promptKey: "info",
      responseKey: "info",
      promptDictKeys: ["q"],
      responseDictKeys: ["a", "b"],
    };
    const row = rowOf({ info: [{ q: "2+3?", a: { b: "5" } }] });
    expect(singleTurnEncoder(tokenizer, nested)(row)).toEqual(encode(rowOf({ prompt: "2+3?", response: "5" })));
  });

  test("of a tokenizer without a template are the texts themselves", () => {
    const row = singleTurnEncoder({ ...tokenizer, chatTemplate: null }, pair)(rowOf({ prompt: "ab", response: "c" }));
    expect(textOf(row)).toBe("abc<|im_end|>");
  });

  test.each<["left" | "right", string, string[]]>([
    ["left", "nt\n12345<|im_end|>", ["12345<|im_end|>"]],
    ["right", "<|im_start|>system\nH", []],
  ])("that are too long are cut on the %s, mask and tokens alike", (truncation, text, parts) => {
    const row = singleTurnEncoder(tokenizer, { ...pair, maxLength: 9, truncation })(
      rowOf({ prompt: "2+3?", response: "12345" }),
    );
    expect(textOf(row)).toBe(text);
    expect(learnt(row)).toEqual(parts);
    expect(row.ids).toHaveLength(9);
    expect(row.cut).toBeGreaterThan(0);
  });

  test.each<[Record<string, unknown>, Partial<SingleTurnOptions>, string]>([
    [{ prompt: "x" }, {}, "train.jsonl, line 3: there is no column `response`"],
    [{ prompt: "x", response: 5 }, {}, "train.jsonl, line 3, column `response`: expected text, found the number 5"],
    [{ prompt: null, response: "5" }, {}, "column `prompt`: expected a chat (a list of {role, content}), found null"],
    [{ prompt: "x", response: "5" }, { maxLength: 8 }, "line 3: the example has 37 tokens, and `data.max_length` is 8"],
    [
      { prompt: { a: "x" }, response: "5" },
      { promptDictKeys: ["q"] },
      "column `prompt`: expected the key `q`, found an object with a",
    ],
    [
      { prompt: "x", response: "5" },
      { promptDictKeys: ["q"] },
      'column `prompt`: expected an object with `q`, found the text "x"',
    ],
  ])("that do not fit name file, row and column: %j", (values, change, message) => {
    const strict = singleTurnEncoder(tokenizer, { ...pair, ...change });
    expect(() => strict(rowOf(values))).toThrow(UserError);
    expect(() => strict(rowOf(values))).toThrow(message);
  });

  test("need a tokenizer with an end token", () => {
    expect(() => singleTurnEncoder({ ...tokenizer, eosId: null }, pair)).toThrow("has no end token");
  });
});

describe("a conversation", () => {
  const encode = multiTurnEncoder(tokenizer, wide);
  const turns = [
    { role: "user", content: "a" },
    { role: "assistant", content: "b" },
    { role: "user", content: "c" },
    { role: "assistant", content: "" },
  ];

  test("is the templated whole, and exactly the assistant's turns are learnt", () => {
    const row = encode(rowOf({ messages: turns }));
    expect(row.ids).toEqual(encodeChat(tokenizer, turns));
    expect(learnt(row)).toEqual(["b<|im_end|>\n", "<|im_end|>\n"]);
  });

  test("may start with a system message or with the assistant", () => {
    const system = [{ role: "system", content: "S" }, ...turns];
    expect(encode(rowOf({ messages: system })).ids).toEqual(encodeChat(tokenizer, system));
    const assistantFirst = encode(rowOf({ messages: turns.slice(1) }));
    expect(assistantFirst.ids).toEqual(encodeChat(tokenizer, turns.slice(1)));
    expect(learnt(assistantFirst)).toEqual(["b<|im_end|>\n", "<|im_end|>\n"]);
  });

  test("shows its tools once, whether they are a list or JSON text", () => {
    const tools = [{ type: "function", function: { name: "calc" } }];
    const whole = encodeChat(tokenizer, turns, { tools });
    expect(encode(rowOf({ messages: turns, tools })).ids).toEqual(whole);
    expect(encode(rowOf({ messages: turns, tools: JSON.stringify(tools) })).ids).toEqual(whole);
    const filled = [{ type: "function", function: { name: "calc", strict: null } }];
    expect(encode(rowOf({ messages: turns, tools: filled }, "train.parquet")).ids).toEqual(whole);
  });

  /** Refuses a conversation that the user does not start, as Gemma's and Mistral's templates do. */
  const alternating =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}" +
    "{% endif %}<|im_start|>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}<|im_end|>\n" +
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}";

  test("is learnt the same way with a template that cannot render a message alone", () => {
    const row = multiTurnEncoder(tokenizer, { ...wide, template: alternating })(rowOf({ messages: turns }));
    expect(row.ids).toEqual(encodeChat(tokenizer, turns, { template: alternating }));
    expect(learnt(row)).toEqual(["b<|im_end|>\n", "<|im_end|>\n"]);
  });

  /** Shortens every turn of the assistant but the last, as templates that drop old reasoning do. */
  const forgetful =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" +
    "{{ m.content if loop.last or m.role != 'assistant' else '…' }}<|im_end|>\n" +
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

  test("whose whole differs from its messages is refused, or learnt message by message on request", () => {
    const strict = multiTurnEncoder(tokenizer, { ...wide, template: forgetful });
    expect(() => strict(rowOf({ messages: turns }))).toThrow(UserError);
    expect(() => strict(rowOf({ messages: turns }))).toThrow(
      /train.jsonl, line 3, column `messages`: the chat template renders the 4 messages .*ignore_input_ids_mismatch=true/,
    );
    const lenient = multiTurnEncoder(tokenizer, { ...wide, template: forgetful, ignoreInputIdsMismatch: true });
    expect(learnt(lenient(rowOf({ messages: turns })))).toEqual(["b<|im_end|>\n", "<|im_end|>\n"]);
  });

  test("passes the row's enable_thinking and the run's variables to the template", () => {
    const template = "{{ 'off ' if not enable_thinking }}{{ lang }}{% for m in messages %}{{ m.content }}{% endfor %}";
    const row = multiTurnEncoder(tokenizer, { ...wide, template, extra: { lang: "de" }, ignoreInputIdsMismatch: true })(
      rowOf({ messages: turns.slice(0, 1), enable_thinking: false }),
    );
    expect(textOf(row)).toBe("off dea");
  });

  test.each<[Record<string, unknown>, string]>([
    [{ chat: turns }, "train.jsonl, line 3: there is no column `messages`"],
    [{ messages: "hi" }, 'line 3, column `messages`: expected a chat (a list of {role, content}), found the text "hi"'],
    [{ messages: [{ role: "user", content: "x" }, { content: "y" }] }, "column `messages[1].role`: expected a role"],
    [{ messages: turns, tools: "calc" }, "column `tools`: expected a list of tools"],
    [{ messages: turns, enable_thinking: "yes" }, "column `enable_thinking`: expected true, false or null"],
  ])("that does not fit names file, row and column: %j", (values, message) => {
    expect(() => encode(rowOf(values))).toThrow(UserError);
    expect(() => encode(rowOf(values))).toThrow(message);
  });

  test("that the template refuses names file, row and column", () => {
    const messages: Message[] = [{ role: "assistant", content: "x" }];
    const strict = multiTurnEncoder(tokenizer, { ...wide, template: alternating });
    expect(() => strict(rowOf({ messages }))).toThrow(/train.jsonl, line 3, column `messages`: .*alternate/);
  });
});
