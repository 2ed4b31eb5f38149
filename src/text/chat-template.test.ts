import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { type ChatOptions, encodeChat, type Message, renderChat, systemAndGenerationPrompt } from "./chat-template.ts";
import { loadTokenizer } from "./tokenizer.ts";

const fixtures = join(import.meta.dirname, "../../test/fixtures/text");
const shared = join(import.meta.dirname, "../../../shared");
const templateOf = (name: string) => readFileSync(join(fixtures, "templates", `${name}.jinja`), "utf8");
const now = new Date(2024, 1, 5, 9, 7, 3);
const user = (content: string): Message => ({ role: "user", content });

/** What transformers gives for one conversation: its text and ids, or the message of the error. */
type Case = {
  template: string;
  tokenizer: string;
  name: string;
  messages: Message[];
  options: ChatOptions;
  text?: string;
  ids?: number[];
  error?: string;
};
const cases: Case[] = JSON.parse(readFileSync(join(fixtures, "templates/cases.json"), "utf8"));

describe("a conversation has transformers' text and ids", () => {
  test.each(cases)("$template: $name", async ({ template, tokenizer: kind, messages, options, text, ids, error }) => {
    const tokenizer = await loadTokenizer(join(fixtures, kind));
    const all = { ...options, template: templateOf(template), now };
    if (error !== undefined) {
      expect(() => renderChat(tokenizer, messages, all)).toThrow(UserError);
      expect(() => renderChat(tokenizer, messages, all)).toThrow(error);
      return;
    }
    expect(renderChat(tokenizer, messages, all)).toBe(text);
    expect([...encodeChat(tokenizer, messages, all)]).toEqual(ids);
  });
});

describe("what cannot be rendered", () => {
  test("a tokenizer without a template says which folder and what to do", async () => {
    const tokenizer = await loadTokenizer(join(fixtures, "gpt2"));
    const attempt = () => renderChat(tokenizer, [user("Hi")]);
    expect(attempt).toThrow(UserError);
    expect(attempt).toThrow(`${tokenizer.dir} has no chat template`);
    expect(attempt).toThrow(/custom_chat_template.*plain string/);
  });

  test.each([
    ["{% for %}", /not a Jinja template/],
    ["{{ messages[0].content + none }}", /cannot be applied to this conversation/],
    ["{{ strftime_now('%Q') }}", /%Q/],
    ["{{ range | tojson }}", /only text, numbers, lists and mappings/],
  ])("the template %s is an error for the user", async (template, message) => {
    const tokenizer = await loadTokenizer(join(fixtures, "qwen2"));
    const attempt = () => renderChat(tokenizer, [user("Hi")], { template });
    expect(attempt).toThrow(UserError);
    expect(attempt).toThrow(message);
  });

  test("a last message cannot be both continued and answered", async () => {
    const tokenizer = await loadTokenizer(join(fixtures, "qwen2"));
    const template = templateOf("chatml");
    const both = { template, continueFinalMessage: true, addGenerationPrompt: true };
    expect(() => renderChat(tokenizer, [user("Hi")], both)).toThrow(/Choose one/);
    const open = { template, continueFinalMessage: true };
    expect(() => renderChat(tokenizer, [], open)).toThrow(/empty/);
    expect(() => renderChat(tokenizer, [{ role: "assistant", content: null }], open)).toThrow(/no text to continue/);
    const hidden = { continueFinalMessage: true, template: "{{ messages[0].content[:2] }}" };
    expect(() => renderChat(tokenizer, [user("Hello")], hidden)).toThrow(/does not write the last message/);
  });
});

test("for a template an undefined field does not exist", async () => {
  const tokenizer = await loadTokenizer(join(fixtures, "qwen2"));
  const template = "{{ 'there' if 'tool_calls' in messages[0] else 'none' }} {{ messages[0] | tojson }}";
  const message = { role: "user", content: "x", tool_calls: undefined };
  expect(renderChat(tokenizer, [message as unknown as Message], { template })).toBe(
    'none {"role": "user", "content": "x"}',
  );
});

test("a template for tools is used when there are tools, and only then", async () => {
  const loaded = await loadTokenizer(join(fixtures, "qwen2"));
  const tokenizer = { ...loaded, chatTemplate: "plain", toolTemplate: "tools" };
  expect(renderChat(tokenizer, [user("x")])).toBe("plain");
  expect(renderChat(tokenizer, [user("x")], { tools: [{}] })).toBe("tools");
  expect(renderChat(tokenizer, [user("x")], { tools: [{}], template: "own" })).toBe("own");
});

describe("the system prompt and the generation prompt", () => {
  test.each([
    ["tools", "qwen2", "<|im_start|>system\nYou help.<|im_end|>\n", "<|im_start|>assistant\n"],
    ["chatml", "qwen2", "", "<|im_start|>assistant\n"],
    // This one refuses two user messages in a row.
    ["alternating", "mistral", "<s>", ""],
  ])("of the template %s are found", async (template, kind, system, generation) => {
    const tokenizer = await loadTokenizer(join(fixtures, kind));
    const found = systemAndGenerationPrompt(tokenizer, { template: templateOf(template) });
    expect(tokenizer.decode(found.systemPrompt)).toBe(system);
    expect(tokenizer.decode(found.generationPrompt)).toBe(generation);
  });
});

const goldens = join(shared, "reference/goldens/dataset.json");
const minimind = join(shared, "models/minimind2-small");
const hasShared = existsSync(goldens) && existsSync(minimind);
describe.skipIf(!hasShared)("verl's goldens on minimind2-small (skipped without ../shared)", () => {
  type Golden = { name: string; inputs: { prompts: Message[][] }; outputs: Record<string, never> };
  const golden = (name: string): Golden =>
    JSON.parse(readFileSync(goldens, "utf8")).cases.find((each: Golden) => each.name === name);

  test("prompts have the same text and ids", async () => {
    const tokenizer = await loadTokenizer(minimind);
    const { inputs, outputs } = golden("chat_template/prompts");
    const options = { addGenerationPrompt: true };
    expect(inputs.prompts.map((prompt) => renderChat(tokenizer, prompt, options))).toEqual(outputs.text);
    expect(inputs.prompts.map((prompt) => [...encodeChat(tokenizer, prompt, options)])).toEqual(outputs.input_ids);
  });

  test("the system prompt and the generation prompt are the same", async () => {
    const { outputs } = golden("chat_template/system_and_generation_prompt");
    const found = systemAndGenerationPrompt(await loadTokenizer(minimind));
    expect([...found.systemPrompt]).toEqual(outputs.system_prompt);
    expect([...found.generationPrompt]).toEqual(outputs.generation_prompt);
  });
});
