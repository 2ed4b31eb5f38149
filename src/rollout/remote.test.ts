import { createServer } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { answerTo, type Disturbance, type FakeOptions, FakeServer, json } from "../../test/openai-server.ts";
import { UserError } from "../util/errors.ts";
import { Remote, type RemoteOptions } from "./remote.ts";
import { eventsOf, ReplyReader } from "./remote-reply.ts";
import type { SampledToken } from "./request.ts";

const open: FakeServer[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) await server.close();
});

async function serve(options: FakeOptions = {}): Promise<FakeServer> {
  const server = await FakeServer.open(options);
  open.push(server);
  return server;
}

const quick = { setting: "`rollout.base_url`", modelSetting: "`model.path`", pauseMs: 1, retryMs: 2000 };

async function connect(servers: readonly FakeServer[], options: Partial<RemoteOptions> = {}): Promise<Remote> {
  return Remote.open({ baseUrls: servers.map(({ url }) => url), model: "m", ...quick, ...options });
}

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(UserError);
  return error instanceof UserError ? error.message : "";
}

const messages = [{ role: "user", content: "1+1" }];
const sampling = { maxNewTokens: 8, seed: 5 };
const said = (prompt: unknown, seed: number) => answerTo(prompt, seed).join("");

describe("samples", () => {
  test("of a chat are the server's texts, in order, and `onToken` sees each of them once", async () => {
    const remote = await connect([await serve()]);
    const seen: SampledToken[] = [];
    const { samples, tokens } = await remote.chat({
      ...sampling,
      messages,
      n: 3,
      onToken: (token) => seen.push(token),
    });
    expect(samples.map(({ text }) => text)).toEqual([5, 6, 7].map((seed) => said(messages, seed)));
    expect(samples.map(({ index, finishReason }) => [index, finishReason])).toEqual([0, 1, 2].map((i) => [i, "stop"]));
    for (const { index, text } of samples)
      expect(
        seen
          .filter((token) => token.index === index)
          .map((token) => token.text)
          .join(""),
      ).toBe(text);
    expect(tokens).toBe(9);
  });

  test("of token ids have ids and log-probs if the server returns them", async () => {
    const remote = await connect([await serve()]);
    const { samples } = await remote.sample({ ...sampling, prompt: Int32Array.of(1, 2) });
    expect(samples[0]).toMatchObject({ ids: [100, 101, 102], logprobs: [-1, -2, -3], text: said([1, 2], 5) });
  });

  test("are requested again if the server returns fewer than wanted", async () => {
    const server = await serve({ mostSamples: 1 });
    const { samples } = await (await connect([server])).chat({ ...sampling, messages, n: 3 });
    expect(samples.map(({ text }) => text)).toEqual([5, 6, 7].map((seed) => said(messages, seed)));
    expect(server.requests).toHaveLength(3);
  });

  test("are also read from an answer that is not streamed", async () => {
    const choices = [{ index: 0, message: { role: "assistant", content: "two" }, finish_reason: "length" }];
    const server = await serve({ disturb: () => (response) => json(response, 200, { choices }) });
    const { samples } = await (await connect([server])).chat({ ...sampling, messages });
    expect(samples[0]).toMatchObject({ text: "two", finishReason: "length" });
  });
});

test("default values are not sent, and others are", async () => {
  const server = await serve();
  const remote = await connect([server], { apiKey: "secret" });
  await remote.chat({ maxNewTokens: 8, messages });
  await remote.chat({
    maxNewTokens: 8,
    messages,
    temperature: 0,
    topK: 5,
    minP: 0.1,
    stop: ["x"],
    ignoreEos: true,
    seed: 0,
  });
  const common = { model: "m", messages, max_tokens: 8, stream: true, stream_options: { include_usage: true } };
  const [plain, full] = server.requests.map(({ path, authorization, ...body }) => ({ path, authorization, body }));
  expect(plain).toEqual({
    path: "/v1/chat/completions",
    authorization: "Bearer secret",
    body: { ...common, temperature: 1, top_p: 1 },
  });
  expect(full?.body).toEqual({
    ...common,
    temperature: 0,
    top_p: 1,
    top_k: 5,
    min_p: 0.1,
    stop: ["x"],
    ignore_eos: true,
    seed: 0,
  });
});

describe("a transient failure is retried until the call succeeds", () => {
  const cases: readonly [string, Disturbance][] = [
    ["429", (response) => json(response, 429, { error: { message: "slow down" } }, { "retry-after": "0.01" })],
    ["503", (response) => json(response, 503, "starting")],
    ["a connection that is dropped", (response) => response.destroy()],
    [
      "an incomplete stream",
      (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end('data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n');
      },
    ],
    [
      "an error inside a stream",
      (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end('data: {"error":{"message":"out of memory","code":500}}\n\n');
      },
    ],
    ["silence", () => {}],
  ];
  for (const [name, disturb] of cases) {
    test(name, async () => {
      const server = await serve({ disturb: (_, count) => (count <= 2 ? disturb : null) });
      const remote = await connect([server], { idleMs: 60 });
      const { samples } = await remote.chat({ ...sampling, messages });
      expect(samples[0]?.text).toBe(said(messages, 5));
      expect(server.requests).toHaveLength(3);
    });
  }

  test("at another server, if there is one", async () => {
    const broken = await serve({ disturb: () => (response) => response.destroy() });
    const good = await serve();
    const remote = await connect([broken, good]);
    const texts = await Promise.all([1, 2, 3, 4].map((seed) => remote.chat({ maxNewTokens: 8, messages, seed })));
    expect(texts.map(({ samples }) => samples[0]?.text)).toEqual([1, 2, 3, 4].map((seed) => said(messages, seed)));
    expect(good.requests).toHaveLength(4);
  });
});

