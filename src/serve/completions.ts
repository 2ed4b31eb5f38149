/**
 * `POST /v1/completions`: text or token ids in, text out, with `echo`, `n`, `logprobs` and streaming.
 *
 * Streamed and whole answers are made from the same pieces, so that they are equal.
 */
import * as z from "zod";
import type { Completion, PromptToken, Sample, SampledToken } from "../rollout/request.ts";
import type { JsonObject } from "./body.ts";
import type { Send } from "./event-stream.ts";
import { flag, parseFields, sharedFields, text, topCount, whole } from "./fields.ts";
import { type Job, runJob, samplingOf, usageOf } from "./job.ts";
import { CompletionLogprobs, promptLogprobs, type TokenNames, tokenNames } from "./logprobs.ts";
import { type Prompt, parsePrompts, roomFor } from "./prompts.ts";
import { newId, type Reply, secondsNow } from "./reply.ts";
import { RequestError } from "./request-error.ts";
import { sampleText, wholeText } from "./sample-text.ts";
import type { Service } from "./service.ts";

const schema = z.object({
  ...sharedFields,
  prompt: z.unknown().optional(),
  max_tokens: whole(0).default(16),
  echo: flag.default(false),
  logprobs: topCount.optional(),
  best_of: whole(1).optional(),
  suffix: text.optional(),
  add_special_tokens: flag.default(true),
});
type Fields = z.infer<typeof schema>;

/** A checked request with everything that its choices need. */
type Plan = {
  readonly service: Service;
  readonly fields: Fields;
  readonly prompts: readonly Prompt[];
  readonly job: Job;
  readonly names: TokenNames;
  /** Only the prompt is wanted (`echo` with `max_tokens` 0): one token is sampled and dropped. */
  readonly isEchoOnly: boolean;
  readonly head: { readonly id: string; readonly created: number; readonly model: string };
};

/** Answer a request. */
export function completions(service: Service, body: JsonObject): Reply {
  const { fields, ignored } = parseFields(schema, body);
  const plan = planOf(service, fields);
  return {
    ignored,
    whole: (client) => answer(plan, client),
    ...(fields.stream ? { stream: (client: AbortSignal, send: Send) => stream(plan, client, send) } : {}),
  };
}

function planOf(service: Service, fields: Fields): Plan {
  const { echo, logprobs, stream: isStream, prompt_logprobs: ofPrompt } = fields;
  const refuse = (param: string, message: string) => new RequestError(400, message, { param });
  if (fields.suffix)
    throw refuse("suffix", "`suffix` cannot be used here: this server cannot insert text before a suffix.");
  if (fields.best_of !== undefined && fields.best_of !== fields.n)
    throw refuse(
      "best_of",
      `\`best_of\` is ${fields.best_of} and \`n\` is ${fields.n}: ask for \`n\` samples with \`logprobs\` and choose among them.`,
    );
  if (fields.max_tokens === 0 && !echo)
    throw refuse(
      "max_tokens",
      "`max_tokens` is 0, which leaves no room for an answer; it should be at least 1, or `echo` true.",
    );
  if (isStream && ofPrompt !== undefined)
    throw refuse("prompt_logprobs", "`prompt_logprobs` cannot be streamed. Ask for it without `stream`.");
  if (isStream && echo && logprobs !== undefined)
    throw refuse("echo", "`echo` with `logprobs` cannot be streamed. Ask for it without `stream`.");
  const isEchoOnly = fields.max_tokens === 0;
  const maxTokens = Math.max(1, fields.max_tokens);
  if (fields.min_tokens > maxTokens)
    throw refuse(
      "min_tokens",
      `\`min_tokens\` is ${fields.min_tokens} and \`max_tokens\` is ${maxTokens}. Lower the first.`,
    );
  const prompts = parsePrompts(service, fields.prompt, fields.add_special_tokens);
  const params = { prompt: "prompt", maxTokens: "max_tokens" };
  const wanted = [ofPrompt, echo ? logprobs : undefined].filter((count) => count !== undefined);
  const job: Job = {
    ...samplingOf(service, fields, { topLogprobs: logprobs }),
    prompts: prompts.map(({ ids }) => ids),
    maxNewTokens: prompts.map(({ ids }) => roomFor(service, ids, maxTokens, params)),
    ...(wanted.length === 0 ? {} : { promptLogprobs: Math.max(...wanted) }),
  };
  const names = tokenNames(service.tokenizer, fields.return_tokens_as_token_ids);
  const head = { id: newId("cmpl"), created: secondsNow(), model: fields.model ?? service.names[0] };
  return { service, fields, prompts, job, names, isEchoOnly, head };
}

async function answer(plan: Plan, client: AbortSignal): Promise<object> {
  const { job, head } = plan;
  const drawn = await runJob(plan.service, job, client);
  const done = plan.isEchoOnly ? drawn.map(withoutSamples) : drawn;
  const choices = done.flatMap((completion, p) =>
    completion.samples.map((sample) => choiceOf(plan, completion, { sample, p })),
  );
  return { ...head, object: "text_completion", choices, usage: usageOf(job, done) };
}

