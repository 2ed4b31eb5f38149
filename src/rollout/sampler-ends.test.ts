/** How samples end, which callbacks are called, and what a sampler does after an error. */
import { describe, expect, test } from "vitest";
import { EOS, type Script, setUp, tick, tokenizer } from "../../test/cache-decoder.ts";
import { UserError } from "../util/errors.ts";
import type { Sample, SampledToken, SampleRequest, Sampling } from "./request.ts";

const vocabSize = tokenizer.vocabSize;
const encode = (text: string) => [...tokenizer.encode(text, { addSpecialTokens: false })];
const prompt = encode("the question");
const numbers = (length: number, from = 0) => Array.from({ length }, (_, i) => from + i);

/** After a prompt of any content, these tokens. */
const replying =
  (reply: readonly number[], after = prompt.length): Script =>
  (ids) =>
    reply[ids.length - after];

/** One sample with a known reply. */
async function reply(tokens: readonly number[], sampling: Partial<Sampling> = {}, maxLength = 120): Promise<Sample> {
  const { sampler } = setUp({ vocabSize, maxLength, script: replying(tokens), hasTokenizer: true });
  const request = { prompt, maxNewTokens: 100, seed: 1, wantsText: true, ...sampling };
  return (await sampler.sample(request)).samples[0]!;
}

// ---------------------------------------------------------------- ends

describe("a sample ends", () => {
  const words = encode("one two three");
  const [first, ...others] = words as [number, ...number[]];
  const five = 5;
  expect(words).not.toContain(EOS);
  expect(words).not.toContain(five);
  type End = Pick<Sample, "finishReason" | "stopReason" | "text">;
  const stop = (stopReason: Sample["stopReason"], text = "one two three"): End => ({
    finishReason: "stop",
    stopReason,
    text,
  });
  test.each<[what: string, tokens: number[], sampling: Partial<Sampling>, count: number, end: End]>([
    ["at the model's own end", [...words, EOS, 9], {}, words.length + 1, stop(null)],
    [
      "at a stop token, which is not part of the text",
      [...words, five],
      { stopIds: [8, five] },
      words.length + 1,
      stop(five),
    ],
    [
      "at the model's own end that is also a stop token",
      [...words, EOS],
      { stopIds: [EOS] },
      words.length + 1,
      stop(EOS),
    ],
    [
      "at its end as a stop token, with `ignoreEos`",
      [...words, EOS],
      { stopIds: [EOS], ignoreEos: true },
      words.length + 1,
      stop(EOS),
    ],
    ["at a stop text", words, { stop: [" three"] }, words.length, stop(" three", "one two")],
    ["at a stop text that begins within a token", words, { stop: ["ne two th"] }, 0, stop("ne two th", "o")],
    [
      "at a stop text in its last token",
      words,
      { stop: ["three"], maxNewTokens: words.length },
      words.length,
      stop("three", "one two "),
    ],
    [
      "at `maxNewTokens`",
      words,
      { maxNewTokens: words.length },
      words.length,
      { finishReason: "length", stopReason: null, text: "one two three" },
    ],
  ])("%s", async (_, tokens, sampling, count, end) => {
    const { ids, logprobs, top, ...rest } = await reply(tokens, sampling);
    expect(rest).toMatchObject(end);
    if (count > 0) expect(ids).toEqual(tokens.slice(0, count));
    expect(logprobs).toHaveLength(ids.length);
    expect(top).toHaveLength(ids.length);
  });

  test("at the end of the context", async () => {
    const sample = await reply(words, { ignoreEos: true }, prompt.length + 4);
    expect(sample).toMatchObject({ finishReason: "length", stopReason: null });
    expect(sample.ids).toHaveLength(4);
  });

  test("not at the model's own end with `ignoreEos`", async () => {
    const sample = await reply([first, EOS, ...others], { ignoreEos: true, maxNewTokens: words.length + 1 });
    expect(sample.finishReason).toBe("length");
    expect(sample.ids).toEqual([first, EOS, ...others]);
  });

  test("before a stop text, wherever that is in the text and in the tokens", async () => {
    const text = "a stop, not a start";
    const tokens = encode(text);
    for (let from = 0; from < text.length; from += 3) {
      for (const length of [1, 2, 5]) {
        const wanted = text.slice(from, from + length);
        const sample = await reply(tokens, { stop: [wanted, "never"], maxNewTokens: tokens.length });
        expect(sample).toMatchObject({ text: text.slice(0, text.indexOf(wanted)), finishReason: "stop" });
        expect(sample.stopReason).toBe(wanted);
      }
    }
  });
});