describe("a frozen server that is silent for longer than the retry time", () => {
  const frozen = () => serve({ disturb: () => () => {} });

  test("is an error at once, without a second attempt", async () => {
    const server = await frozen();
    const message = await refusal(
      (await connect([server], { idleMs: 80, retryMs: 50 })).chat({ ...sampling, messages }),
    );
    expect(message).toMatch(/does not answer: it was silent for .*Check that the server runs/);
    expect(server.requests).toHaveLength(1);
  });

  test("is replaced by another, if there is one", async () => {
    const remote = await connect([await frozen(), await serve()], { idleMs: 80, retryMs: 50 });
    const { samples } = await remote.chat({ ...sampling, messages });
    expect(samples[0]?.text).toBe(said(messages, 5));
  });
});

test("requests go to the least busy server", async () => {
  const servers = [await serve({ delayMs: 20 }), await serve({ delayMs: 20 })];
  const remote = await connect(servers);
  await Promise.all(Array.from({ length: 8 }, (_, seed) => remote.chat({ maxNewTokens: 8, messages, seed })));
  expect(servers.map(({ requests }) => requests.length)).toEqual([4, 4]);
});

test("an aborted request ends at once with the signal's reason", async () => {
  const server = await serve({ delayMs: 5000 });
  const remote = await connect([server]);
  const controller = new AbortController();
  const answer = remote.chat({ ...sampling, messages, signal: controller.signal });
  const started = performance.now();
  setTimeout(() => controller.abort(), 20);
  await expect(answer).rejects.toThrow(/aborted/);
  expect(performance.now() - started).toBeLessThan(1000);
});

describe("a permanent failure is one message for", () => {
  const ask = async (disturb: Disturbance, options: Partial<RemoteOptions> = {}) => {
    const server = await serve({ disturb: () => disturb });
    const remote = await connect([server], options);
    const message = await refusal(remote.chat({ ...sampling, messages }));
    return { message, tries: server.requests.length };
  };

  test("a request that the server refuses", async () => {
    const { message, tries } = await ask((response) => json(response, 400, { error: { message: "too long" } }));
    expect(message).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/v1 refuses the request \(400\): too long\.$/);
    expect(tries).toBe(1);
  });

  test("a key that is missing", async () => {
    const { message } = await ask((response) => json(response, 401, { error: { message: "no key" } }));
    expect(message).toMatch(/Set OPENAI_API_KEY/);
  });

  test("an unexpected answer", async () => {
    const page = "<html>Welcome</html>";
    const { message, tries } = await ask((response) => response.writeHead(200).end(page));
    expect(message).toMatch(/answers "<html>Welcome<\/html>", which is not the answer of an OpenAI-compatible server/);
    expect(tries).toBe(1);
  });

  test("a server that fails for longer than the retry time", async () => {
    const { message, tries } = await ask((response) => json(response, 503, { error: "full" }), {
      retryMs: 60,
    });
    expect(message).toMatch(/does not answer: it answers 503: full\. \d+ tries in \ds got no answer\./);
    expect(tries).toBeGreaterThan(1);
  });

  test("an address where nothing listens", async () => {
    const server = await FakeServer.open();
    await server.close();
    expect(await refusal(connect([server]))).toMatch(
      /does not answer: the connection is refused\. Check that the server runs/,
    );
  });

  test("an address of another kind of server", async () => {
    const page = createServer((_, response) => response.end("hello"));
    await new Promise<void>((resolve) => page.listen(0, "127.0.0.1", resolve));
    const address = page.address();
    const port = typeof address === "object" ? address?.port : 0;
    try {
      const message = await refusal(Remote.open({ baseUrls: [`127.0.0.1:${port}`], model: "m", ...quick }));
      expect(message).toMatch(
        /\/v1\/models answers "hello", which is not a list of models\. Check `rollout\.base_url`/,
      );
    } finally {
      page.close();
    }
  });

  test("an address that is not valid", async () => {
    const message = await refusal(Remote.open({ baseUrls: ["ftp://x"], model: "m", ...quick }));
    expect(message).toMatch(/`rollout\.base_url` is ftp:\/\/x, which is not a web address/);
  });

  test("a model that the server does not have", async () => {
    const server = await serve({ models: ["llama", "qwen"] });
    expect(await refusal(connect([server], { model: "qwn" }))).toMatch(
      /^`model\.path` is qwn, and .* has llama, qwen\. Set it to qwen/,
    );
    expect(await refusal(connect([server], { model: null }))).toMatch(/has the models llama, qwen\. Name the one/);
  });

  test("and the server's only model needs no name", async () => {
    const remote = await connect([await serve({ models: ["one"] })], { model: null });
    expect(remote.model).toBe("one");
  });
});

describe("server-sent events", () => {
  const text = 'data: {"a":1}\r\n\r\n: comment\nevent: x\ndata: ü1\ndata: 2\n\ndata: [DONE]';
  const bytes = new TextEncoder().encode(text);

  test("are the same however the stream is split", async () => {
    for (const size of [1, 2, 3, 5, 1000]) {
      const cut = async function* () {
        for (let i = 0; i < bytes.length; i += size) yield bytes.subarray(i, i + size);
      };
      const events: string[] = [];
      for await (const event of eventsOf(cut())) events.push(event);
      expect(events).toEqual(['{"a":1}', "ü1\n2", "[DONE]"]);
    }
  });

  test("without a finished sample are an error", () => {
    expect(() => new ReplyReader().finish()).toThrow(/without choices/);
  });
});
