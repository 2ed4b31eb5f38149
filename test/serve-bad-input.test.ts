/**
 * Requests and clients with mistakes: the right status, OpenAI's error body, a helpful message, and a server that is not
 * affected.
 */
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { pause } from "./sandbox.ts";
import { expectError, type Fake, readJson, serveFake } from "./serving.ts";

let fake: Fake;
beforeAll(async () => {
  fake = await serveFake({ maxPositions: 128 }, { maxLength: 128 });
});
afterAll(() => fake.close());

const completion = { model: "fake", prompt: "Hi", max_tokens: 4 };
const chat = { model: "fake", messages: [{ role: "user", content: "Hi" }], max_tokens: 4 };
const tool = { type: "function", function: { name: "f", parameters: { type: "object" } } };

type Case = readonly [name: string, body: unknown, message: RegExp, param?: string | null];

const completionCases: readonly Case[] = [
  ["no prompt", { model: "fake" }, /`prompt` is missing; it should be a text or a list of token ids/, "prompt"],
  ["an empty prompt", { ...completion, prompt: "" }, /`prompt` is empty/, "prompt"],
  ["an empty list", { ...completion, prompt: [] }, /`prompt` is an empty list/, "prompt"],
  ["a prompt of nothing", { ...completion, prompt: [[]] }, /`prompt\[0\]` is \[\]/, "prompt[0]"],
  ["a number", { ...completion, prompt: 7 }, /`prompt` is 7; it should be a text/, "prompt"],
  ["an object", { ...completion, prompt: { a: 1 } }, /`prompt` is \{"a":1\}/, "prompt"],
  ["texts and ids mixed", { ...completion, prompt: ["a", 1] }, /`prompt\[1\]` is 1/, "prompt[1]"],
  [
    "a token id past the vocabulary",
    { ...completion, prompt: [1, 432] },
    /`prompt\[1\]` is 432; token ids of this model are whole numbers from 0 to 431/,
    "prompt",
  ],
  ["a negative token id", { ...completion, prompt: [[1, -1]] }, /`prompt\[0\]\[1\]` is -1/, "prompt[0]"],
  ["half a token id", { ...completion, prompt: [1.5] }, /`prompt\[0\]` is 1\.5/, "prompt"],
  ["too many prompts", { ...completion, prompt: Array(1025).fill("a") }, /a list of 1025 prompts/, "prompt"],
  [
    "a prompt longer than the context",
    { ...completion, prompt: Array(128).fill(5) },
    /context is 128 tokens, and the prompt alone has 128/,
    "prompt",
  ],
  [
    "a text far longer than the context",
    { ...completion, prompt: "a".repeat(500_000) },
    /the prompt alone has at least \d+/,
    "prompt",
  ],
  ["more tokens than the context has", { ...completion, max_tokens: 200 }, /Lower it to \d+/, "max_tokens"],
  ["no tokens", { ...completion, max_tokens: 0 }, /`max_tokens` is 0/, "max_tokens"],
  [
    "negative tokens",
    { ...completion, max_tokens: -5 },
    /`max_tokens` is -5; it should be a whole number of at least 0/,
    "max_tokens",
  ],
  ["half a token", { ...completion, max_tokens: 1.5 }, /`max_tokens` is 1\.5/, "max_tokens"],
  [
    "more tokens than the least",
    { ...completion, min_tokens: 5 },
    /`min_tokens` is 5 and `max_tokens` is 4/,
    "min_tokens",
  ],
  [
    "a temperature that is not a number",
    { ...completion, temperature: "NaN" },
    /`temperature` is "NaN"; it should be a number of at least 0/,
    "temperature",
  ],
  ["a negative temperature", { ...completion, temperature: -1 }, /`temperature` is -1/, "temperature"],
  ["an endless temperature", '{"prompt":"a","temperature":1e999}', /`temperature`/, "temperature"],
  ["no probability", { ...completion, top_p: 0 }, /`top_p` is 0; it should be a number above 0 and at most 1/, "top_p"],
  ["too much probability", { ...completion, top_p: 1.1 }, /`top_p` is 1\.1/, "top_p"],
  ["a negative top-k", { ...completion, top_k: -2 }, /`top_k` is -2/, "top_k"],
  ["a min_p above one", { ...completion, min_p: 2 }, /`min_p` is 2/, "min_p"],
  ["no repetition", { ...completion, repetition_penalty: 0 }, /`repetition_penalty` is 0/, "repetition_penalty"],
  [
    "a presence penalty too high",
    { ...completion, presence_penalty: 3 },
    /`presence_penalty` is 3; it should be a number from -2 to 2/,
    "presence_penalty",
  ],
  ["a bias for a word", { ...completion, logit_bias: { hello: 1 } }, /`logit_bias` has the key "hello"/, "logit_bias"],
  [
    "a bias past the vocabulary",
    { ...completion, logit_bias: { 432: 1 } },
    /`logit_bias` has the key "432"/,
    "logit_bias",
  ],
  ["a bias too strong", { ...completion, logit_bias: { 4: 101 } }, /`logit_bias\.4` is 101/, "logit_bias.4"],
  [
    "a bias as a list",
    { ...completion, logit_bias: [1] },
    /`logit_bias` is \[1\]; it should be an object/,
    "logit_bias",
  ],
  ["a seed in quotes", { ...completion, seed: "1" }, /`seed` is "1"; it should be a whole number/, "seed"],
  ["no samples", { ...completion, n: 0 }, /`n` is 0/, "n"],
  ["too many samples", { ...completion, n: 129 }, /`n` is 129; it should be at most 128/, "n"],
  ["an empty stop text", { ...completion, stop: "" }, /`stop` is ""/, "stop"],
  ["a stop that is no text", { ...completion, stop: [1] }, /`stop` is \[1\]/, "stop"],
  [
    "a stop token past the vocabulary",
    { ...completion, stop_token_ids: [999] },
    /`stop_token_ids\[0\]` is 999/,
    "stop_token_ids",
  ],
  [
    "too many log-probs",
    { ...completion, logprobs: 21 },
    /`logprobs` is 21; it should be a whole number from 0 to 20/,
    "logprobs",
  ],
  ["log-probs as a flag", { ...completion, logprobs: true }, /`logprobs` is true/, "logprobs"],
  ["stream in quotes", { ...completion, stream: "yes" }, /`stream` is "yes"; it should be true or false/, "stream"],
  ["the best of three", { ...completion, best_of: 3 }, /`best_of` is 3 and `n` is 1/, "best_of"],
  ["a suffix", { ...completion, suffix: "x" }, /`suffix` cannot be used here/, "suffix"],
  [
    "a grammar",
    { ...completion, guided_json: {} },
    /`guided_json` cannot be used here\. Use `response_format`/,
    "guided_json",
  ],
  ["beams", { ...completion, use_beam_search: true }, /no beam search/, "use_beam_search"],
  [
    "prompt log-probs streamed",
    { ...completion, stream: true, prompt_logprobs: 1 },
    /cannot be streamed/,
    "prompt_logprobs",
  ],
  ["a model that is a number", { ...completion, model: 5 }, /`model` is 5/, "model"],
];

