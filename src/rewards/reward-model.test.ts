import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadTokenizer } from "../text/tokenizer.ts";
import { type ModelSample, type RewardModelOptions, sampleTokens, scoreSamples, servedText } from "./reward-model.ts";

const fixtures = join(import.meta.dirname, "../../test/fixtures");
const actor = await loadTokenizer(join(fixtures, "data/tokenizer"));
const reader = {
  ...(await loadTokenizer(join(fixtures, "text/llama3"))),
  chatTemplate: "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}",
};

const sample: ModelSample = {
  prompt: [
    { role: "system", content: "S" },
    { role: "user", content: "2+3?" },
  ],
  promptIds: actor.encode("<|im_start|>user\n2+3?<|im_end|>\n", { addSpecialTokens: false }),
  responseIds: actor.encode("It is 5<|im_end|>", { addSpecialTokens: false }),
};
const same: RewardModelOptions = {
  tokenizer: actor,
  inputTokenizer: null,
  padId: null,
  maxLength: 1000,
  truncation: "left",
};
const switched: RewardModelOptions = { ...same, tokenizer: reader, inputTokenizer: actor };

test("without an input tokenizer the reward model reads the actor's tokens", () => {
  expect([...sampleTokens(sample, same)]).toEqual([
    ...(sample.promptIds as Int32Array),
    ...(sample.responseIds as Int32Array),
  ]);
});

test("with one it reads the conversation in its own template, the actor's special tokens left out", () => {
  const eos = reader.specialTokens.eos_token;
  expect(reader.decode(sampleTokens(sample, switched))).toBe(`[system]S${eos}[user]2+3?${eos}[assistant]It is 5${eos}`);
  const text = { ...sample, prompt: "2+3?" };
  expect(reader.decode(sampleTokens(text, switched))).toBe(`[user]2+3?${eos}[assistant]It is 5${eos}`);
  const plain = { ...switched, tokenizer: { ...reader, chatTemplate: null } };
  const read = reader.decode(sampleTokens(text, plain), { skipSpecialTokens: true });
  expect(read).toBe("2+3?It is 5");
});

test("it reads at most `maxLength` tokens, and none of its padding at the end", () => {
  const whole = sampleTokens(sample, same);
  expect([...sampleTokens(sample, { ...same, maxLength: 4 })]).toEqual([...whole.subarray(-4)]);
  expect([...sampleTokens(sample, { ...same, padId: actor.eosId })]).toEqual([...whole.subarray(0, -1)]);
});

describe("scores", () => {
  test("come back in the order of the samples", async () => {
    const scorer = { score: async (rows: readonly Int32Array[]) => rows.map((ids) => ids.length) };
    const short = { ...sample, responseIds: [] };
    const lengths = [sampleTokens(sample, same).length, sample.promptIds.length];
    expect(await scoreSamples(scorer, [sample, short], same)).toEqual(lengths);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])("of %d are named and never used", async (bad) => {
    const scorer = { score: async () => [1, bad] };
    await expect(scoreSamples(scorer, [sample, sample], same)).rejects.toThrow(
      new RegExp(`^The reward model gives the score ${bad} to sample 2 of 2\\.`),
    );
  });
});

test("a served model is not sent the beginning-of-sequence token that its server adds", () => {
  const messages = [{ role: "user", content: "Q" }];
  const bos = reader.specialTokens.bos_token!;
  const template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  expect(reader.encode("")[0]).toBe(reader.bosId);
  expect(servedText(reader, messages, "A", { template })).toBe("[user]Q[assistant]A");
  // ChatML's template begins with a token that the tokenizer does not add by itself.
  expect(servedText(actor, "Q", "A")).toMatch(/^<\|im_start\|>/);
  expect(bos).not.toBe("");
});
