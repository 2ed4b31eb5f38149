import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Sample } from "../rollout/request.ts";
import { overlap } from "../text/stream.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { sampleText, type TextRules, wholeText } from "./sample-text.ts";

const tokenizer = await loadTokenizer(fileURLToPath(new URL("../../test/fixtures/text/qwen2", import.meta.url)));
const eos = tokenizer.eosId ?? 0;
/** A token of at least three different letters. */
const longId =
  [...Array(tokenizer.vocabSize).keys()].find((id) => /^([a-z])(?!\1)([a-z])[a-z]/.test(tokenizer.tokenText(id))) ?? 0;
const longText = tokenizer.tokenText(longId);
const encode = (text: string) => [...tokenizer.encode(text, { addSpecialTokens: false })];

const rules: TextRules = { skipSpecialTokens: true, shown: [], stop: [], endIds: new Set([eos]), includesStop: false };
const sample = (ids: readonly number[], end: Partial<Sample> = {}): Sample => ({
  index: 0,
  ids,
  logprobs: [],
  top: [],
  text: "",
  finishReason: "stop",
  stopReason: null,
  ...end,
});

describe("the end of a sample is not in its text", () => {
  const cases: readonly [string, Sample, Partial<TextRules>, string][] = [
    ["a token of the model's own", sample([...encode("Hi"), eos]), {}, "Hi"],
    ["a token of the model's own, specials shown", sample([...encode("Hi"), eos]), { skipSpecialTokens: false }, "Hi"],
    [
      "the same, asked for",
      sample([...encode("Hi"), eos]),
      { skipSpecialTokens: false, includesStop: true },
      "Hi<|im_end|>",
    ],
    [
      "that token when it did not end the sample",
      sample([eos, ...encode("Hi")], { finishReason: "length" }),
      { skipSpecialTokens: false },
      "<|im_end|>Hi",
    ],
    ["a stop text", sample(encode("one,"), { stopReason: "," }), { stop: [","] }, "one"],
    [
      "a stop text, with `includesStop`",
      sample(encode("one,"), { stopReason: "," }),
      { stop: [","], includesStop: true },
      "one,",
    ],
    [
      "a stop text with more text in the same token",
      sample([...encode("x"), longId], { stopReason: longText[1] ?? "" }),
      { stop: [longText[1] ?? "", "zz"] },
      `x${longText[0]}`,
    ],
    [
      "the beginning of a stop text that never came",
      sample(encode("abc"), { finishReason: "length" }),
      { stop: ["cd"] },
      "abc",
    ],
    ["a stop text that was passed over", sample(encode("a b c"), { finishReason: "length" }), { stop: ["b"] }, "a b c"],
  ];
  for (const [name, given, changed, text] of cases) {
    test(name, () => expect(wholeText(tokenizer, given, { ...rules, ...changed })).toBe(text));
  }
});

test("special tokens are shown if they are named", () => {
  const ids = encode("<|im_start|>x<|im_end|>");
  const shown = { ...rules, shown: ["<|im_start|>"], endIds: new Set<number>() };
  expect(wholeText(tokenizer, sample(ids), shown)).toBe("<|im_start|>x");
});

test("text is returned as soon as it cannot be part of a stop text", () => {
  const text = sampleText(tokenizer, { ...rules, stop: ["</s>"] });
  const pieces = ["a", "<", "b", "<", "/"].flatMap(encode).map((id) => text.push(id));
  expect(pieces).toEqual(["a", "", "<b", "", ""]);
  expect(text.end({ finishReason: "length", stopReason: null })).toBe("</");
});

test("the joined pieces are the decoded text up to the first stop text, for any text and stop texts", () => {
  const texts = fc
    .array(fc.constantFrom("a", "b", "ab", " ", "\n", "é", "🙂", "Hello"), { maxLength: 12 })
    .map((it) => it.join(""));
  fc.assert(
    fc.property(
      texts,
      fc.array(fc.constantFrom("ab", "b", "a b", "\n", "🙂", "lo"), { maxLength: 3 }),
      (said, stop) => {
        const ids: number[] = [];
        const decoded = () => tokenizer.decode(ids, { skipSpecialTokens: true });
        let stopReason: string | null = null;
        for (const id of encode(said)) {
          ids.push(id);
          stopReason = stop.find((it) => decoded().includes(it)) ?? null;
          if (stopReason !== null) break;
        }
        const expected = stopReason === null ? decoded() : decoded().slice(0, decoded().indexOf(stopReason));
        const finishReason = stopReason === null ? "length" : "stop";
        expect(wholeText(tokenizer, sample(ids, { finishReason, stopReason }), { ...rules, stop })).toBe(expected);
      },
    ),
    { numRuns: 300 },
  );
});

test("overlap is the longest end of a text that begins a mark", () => {
  const table: readonly [string, string, number][] = [
    ["abc", "cd", 1],
    ["abc", "abcd", 3],
    ["abc", "abc", 0],
    ["", "a", 0],
    ["aab", "abb", 2],
    ["xx", "y", 0],
  ];
  for (const [text, mark, length] of table) expect(overlap(text, mark), `${text} ${mark}`).toBe(length);
});