const chatCases: readonly Case[] = [
  ["no messages", { model: "fake" }, /`messages` is missing; it should be a list of messages/, "messages"],
  [
    "an empty list",
    { ...chat, messages: [] },
    /`messages` is \[\]; it should be a list with at least one message/,
    "messages",
  ],
  ["a text", { ...chat, messages: "Hi" }, /`messages` is "Hi"/, "messages"],
  [
    "a message without a role",
    { ...chat, messages: [{ content: "Hi" }] },
    /`messages\[0\]\.role` is missing; it should be one of system/,
    "messages[0].role",
  ],
  [
    "an unknown role",
    { ...chat, messages: [{ role: "king", content: "Hi" }] },
    /`messages\[0\]\.role` is "king"/,
    "messages[0].role",
  ],
  [
    "a user without words",
    { ...chat, messages: [{ role: "user" }] },
    /`messages\[0\]\.content` is missing/,
    "messages[0].content",
  ],
  [
    "a number as words",
    { ...chat, messages: [{ role: "user", content: 7 }] },
    /`messages\[0\]\.content` is 7/,
    "messages[0].content",
  ],
  [
    "a picture",
    { ...chat, messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }] },
    /`messages\[0\]\.content\[0\]` .* only parts of the type "text"/,
    "messages[0].content[0]",
  ],
  [
    "arguments that are no JSON",
    {
      ...chat,
      messages: [...chat.messages, { role: "assistant", tool_calls: [{ function: { name: "f", arguments: "{" } }] }],
    },
    /`messages\[1\]\.tool_calls\[0\]\.function\.arguments` is "\{", which is not JSON/,
    "messages[1].tool_calls[0].function.arguments",
  ],
  [
    "a form",
    { ...chat, response_format: { type: "xml" } },
    /`response_format\.type` is "xml"; it should be "text", "json_object" or "json_schema"/,
    "response_format",
  ],
  [
    "a schema",
    { ...chat, response_format: { type: "json_schema", json_schema: {} } },
    /`response_format\.json_schema\.schema` is missing/,
    "response_format",
  ],
  ["no tokens", { ...chat, max_completion_tokens: 0 }, /`max_completion_tokens` is 0/, "max_completion_tokens"],
  ["too many tokens", { ...chat, max_tokens: 500 }, /Lower it to/, "max_tokens"],
  ["top log-probs alone", { ...chat, top_logprobs: 2 }, /Set `logprobs` to true as well/, "top_logprobs"],
  ["a tool that is none", { ...chat, tools: [{ type: "search" }] }, /`tools\[0\]\.type` is "search"/, "tools[0].type"],
  [
    "a tool without a name",
    { ...chat, tools: [{ type: "function", function: {} }] },
    /`tools\[0\]\.function\.name` is missing/,
    "tools[0].function.name",
  ],
  ["a choice without tools", { ...chat, tool_choice: "auto" }, /there are no `tools`/, "tool_choice"],
  [
    "a tool choice that is not valid",
    { ...chat, tools: [tool], tool_choice: "maybe" },
    /`tool_choice` is "maybe"/,
    "tool_choice",
  ],
  [
    "a call of a function that there is not",
    { ...chat, tools: [tool], tool_choice: { type: "function", function: { name: "nobody" } } },
    /`tool_choice` is the function "nobody", which is not among `tools`/,
    "tool_choice",
  ],
  [
    "a required call with arguments that cannot be forced",
    {
      ...chat,
      tools: [{ type: "function", function: { name: "f", parameters: { not: {} } } }],
      tool_choice: "required",
    },
    /`tools\[0\]\.function\.parameters\.not` is not supported/,
    "tools",
  ],
  ["functions of old", { ...chat, functions: [{ name: "f" }] }, /replaced by `tools`/, "functions"],
  ["speech", { ...chat, modalities: ["audio"] }, /`modalities\[0\]` is "audio"/, "modalities[0]"],
  ["a template of one's own", { ...chat, chat_template: "{{ 1 }}" }, /`--chat-template`/, "chat_template"],
  [
    "a conversation that cannot be continued",
    {
      ...chat,
      continue_final_message: true,
      messages: [{ role: "assistant", content: null, tool_calls: [{ function: { name: "f", arguments: {} } }] }],
      add_generation_prompt: true,
    },
    /cannot both continue/,
    "messages",
  ],
  [
    "template variables that are not an object",
    { ...chat, chat_template_kwargs: [1] },
    /`chat_template_kwargs` is \[1\]/,
    "chat_template_kwargs",
  ],
];

