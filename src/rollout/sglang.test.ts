import { afterEach, expect, test } from "vitest";
import { z } from "zod";
import { type Answer, CallRecorder } from "../../test/call-recorder.ts";
import { UserError } from "../util/errors.ts";
import { Servers } from "./servers.ts";
import { sampleFromSglang } from "./sglang.ts";

const Seeded = z.object({
  input_ids: z.array(z.array(z.number())),
  sampling_params: z.array(z.object({ sampling_seed: z.int() })),
});

const open: CallRecorder[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) await server.close();
});

async function serve(answer: Answer, { health, ...more }: { health?: Answer; idleMs?: number; retryMs?: number } = {}) {
  const recorder = await CallRecorder.open({ "/generate": answer, ...(health && { "/health": health }) });
  open.push(recorder);
  const options = { baseUrls: [`${recorder.url}/v1`], setting: "base_url", pauseMs: 1, retryMs: 2000, ...more };
  const servers = new Servers(options);
  const asked = () => recorder.calls.filter(({ path }) => path === "/generate").map(({ body }) => body);
  return { asked, servers };
}

const answer = (ids: readonly number[], finish: object) => ({
  text: ids.join(""),
  output_ids: ids,
  meta_info: {
    id: "r",
    finish_reason: finish,
    output_token_logprobs: ids.map((id, i) => [-0.5 * (i + 1), id, null]),
    prompt_tokens: 2,
    completion_tokens: ids.length,
    cached_tokens: 1,
  },
});

test("a request has token ids and every setting, and the answer becomes samples", async () => {
  const { asked, servers } = await serve({
    body: [answer([5, 6, 2], { type: "stop", matched: 2 }), answer([7, 8], { type: "length", length: 2 })],
  });
  const seen: number[] = [];
  const { samples, cachedTokens } = await sampleFromSglang(
    servers,
    {
      prompt: Int32Array.of(3, 4),
      n: 2,
      maxNewTokens: 9,
      temperature: 0.7,
      topP: 0.9,
      seed: 5,
      stopIds: [2],
      onSample: ({ index }) => seen.push(index),
    },
    false,
  );
  expect(asked()).toEqual([
    {
      input_ids: [3, 4],
      sampling_params: {
        n: 2,
        max_new_tokens: 9,
        min_new_tokens: 0,
        temperature: 0.7,
        top_p: 0.9,
        min_p: 0,
        top_k: -1,
        repetition_penalty: 1,
        presence_penalty: 0,
        frequency_penalty: 0,
        ignore_eos: false,
        stop_token_ids: [2],
      },
      return_logprob: true,
    },
  ]);
  expect(samples).toEqual([
    { index: 0, text: "562", top: [], ids: [5, 6, 2], logprobs: [-0.5, -1, -1.5], finishReason: "stop", stopReason: 2 },
    { index: 1, text: "78", top: [], ids: [7, 8], logprobs: [-0.5, -1], finishReason: "length", stopReason: null },
  ]);
  expect([seen, cachedTokens]).toEqual([[0, 1], 1]);
});

test("a single sample comes without a list, and the model's own end has no stop reason", async () => {
  const { servers } = await serve({ body: answer([5], { type: "stop", matched: 5 }) });
  const { samples } = await sampleFromSglang(servers, { prompt: [1], maxNewTokens: 3, stopIds: [6] }, false);
  expect(samples.map(({ ids, stopReason }) => [ids, stopReason])).toEqual([[[5], null]]);
});

test("a request that SGLang aborts is sent again", async () => {
  let count = 0;
  const { asked, servers } = await serve(() => ({
    body: answer([5], ++count < 3 ? { type: "abort", message: "weights change" } : { type: "stop", matched: 5 }),
  }));
  await sampleFromSglang(servers, { prompt: [1], maxNewTokens: 3 }, false);
  expect(asked()).toHaveLength(3);
});

test("a server that uses seeds gets one for each sample", async () => {
  const stop = { type: "stop", matched: 2 };
  const { asked, servers } = await serve({ body: [answer([5], stop), answer([6], stop)] });
  const request = { prompt: [3, 4], n: 2, maxNewTokens: 9 };
  for (const seed of [5, 9, undefined])
    await sampleFromSglang(servers, { ...request, ...(seed === undefined ? {} : { seed }) }, true);
  const seeds = asked().map((body) => {
    const { input_ids, sampling_params } = Seeded.parse(body);
    expect(input_ids).toEqual([
      [3, 4],
      [3, 4],
    ]);
    return sampling_params.map(({ sampling_seed }) => sampling_seed);
  });
  expect(seeds.slice(0, 2)).toEqual([
    [5, 6],
    [9, 10],
  ]);
  expect(new Set(seeds.flat()).size).toBe(6);
});

test("an answer of another kind of server is a message with advice", async () => {
  const { servers } = await serve({ body: { choices: [] } });
  const sampling = sampleFromSglang(servers, { prompt: [1], maxNewTokens: 3 }, false);
  await expect(sampling).rejects.toThrow(UserError);
  await expect(sampling).rejects.toThrow(/Check base_url/);
});

test("an aborted request ends at once", async () => {
  const { servers } = await serve(() => new Promise(() => {}));
  const controller = new AbortController();
  const sampling = sampleFromSglang(servers, { prompt: [1], maxNewTokens: 3, signal: controller.signal }, false);
  setTimeout(() => controller.abort(new Error("enough")), 50);
  await expect(sampling).rejects.toThrow("enough");
});

test("a long answer is waited for while the server is healthy, and not otherwise", async () => {
  const slow = async () => {
    await new Promise((resolve) => setTimeout(resolve, 400));
    return { body: answer([5], { type: "stop", matched: 5 }) };
  };
  const limits = { idleMs: 100, retryMs: 50 };
  const living = await serve(slow, { ...limits, health: { body: "" } });
  const { samples } = await sampleFromSglang(living.servers, { prompt: [1], maxNewTokens: 3 }, false);
  expect(samples[0]?.ids).toEqual([5]);
  expect(living.asked()).toHaveLength(1);
  for (const health of [{ status: 503, body: "" }, () => new Promise<never>(() => {})]) {
    const frozen = await serve(slow, { ...limits, health });
    const sampling = sampleFromSglang(frozen.servers, { prompt: [1], maxNewTokens: 3 }, false);
    await expect(sampling).rejects.toThrow(/does not answer: it was silent for/);
  }
});
