/**
 * Sampling at SGLang servers by their own `/generate`: its OpenAI paths take token ids and give none back.
 *
 * An answer comes as a whole, for a stream of SGLang repeats all tokens in every event. Log-probs are after penalties and
 * temperature and before the cuts of top-k, top-p and min-p. SGLang draws by seeds only with
 * `--enable-deterministic-inference`, and then gives all samples of one request the same seed, so each is asked for with
 * its own; otherwise seeds have no effect, and a step that is taken again has other samples.
 */
import { randomInt } from "node:crypto";
import { z } from "zod";
import { excerpt, NotAnAnswer, StreamedError } from "./remote-reply.ts";
import type { Completion, Sample, SampleRequest } from "./request.ts";
import type { Servers } from "./servers.ts";

const Answer = z.object({
  text: z.string(),
  meta_info: z.object({
    /** Of each drawn token: its log-prob, its id, and its text or null. */
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

/** Samples of a prompt of token ids; `drawsBySeed` is what the servers say (`factsOf`). */
export async function sampleFromSglang(
  servers: Servers,
  request: SampleRequest,
  drawsBySeed: boolean,
): Promise<Completion> {
  const body = { ...askedFor(request, drawsBySeed), return_logprob: true };
  const call = { path: "/generate", body, signal: request.signal, isRoot: true, alivePath: "/health" };
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
    throw new NotAnAnswer(excerpt(text));
  }
  if (!parsed.success) throw new NotAnAnswer(excerpt(text));
  for (const { meta_info: meta } of parsed.data)
    if (meta.finish_reason.type === "abort")
      throw new StreamedError(503, meta.finish_reason.message ?? "it has broken the request off");
  return parsed.data;
}

/** The samples as `n` of one prompt, whose keys and values are then computed once, or as a prompt with a seed for each. */
function askedFor(request: SampleRequest, drawsBySeed: boolean): Record<string, unknown> {
  const { n = 1, seed = randomInt(2 ** 32) } = request;
  const prompt = Array.from(request.prompt);
  const sampling = samplingParams(request);
  if (!drawsBySeed) return { input_ids: prompt, sampling_params: { ...sampling, n } };
  const seeds = Array.from({ length: n }, (_, index) => seed + index);
  return {
    input_ids: seeds.map(() => prompt),
    sampling_params: seeds.map((sampling_seed) => ({ ...sampling, sampling_seed })),
  };
}

/** Everything is said: a server takes what is left out from generation_config.json of its model. */
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