const bodyCases: readonly Case[] = [
  ["nothing", "", /The body is empty/, null],
  ["half an object", '{"prompt":', /The body is not JSON/, null],
  ["a list", "[]", /The body is a list; it should be a JSON object/, null],
  ["null", "null", /The body is null/, null],
  ["deep JSON", `{"prompt":${"[".repeat(100_000)}${"]".repeat(100_000)}}`, /nested more than 64 levels deep/, null],
  [
    "a deep tool",
    `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":${'{"a":'.repeat(5000)}1${"}".repeat(5000)}}}]}`,
    /nested more than 64/,
    null,
  ],
];

for (const [path, cases] of [
  ["/v1/completions", [...completionCases, ...bodyCases]],
  ["/v1/chat/completions", [...chatCases, ...bodyCases]],
] as const) {
  describe(`${path} answers 400 to`, () => {
    for (const [name, body, message, param] of cases) {
      test(name, async () => {
        const answer = await fake.post(path, body);
        const json = await readJson(answer);
        expect(json.error?.message).toMatch(message);
        expectError(json);
        expect({ status: answer.status, type: json.error.type, param: json.error.param }).toEqual({
          status: 400,
          type: "invalid_request_error",
          param,
        });
      });
    }
  });
}

describe("other answers than 400 are for", () => {
  const send = (path: string, init: RequestInit) => fetch(`${fake.server.url}${path}`, init);
  const json = { "content-type": "application/json" };
  const cases: readonly [string, () => Promise<Response>, number, string | null, RegExp][] = [
    [
      "an unknown model",
      () => fake.post("/v1/completions", { ...completion, model: "gpt" }),
      404,
      "model_not_found",
      /"gpt" does not exist\. This server has "fake"/,
    ],
    ["embeddings", () => fake.post("/v1/embeddings", { input: "a" }), 404, "not_found", /no embeddings/],
    ["an unknown path", () => fake.post("/v1/nothing", {}), 404, "not_found", /There is no POST \/v1\/nothing/],
    ["the wrong method", () => send("/v1/completions", {}), 405, "method_not_allowed", /use POST/],
    [
      "the wrong method, deleting",
      () => send("/v1/models", { method: "DELETE" }),
      405,
      "method_not_allowed",
      /use GET/,
    ],
    [
      "the wrong type",
      () => send("/v1/completions", { method: "POST", body: "{}", headers: { "content-type": "text/plain" } }),
      415,
      null,
      /Content-Type is "text\/plain"/,
    ],
    [
      "a body too large",
      () => fake.post("/v1/completions", { ...completion, prompt: "a".repeat(2 << 20) }),
      413,
      null,
      /at most 1\.0 MB/,
    ],
    [
      "a body too large that does not say so",
      () =>
        send("/v1/completions", {
          method: "POST",
          headers: json,
          body: new Blob(["a".repeat(2 << 20)]).stream(),
          duplex: "half",
        }),
      413,
      null,
      /at most 1\.0 MB/,
    ],
    [
      "bytes that are not UTF-8",
      () => send("/v1/completions", { method: "POST", headers: json, body: new Uint8Array([0x7b, 0xff, 0x7d]) }),
      400,
      null,
      /it is not UTF-8/,
    ],
    [
      "weights without a key",
      () => fake.post("/reload_weights", { path: "." }),
      403,
      "reload_not_allowed",
      /--api-key/,
    ],
  ];
  for (const [name, ask, status, code, message] of cases) {
    test(name, async () => {
      const answer = await ask();
      const body = await readJson(answer);
      expect(body.error?.message).toMatch(message);
      expectError(body);
      expect({ status: answer.status, code: body.error.code }).toEqual({ status, code });
      if (status === 405) expect(answer.headers.get("allow")).toMatch(/GET|POST/);
    });
  }
});

