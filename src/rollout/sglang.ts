/**
 * Sampling from SGLang servers by their own `/generate`: their OpenAI paths accept token ids but return none.
 *
 * An answer comes in one piece, because a stream of SGLang repeats all tokens in every event. Log-probs are after
 * penalties and temperature and before top-k, top-p and min-p. SGLang uses seeds only with
 * `--enable-deterministic-inference`, and then gives all samples of one request the same seed, so each sample is sent
 * with its own. Without that option seeds have no effect, and a repeated step gets different samples.
 */
import { randomInt } from "node:crypto";
import { z } from "zod";
import { excerpt, StreamedError, UnexpectedReply } from "./remote-reply.ts";
import type { Completion, Sample, SampleRequest } from "./request.ts";
import type { Servers } from "./servers.ts";

const Answer = z.object({
  text: z.string(),
  meta_info: z.object({
    /** For each sampled token: its log-prob, its id, and its text or null. */
    output_token_logprobs: z.array(z.tuple([z.number(), z.int()]).rest(z.unknown())),
    finish_reason: z.object({
      type: z.string(),
      matched: z.union([z.string(), z.int()]).nullish(),
      message: z.string().nullish(),
    }),
    cached_tokens: z.int().nullish(),
  }),
});
const Answers = z.union([z.array(Answer), Answer.transform((one) => [one])]);

/** Samples of a prompt of token ids; `usesSeeds` as in `ServerFacts`. */
export async function sampleFromSglang(
  servers: Servers,
  request: SampleRequest,
  usesSeeds: boolean,
): Promise<Completion> {
  const body = { ...bodyOf(request, usesSeeds), return_logprob: true };
  const call = { path: "/generate", body, signal: request.signal, isRoot: true, healthPath: "/health" };
  const answers = await servers.call(call, async (response) => readAnswers(await response.text()));
  const samples = answers.map(({ text, meta_info: meta }, index): Sample => {
    const { type, matched = null } = meta.finish_reason;
    const isOwnEnd = typeof matched === "number" && request.stopIds?.includes(matched) !== true;
    return {
      index,
      text,
      top: [],
      ids: meta.output_token_logprobs.map(([, id]) => id),
      logprobs: meta.output_token_logprobs.map(([logprob]) => logprob),
      finishReason: type === "length" ? "length" : "stop",
      stopReason: isOwnEnd ? null : matched,
    };
  });
  for (const sample of samples) request.onSample?.(sample);
  return { samples, cachedTokens: answers[0]?.meta_info.cached_tokens ?? 0 };
}

function readAnswers(text: string): z.infer<typeof Answer>[] {
  let parsed: ReturnType<typeof Answers.safeParse>;
  try {
    parsed = Answers.safeParse(JSON.parse(text));
  } catch {
    throw new UnexpectedReply(excerpt(text));
  }
  if (!parsed.success) throw new UnexpectedReply(excerpt(text));
  for (const { meta_info: meta } of parsed.data)
    if (meta.finish_reason.type === "abort")
      throw new StreamedError(503, meta.finish_reason.message ?? "it has aborted the request");
  return parsed.data;
}

/** One prompt with `n`, whose keys and values are computed once; or a prompt with a seed for each sample. */
function bodyOf(request: SampleRequest, usesSeeds: boolean): Record<string, unknown> {
  const { n = 1, seed = randomInt(2 ** 32) } = request;
  const prompt = Array.from(request.prompt);
  const sampling = samplingParams(request);
  if (!usesSeeds) return { input_ids: prompt, sampling_params: { ...sampling, n } };
  const seeds = Array.from({ length: n }, (_, index) => seed + index);
  return {
    input_ids: seeds.map(() => prompt),
    sampling_params: seeds.map((sampling_seed) => ({ ...sampling, sampling_seed })),
  };
}

/** All fields are set: a server takes missing ones from its model's generation_config.json. */
function samplingParams(request: SampleRequest): Record<string, unknown> {
  const { stop = [], stopIds = [] } = request;
  return {
    max_new_tokens: request.maxNewTokens,
    min_new_tokens: request.minNewTokens ?? 0,
    temperature: request.temperature ?? 1,
    top_p: request.topP ?? 1,
    min_p: request.minP ?? 0,
    top_k: (request.topK ?? -1) > 0 ? request.topK : -1,
    repetition_penalty: request.repetitionPenalty ?? 1,
    presence_penalty: request.presencePenalty ?? 0,
    frequency_penalty: request.frequencyPenalty ?? 0,
    ignore_eos: request.ignoreEos ?? false,
    ...(stop.length > 0 ? { stop } : {}),
    ...(stopIds.length > 0 ? { stop_token_ids: stopIds } : {}),
  };
}
