/**
 * Structured output by real clients, against the command `serve` with a tiny model of random weights: it writes valid
 * JSON only because it is constrained.
 */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, Output } from "ai";
import type OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { Person, serveCommand } from "./serving.ts";

const parameters = z.toJSONSchema(z.object({ a: z.int().min(0).max(999), to: z.enum(["Paris", "Oslo"]) }));
const tools: OpenAI.Chat.ChatCompletionFunctionTool[] = [
  { type: "function", function: { name: "travel", description: "Go to a city.", parameters } },
  { type: "function", function: { name: "wait", parameters: { type: "object", properties: {} } } },
];
const messages = [{ role: "user" as const, content: "Describe a person." }];

let served: Awaited<ReturnType<typeof serveCommand>>;
let base: string;
let openai: OpenAI;

beforeAll(async () => {
  served = await serveCommand();
  ({ base, openai } = served);
});
afterAll(() => served.close());

const seeds = [1, 2, 3, 4, 5];

describe("openai's client", () => {
  const ask = { model: "tiny", messages };

  test.each(seeds)("chat.completions.parse gives a value of the zod schema (seed %i)", async (seed) => {
    const { choices } = await openai.chat.completions.parse({
      ...ask,
      seed,
      response_format: zodResponseFormat(Person, "person"),
    });
    expect(choices[0]?.finish_reason).toBe("stop");
    expect(Person.parse(choices[0]?.message.parsed)).toEqual(choices[0]?.message.parsed);
  });

  test("a recursive schema with references gives a tree", async () => {
    const Tree: z.ZodType = z.object({
      value: z.int().min(0).max(9),
      get children() {
        return z.array(Tree).max(2);
      },
    });
    const response_format = zodResponseFormat(Tree, "tree");
    const { choices } = await openai.chat.completions.create({ ...ask, seed: 3, response_format, max_tokens: 2000 });
    if (choices[0]?.finish_reason === "stop") Tree.parse(JSON.parse(choices[0].message.content ?? ""));
    else expect(choices[0]?.message.content).toMatch(/^\{\s*"value": ?\d/);
  });

  test("an answer that is cut off is the beginning of a valid one, as OpenAI cuts it", async () => {
    const response_format = zodResponseFormat(Person, "person");
    const cut = await openai.chat.completions.create({ ...ask, seed: 1, response_format, max_tokens: 9 });
    const whole = await openai.chat.completions.create({ ...ask, seed: 1, response_format });
    expect(cut.choices[0]?.finish_reason).toBe("length");
    expect(whole.choices[0]?.message.content?.startsWith(cut.choices[0]?.message.content ?? "-")).toBe(true);
    await expect(openai.chat.completions.parse({ ...ask, seed: 1, response_format, max_tokens: 9 })).rejects.toThrow(
      /length limit was reached/,
    );
  });

  test("streamed and whole answers, and several at once, are the same", async () => {
    const settings = { ...ask, seed: 7, n: 3, response_format: zodResponseFormat(Person, "person") };
    const whole = await openai.chat.completions.create(settings);
    const texts = ["", "", ""];
    for await (const { choices } of await openai.chat.completions.create({ ...settings, stream: true }))
      for (const { index, delta } of choices) texts[index] += delta.content ?? "";
    expect(texts).toEqual(whole.choices.map(({ message }) => message.content));
    expect(new Set(texts).size).toBe(3);
    for (const text of texts) Person.parse(JSON.parse(text));
  });

  test.each(seeds)("json_object gives an object (seed %i)", async (seed) => {
    const settings = { ...ask, seed, response_format: { type: "json_object" as const }, max_tokens: 600 };
    const { choices } = await openai.chat.completions.create(settings);
    const text = choices[0]?.message.content ?? "";
    if (choices[0]?.finish_reason === "stop") expect(JSON.parse(text)).toBeTypeOf("object");
    expect(text).toMatch(/^\{/);
  });

  test.each(seeds)("a required call and a named one have arguments of the tool's schema (seed %i)", async (seed) => {
    const required = { ...ask, seed, tools, tool_choice: "required" as const, max_tokens: 900 };
    const { choices } = await openai.chat.completions.create({ ...required, parallel_tool_calls: false });
    const [call] = choices[0]?.message.tool_calls ?? [];
    expect(choices[0]).toMatchObject({ finish_reason: "tool_calls", message: { content: null } });
    expect(["travel", "wait"]).toContain(call?.type === "function" && call.function.name);
    const named = { type: "function" as const, function: { name: "travel" } };
    const one = (await openai.chat.completions.create({ ...required, tool_choice: named })).choices[0]?.message;
    expect(one?.tool_calls).toHaveLength(1);
    const [travel] = one?.tool_calls ?? [];
    if (travel?.type !== "function") throw new Error("there is no call");
    expect(travel.function.name).toBe("travel");
    const { a, to } = JSON.parse(travel.function.arguments);
    expect(Number.isInteger(a) && a >= 0 && a <= 999 && ["Paris", "Oslo"].includes(to)).toBe(true);
  });

  test("with tools to choose from and a format, the answer is a call or of the format", async () => {
    const response_format = zodResponseFormat(z.object({ ok: z.boolean() }), "ok");
    const settings = { ...ask, tools, response_format, n: 40, seed: 11, max_tokens: 300, parallel_tool_calls: false };
    const { choices } = await openai.chat.completions.create(settings);
    const [calls, texts] = [0, 1].map((kind) => choices.filter(({ message }) => (message.tool_calls ? 0 : 1) === kind));
    expect(calls?.length).toBeGreaterThan(0);
    expect(texts?.length).toBeGreaterThan(0);
    for (const { message } of texts ?? [])
      expect(JSON.parse(message.content ?? "")).toEqual({ ok: expect.any(Boolean) });
  });

  test("log-probs are those of the constrained distribution, and the policy's are beside them", async () => {
    const response_format = zodResponseFormat(z.object({ ok: z.boolean() }), "ok");
    const settings = { ...ask, seed: 1, response_format, logprobs: true, top_logprobs: 3, return_token_ids: true };
    const answer = await openai.chat.completions.create(settings);
    const tokens = answer.choices[0]?.logprobs?.content ?? [];
    const ids = answer.choices[0] && "token_ids" in answer.choices[0] ? answer.choices[0].token_ids : null;
    if (!Array.isArray(ids)) throw new Error("there are no ids");
    // The same tokens as a prompt have the log-probs of the model itself.
    const prompt =
      "prompt_token_ids" in answer && Array.isArray(answer.prompt_token_ids) ? answer.prompt_token_ids : [];
    const echo = { model: "tiny", prompt: [...prompt, ...ids], max_tokens: 0, echo: true, logprobs: 0 };
    const free = (await openai.completions.create(echo)).choices[0]?.logprobs?.token_logprobs?.slice(prompt.length);
    const policy = tokens.map((token) => ("policy_logprob" in token ? Number(token.policy_logprob) : Number.NaN));
    expect(tokens).toHaveLength(ids.length);
    for (const [i, token] of tokens.entries()) {
      expect(policy[i]).toBeCloseTo(free?.[i] ?? Number.NaN, 3);
      expect(token.logprob).toBeGreaterThanOrEqual((policy[i] ?? 0) - 1e-6);
      const mass = token.top_logprobs.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0);
      expect(mass).toBeLessThan(1.0001);
    }
    expect(tokens.some(({ logprob }) => logprob > -1e-9)).toBe(true); // some tokens are the only possible ones
  });
});

test.each(seeds)("the AI SDK's generateText with Output.object gives a value of the schema (seed %i)", async (seed) => {
  const provider = createOpenAICompatible({ name: "trainyard", baseURL: base, supportsStructuredOutputs: true });
  const { output } = await generateText({
    model: provider("tiny"),
    prompt: "Describe a person.",
    output: Output.object({ schema: Person }),
    seed,
  });
  expect(Person.parse(output)).toEqual(output);
});

describe("LangChain.js", () => {
  const model = () =>
    new ChatOpenAI({ model: "tiny", apiKey: "none", configuration: { baseURL: base }, maxRetries: 0 });

  test.each(["jsonSchema", "functionCalling"] as const)(
    "withStructuredOutput by %s gives a value of the schema",
    async (method) => {
      const structured = model().withStructuredOutput(Person, { name: "person", method, strict: true });
      for (let i = 0; i < 3; i++) {
        const value = await structured.invoke("Describe a person.");
        expect(Person.parse(value)).toEqual(value);
      }
    },
  );
});

describe("a schema that cannot be used is refused at once, and later requests are served", () => {
  const chain = Object.fromEntries(
    Array.from({ length: 4000 }, (_, i) => [`d${i}`, i === 3999 ? { type: "null" } : { $ref: `#/$defs/d${i + 1}` }]),
  );
  test.each<[what: string, schema: unknown, message: RegExp | null]>([
    [
      "a keyword",
      { type: "array", items: { type: "object", properties: { a: { contains: {} } } } },
      /`response_format\.json_schema\.schema\.items\.properties\.a\.contains` is not supported/,
    ],
    [
      "a keyword in a definition",
      { $defs: { x: { if: {} } }, $ref: "#/$defs/x" },
      /schema\.\$defs\.x\.if` is not supported/,
    ],
    ["a type", { type: "text" }, /`response_format\.json_schema\.schema\.type` is "text"; it should be one of object/],
    ["a value that contains itself", { $ref: "#" }, /No value can ever match/],
    [
      "references in a circle",
      { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } },
      /No value can ever match/,
    ],
    ["a reference to nothing", { $ref: "#/$defs/a%" }, /`response_format\.json_schema\.schema\.\$ref` is/],
    ["a reference to the web", { $ref: "https://example.com/schema" }, /only references within the schema/],
    [
      "a pattern that looks ahead",
      { type: "string", pattern: "^(?=a)" },
      /`response_format\.json_schema\.schema\.pattern` is not supported: `\(\?=` is not possible/,
    ],
    ["a pattern that is none", { type: "string", pattern: "((" }, /it is not a regular expression/],
    ["a list of 60,000 values", { enum: Array.from({ length: 60_000 }, (_, i) => i) }, /more than 5000 parts/],
    [
      "6,000 properties",
      { type: "object", properties: Object.fromEntries(Array.from({ length: 6000 }, (_, i) => [`p${i}`, {}])) },
      /more than 5000 parts/,
    ],
    [
      "bounds without a number between",
      { type: "integer", minimum: 0.2, maximum: 0.8 },
      /no integer is within its bounds/,
    ],
    ["a long chain of references", { $ref: "#/$defs/d0", $defs: chain }, null],
    [
      "a long string",
      { type: "object", properties: { a: { type: "string", minLength: 1e12 } }, required: ["a"] },
      null,
    ],
    ["a pattern of nested counts", { type: "string", pattern: "^(([a-z]{1,60}){1,60}){1,60}$" }, null],
    [
      "ambiguous options",
      {
        $defs: {
          a: {
            anyOf: [
              { type: "array", items: { $ref: "#/$defs/a" } },
              { type: "array", items: { $ref: "#/$defs/a" }, minItems: 1 },
            ],
          },
        },
        $ref: "#/$defs/a",
      },
      null,
    ],
  ])("%s", async (_, schema, message) => {
    const ask = (given: unknown) =>
      fetch(`${base}/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          model: "tiny",
          messages,
          max_tokens: 40,
          seed: 1,
          response_format: { type: "json_schema", json_schema: { name: "x", strict: true, schema: given } },
        }),
        signal: AbortSignal.timeout(20_000),
      });
    const answer = await ask(schema);
    const { error }: { error?: Record<string, string> } = JSON.parse(await answer.text());
    if (message === null) expect([200, 400]).toContain(answer.status);
    else
      expect([answer.status, error?.type, error?.message]).toEqual([
        400,
        "invalid_request_error",
        expect.stringMatching(message),
      ]);
    const later = await ask({ enum: ["fine"] });
    const { choices }: OpenAI.Chat.ChatCompletion = JSON.parse(await later.text());
    expect(choices[0]?.message.content).toBe('"fine"');
  });
});