test("a template that throws is a 400 with its message and without paths of this machine", async () => {
  const raising =
    "{% if messages|length > 1 %}{{ raise_exception('One message, please.') }}{% endif %}{{ messages[0].content | nothing }}";
  const other = await serveFake({}, { chatTemplate: raising });
  try {
    const two = { messages: [...chat.messages, ...chat.messages] };
    for (const [body, message] of [
      [two, /refuses this conversation: One message, please\./],
      [chat, /cannot be applied to this conversation/],
    ] as const) {
      const answer = await other.post("/v1/chat/completions", body);
      const json = await readJson(answer);
      expect(answer.status).toBe(400);
      expect(json.error.message).toMatch(message);
      expect(json.error.message).not.toContain(other.folder);
    }
    expect((await other.post("/v1/chat/completions", { ...chat, tools: [tool] })).status).toBe(400); // no place for tools
  } finally {
    await other.close();
  }
});

test("an error of the model is a 500 without internal details, and the server continues", async () => {
  const broken = await serveFake();
  broken.model.sample = () => Promise.reject(new Error("secret detail"));
  try {
    for (const stream of [false, true]) {
      const answer = await broken.post("/v1/completions", { ...completion, stream });
      expect(answer.status).toBe(500);
      expect(JSON.stringify(await readJson(answer))).not.toContain("secret");
    }
    expect((await fetch(`${broken.server.url}/health`)).status).toBe(200);
  } finally {
    await broken.close();
  }
});