/** Without the token that had to be sampled although none was wanted. */
function withoutSamples(completion: Completion): Completion {
  const empty = { ids: [], logprobs: [], top: [], finishReason: "length" as const, stopReason: null };
  return { ...completion, samples: completion.samples.map((sample) => ({ ...sample, ...empty })) };
}

function choiceOf(plan: Plan, completion: Completion, { sample, p }: { sample: Sample; p: number }): object {
  const { service, fields, job, names } = plan;
  const prompt = plan.prompts[p]!;
  const top = fields.prompt_logprobs;
  const ofPrompt = completion.promptLogprobs ?? [];
  return {
    index: p * job.n + sample.index,
    text: (fields.echo ? promptText(plan, prompt) : "") + wholeText(service.tokenizer, sample, job.text),
    logprobs:
      fields.logprobs === undefined
        ? null
        : new CompletionLogprobs(names).next([
            ...(fields.echo ? echoed(prompt.ids, ofPrompt, fields.logprobs) : []),
            ...drawnTokens(sample),
          ]),
    ...endOf(sample),
    ...(top === undefined
      ? {}
      : {
          prompt_logprobs: promptLogprobs(
            ofPrompt.map((it) => cutTop(it, top)),
            service.tokenizer,
          ),
        }),
    ...(fields.return_token_ids ? { prompt_token_ids: [...prompt.ids], token_ids: sample.ids } : {}),
  };
}

/** The text of the prompt for `echo`; token ids are decoded. */
function promptText({ service, fields }: Plan, { ids, text }: Prompt): string {
  return text ?? service.tokenizer.decode(ids, { skipSpecialTokens: fields.skip_special_tokens });
}

function echoed(prompt: Int32Array, tokens: readonly (PromptToken | null)[], top: number) {
  return [...prompt].map((id, i) => {
    const token = tokens[i] ?? null;
    return token === null ? { id, logprob: null } : { ...token, top: token.top.slice(0, top) };
  });
}

function cutTop(token: PromptToken | null, count: number): PromptToken | null {
  return token === null ? null : { ...token, top: token.top.slice(0, count) };
}

function drawnTokens({ ids, logprobs, top }: Sample) {
  return ids.map((id, i) => ({ id, logprob: logprobs[i]!, top: top[i] ?? [] }));
}

function endOf({ finishReason, stopReason }: Sample): object {
  return { finish_reason: finishReason, stop_reason: stopReason };
}

/** Send a chunk whenever more text is certain; log-probs and ids are sent with the text they belong to. */
async function stream(plan: Plan, client: AbortSignal, send: Send): Promise<void> {
  const { service, fields, job, head } = plan;
  const usage = fields.stream_options?.include_usage ? { usage: null } : {};
  const sendChoice = (choice: object) => send({ ...head, object: "text_completion", choices: [choice], ...usage });
  const open = new Map<number, ReturnType<typeof streamedChoice>>();
  const choiceAt = (index: number) => {
    const known = open.get(index) ?? streamedChoice(plan, index, sendChoice);
    open.set(index, known);
    return known;
  };
  const drawn = await runJob(service, job, client, {
    onToken: (index, token) => choiceAt(index).push(token),
    onSample: (index, sample) => choiceAt(index).end(sample),
  });
  const done = plan.isEchoOnly ? drawn.map(withoutSamples) : drawn;
  if (fields.stream_options?.include_usage)
    send({ ...head, object: "text_completion", choices: [], usage: usageOf(job, done) });
}

function streamedChoice(plan: Plan, index: number, sendChoice: (choice: object) => void) {
  const { service, fields, job, names, isEchoOnly } = plan;
  const prompt = plan.prompts[Math.floor(index / job.n)]!;
  const decoder = sampleText(service.tokenizer, job.text);
  const logprobs = new CompletionLogprobs(names);
  let tokens: SampledToken[] = [];
  const sendPiece = (piece: string, rest: object) => {
    sendChoice({
      index,
      text: piece,
      logprobs: fields.logprobs === undefined ? null : logprobs.next(tokens),
      ...(fields.return_token_ids ? { token_ids: tokens.map(({ id }) => id) } : {}),
      ...rest,
    });
    tokens = [];
  };
  if (fields.echo || fields.return_token_ids)
    sendPiece(fields.echo ? promptText(plan, prompt) : "", {
      finish_reason: null,
      ...(fields.return_token_ids ? { prompt_token_ids: [...prompt.ids] } : {}),
    });
  return {
    push(token: SampledToken) {
      if (isEchoOnly) return;
      tokens.push(token);
      const piece = decoder.push(token.id);
      if (piece !== "") sendPiece(piece, { finish_reason: null });
    },
    end(sample: Sample) {
      if (isEchoOnly) sendPiece("", { finish_reason: "length", stop_reason: null });
      else sendPiece(decoder.end(sample), endOf(sample));
    },
  };
}
