/**
 * Checks requests and limits of a sampler before anything is queued. A `UserError` names the field and its value.
 */
import { UserError } from "../util/errors.ts";
import type { SampleRequest, SamplerLimits } from "./request.ts";

type Bounds = { readonly vocabSize: number; readonly maxLength: number; readonly hasTokenizer: boolean };
type NumberField<T> = { [K in keyof T]-?: T[K] extends number | undefined ? K & string : never }[keyof T];
type Rule = { readonly isRight: (value: number) => boolean; readonly words: string };

const whole = (least: number): Rule => ({
  isRight: (value) => Number.isSafeInteger(value) && value >= least,
  words: `a whole number of at least ${least}`,
});
const between = (least: number, most: number): Rule => ({
  isRight: (value) => value >= least && value <= most,
  words: `a number from ${least} to ${most}`,
});

/** More samples of one prompt are surely a mistake. */
const MAX_SAMPLES = 16_384;

const rules: Record<NumberField<SampleRequest>, Rule> = {
  maxNewTokens: whole(1),
  minNewTokens: whole(0),
  temperature: { isRight: (value) => value >= 0 && value < Infinity, words: "a number of at least 0" },
  topK: whole(-1),
  topP: { isRight: (value) => value > 0 && value <= 1, words: "a number above 0 and at most 1" },
  minP: between(0, 1),
  repetitionPenalty: between(0.01, 100),
  presencePenalty: between(-2, 2),
  frequencyPenalty: between(-2, 2),
  seed: { isRight: Number.isSafeInteger, words: "a whole number" },
  topLogprobs: whole(0),
  promptLogprobs: whole(0),
  n: {
    isRight: (value) => Number.isSafeInteger(value) && value >= 1 && value <= MAX_SAMPLES,
    words: `a whole number from 1 to ${MAX_SAMPLES}`,
  },
};

const limitRules: Record<NumberField<SamplerLimits>, Rule> = {
  cacheBytes: { isRight: (value) => value > 0 && value < Infinity, words: "a number above 0" },
  maxSequences: whole(1),
  maxBatchedTokens: whole(1),
  maxLength: whole(2),
};

/** Throws a `UserError` for the first limit that is not valid. */
export function checkLimits(limits: SamplerLimits): void {
  checkNumbers(limitRules, limits);
}

/** Throws a `UserError` for the first field that is not valid. */
export function checkRequest(request: SampleRequest, bounds: Bounds): void {
  if (request.maxNewTokens === undefined) throw new UserError(`\`maxNewTokens\` is missing; give ${whole(1).words}.`);
  checkNumbers(rules, request);
  const { minNewTokens = 0, maxNewTokens } = request;
  if (minNewTokens > maxNewTokens) {
    throw new UserError(`\`minNewTokens\` is ${minNewTokens}, more than \`maxNewTokens\`, which is ${maxNewTokens}.`);
  }
  const { vocabSize, maxLength } = bounds;
  const { length } = request.prompt;
  if (length === 0) throw new UserError("The prompt has no tokens; give at least one.");
  if (length >= maxLength) {
    throw new UserError(
      `The prompt has ${length} tokens, and the longest sequence here is ${maxLength}, with at least one new token. ` +
        "Shorten the prompt, or raise the limit if the model's context allows it.",
    );
  }
  const isToken = (id: number) => Number.isSafeInteger(id) && id >= 0 && id < vocabSize;
  const tokens: [string, Iterable<number>][] = [
    ["The prompt", Array.from(request.prompt)],
    ["`stopIds`", request.stopIds ?? []],
    ["`logitBias`", Object.keys(request.logitBias ?? {}).map(Number)],
  ];
  for (const [where, ids] of tokens) {
    for (const id of ids) {
      if (!isToken(id))
        throw new UserError(`${where} has the token id ${id}, and the vocabulary is 0 to ${vocabSize - 1}.`);
    }
  }
  for (const [id, bias] of Object.entries(request.logitBias ?? {})) {
    if (!Number.isFinite(bias)) throw new UserError(`\`logitBias\` of token ${id} is ${bias}; give a number.`);
  }
  for (const stop of request.stop ?? []) {
    if (stop === "") throw new UserError("`stop` has an empty text, which would end every sample at once; remove it.");
  }
  if (!bounds.hasTokenizer && (request.wantsText || request.stop?.length)) {
    throw new UserError("Text and stop texts need a tokenizer, and the model's folder has none (tokenizer.json).");
  }
}

function checkNumbers<F extends string>(table: Record<F, Rule>, given: { readonly [K in F]?: number }): void {
  for (const field of Object.keys(table) as F[]) {
    const value: unknown = given[field]; // callers without types may pass anything
    const { isRight, words } = table[field];
    if (value === undefined || (typeof value === "number" && isRight(value))) continue;
    throw new UserError(`\`${field}\` is ${typeof value === "string" ? JSON.stringify(value) : value}; give ${words}.`);
  }
}
