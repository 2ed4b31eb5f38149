/**
 * Sampling at SGLang servers by their own `/generate`: its OpenAI paths take token ids and give none back.
 *
 * An answer comes as a whole, for a stream of SGLang repeats all tokens in every event. Log-probs are after temperature
 * and before the cuts of top-k, top-p and min-p. Seeds are not sent: SGLang draws by its own, and refuses them in some
 * versions, so a step that is taken again has other samples.
 */
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

/** Samples of a prompt of token ids. */
export async function sampleFromSglang(servers: Servers, request: SampleRequest): Promise<Completion> {
  const body = {
    input_ids: Array.from(request.prompt),
    sampling_params: samplingParams(request),
    return_logprob: true,
  };
  const call = { path: "/generate", body, signal: request.signal, isRoot: true, isWhole: true };
  const answers = await servers.call(call, async (response) => readAnswers(await response.text()));
  const samples = answers.map(({ text, meta_info: meta }, index): Sample => {
    const { type, matched = null } = meta.finish_reason;
    return {
      ...{ index, text, top: [] },
      ids: meta.output_token_logprobs.map(([, id]) => id),
      logprobs: meta.output_token_logprobs.map(([logprob]) => logprob),
      finishReason: type === "length" ? "length" : "stop",
      stopReason: type === "length" ? null : matched,
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

/** Everything is said: a server takes what is left out from generation_config.json of its model. */
function samplingParams(request: SampleRequest): Record<string, unknown> {
  const { stop = [], stopIds = [], n = 1 } = request;
  return {
    ...{ n, max_new_tokens: request.maxNewTokens, min_new_tokens: request.minNewTokens ?? 0 },
    ...{ temperature: request.temperature ?? 1, top_p: request.topP ?? 1, min_p: request.minP ?? 0 },
    top_k: (request.topK ?? -1) > 0 ? request.topK : -1,
    repetition_penalty: request.repetitionPenalty ?? 1,
    presence_penalty: request.presencePenalty ?? 0,
    frequency_penalty: request.frequencyPenalty ?? 0,
    ignore_eos: request.ignoreEos ?? false,
    ...(stop.length > 0 ? { stop } : {}),
    ...(stopIds.length > 0 ? { stop_token_ids: stopIds } : {}),
  };
}
