/**
 * Prompts: the texts or token ids of a request as token ids of the model, each with room for an answer.
 */
import type { Tokenizer } from "../text/tokenizer.ts";
import { isObject } from "./body.ts";
import { show } from "./fields.ts";
import { RequestError } from "./request-error.ts";
import type { Service } from "./service.ts";

/** The maximum number of prompts in one request. */
const maxPrompts = 1024;

/** A prompt, with its text if it was given as text. */
export type Prompt = { readonly ids: Int32Array; readonly text: string | null };

/** The `prompt` of a completion: a text, a list of texts, token ids, or a list of lists of token ids. */
export function parsePrompts(service: Service, prompt: unknown, addSpecialTokens: boolean): Prompt[] {
  const list = isTokenIds(prompt) ? [prompt] : Array.isArray(prompt) ? prompt : [prompt];
  if (list.length > maxPrompts) {
    const message = `\`prompt\` is a list of ${list.length} prompts, and one request may have ${maxPrompts}. Send several.`;
    throw new RequestError(400, message, { param: "prompt" });
  }
  if (list.length === 0)
    throw new RequestError(400, "`prompt` is an empty list. Give at least one prompt.", { param: "prompt" });
  return list.map((item, i) => {
    const param = Array.isArray(prompt) && !isTokenIds(prompt) ? `prompt[${i}]` : "prompt";
    if (typeof item === "string") return { ids: encodeText(service, item, { param, addSpecialTokens }), text: item };
    if (isTokenIds(item)) return { ids: checkIds(service, item, param), text: null };
    const found = item === undefined ? "missing" : show(item);
    throw new RequestError(400, `\`${param}\` is ${found}; it should be a text or a list of token ids.`, { param });
  });
}

/** The tokens of a text. */
export function encodeText(
  service: Service,
  text: string,
  { param, addSpecialTokens }: { param: string; addSpecialTokens: boolean },
): Int32Array {
  const { tokenizer, maxLength } = service;
  // The longest token gives a lower bound of the count, so a text that is far too long is refused before it is encoded.
  const least = Math.ceil(text.length / longestToken(tokenizer));
  if (least >= maxLength) throw tooLong(`at least ${least}`, maxLength, param);
  return tokenizer.encode(text, { addSpecialTokens });
}

/** The token ids of a request; throws if one is not in the vocabulary. */
export function checkIds({ model }: Service, ids: readonly unknown[], param: string): Int32Array {
  const { vocabSize } = model.config;
  const wrong = ids.findIndex((id) => typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (wrong >= 0) {
    const message = `\`${param}[${wrong}]\` is ${show(ids[wrong])}; token ids of this model are whole numbers from 0 to ${vocabSize - 1}.`;
    throw new RequestError(400, message, { param });
  }
  return Int32Array.from(ids, Number);
}

/** How many tokens an answer may have: the requested number, or the rest of the context. */
export function roomFor(
  service: Service,
  prompt: Int32Array,
  asked: number | undefined,
  params: { readonly prompt: string; readonly maxTokens: string },
): number {
  const { maxLength, model } = service;
  const { vocabSize } = model.config;
  if (prompt.length === 0) {
    const message = `\`${params.prompt}\` is empty: it has no tokens. Give at least one.`;
    throw new RequestError(400, message, { param: params.prompt });
  }
  if (prompt.some((id) => id >= vocabSize)) {
    const message = `\`${params.prompt}\` has a token that this model has no embedding for (its vocabulary ends at ${vocabSize - 1}).`;
    throw new RequestError(400, message, { param: params.prompt });
  }
  if (prompt.length >= maxLength) throw tooLong(String(prompt.length), maxLength, params.prompt);
  if (asked === undefined) return maxLength - prompt.length;
  if (prompt.length + asked <= maxLength) return asked;
  throw new RequestError(
    400,
    `This model's context is ${maxLength} tokens. The prompt has ${prompt.length} and \`${params.maxTokens}\` asks for ` +
      `${asked} more. Lower it to ${maxLength - prompt.length}, or shorten the prompt.`,
    { param: params.maxTokens, code: "context_length_exceeded" },
  );
}

function tooLong(tokens: string, maxLength: number, param: string): RequestError {
  const message =
    `This model's context is ${maxLength} tokens, and the prompt alone has ${tokens}. ` +
    "Shorten it so that there is room for an answer.";
  return new RequestError(400, message, { param, code: "context_length_exceeded" });
}

const longest = new WeakMap<Tokenizer, number>();

function longestToken(tokenizer: Tokenizer): number {
  const known = longest.get(tokenizer);
  if (known !== undefined) return known;
  let length = 1;
  for (let id = 0; id < tokenizer.vocabSize; id++) length = Math.max(length, tokenizer.pieceOf(id)?.length ?? 0);
  longest.set(tokenizer, length);
  return length;
}

function isTokenIds(value: unknown): value is readonly unknown[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    !value.some((item) => typeof item === "string" || Array.isArray(item) || isObject(item))
  );
}
