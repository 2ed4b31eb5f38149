import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";
import type { CanSample } from "../../rollout/remote.ts";
import type { Completion, SampleRequest } from "../../rollout/request.ts";
import { encodeChat } from "../../text/chat-template.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { type Encoding, lazily, tokenResponder } from "./responder.ts";

const messages = [{ role: "user", content: "What is 12 + 30?" }];
const prompt = { messages, text: null };
const template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";

let tokenizer: Tokenizer;
beforeAll(async () => {
  tokenizer = await loadTokenizer(fileURLToPath(new URL("../../../test/fixtures/text/qwen2", import.meta.url)));
});

/** A sampler that records its requests. */
function recorder() {
  const requests: SampleRequest[] = [];
  const sampler: CanSample = {
    async sample(request): Promise<Completion> {
      requests.push(request);
      const sample = { index: 0, ids: [1, 2, 3], logprobs: [0, 0, 0], top: [], text: "x", stopReason: null };
      return { samples: [{ ...sample, finishReason: "stop" }], cachedTokens: 0 };
    },
  };
  let opened = 0;
  const open = async () => {
    opened++;
    return sampler;
  };
  const lazy = lazily({ open, close: async () => {} });
  return { requests, lazy, opened: () => opened };
}

const within = (changes: Partial<Encoding> = {}): Encoding => ({
  tokenizer,
  template,
  vocabSize: null,
  maxLength: 1000,
  maxLengthSetting: "the model's context",
  ...changes,
});

test("a prompt is sampled from the tokens of its chat, and the sampler is opened for the first one", async () => {
  const { requests, lazy, opened } = recorder();
  const responder = tokenResponder(lazy, within());
  const prepared = responder.prepare(prompt);
  expect(opened()).toBe(0);
  const completions = await Promise.all([
    prepared.sample({ maxNewTokens: 5 }),
    prepared.sample({ maxNewTokens: 5, seed: 3 }),
  ]);
  const ids = encodeChat(tokenizer, messages, { template, addGenerationPrompt: true });
  expect(requests.map(({ prompt, seed, wantsText }) => ({ ids: [...Array.from(prompt)], seed, wantsText }))).toEqual([
    { ids: [...ids], seed: undefined, wantsText: true },
    { ids: [...ids], seed: 3, wantsText: true },
  ]);
  expect({ opened: opened(), prompt: prepared.tokens, sampled: completions[0]?.tokens }).toEqual({
    opened: 1,
    prompt: ids.length,
    sampled: 3,
  });
});

describe("a prompt that does not fit", () => {
  const prepare = (changes: Partial<Encoding>) => tokenResponder(recorder().lazy, within(changes)).prepare(prompt);

  test("is refused, or cut at the chosen side", async () => {
    const whole = prepare({}).tokens ?? 0;
    expect(() => prepare({ maxPromptLength: whole - 1 })).toThrow(
      `the prompt has ${whole} tokens, and \`rollout.prompt_length\` is ${whole - 1}. Raise it, or set \`data.truncation\``,
    );
    expect(prepare({ maxPromptLength: whole - 1, truncation: "left" }).tokens).toBe(whole - 1);
    expect(prepare({ maxPromptLength: whole }).tokens).toBe(whole);
  });

  test("is refused unless the context has room for one token of the response", () => {
    const whole = prepare({}).tokens ?? 0;
    expect(() => prepare({ maxLength: whole })).toThrow(
      /and the model's context is \d+: there is no room for a response/,
    );
    expect(prepare({ maxLength: whole + 1 }).tokens).toBe(whole);
  });

  test("is refused for a token that the model does not know, with the name of the tokenizer", () => {
    expect(() => prepare({ vocabSize: 5 })).toThrow(/qwen2 gives the token \d+ .* the model's `vocab_size` is 5/);
  });
});
