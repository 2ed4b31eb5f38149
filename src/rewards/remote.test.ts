import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, test } from "vitest";
import { judgeReward } from "./judge.ts";
import { type RemoteOptions, remote } from "./remote.ts";
import type { RewardInput } from "./reward.ts";
import { openRouter } from "./router.ts";
import { serviceReward } from "./service.ts";

type Seen = { readonly url: string; readonly body: unknown; readonly key: string | undefined };
type Answer = (response: ServerResponse, seen: Seen, count: number) => void;

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

/** A server on this machine that answers as told. */
async function serve(answer: Answer): Promise<{ url: string; seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createServer(async (request: IncomingMessage, response) => {
    const { authorization: key } = request.headers;
    seen.push({ url: request.url ?? "", body: JSON.parse(await text(request)), key });
    answer(response, seen.at(-1)!, seen.length);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(() => resolve()));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

const json = (response: ServerResponse, value: unknown, status = 200) =>
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
const quick: RemoteOptions = { firstWaitMs: 2, timeoutMs: 2000, deadlineMs: 4000 };

const input: RewardInput = {
  dataSource: "toy",
  prompt: "<user>2+3?",
  response: "It is {5}.",
  groundTruth: "5",
  extraInfo: { index: 4 },
  responseLength: 3,
};

describe("a call", () => {
  test("that fails for a moment is tried again until there is an answer", async () => {
    const { url, seen } = await serve((response, _, count) => {
      if (count === 1) response.writeHead(503).end("starting");
      else if (count === 2) response.writeHead(429, { "retry-after": "0" }).end();
      else if (count === 3) response.destroy();
      else json(response, { ok: true });
    });
    expect(await remote("The judge", [url], quick)({ a: 1 })).toEqual({ ok: true });
    expect(seen.map(({ body }) => body)).toEqual(Array(4).fill({ a: 1 }));
  });

  test("that is refused is not tried again", async () => {
    const { url, seen } = await serve((response) => json(response, { error: "no such model" }, 404));
    await expect(remote("The judge", [url], quick)({})).rejects.toThrow(
      /^The judge at http:.* answered with status 404: .*no such model.*\. Check the path/,
    );
    expect(seen).toHaveLength(1);
  });

  const hopeless: readonly { what: string; answer: Answer; says: RegExp; options?: RemoteOptions }[] = [
    {
      what: "a server that always breaks down",
      answer: (response) => response.writeHead(500).end("oh"),
      says: /answered with status 500: "oh" \(3 tries in \d+s\)\. See its log\.$/,
      options: { maxTries: 3 },
    },
    {
      what: "a server that never answers",
      answer: () => {},
      says: /did not answer within 0\.05 s \(2 tries in \d+s\)\. Check that it runs/,
      options: { timeoutMs: 50, maxTries: 2 },
    },
    {
      what: "a server that begins an answer and stops",
      answer: (response) => response.writeHead(200).write("{"),
      says: /did not answer within 0\.05 s/,
      options: { timeoutMs: 50, maxTries: 1 },
    },
    {
      what: "a page",
      answer: (response) => response.end("<html>"),
      says: /answered "<html>", which is not JSON\. Check/,
    },
    {
      what: "an answer without end",
      answer: (response) => {
        const more = () => {
          while (!response.destroyed && response.write(Buffer.alloc(1 << 20)));
          if (!response.destroyed) response.once("drain", more);
        };
        response.on("error", () => {});
        more();
      },
      says: /answered with more than 16777216 bytes/,
    },
  ];
  test.each(hopeless)("to $what ends with its name", async ({ answer, says, options = {} }) => {
    const { url } = await serve(answer);
    await expect(remote("The judge", [url], { ...quick, ...options })({})).rejects.toThrow(says);
  });

  test("to an address without a server ends with the reason", async () => {
    const { url } = await serve(() => {});
    await closers.pop()!(); // the port is free again
    await expect(remote("The judge", [url], { ...quick, maxTries: 2 })({})).rejects.toThrow(
      /^The judge at http:.* cannot be reached: .*ECONNREFUSED.* \(2 tries in \d+s\)\. Check that it runs/,
    );
  });

  test("never goes past its deadline, however many tries it has", async () => {
    const { url } = await serve(() => {});
    const started = performance.now();
    const options = { firstWaitMs: 5, timeoutMs: 80, deadlineMs: 200, maxTries: 1000 };
    await expect(remote("The judge", [url], options)({})).rejects.toThrow(/did not answer/);
    expect(performance.now() - started).toBeLessThan(600);
  });

  test("ends when its signal says so", async () => {
    const { url } = await serve(() => {});
    const controller = new AbortController();
    const call = remote("The judge", [url], { signal: controller.signal })({});
    setTimeout(() => controller.abort(), 30);
    await expect(call).rejects.toThrow(/abort/i);
  });
});

test("no more calls are under way at once than allowed, and all are answered", async () => {
  let [open, most] = [0, 0];
  const { url } = await serve((response, { body }) => {
    most = Math.max(most, ++open);
    setTimeout(() => {
      open--;
      json(response, body);
    }, 5);
  });
  const call = remote("The judge", [url], { ...quick, maxConcurrent: 3 });
  const numbers = Array.from({ length: 20 }, (_, i) => i);
  expect(await Promise.all(numbers.map(call))).toEqual(numbers);
  expect(most).toBe(3);
});

test("an address that is not a URL, or that holds a password, is refused at once", () => {
  expect(() => remote("The judge", ["localhost:8000"])).toThrow(
    /^The judge's address is "localhost:8000"\. It must be/,
  );
  expect(() => remote("The judge", ["http://me:secret@host"])).toThrow(/^(?!.*secret).*holds a user name or password/);
});

describe("a judge", () => {
  const template = "Q: {prompt}\nA: {response}\nTruth: {ground_truth}\nWrite \\boxed{x} and Score: N";
  const judging = (reply: unknown) =>
    serve((response) => json(response, { choices: [{ message: { content: reply } }] }));
  const base = { model: "m", template, ...quick };

  test("is sent the filled template, and its score comes back with its reply", async () => {
    const { url, seen } = await judging("Fine.\n**Score:** 7.5");
    const score = await judgeReward({ ...base, urls: [`${url}/v1/`], apiKey: "k" })(input);
    expect(score).toEqual({ score: 7.5, judge_reply: "Fine.\n**Score:** 7.5" });
    const content = "Q: <user>2+3?\nA: It is {5}.\nTruth: 5\nWrite \\boxed{x} and Score: N";
    expect(seen).toEqual([
      {
        url: "/v1/chat/completions",
        key: "Bearer k",
        body: { model: "m", messages: [{ role: "user", content }], temperature: 0, max_tokens: 1024 },
      },
    ]);
  });

  const replies: readonly [reply: string, pattern: string | undefined, score: number][] = [
    ["score=3, no, Score: 4", undefined, 4],
    ['{"score": -0.5}', undefined, -0.5],
    ["<think>Score: 1</think>Score: 2", undefined, 2],
    [" 8\n", undefined, 8],
    ["Verdict [[6]]", String.raw`\[\[(\d+)\]\]`, 6],
  ];
  test.each(replies)("that writes %j, read by %s, gives %d", async (reply, pattern, score) => {
    const { url } = await judging(reply);
    const judge = judgeReward({ ...base, urls: [url], ...(pattern === undefined ? {} : { pattern }) });
    expect(await judge(input)).toMatchObject({ score });
  });

  const nonsense: readonly [what: string, reply: unknown, says: RegExp][] = [
    ["no score", "I like it.", /^The judge's reply "I like it\." has no score/],
    ["nothing", "", /^The judge's reply "" has no score/],
    ["no text", null, /answered .*, which has no message\.$/],
    ["a score out of range", "Score: 11", /^The judge gave 11, which is not between 0 and 10/],
  ];
  test.each(nonsense)("that writes %s is a failure, not a 0", async (_, reply, says) => {
    const { url } = await judging(reply);
    await expect(judgeReward({ ...base, urls: [url], range: [0, 10] })(input)).rejects.toThrow(says);
  });

  test("is not asked about a row without the ground truth that its template names", async () => {
    const { url, seen } = await judging("Score: 1");
    await expect(judgeReward({ ...base, urls: [url] })({ ...input, groundTruth: null })).rejects.toThrow(
      /asks for \{ground_truth\}, and that of the row is null/,
    );
    expect(seen).toEqual([]);
  });

  test("with a template or a pattern that cannot work is refused before the first call", () => {
    const url = "http://127.0.0.1:1";
    expect(() => judgeReward({ ...base, urls: [url], template: "{prompt}" })).toThrow(/does not contain \{response\}/);
    expect(() => judgeReward({ ...base, urls: [url], pattern: "(" })).toThrow(/is not a regular expression/);
    expect(() => judgeReward({ ...base, urls: [url], pattern: "a|b" })).toThrow(/has no group/);
  });
});

describe("a reward service", () => {
  const cases = [
    {
      protocol: "vllm",
      path: "/classify",
      sent: { model: "rm", input: "<user>2+3?It is {5}.", activation: false, use_activation: false },
      answer: { data: [{ index: 0, label: null, probs: [0.1, -2.5], num_classes: 2 }] },
      score: -2.5,
    },
    {
      protocol: "sglang",
      path: "/classify",
      sent: { model: "rm", text: ["<user>2+3?It is {5}."] },
      answer: [{ embedding: [1.25], meta_info: {} }],
      score: 1.25,
    },
    {
      protocol: "json",
      path: "/",
      sent: {
        data_source: "toy",
        prompt: "<user>2+3?",
        response: "It is {5}.",
        ground_truth: "5",
        extra_info: { index: 4 },
      },
      answer: { score: 0.5, acc: true },
      score: { score: 0.5, acc: true },
    },
  ] as const;
  test.each(cases)("with the protocol $protocol gives its score", async ({ protocol, path, sent, answer, score }) => {
    const { url, seen } = await serve((response) => json(response, answer));
    expect(await serviceReward({ urls: [url], protocol, model: "rm", ...quick })(input)).toEqual(score);
    expect(seen).toEqual([{ url: path, key: undefined, body: sent }]);
  });

  test("is sent the text that belongs to it", async () => {
    const { url, seen } = await serve((response) => json(response, [{ embedding: [0] }]));
    const served = { ...input, servedText: `<${input.response}>` };
    await serviceReward({ urls: [url], protocol: "sglang", ...quick })(served);
    expect(seen[0]!.body).toMatchObject({ text: ["<It is {5}.>"] });
  });

  test.each(["vllm", "sglang", "json"] as const)(
    "that answers nonsense to %s is a failure, not a 0",
    async (protocol) => {
      const { url } = await serve((response) => json(response, { data: [], score: "high" }));
      await expect(serviceReward({ urls: [url], protocol, model: "rm", ...quick })(input)).rejects.toThrow(
        new RegExp(`answered .*high.*, which is not what the protocol ${protocol} calls a score`),
      );
    },
  );
});

describe("several addresses", () => {
  test("share the calls, the least busy one first", async () => {
    const held: (() => void)[] = [];
    const slow = await serve((response) => void held.push(() => json(response, { from: "slow" })));
    const fast = await serve((response) => json(response, { from: "fast" }));
    const call = remote("The judge", [slow.url, fast.url], quick);
    const first = call({});
    while (slow.seen.length === 0) await new Promise((resolve) => setImmediate(resolve));
    for (let i = 0; i < 5; i++) expect(await call({ i })).toEqual({ from: "fast" }); // the other one is busy
    for (const release of held) release();
    expect(await first).toEqual({ from: "slow" });
    expect([slow.seen.length, fast.seen.length]).toEqual([1, 5]);
  });

  test("a call that one of them fails goes to another at once, and that one is left alone for a while", async () => {
    const broken = await serve((response) => response.writeHead(503).end("starting"));
    const sound = await serve((response) => json(response, { ok: true }));
    const call = remote("The judge", [broken.url, sound.url], { ...quick, firstWaitMs: 60_000, deadlineMs: 600_000 });
    for (let i = 0; i < 6; i++) expect(await call({ i })).toEqual({ ok: true });
    expect(broken.seen).toHaveLength(1);
    expect(sound.seen).toHaveLength(6);
  });

  test("that all fail are all tried again", async () => {
    const flaky = () => serve((response, _, count) => (count < 3 ? response.writeHead(500).end() : json(response, 1)));
    const [a, b] = [await flaky(), await flaky()];
    expect(await remote("The judge", [a.url, b.url], quick)({})).toBe(1);
    expect(Math.min(a.seen.length, b.seen.length)).toBeGreaterThanOrEqual(2);
  });
});

describe("a router", () => {
  const open = async (addresses: readonly string[], apiKey?: string) => {
    const stop = new AbortController();
    const router = await openRouter({ addresses, signal: stop.signal, ...(apiKey !== undefined && { apiKey }) });
    closers.push(async () => {
      stop.abort();
      await router.close();
    });
    return (path: string, body: unknown) =>
      fetch(`http://${router.address}${path}`, { method: "POST", body: JSON.stringify(body) });
  };

  test("is one address for several servers, with their key", async () => {
    const servers = await Promise.all(["a", "b"].map((name) => serve((response) => json(response, { name }))));
    const post = await open([`${servers[0]!.url}/v1`, `${servers[1]!.url}/v1/chat/completions`], "secret-key");
    const answers = await Promise.all(Array.from({ length: 8 }, (_, i) => post("/v1/chat/completions?x=1", { i })));
    for (const answer of answers)
      expect([answer.status, await answer.json()]).toEqual([200, { name: expect.any(String) }]);
    const seen = servers.flatMap((server) => server.seen);
    expect(servers.every((server) => server.seen.length > 0)).toBe(true);
    expect(new Set(seen.map(({ url, key }) => `${url} ${key}`))).toEqual(
      new Set(["/v1/chat/completions?x=1 Bearer secret-key"]),
    );
    expect(seen.map(({ body }) => JSON.stringify(body)).toSorted()).toEqual(
      Array.from({ length: 8 }, (_, i) => JSON.stringify({ i })),
    );
  });

  test("asks another server where one fails, and passes a refusal on as it is", async () => {
    const broken = await serve((response) => response.destroy());
    const strict = await serve((response, { body }) =>
      body === "bad" ? json(response, { error: "no" }, 400) : json(response, { ok: true }),
    );
    const post = await open([broken.url, strict.url]);
    for (let i = 0; i < 4; i++) expect(await (await post("/classify", i)).json()).toEqual({ ok: true });
    const refusal = await post("/classify", "bad");
    expect([refusal.status, await refusal.json()]).toEqual([400, { error: "no" }]);
    expect(broken.seen.length).toBeLessThanOrEqual(2);
  });

  test("says so where no server answers", async () => {
    const { url } = await serve((response) => json(response, 1));
    for (const close of closers.splice(0)) await close();
    const answer = await (await open([url]))("/v1/models", {});
    expect(answer.status).toBe(502);
    expect(await answer.json()).toEqual({
      error: { message: expect.stringMatching(/^No server answers: .*ECONNREFUSED/) },
    });
  });
});
