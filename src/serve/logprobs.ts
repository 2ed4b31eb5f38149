/**
 * Log-probs in the forms of OpenAI's two endpoints and of vLLM's `prompt_logprobs`.
 *
 * JSON has no minus infinity, the log-prob of a token that top-k, top-p or min-p excluded: it is written as -9999, as in
 * vLLM. Where a grammar constrains the output, `logprob` is that of the constrained distribution, as in vLLM, and chat
 * completions also report `policy_logprob`, the log-prob without the grammar.
 */
import type { PromptToken, Sample, TokenLogprob } from "../rollout/request.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

/** The name of a token: its text, or `token_id:42` if texts would be ambiguous. */
export type TokenNames = (id: number) => string;

/** One sampled token as it is reported. */
type ReportedToken = TokenLogprob & { readonly top: readonly TokenLogprob[]; readonly policyLogprob?: number };

const leastLogprob = -9999;

export function tokenNames(tokenizer: Tokenizer, asIds: boolean): TokenNames {
  return asIds ? (id) => `token_id:${id}` : (id) => tokenizer.tokenText(id);
}

/** The tokens of a sample with all that is known of each. */
export function sampledTokens({ ids, logprobs, policyLogprobs, top }: Sample): ReportedToken[] {
  return ids.map((id, i) => ({
    id,
    logprob: logprobs[i]!,
    top: top[i] ?? [],
    ...(policyLogprobs === undefined ? {} : { policyLogprob: policyLogprobs[i]! }),
  }));
}

type ChatLogprob = { readonly token: string; readonly logprob: number; readonly bytes: readonly number[] | null };

/** Chat completions: `logprobs.content`. */
export function chatLogprobs(tokens: readonly ReportedToken[], names: TokenNames): object[] {
  const one = ({ id, logprob }: TokenLogprob): ChatLogprob => {
    const token = names(id);
    // A token that is part of a character has no text of its own, and its bytes are not known here.
    const bytes = token.includes("\ufffd") ? null : [...new TextEncoder().encode(token)];
    return { token, logprob: finite(logprob), bytes };
  };
  return tokens.map((token) => ({
    ...one(token),
    ...(token.policyLogprob === undefined ? {} : { policy_logprob: finite(token.policyLogprob) }),
    top_logprobs: token.top.map(one),
  }));
}

/** Completions: four lists with one entry per token, including where each token's text starts. */
export class CompletionLogprobs {
  readonly #names: TokenNames;
  #offset = 0;

  constructor(names: TokenNames) {
    this.#names = names;
  }

  /** The lists for the next tokens; the log-prob of the first token of a prompt is null. */
  next(tokens: readonly (ReportedToken | { readonly id: number; readonly logprob: null })[]): object {
    const texts = tokens.map(({ id }) => this.#names(id));
    const offsets = texts.map((text) => {
      const offset = this.#offset;
      this.#offset += text.length;
      return offset;
    });
    return {
      tokens: texts,
      token_logprobs: tokens.map(({ logprob }) => (logprob === null ? null : finite(logprob))),
      top_logprobs: tokens.map((token) => (token.logprob === null ? null : this.#top(token))),
      text_offset: offsets,
    };
  }

  /** The likeliest tokens, and the sampled one if it is not among them. */
  #top(token: ReportedToken): Record<string, number> {
    const all = token.top.some(({ id }) => id === token.id) ? token.top : [...token.top, token];
    return Object.fromEntries(all.map(({ id, logprob }) => [this.#names(id), finite(logprob)]));
  }
}

/** vLLM's `prompt_logprobs`: for each prompt token an object from token ids to their log-prob, rank and text; null for the first. */
export function promptLogprobs(tokens: readonly (PromptToken | null)[], tokenizer: Tokenizer): (object | null)[] {
  return tokens.map((token) => {
    if (token === null) return null;
    const ranked = token.top.map((it, i) => ({ ...it, rank: i + 1 }));
    const all = token.top.some(({ id }) => id === token.id) ? ranked : [{ ...token, rank: null }, ...ranked];
    return Object.fromEntries(
      all.map(({ id, logprob, rank }) => [
        String(id),
        { logprob: finite(logprob), rank, decoded_token: tokenizer.tokenText(id) },
      ]),
    );
  });
}

function finite(logprob: number): number {
  return Math.max(logprob, leastLogprob);
}