describe("before `minNewTokens`", () => {
  const eager: Script = () => EOS;
  test.each<Partial<Sampling>>([{}, { temperature: 0 }, { temperature: 0.1 }, { topK: 1 }, { stopIds: [7] }])(
    "no token that would end the sample is drawn: %j",
    async (sampling) => {
      const { sampler } = setUp({ vocabSize, script: eager });
      const { samples } = await sampler.sample({ prompt, maxNewTokens: 20, minNewTokens: 5, n: 3, ...sampling });
      for (const { ids, logprobs } of samples) {
        expect(ids.slice(0, 5).filter((id) => id === EOS || sampling.stopIds?.includes(id))).toEqual([]);
        expect(ids.slice(5)).toEqual([EOS]);
        for (const logprob of logprobs) expect(Number.isFinite(logprob)).toBe(true);
      }
    },
  );
  test("a stop text is text", async () => {
    const tokens = encode("stop and stop and go");
    const sample = await reply(tokens, { stop: ["stop"], minNewTokens: encode("stop").length + 1 });
    expect(sample).toMatchObject({ text: "stop and ", stopReason: "stop" });
    const late = await reply(tokens, { stop: ["stop"], minNewTokens: tokens.length, maxNewTokens: tokens.length });
    expect(late).toMatchObject({ text: "stop and stop and go", finishReason: "length", stopReason: null });
  });
});

// ---------------------------------------------------------------- callbacks and signals

describe("callbacks", () => {
  const tokens = encode("caf\u00e9 and more \u{1f600} text");
  const request: SampleRequest = { prompt, maxNewTokens: tokens.length, n: 2, wantsText: true, topLogprobs: 3 };
  const setup = { vocabSize, script: replying(tokens), hasTokenizer: true };

  test("come for each token, then for the sample, then the request ends", async () => {
    const { sampler } = setUp(setup);
    const events: ({ token: SampledToken } | { sample: Sample } | "end")[] = [];
    const onToken = (token: SampledToken) => events.push({ token });
    const onSample = (sample: Sample) => events.push({ sample });
    const { samples } = await sampler.sample({ ...request, onToken, onSample });
    events.push("end");
    for (const sample of samples) {
      const own = events
        .filter((event) => event !== "end")
        .filter((event) =>
          "token" in event ? event.token.index === sample.index : event.sample.index === sample.index,
        );
      expect(own.at(-1)).toEqual({ sample });
      const tokens = own.slice(0, -1).map((event) => ("token" in event ? event.token : expect.fail("one sample only")));
      expect(tokens.map(({ id }) => id)).toEqual(sample.ids);
      expect(tokens.map(({ logprob }) => logprob)).toEqual(sample.logprobs);
      expect(tokens.map(({ top }) => top)).toEqual(sample.top);
      expect(tokens.map(({ text }) => text).join("")).toBe(sample.text);
      expect(sample.top.every((top) => top.length === 3)).toBe(true);
    }
    expect(samples[0]!.text).toBe("caf\u00e9 and more \u{1f600} text");
    expect(samples.map(({ index }) => index)).toEqual([0, 1]);
  });

  test.each(["onToken", "onSample"] as const)("that throw in %s end their own request and no other", async (name) => {
    const { sampler } = setUp(setup);
    const error = new Error("mine");
    const throwing = () => {
      throw error;
    };
    const [bad, good] = await Promise.allSettled([
      sampler.sample({ ...request, [name]: throwing }),
      sampler.sample(request),
    ]);
    expect(bad).toEqual({ status: "rejected", reason: error });
    expect(good.status).toBe("fulfilled");
    expect(sampler.stats()).toMatchObject({ running: 0, waiting: 0 });
  });
});

