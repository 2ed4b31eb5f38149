/**
 * One request's sampling: all of its prompts are sampled together, under one permit of the limiter.
 *
 * Choices are numbered as OpenAI numbers them: all samples of the first prompt, then those of the second.
 */
import type { Completion, Sample, SampledToken, Sampling } from "../rollout/request.ts";
import type { Grammar } from "../text/grammar/grammar.ts";
import type { SharedFields } from "./fields.ts";
import { checkIds } from "./prompts.ts";
import { ClientGone, RequestError } from "./request-error.ts";
import type { TextRules } from "./sample-text.ts";
import type { Service } from "./service.ts";

export type Job = {
  readonly prompts: readonly Int32Array[];
  /** The maximum number of new tokens, for each prompt. */
  readonly maxNewTokens: readonly number[];
  readonly n: number;
  readonly sampling: Omit<Sampling, "maxNewTokens">;
  readonly text: TextRules;
  readonly promptLogprobs?: number;
};

/** Called while a job runs. */
export type JobListener = {
  onToken?(choice: number, token: SampledToken): void;
  onSample?(choice: number, sample: Sample): void;
};

/** The sampling parameters and text rules of a request. */
export function samplingOf(
  service: Service,
  fields: SharedFields,
  {
    topLogprobs,
    stop = [],
    shown = [],
    grammar = null,
  }: {
    topLogprobs?: number | undefined;
    stop?: readonly string[];
    shown?: readonly string[];
    grammar?: Grammar | null;
  },
): Pick<Job, "n" | "sampling" | "text"> {
  const stopIds = [...checkIds(service, fields.stop_token_ids, "stop_token_ids")];
  const stops = [fields.stop ?? []].flat();
  for (const own of stop) {
    // Stop texts are searched in text without special tokens, so a stop text that is one token becomes a stop id.
    const ids = service.tokenizer.encode(own, { addSpecialTokens: false });
    if (ids.length === 1) stopIds.push(ids[0]!);
    else stops.push(own);
  }
  const endIds = new Set([...stopIds, ...(fields.ignore_eos ? [] : service.tokenizer.eosIds)]);
  const sampling: Job["sampling"] = {
    temperature: fields.temperature,
    topK: fields.top_k,
    topP: fields.top_p,
    minP: fields.min_p,
    repetitionPenalty: fields.repetition_penalty,
    presencePenalty: fields.presence_penalty,
    frequencyPenalty: fields.frequency_penalty,
    minNewTokens: fields.min_tokens,
    ignoreEos: fields.ignore_eos,
    stopIds,
    stop: stops,
    ...(fields.seed === undefined ? {} : { seed: fields.seed }),
    ...(fields.logit_bias === undefined ? {} : { logitBias: biases(service, fields.logit_bias) }),
    ...(topLogprobs === undefined ? {} : { topLogprobs }),
    ...(grammar === null ? {} : { grammar }),
  };
  const text: TextRules = {
    skipSpecialTokens: fields.skip_special_tokens,
    shown,
    stop: stops,
    endIds,
    includesStop: fields.include_stop_str_in_output,
  };
  return { n: fields.n, sampling, text };
}

function biases(service: Service, given: Readonly<Record<string, number>>): Record<number, number> {
  const { vocabSize } = service.model.config;
  const wrong = Object.keys(given).find((key) => !/^\d{1,9}$/.test(key) || Number(key) >= vocabSize);
  if (wrong === undefined) return given;
  const message = `\`logit_bias\` has the key ${JSON.stringify(wrong.slice(0, 80))}; its keys are token ids from 0 to ${vocabSize - 1}.`;
  throw new RequestError(400, message, { param: "logit_bias" });
}

/** Sample all prompts of a job; one completion per prompt, in order. If one prompt fails, the whole job fails. */
export async function runJob(
  service: Service,
  job: Job,
  client: AbortSignal,
  listener: JobListener = {},
): Promise<Completion[]> {
  const { limiter, metrics, model } = service;
  const arrivedAt = performance.now();
  const permit = await limiter.acquire(job.prompts.length, client);
  const siblings = new AbortController();
  const onEnd = () => siblings.abort(permit.signal.reason);
  permit.signal.addEventListener("abort", onEnd, { once: true });
  let isFirst = true;
  const sampleOne = (prompt: Int32Array, p: number): Promise<Completion> =>
    model.sample({
      ...job.sampling,
      prompt,
      n: job.n,
      maxNewTokens: job.maxNewTokens[p]!,
      ...(job.promptLogprobs === undefined ? {} : { promptLogprobs: job.promptLogprobs }),
      signal: siblings.signal,
      onToken(token) {
        if (isFirst) metrics.timeToFirstToken.observe((performance.now() - arrivedAt) / 1000);
        isFirst = false;
        listener.onToken?.(p * job.n + token.index, token);
      },
      onSample(sample) {
        metrics.countFinished(sample.finishReason);
        listener.onSample?.(p * job.n + sample.index, sample);
      },
    });
  try {
    permit.signal.throwIfAborted();
    const completions = job.prompts.map(async (prompt, p) => sampleOne(prompt, p));
    await Promise.all(completions).catch((error) => siblings.abort(error));
    const settled = await Promise.allSettled(completions); // the permit is held until no part of the job runs
    siblings.signal.throwIfAborted();
    metrics.endToEnd.observe((performance.now() - arrivedAt) / 1000);
    return settled.map((result) => {
      if (result.status === "rejected") throw result.reason;
      return result.value;
    });
  } catch (error) {
    metrics.countFinished(error instanceof ClientGone || permit.signal.aborted ? "abort" : "error");
    throw error;
  } finally {
    permit.signal.removeEventListener("abort", onEnd);
    permit.release();
  }
}

export type Usage = {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
};

/** OpenAI's `usage` of finished completions. */
export function usageOf(job: Job, completions: readonly Completion[]): Usage {
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
  const promptTokens = sum(job.prompts.map((prompt) => prompt.length));
  const newTokens = sum(completions.flatMap(({ samples }) => samples.map(({ ids }) => ids.length)));
  return {
    prompt_tokens: promptTokens,
    completion_tokens: newTokens,
    total_tokens: promptTokens + newTokens,
    prompt_tokens_details: { cached_tokens: sum(completions.map(({ cachedTokens }) => cachedTokens)) },
  };
}
