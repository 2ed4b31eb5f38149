/**
 * The server as its clients see it: the real `openai` client and the `ai` SDK over HTTP, on a small sampler whose
 * replies are known.
 */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { pause } from "./sandbox.ts";
import { type Fake, readJson, serveFake } from "./serving.ts";

// Fields of vLLM's that the types of OpenAI's client do not have.
const ignoreEos = { ignore_eos: true };
const keepStop = { include_stop_str_in_output: true };
const withPromptLogprobs = { prompt_logprobs: 1 };
const withTokenIds = { return_token_ids: true };

const greeting = "Hello, 世界 🙂!";
const call = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call>';

/** The reply to a prompt that has one of these words; anything else is answered by chance. */
function script(prompt: string): string | undefined {
  const [last = ""] = prompt.split("<|im_start|>").slice(-2);
  if (last.includes("<result>\n7")) return "It is 7.";
  if (last.includes("add two")) return `Two sums.\n${call}\n${call.replace("3", "5")}`;
  if (last.includes("add")) return call;
  if (last.includes("greet")) return greeting;
  return undefined;
}

const tools = [
  {
    type: "function" as const,
    function: {
      name: "add",
      description: "Add two numbers.",
      parameters: {
        type: "object",
        properties: { a: { type: "number" }, b: { type: "number" } },
        required: ["a", "b"],
      },
    },
  },
];
const say = (content: string) => [{ role: "user" as const, content }];

let fake: Fake;
beforeAll(async () => {
  fake = await serveFake({ script });
});
afterAll(() => fake.close());

/** Everything a stream of chat chunks says, joined, by choice. */
async function joined(stream: AsyncIterable<OpenAI.ChatCompletionChunk>) {
  const choices: { content: string; calls: { id: string; name: string; arguments: string }[]; end: string | null }[] =
    [];
  let usage: OpenAI.CompletionUsage | null = null;
  for await (const chunk of stream) {
    usage = chunk.usage ?? usage;
    for (const { index, delta, finish_reason: end } of chunk.choices) {
      choices[index] ??= { content: "", calls: [], end: null };
      const choice = choices[index];
      choice.content += delta.content ?? "";
      for (const part of delta.tool_calls ?? []) {
        choice.calls[part.index] ??= { id: "", name: "", arguments: "" };
        const known = choice.calls[part.index]!;
        known.id += part.id ?? "";
        known.name += part.function?.name ?? "";
        known.arguments += part.function?.arguments ?? "";
      }
      choice.end = end ?? choice.end;
    }
  }
  return { choices, usage };
}

/** vLLM's `token_ids` of a choice, which the client's types do not have. */
function tokenIds(choice: object): number[] {
  return "token_ids" in choice && Array.isArray(choice.token_ids) ? choice.token_ids : [];
}

describe("models", () => {
  test("are listed with their context, and found by either name", async () => {
    const [model] = (await fake.openai.models.list()).data;
    expect(model).toMatchObject({ id: "fake", object: "model", max_model_len: 2048, root: "models/fake" });
    expect(await fake.openai.models.retrieve("models/fake")).toMatchObject({ id: "fake" });
    await expect(fake.openai.models.retrieve("other")).rejects.toThrow(OpenAI.NotFoundError);
  });
});

