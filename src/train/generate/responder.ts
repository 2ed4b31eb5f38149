/**
 * What samples responses to prompts: a model in this process, or OpenAI-compatible servers. `generate` and `chat` are
 * written once for both.
 *
 * `prepare` encodes a prompt and finds everything that is wrong with it. Sampling can then only go wrong in the model or
 * the server. The model is loaded for the first prompt that is sampled.
 */
import { encodePromptTurn, type Prompt, type Template } from "../../data/messages.ts";
import { type Truncation, truncate } from "../../data/truncate.ts";
import type { CanSample, Remote } from "../../rollout/remote.ts";
import type { Completion, SampleRequest } from "../../rollout/request.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { UserError } from "../../util/errors.ts";

/** How a prompt is sampled: everything of a request but the prompt. */
export type SampleOptions = Omit<SampleRequest, "prompt">;

/** Samples, and how many tokens were sampled for them. */
export type CountedCompletion = Completion & { readonly tokens: number };

/** A prompt that can be sampled. `tokens` is its length; null where only the server knows it. */
export type PreparedPrompt = {
  readonly tokens: number | null;
  sample(options: SampleOptions): Promise<CountedCompletion>;
};

export type Responder = {
  prepare(prompt: Prompt): PreparedPrompt;
  close(): Promise<void>;
};

/** A sampler that is opened when it is first needed. */
export type LazySampler = { open(): Promise<CanSample>; close(): Promise<void> };

/** Open a sampler once, at the first call, and give every caller the same one. */
export function lazily({ open, close }: LazySampler): LazySampler {
  let opened: Promise<CanSample> | null = null;
  return {
    open() {
      opened ??= open();
      return opened;
    },
    async close() {
      await opened?.catch(() => {}); // whoever opened it got the error
      await close();
    },
  };
}

/** How prompts become tokens. */
export type Encoding = Template & {
  readonly tokenizer: Tokenizer;
  /** How many tokens the model knows; a tokenizer with more belongs to another model. */
  readonly vocabSize: number | null;
  /** Tokens of prompt and response together, and where the number comes from. */
  readonly maxLength: number;
  readonly maxLengthSetting: string;
  /** Longer prompts are cut, or refused, as `truncation` says. */
  readonly maxPromptLength?: number;
  readonly truncation?: Truncation;
};

/** The token ids of a prompt, or a `UserError` that says why it cannot be used. */
export function encodeWithin(prompt: Prompt, encoding: Encoding): Int32Array {
  const { tokenizer, vocabSize, maxLength, maxLengthSetting, maxPromptLength = Number.POSITIVE_INFINITY } = encoding;
  const { truncation = "error", extra = {}, template = null } = encoding;
  const whole = encodePromptTurn(tokenizer, prompt, { extra, template });
  if (whole.length === 0) throw new UserError("the prompt has no tokens. Give it a text.");
  if (whole.length > maxPromptLength && truncation === "error") {
    throw new UserError(
      `the prompt has ${whole.length} tokens, and \`rollout.prompt_length\` is ${maxPromptLength}. Raise it, or set ` +
        "`data.truncation` to `left`, `right` or `middle` to cut such prompts.",
    );
  }
  const ids = truncate(whole, maxPromptLength, truncation);
  if (ids.length >= maxLength) {
    throw new UserError(
      `the prompt has ${ids.length} tokens, and ${maxLengthSetting} is ${maxLength}: there is no room for a response.`,
    );
  }
  const unknown = vocabSize === null ? undefined : ids.find((id) => id >= vocabSize);
  if (unknown !== undefined) {
    throw new UserError(
      `the tokenizer in ${tokenizer.dir} gives the token ${unknown} (${JSON.stringify(tokenizer.pieceOf(unknown))}), and ` +
        `the model's \`vocab_size\` is ${vocabSize}. Use the tokenizer that belongs to the model.`,
    );
  }
  return ids;
}

/** Prompts are templated and encoded here, for a model or a server that takes token ids. */
export function tokenResponder(sampler: LazySampler, encoding: Encoding): Responder {
  return {
    prepare(prompt) {
      const ids = encodeWithin(prompt, encoding);
      return {
        tokens: ids.length,
        async sample(options) {
          const completion = await (await sampler.open()).sample({ ...options, prompt: ids, wantsText: true });
          return { ...completion, tokens: tokensOf(completion) };
        },
      };
    },
    close: () => sampler.close(),
  };
}

/** Prompts are sent as messages, for servers that apply the chat template themselves. */
export function chatResponder(remote: Remote): Responder {
  return {
    prepare: ({ messages }) => ({ tokens: null, sample: (options) => remote.chat({ ...options, messages }) }),
    close: async () => {},
  };
}

/** A server may count tokens that it does not return. */
function tokensOf(completion: Completion & { readonly tokens?: number }): number {
  return completion.tokens ?? completion.samples.reduce((total, { ids }) => total + ids.length, 0);
}