describe("a signal", () => {
  const endless: SampleRequest = { prompt, maxNewTokens: 100, ignoreEos: true };
  const reason = new Error("enough");

  test("that is already aborted rejects the request and leaves nothing behind", async () => {
    const { sampler } = setUp({ vocabSize });
    const before = sampler.stats();
    await expect(sampler.sample({ ...endless, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(sampler.stats()).toEqual(before);
  });

  test("frees everything as soon as it is aborted", async () => {
    const { sampler } = setUp({ vocabSize, limits: { maxSequences: 3 } });
    const controller = new AbortController();
    const cancelled = sampler.sample({ ...endless, n: 5, signal: controller.signal });
    for (let i = 0; i < 6; i++) await tick();
    expect(sampler.stats()).toMatchObject({ running: 3, waiting: 2 });
    controller.abort(reason);
    expect(sampler.stats()).toMatchObject({ running: 0, waiting: 0, cachedTokens: 0 });
    await expect(cancelled).rejects.toBe(reason);
  });

  test("that a callback aborts lets no other callback follow", async () => {
    const { sampler } = setUp({ vocabSize });
    const controller = new AbortController();
    let calls = 0;
    const call = () => {
      if (++calls === 3) controller.abort(reason);
    };
    const request = { ...endless, maxNewTokens: 3, onToken: call, onSample: call, signal: controller.signal };
    await expect(sampler.sample(request)).rejects.toBe(reason);
    expect(calls).toBe(3);
  });
});

// ---------------------------------------------------------------- many, and mishaps

test("a request that comes at any moment after the last one ended is served", async () => {
  const { sampler } = setUp({ vocabSize });
  for (let later = 0; later < 40; later++) {
    await sampler.sample({ prompt, maxNewTokens: 1 });
    for (let i = 0; i < later; i++) await null;
    let isServed = false;
    void sampler.sample({ prompt, maxNewTokens: 1 }).then(() => {
      isServed = true;
    });
    for (let i = 0; i < 20 && !isServed; i++) await tick();
    expect(isServed, `${later} microtasks later`).toBe(true);
  }
});

test("samples of one prompt share its prefill and have different random numbers", async () => {
  const { sampler, decoder } = setUp({ vocabSize });
  const request = { prompt: numbers(40, 10), maxNewTokens: 6, ignoreEos: true, seed: 5 };
  const { samples } = await sampler.sample({ ...request, n: 8 });
  expect(decoder.tokensRun).toBe(40 + 8 * 5);
  expect(new Set(samples.map(({ ids }) => ids.join())).size).toBe(8);
  const { samples: single } = await sampler.sample(request);
  expect(single[0]).toEqual(samples[0]);
});

test("requests without a seed differ, those with the same seed are equal", async () => {
  const { sampler } = setUp({ vocabSize });
  const ids = async (seed: Partial<Sampling>) =>
    (await sampler.sample({ prompt, maxNewTokens: 8, ignoreEos: true, ...seed })).samples[0]!.ids.join();
  expect(await ids({})).not.toBe(await ids({}));
  expect(await ids({ seed: 1 })).toBe(await ids({ seed: 1 }));
  expect(await ids({ seed: 1 })).not.toBe(await ids({ seed: 2 }));
});

describe("10,000 requests that wait", () => {
  const many = (sampler: ReturnType<typeof setUp>["sampler"], more: (i: number) => Partial<SampleRequest>) =>
    numbers(10_000).map((i) => sampler.sample({ prompt: [i % 20, 5], maxNewTokens: 1, ...more(i) }));

  test("are served in the order they came", async () => {
    const { sampler } = setUp({ limits: { maxSequences: 32 } });
    const order: number[] = [];
    await Promise.all(many(sampler, (i) => ({ onSample: () => order.push(i) })));
    expect(order).toEqual(numbers(10_000));
    expect(sampler.stats()).toMatchObject({ running: 0, waiting: 0, finishedSamples: 10_000 });
  }, 20_000);

  test("are dropped at once", async () => {
    const { sampler } = setUp({ limits: { maxSequences: 32 } });
    const controller = new AbortController();
    const settled = Promise.allSettled(
      many(sampler, () => ({ maxNewTokens: 50, ignoreEos: true, signal: controller.signal })),
    );
    for (let i = 0; i < 3; i++) await tick();
    controller.abort();
    expect(sampler.stats()).toMatchObject({ running: 0, waiting: 0 });
    expect((await settled).every(({ status }) => status === "rejected")).toBe(true);
  }, 20_000);
});

test("a closed sampler rejects waiting and new requests", async () => {
  const { sampler } = setUp({ vocabSize });
  const waiting = Promise.allSettled(numbers(4).map(() => sampler.sample({ prompt, maxNewTokens: 50, n: 2 })));
  for (let i = 0; i < 3; i++) await tick();
  const reason = new Error("closed");
  sampler.close(reason);
  for (const result of await waiting) expect(result).toEqual({ status: "rejected", reason });
  await expect(sampler.sample({ prompt, maxNewTokens: 1 })).rejects.toBe(reason);
  expect(sampler.stats()).toMatchObject({ running: 0, waiting: 0 });
});

test("an error of a run rejects all requests, and the next request is served", async () => {
  const { sampler, decoder } = setUp({ vocabSize });
  const run = decoder.run.bind(decoder);
  const error = new Error("out of memory");
  decoder.run = () => Promise.reject(error);
  const results = await Promise.allSettled(numbers(3).map(() => sampler.sample({ prompt, maxNewTokens: 5 })));
  for (const result of results) expect(result).toEqual({ status: "rejected", reason: error });
  decoder.run = run;
  expect((await sampler.sample({ prompt, maxNewTokens: 5, ignoreEos: true })).samples[0]!.ids).toHaveLength(5);
});

test("a sampler that could never admit a request is an error", () => {
  expect(() => setUp({ limits: { maxSequences: 0 } })).toThrow(UserError);
});