test("a request that takes too long is a 504", async () => {
  const slow = await serveFake({ stepMs: 20 }, { timeoutMs: 60 });
  try {
    const answer = await slow.post("/v1/completions", { ...completion, max_tokens: 1000, ignore_eos: true });
    expect(answer.status).toBe(504);
    expectError(await readJson(answer));
    expect(slow.model.samplerStats().running).toBe(0);
  } finally {
    await slow.close();
  }
});

describe("more requests than the model can serve at once", () => {
  test("above the limit get 429 and Retry-After, the others are answered", async () => {
    const busy = await serveFake({ stepMs: 1 }, { maxPrompts: 50 });
    try {
      const statuses = new Map<number, number>();
      const client = async (count: number) => {
        for (let i = 0; i < count; i++) {
          const answer = await busy.post("/v1/completions", completion);
          const body = await readJson(answer);
          statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
          if (answer.status === 200) expect(body.choices).toHaveLength(1);
          else
            expect([answer.status, answer.headers.get("retry-after"), body.error.type]).toEqual([
              429,
              "1",
              "rate_limit_error",
            ]);
        }
      };
      await Promise.all(Array.from({ length: 100 }, () => client(10)));
      expect([...statuses.keys()].sort()).toEqual([200, 429]);
      expect([...statuses.values()].reduce((a, b) => a + b)).toBe(1000);
      expect(busy.model.samplerStats()).toMatchObject({ running: 0, waiting: 0 });
    } finally {
      await busy.close();
    }
  });

  test("within the limit wait, 10,000 of them, and each is answered", async () => {
    const patient = await serveFake({ maxSequences: 512 }, { maxPrompts: 20_000 });
    try {
      const many = { prompt: Array.from({ length: 1000 }, (_, i) => `number ${i}`), max_tokens: 2, seed: 3 };
      const answers = await Promise.all(Array.from({ length: 10 }, () => patient.ask("/v1/completions", many)));
      const texts = answers.map(({ choices }) => choices.map(({ text }: { text: string }) => text));
      expect(texts[0]).toHaveLength(1000);
      for (const other of texts) expect(other).toEqual(texts[0]);
    } finally {
      await patient.close();
    }
  });
});

test("a client that stops reading loses its connection, and others are not affected", async () => {
  const long = { prompt: "a", max_tokens: 60_000, ignore_eos: true, stream: true, logprobs: 20 };
  const wide = await serveFake({ maxPositions: 100_000, maxSequences: 64 }, { maxLength: 100_000 });
  try {
    const body = JSON.stringify(long);
    const socket = connect(wide.server.port, "127.0.0.1");
    socket.pause();
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    const closed = new Promise((resolve) => socket.on("error", resolve).on("close", resolve));
    while (wide.model.samplerStats().running === 0) await pause(5);
    for (let i = 0; i < 5; i++) expect((await wide.post("/v1/completions", completion)).status).toBe(200);
    while (wide.model.samplerStats().running > 0) await pause(5);
    expect(wide.model.samplerStats().generatedTokens).toBeLessThan(60_000); // it was cancelled, not finished
    socket.resume(); // what the system holds for it is read, then comes the end
    await closed;
    expect((await wide.post("/v1/completions", completion)).status).toBe(200);
  } finally {
    await wide.close();
  }
});