describe("completions", () => {
  const ask = { model: "fake", prompt: "Once upon", max_tokens: 12, seed: 7 };

  test("of a text, of its token ids, and in a list are the same", async () => {
    const ids = [...fake.tokenizer.encode("Once upon")];
    const forms: OpenAI.CompletionCreateParams["prompt"][] = ["Once upon", ids, ["Once upon"], [ids]];
    const texts = await Promise.all(
      forms.map(async (prompt) => (await fake.openai.completions.create({ ...ask, prompt })).choices[0]?.text),
    );
    expect(new Set(texts).size).toBe(1);
    expect(texts[0]).not.toBe("");
  });

  test("are numbered prompt by prompt, sample by sample", async () => {
    const one = await fake.openai.completions.create({ ...ask, prompt: "b", n: 3 });
    const two = await fake.openai.completions.create({ ...ask, prompt: ["a a", "b"], n: 3 });
    expect(two.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(two.choices.slice(3).map(({ text }) => text)).toEqual(one.choices.map(({ text }) => text));
    expect(new Set(two.choices.map(({ text }) => text)).size).toBe(6);
  });

  test("count their tokens", async () => {
    const { choices, usage } = await fake.openai.completions.create({
      ...ask,
      n: 2,
      ...withTokenIds,
      ...ignoreEos,
    });
    const prompt = fake.tokenizer.encode("Once upon").length;
    expect(usage).toMatchObject({ prompt_tokens: prompt, completion_tokens: 24, total_tokens: prompt + 24 });
    for (const choice of choices) {
      expect(choice).toMatchObject({
        finish_reason: "length",
        prompt_token_ids: [...fake.tokenizer.encode("Once upon")],
      });
      expect(choice).toHaveProperty("token_ids.length", 12);
    }
  });

  test("are equal streamed and whole", async () => {
    const asked = { ...ask, n: 2, max_tokens: 40, logprobs: 2, stop: ["e"], ...withTokenIds };
    const whole = await fake.openai.completions.create(asked);
    const stream = await fake.openai.completions.create({
      ...asked,
      stream: true,
      stream_options: { include_usage: true },
    });
    const texts = ["", ""];
    const ends: (string | null)[] = [];
    const tokens: string[][] = [[], []];
    const ids: number[][] = [[], []];
    let usage: unknown;
    for await (const chunk of stream) {
      usage = chunk.usage;
      for (const choice of chunk.choices) {
        texts[choice.index] += choice.text;
        tokens[choice.index]?.push(...(choice.logprobs?.tokens ?? []));
        ids[choice.index]?.push(...tokenIds(choice));
        ends[choice.index] = choice.finish_reason;
      }
    }
    expect(texts).toEqual(whole.choices.map(({ text }) => text));
    expect(ends).toEqual(whole.choices.map(({ finish_reason: end }) => end));
    expect(tokens).toEqual(whole.choices.map(({ logprobs }) => logprobs?.tokens));
    expect(ids).toEqual(whole.choices.map(tokenIds));
    expect(usage).toEqual(whole.usage);
  });

  test("with echo begin with the prompt, its log-probs included", async () => {
    const { choices } = await fake.openai.completions.create({
      ...ask,
      echo: true,
      logprobs: 1,
      max_tokens: 3,
      ...ignoreEos,
    });
    const [choice] = choices;
    const prompt = fake.tokenizer.encode("Once upon").length;
    expect(choice?.text).toMatch(/^Once upon/);
    expect(choice?.logprobs?.token_logprobs).toHaveLength(prompt + 3);
    expect(choice?.logprobs?.token_logprobs?.[0]).toBeNull();
    expect(choice?.logprobs?.top_logprobs?.[0]).toBeNull();
    const offsets = choice?.logprobs?.text_offset ?? [];
    expect(offsets[0]).toBe(0);
    expect(choice?.logprobs?.tokens?.join("").slice(0, offsets[prompt])).toBe("Once upon");
  });

  test("with echo and no new tokens are the prompt alone", async () => {
    const { choices, usage } = await fake.openai.completions.create({ ...ask, echo: true, logprobs: 1, max_tokens: 0 });
    expect(choices[0]).toMatchObject({ text: "Once upon", finish_reason: "length" });
    expect(choices[0]?.logprobs?.tokens?.join("")).toBe("Once upon");
    expect(usage?.completion_tokens).toBe(0);
  });

  test("end before a stop text, or after it if requested", async () => {
    const long = { ...ask, max_tokens: 200, ...ignoreEos };
    const [free] = (await fake.openai.completions.create(long)).choices;
    const stop = free?.text.slice(40, 42) ?? "";
    const [stopped] = (await fake.openai.completions.create({ ...long, stop })).choices;
    expect(stopped).toMatchObject({
      text: free?.text.slice(0, free.text.indexOf(stop)),
      finish_reason: "stop",
      stop_reason: stop,
    });
    const [kept] = (await fake.openai.completions.create({ ...long, stop, ...keepStop })).choices;
    expect(kept?.text).toBe((stopped?.text ?? "") + stop);
  });

  test("give the log-probs of the prompt as vLLM does", async () => {
    const { choices } = await fake.openai.completions.create({ ...ask, ...withPromptLogprobs });
    const ids = [...fake.tokenizer.encode("Once upon")];
    expect(choices[0]).toHaveProperty("prompt_logprobs.0", null);
    expect(choices[0]).toHaveProperty(
      ["prompt_logprobs", 1, String(ids[1]), "decoded_token"],
      fake.tokenizer.tokenText(ids[1]!),
    );
  });
});

describe("chat completions", () => {
  const ask = { model: "fake", messages: say("Please greet me.") };

  test("are the model's reply to the rendered conversation", async () => {
    const { choices, usage } = await fake.openai.chat.completions.create(ask);
    expect(choices).toMatchObject([
      { index: 0, finish_reason: "stop", message: { role: "assistant", content: greeting } },
    ]);
    const rendered =
      "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nPlease greet me.<|im_end|>\n<|im_start|>assistant\n";
    expect(usage?.prompt_tokens).toBe(fake.tokenizer.encode(rendered).length);
    const tokenized = await fake.ask("/tokenize", { messages: ask.messages });
    expect(tokenized).toMatchObject({ count: usage?.prompt_tokens, tokens: [...fake.tokenizer.encode(rendered)] });
    expect(await fake.ask("/detokenize", { tokens: tokenized.tokens })).toEqual({ prompt: rendered });
  });

  test("are equal streamed and whole, character by character", async () => {
    const stream = await fake.openai.chat.completions.create({
      ...ask,
      stream: true,
      stream_options: { include_usage: true },
    });
    const { choices, usage } = await joined(stream);
    expect(choices).toEqual([{ content: greeting, calls: [], end: "stop" }]);
    expect(usage).toEqual((await fake.openai.chat.completions.create(ask)).usage);
  });

  test("stream no chunk with half a character", async () => {
    for await (const { choices } of await fake.openai.chat.completions.create({ ...ask, stream: true }))
      expect(choices[0]?.delta.content ?? "").not.toContain("\ufffd");
  });

  test("accept content parts and the role developer", async () => {
    const messages: OpenAI.ChatCompletionMessageParam[] = [
      { role: "developer", content: "Be brief." },
      {
        role: "user",
        content: [
          { type: "text", text: "Please" },
          { type: "text", text: "greet me." },
        ],
      },
    ];
    const { tokens } = await fake.ask("/tokenize", { messages });
    expect(fake.tokenizer.decode(tokens)).toBe(
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nPlease\ngreet me.<|im_end|>\n<|im_start|>assistant\n",
    );
  });

  test("pass variables to the template, and continue a message", async () => {
    const messages = [...say("Hi"), { role: "assistant", content: "Well," }];
    const open = await fake.ask("/tokenize", { messages, continue_final_message: true });
    expect(fake.tokenizer.decode(open.tokens)).toMatch(/assistant\nWell,$/);
    const quiet = { messages: say("Hi"), chat_template_kwargs: { enable_thinking: false } };
    const { tokens } = await fake.ask("/tokenize", quiet);
    expect(fake.tokenizer.decode(tokens)).toMatch(/<think>\n\n<\/think>\n\n$/);
  });

  test("give log-probs in OpenAI's form, streamed too", async () => {
    const asked = { ...ask, logprobs: true, top_logprobs: 2 };
    const [choice] = (await fake.openai.chat.completions.create(asked)).choices;
    const content = choice?.logprobs?.content ?? [];
    expect(
      content
        .map(({ token }) => token)
        .slice(0, 2)
        .join(""),
    ).toBe(
      "Hello, 世".slice(
        0,
        content
          .slice(0, 2)
          .map(({ token }) => token)
          .join("").length,
      ),
    );
    for (const { top_logprobs: top, logprob } of content) {
      expect(top).toHaveLength(2);
      expect(logprob).toBe(-0.5);
    }
    expect(content[0]?.bytes).toEqual([...new TextEncoder().encode(content[0]?.token)]);
    const streamed = [];
    for await (const { choices } of await fake.openai.chat.completions.create({ ...asked, stream: true }))
      streamed.push(...(choices[0]?.logprobs?.content ?? []));
    expect(streamed).toEqual(content);
  });

  test("give token ids as vLLM does", async () => {
    const reply = await fake.ask("/v1/chat/completions", { ...ask, return_token_ids: true });
    const { tokens } = await fake.ask("/tokenize", { messages: ask.messages });
    expect(reply.prompt_token_ids).toEqual(tokens);
    expect(reply.choices[0].token_ids).toEqual([...fake.tokenizer.encode(greeting), fake.tokenizer.eosId]);
  });
});

describe("tools", () => {
  const ask = { model: "fake", messages: say("Please add."), tools };

  test("are called with their arguments", async () => {
    const [choice] = (await fake.openai.chat.completions.create(ask)).choices;
    expect(choice).toMatchObject({
      finish_reason: "tool_calls",
      message: {
        content: null,
        tool_calls: [{ type: "function", function: { name: "add", arguments: '{"a": 3, "b": 4}' } }],
      },
    });
  });

  test("are called the same in a stream, several at once", async () => {
    const { choices } = await joined(
      await fake.openai.chat.completions.create({ ...ask, messages: say("add two"), stream: true }),
    );
    expect(choices).toMatchObject([
      {
        content: "Two sums.",
        end: "tool_calls",
        calls: [
          { name: "add", arguments: '{"a": 3, "b": 4}' },
          { name: "add", arguments: '{"a": 5, "b": 4}' },
        ],
      },
    ]);
    const ids = choices[0]?.calls.map(({ id }) => id) ?? [];
    expect(new Set(ids).size).toBe(2);
  });

  test("are called one at a time if requested", async () => {
    const [choice] = (
      await fake.openai.chat.completions.create({ ...ask, messages: say("add two"), parallel_tool_calls: false })
    ).choices;
    expect(choice?.message.tool_calls).toHaveLength(1);
    expect(choice?.finish_reason).toBe("tool_calls");
  });

  test("are neither shown nor read when the choice is none", async () => {
    const [choice] = (await fake.openai.chat.completions.create({ ...ask, tool_choice: "none" })).choices;
    expect(choice?.message).toMatchObject({ content: call });
    expect(choice?.message.tool_calls).toBeUndefined();
  });

  test("results go into the conversation, and the arguments of earlier calls as JSON", async () => {
    const [first] = (await fake.openai.chat.completions.create(ask)).choices;
    const message = first?.message;
    const id = message?.tool_calls?.[0]?.id ?? "";
    if (message === undefined) throw new Error("there is no reply");
    const messages = [...ask.messages, message, { role: "tool" as const, tool_call_id: id, content: "7" }];
    const [second] = (await fake.openai.chat.completions.create({ ...ask, messages })).choices;
    expect(second?.message.content).toBe("It is 7.");
    const { tokens } = await fake.ask("/tokenize", { messages, tools });
    expect(fake.tokenizer.decode(tokens)).toContain(`<|im_start|>assistant\n${call}<|im_end|>`);
  });

  test("that are forced are read as calls", async () => {
    const named = { type: "function" as const, function: { name: "add" } };
    for (const choice of ["required" as const, named]) {
      const [forced] = (await fake.openai.chat.completions.create({ ...ask, tool_choice: choice })).choices;
      expect(forced).toMatchObject({ finish_reason: "tool_calls", message: { content: null } });
    }
  });
});

describe("the ai SDK", () => {
  const provider = () =>
    createOpenAICompatible({ name: "trainyard", baseURL: `${fake.server.url}/v1`, includeUsage: true });
  const add = tool({
    description: "Add two numbers.",
    inputSchema: jsonSchema<{ a: number; b: number }>(tools[0]!.function.parameters),
    execute: async ({ a, b }) => a + b,
  });

  test("generates text", async () => {
    const { text, usage, finishReason } = await generateText({ model: provider()("fake"), prompt: "greet" });
    expect({ text, finishReason }).toEqual({ text: greeting, finishReason: "stop" });
    expect(usage.outputTokens).toBe(fake.tokenizer.encode(greeting).length + 1);
  });

  test("streams text", async () => {
    const { textStream } = streamText({ model: provider()("fake"), prompt: "greet" });
    let text = "";
    for await (const piece of textStream) text += piece;
    expect(text).toBe(greeting);
  });

  test("calls tools and continues with their results", async () => {
    const { text, steps } = await generateText({
      model: provider()("fake"),
      prompt: "add",
      tools: { add },
      stopWhen: isStepCount(3),
    });
    expect(text).toBe("It is 7.");
    expect(steps[0]?.toolCalls).toMatchObject([{ toolName: "add", input: { a: 3, b: 4 } }]);
  });

  test("calls tools out of a stream", async () => {
    const result = streamText({ model: provider()("fake"), prompt: "add", tools: { add }, stopWhen: isStepCount(3) });
    let text = "";
    for await (const piece of result.textStream) text += piece;
    expect(text).toBe("It is 7.");
    expect((await result.steps)[0]?.toolResults).toMatchObject([{ toolName: "add", output: 7 }]);
  });

  test("reads errors", async () => {
    await expect(generateText({ model: provider()("nobody"), prompt: "greet", maxRetries: 0 })).rejects.toMatchObject({
      statusCode: 404,
      message: expect.stringContaining('"nobody" does not exist'),
    });
  });
});

describe("a request whose client is gone", () => {
  test("is cancelled at once, streamed or not", async () => {
    const slow = await serveFake({ stepMs: 5 });
    try {
      const ask = { model: "fake", prompt: "a", max_tokens: 2000, ...ignoreEos };
      for (const stream of [true, false]) {
        const controller = new AbortController();
        const pending = (async () => {
          const answer = await slow.openai.completions.create({ ...ask, stream }, { signal: controller.signal });
          if (Symbol.asyncIterator in answer) for await (const _ of answer);
        })();
        pending.catch(() => undefined);
        while (slow.model.samplerStats().running === 0) await pause(2);
        await pause(30);
        expect(slow.model.samplerStats().running).toBe(1);
        controller.abort();
        const before = performance.now();
        while (slow.model.samplerStats().running > 0) await pause(1);
        expect(performance.now() - before).toBeLessThan(1000);
      }
    } finally {
      await slow.close();
    }
  });
});

describe("a key", () => {
  test("is needed for the model's endpoints, and not for health, version and metrics", async () => {
    const locked = await serveFake({}, { apiKey: "sésame" });
    try {
      for (const apiKey of ["wrong", "-"]) {
        const stranger = new OpenAI({ baseURL: `${locked.server.url}/v1`, apiKey, maxRetries: 0 });
        await expect(stranger.models.list()).rejects.toMatchObject({ status: 401, code: "invalid_api_key" });
      }
      for (const path of ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/reload_weights"])
        expect((await locked.post(path, {})).status, path).toBe(401);
      for (const path of ["/health", "/version", "/metrics"])
        expect((await fetch(locked.server.url + path)).status, path).toBe(200);
    } finally {
      await locked.close();
    }
  });
});

describe("new weights", () => {
  const prompt = { prompt: "a", max_tokens: 20, seed: 1 };
  const textOf = async (server: Fake) => (await server.ask("/v1/completions", prompt)).choices[0].text;

  test("need a key, or `--allow-reload` and a client on this machine", async () => {
    expect((await fake.post("/reload_weights", { path: fake.folder })).status).toBe(403);
    const open = await serveFake({}, { allowsReload: true });
    try {
      const before = await textOf(open);
      expect((await open.post("/reload_weights", { path: open.folder })).status).toBe(200);
      expect(await textOf(open)).not.toBe(before);
    } finally {
      await open.close();
    }
  });

  test("that do not exist are a 400, and the old ones stay", async () => {
    const headers = { "content-type": "application/json", authorization: "Bearer k" };
    const locked = await serveFake({}, { apiKey: "k" });
    try {
      for (const body of ['{"path":"/nowhere"}', '{"path":7}', "{}"]) {
        const answer = await locked.post("/reload_weights", body, { headers });
        expect(answer.status).toBe(400);
        expect((await readJson(answer)).error.message).toMatch(/nowhere|path/);
      }
    } finally {
      await locked.close();
    }
  });

  test("wait for running requests, which are answered with the old ones", async () => {
    const slow = await serveFake({ stepMs: 10 }, { allowsReload: true });
    try {
      const alone = await textOf(slow);
      const during = textOf(slow);
      await pause(50);
      const reloaded = slow.post("/reload_weights", { path: slow.folder });
      await pause(10);
      const after = textOf(slow);
      expect(await during).toBe(alone);
      expect((await reloaded).status).toBe(200);
      expect(await after).not.toBe(alone);
    } finally {
      await slow.close();
    }
  });
});

describe("stopping", () => {
  test("finishes running requests, refuses new ones, and then closes the port", async () => {
    const slow = await serveFake({ stepMs: 10 });
    const ask = { prompt: "a", max_tokens: 30, ignore_eos: true };
    const under = slow.post("/v1/completions", ask);
    await pause(50);
    const stopped = slow.server.stop(10_000);
    const late = await slow.post("/v1/completions", ask);
    expect(late.status).toBe(503);
    expect((await readJson(late)).error).toMatchObject({ type: "server_error", code: "server_stopping" });
    expect((await fetch(`${slow.server.url}/health`)).status).toBe(503);
    const answer = await under;
    expect(answer.status).toBe(200);
    expect((await readJson(answer)).usage.completion_tokens).toBe(30);
    await stopped;
    await expect(fetch(`${slow.server.url}/health`)).rejects.toThrow();
  });

  test("ends requests after the deadline, with an error that the client can read", async () => {
    const slow = await serveFake({ stepMs: 20 });
    const ask = { prompt: "a", max_tokens: 2000, ignore_eos: true };
    const whole = slow.post("/v1/completions", ask);
    const stream = await slow.post("/v1/completions", { ...ask, stream: true });
    const text = stream.text();
    await slow.server.stop(50);
    expect((await whole).status).toBe(503);
    const events = (await text).trim().split("\n\n");
    expect(JSON.parse(events.at(-2)?.replace("data: ", "") ?? "").error.code).toBe("server_stopping");
    expect(events.at(-1)).toBe("data: [DONE]");
    await slow.close();
  });
});

describe("watching", () => {
  test("health, version and metrics are answered", async () => {
    await fake.openai.completions.create({ model: "fake", prompt: "a", max_tokens: 2 });
    await fake.post("/v1/completions", {});
    expect(await (await fetch(`${fake.server.url}/version`)).json()).toEqual({ version: "1.2.3" });
    const text = await (await fetch(`${fake.server.url}/metrics`)).text();
    for (const line of text.trimEnd().split("\n"))
      expect(line).toMatch(/^(# (HELP|TYPE) trainyard:\w+ .+|trainyard:\w+\{([\w]+="[^"]*",?)*\} [\d.e+-]+)$/);
    expect(text).toMatch(
      /trainyard:http_requests_total\{handler="\/v1\/completions",method="POST",status="400"\} [1-9]/,
    );
    expect(text).toMatch(/trainyard:generation_tokens_total\{model_name="fake"\} [1-9]/);
    expect(text).toMatch(/trainyard:num_requests_running\{model_name="fake"\} 0/);
    expect(text).toMatch(/trainyard:time_to_first_token_seconds_bucket\{model_name="fake",le="\+Inf"\} [1-9]/);
  });

  test("browsers of other origins are allowed only if they are named", async () => {
    const headers = { origin: "http://a.example" };
    expect(
      (await fetch(`${fake.server.url}/v1/models`, { headers })).headers.get("access-control-allow-origin"),
    ).toBeNull();
    const open = await serveFake({}, { allowedOrigins: ["http://a.example"] });
    try {
      const answer = await fetch(`${open.server.url}/v1/models`, { headers });
      expect(answer.headers.get("access-control-allow-origin")).toBe("http://a.example");
      const preflight = await fetch(`${open.server.url}/v1/completions`, {
        method: "OPTIONS",
        headers: { ...headers, "access-control-request-method": "POST" },
      });
      expect(preflight.status).toBe(204);
    } finally {
      await open.close();
    }
  });

  test("an unknown field is named in a header", async () => {
    const answer = await fake.post("/v1/completions", {
      prompt: "a",
      max_tokens: 1,
      frequency: 1,
      "na\r\nme": 2,
      user: "me",
    });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-trainyard-ignored")).toBe("frequency, na??me");
  });
});
