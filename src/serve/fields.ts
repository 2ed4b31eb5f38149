/**
 * The fields of a request that both completion endpoints share, and how a body is checked.
 *
 * `null` is the same as absent, as in OpenAI's clients. A field that would change the answer and is not supported is an
 * error; an unknown field is named in the answer's header, never ignored silently.
 */
import * as z from "zod";
import type { JsonObject } from "./body.ts";
import { RequestError } from "./request-error.ts";

/** The maximum number of log-probs per position and of samples per prompt (OpenAI's limits). */
const maxLogprobs = 20;
const maxSamples = 128;

const whole = (least: number) => {
  const words = `a whole number of at least ${least}`;
  return z.int(words).min(least, words);
};
const between = (least: number, most: number) => {
  const words = `a number from ${least} to ${most}`;
  return z.number(words).min(least, words).max(most, words);
};
const flag = z.boolean("true or false");
const text = z.string("a text");
const topCount = z
  .int(`a whole number from 0 to ${maxLogprobs}`)
  .min(0, `a whole number from 0 to ${maxLogprobs}`)
  .max(maxLogprobs, `a whole number from 0 to ${maxLogprobs}`);
const stopText = z
  .string("a text of 1 to 256 characters")
  .min(1, "a text of 1 to 256 characters")
  .max(256, "a text of 1 to 256 characters");
const above0 = (most: number) => {
  const words = `a number above 0 and at most ${most}`;
  return z.number(words).gt(0, words).max(most, words);
};

/** Sampling parameters, stop conditions, and what is reported. */
export const sharedFields = {
  model: text.optional(),
  n: whole(1).max(maxSamples, `at most ${maxSamples}`).default(1),
  max_tokens: whole(0).optional(),
  min_tokens: whole(0).default(0),
  temperature: z.number("a number of at least 0").min(0, "a number of at least 0").default(1),
  top_p: above0(1).default(1),
  top_k: z.int("a whole number; 0 or -1 for all tokens").min(-1, "a whole number; 0 or -1 for all tokens").default(-1),
  min_p: between(0, 1).default(0),
  repetition_penalty: above0(10).default(1),
  presence_penalty: between(-2, 2).default(0),
  frequency_penalty: between(-2, 2).default(0),
  logit_bias: z
    .record(z.string(), between(-100, 100), 'an object from token ids to numbers, such as {"42": -100}')
    .optional(),
  seed: z.int("a whole number").optional(),
  stop: z
    .union(
      [stopText, z.array(stopText).max(16, "a list of at most 16 texts")],
      "a text of 1 to 256 characters, or a list of at most 16 of them",
    )
    .optional(),
  stop_token_ids: z.array(whole(0), "a list of token ids").default([]),
  ignore_eos: flag.default(false),
  stream: flag.default(false),
  stream_options: z.object({ include_usage: flag.optional() }, 'an object such as {"include_usage": true}').optional(),
  skip_special_tokens: flag.default(true),
  include_stop_str_in_output: flag.default(false),
  prompt_logprobs: topCount.optional(),
  return_token_ids: flag.default(false),
  return_tokens_as_token_ids: flag.default(false),
  // Accepted without effect: they never change an answer.
  user: z.unknown().optional(),
  metadata: z.unknown().optional(),
  service_tier: z.unknown().optional(),
  safety_identifier: z.unknown().optional(),
  prompt_cache_key: z.unknown().optional(),
};

const sharedSchema = z.object(sharedFields);
export type SharedFields = z.infer<typeof sharedSchema>;

export { flag, text, topCount, whole };

/** Fields that other servers support and that would change the answer: what to do instead. */
const refusedFields: Readonly<Record<string, string>> = {
  suffix: "This server cannot insert text before a suffix; leave it out.",
  use_beam_search: "This server has no beam search; ask for `n` samples with `logprobs` and choose among them.",
  guided_json: 'Use `response_format` with the type "json_schema" on /v1/chat/completions.',
  guided_regex: 'Use `response_format` with the type "json_schema" and a `pattern` on /v1/chat/completions.',
  guided_choice: 'Use `response_format` with the type "json_schema" and an `enum` on /v1/chat/completions.',
  guided_grammar: "This server has no other grammars than JSON schemas (`response_format` on /v1/chat/completions).",
  structured_outputs: 'Use `response_format` with the type "json_schema" on /v1/chat/completions.',
  response_format: "It works on /v1/chat/completions, and as `text.format` on /v1/responses.",
  allowed_token_ids: "Set the `logit_bias` of the other tokens to -100.",
  bad_words: "Set the `logit_bias` of their tokens to -100.",
  truncate_prompt_tokens: "Prompts are never truncated; send a shorter one.",
  prompt_embeds: "Prompts are texts or token ids.",
  functions: "It has been replaced by `tools`.",
  function_call: "It has been replaced by `tool_choice`.",
  audio: "Answers are text.",
  chat_template: "Templates are chosen when the server starts (`--chat-template`).",
};

/** A checked body, and the names of its unknown fields. */
export type Parsed<T> = { readonly fields: T; readonly ignored: readonly string[] };

/** Check a body against a schema; a 400 names the first field that is not valid. */
export function parseFields<T extends z.ZodRawShape>(
  schema: z.ZodObject<T>,
  body: JsonObject,
): Parsed<z.infer<z.ZodObject<T>>> {
  const given = Object.entries(body).filter(([, value]) => value !== null);
  for (const [name, value] of given) {
    const advice =
      Object.hasOwn(refusedFields, name) && !Object.hasOwn(schema.shape, name) ? refusedFields[name] : undefined;
    const isDefault = value === false || value === "" || (Array.isArray(value) && value.length === 0);
    if (advice !== undefined && !isDefault)
      throw new RequestError(400, `\`${name}\` cannot be used here. ${advice}`, { param: name });
  }
  const known = Object.fromEntries(given.filter(([name]) => Object.hasOwn(schema.shape, name)));
  const result = schema.safeParse(known);
  if (!result.success) throw fieldError(result.error, body);
  const ignored = given
    .map(([name]) => name)
    .filter((name) => !Object.hasOwn(schema.shape, name) && !Object.hasOwn(refusedFields, name));
  return { fields: result.data, ignored };
}

/** An error that names the field, its value, and what it should be. */
function fieldError(error: z.ZodError, body: JsonObject): RequestError {
  const [issue] = error.issues;
  const path = issue?.path ?? [];
  let found: unknown = body;
  for (const key of path) found = Object(found)[key];
  const param = path.reduce<string>(
    (way, key) => (typeof key === "number" ? `${way}[${key}]` : way === "" ? String(key) : `${way}.${String(key)}`),
    "",
  );
  const should = `it should be ${issue?.message ?? "something else"}.`;
  return new RequestError(
    400,
    found === undefined ? `\`${param}\` is missing; ${should}` : `\`${param}\` is ${show(found)}; ${should}`,
    { param },
  );
}

/** A value as JSON; long ones are shortened. */
export function show(value: unknown): string {
  const json = JSON.stringify(value) ?? String(value);
  return json.length <= 80 ? json : `${json.slice(0, 79)}…`;
}
