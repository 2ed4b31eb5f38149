/**
 * One request's sampling: all of its prompts, drawn at once by the sampler, under one ticket of the gate.
 *
 * Choices are numbered as OpenAI numbers them: all samples of the first prompt, then those of the second.
 */
import type { Completion, Sample, SampledToken, Sampling } from "../rollout/request.ts";
import type { SharedFields } from "./fields.ts";
import { checkIds } from "./prompts.ts";
import { ClientGone, Refusal } from "./refusal.ts";
import type { TextRules } from "./sample-text.ts";
import type { Service } from "./service.ts";

export type Job = {
  readonly prompts: readonly Int32Array[];
  /** The most tokens to draw, for each prompt. */
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

/** How tokens are drawn and shown, from the fields of a request. */
export function drawing(
  service: Service,
  fields: SharedFields,
  {
    topLogprobs,
    stop = [],
    shown = [],
  }: { topLogprobs?: number | undefined; stop?: readonly string[]; shown?: readonly string[] },
): Pick<Job, "n" | "sampling" | "text"> {
  const stopIds = [...checkIds(service, fields.stop_token_ids, "stop_token_ids")];
  const stops = [fields.stop ?? []].flat();
  for (const own of stop) {
    // Stop texts are looked for in text without special tokens, so one that is a token is stopped at as such.
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
  throw new Refusal(400, message, { param: "logit_bias" });
}

/** Draw every sample of a job; one completion per prompt, in order. If one prompt cannot be sampled, none is. */
export async function runJob(
  service: Service,
  job: Job,
  client: AbortSignal,
  listener: JobListener = {},
): Promise<Completion[]> {
  const { gate, metrics, model } = service;
  const arrivedAt = performance.now();
  const ticket = await gate.enter(job.prompts.length, client);
  const siblings = new AbortController();
  const onEnd = () => siblings.abort(ticket.signal.reason);
  ticket.signal.addEventListener("abort", onEnd, { once: true });
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
        metrics.countEnding(sample.finishReason);
        listener.onSample?.(p * job.n + sample.index, sample);
      },
    });
  try {
    ticket.signal.throwIfAborted();
    const drawn = job.prompts.map(async (prompt, p) => sampleOne(prompt, p));
    await Promise.all(drawn).catch((error) => siblings.abort(error));
    const settled = await Promise.allSettled(drawn); // the ticket is held until nothing of the job runs any more
    siblings.signal.throwIfAborted();
    metrics.endToEnd.observe((performance.now() - arrivedAt) / 1000);
    return settled.map((result) => {
      if (result.status === "rejected") throw result.reason;
      return result.value;
    });
  } catch (error) {
    metrics.countEnding(error instanceof ClientGone || ticket.signal.aborted ? "abort" : "error");
    throw error;
  } finally {
    ticket.signal.removeEventListener("abort", onEnd);
    ticket.leave();
  }
}

/** OpenAI's `usage` of finished completions. */
export function usageOf(job: Job, completions: readonly Completion[]): object {
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
  const promptTokens = sum(job.prompts.map((prompt) => prompt.length));
  const drawn = sum(completions.flatMap(({ samples }) => samples.map(({ ids }) => ids.length)));
  return {
    prompt_tokens: promptTokens,
    completion_tokens: drawn,
    total_tokens: promptTokens + drawn,
    prompt_tokens_details: { cached_tokens: sum(completions.map(({ cachedTokens }) => cachedTokens)) },
  };
}
