/**
 * Who answers prompts: a model in this process, or OpenAI-compatible servers. `generate` and `chat` are written once for
 * both.
 *
 * `prepare` turns a prompt into a question and finds everything that is wrong with it; asking it can then only fail for
 * reasons of the model or the server. The model is loaded with the first question.
 */
import { encodePromptTurn, type Prompt, type Template } from "../../data/messages.ts";
import { type Truncation, truncate } from "../../data/truncate.ts";
import type { CanSample, Remote } from "../../rollout/remote.ts";
import type { Completion, SampleRequest } from "../../rollout/request.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { UserError } from "../../util/errors.ts";

/** How a question is answered: everything of a request but the prompt. */
export type Asked = Omit<SampleRequest, "prompt">;

/** Samples, and how many tokens were drawn for them. */
export type Answer = Completion & { readonly tokens: number };

/** A prompt that can be asked; `tokens` is null where only the server can tell. */
export type Question = { readonly tokens: number | null; ask(asked: Asked): Promise<Answer> };

export type Responder = {
  prepare(prompt: Prompt): Question;
  close(): Promise<void>;
};

/** A sampler that is opened once it is needed. */
export type LazySampler = { open(): Promise<CanSample>; close(): Promise<void> };

/** The same sampler for all who ask, opened for the first of them. */
export function lazily({ open, close }: LazySampler): LazySampler {
  let opened: Promise<CanSample> | null = null;
  return {
    open() {
      opened ??= open();
      return opened;
    },
    async close() {
      await opened?.catch(() => {}); // whoever asked has been told
      await close();
    },
  };
}

/** How prompts become tokens. */
export type Encoding = Template & {
  readonly tokenizer: Tokenizer;
  /** Tokens that the model knows; a tokenizer with others belongs to another model. */
  readonly vocabSize: number | null;
  /** Tokens of prompt and response together, and where the number comes from. */
  readonly maxLength: number;
  readonly maxLengthSetting: string;
  /** Longer prompts are cut as `truncation` says. */
  readonly maxPromptLength?: number;
  readonly truncation?: Truncation;
};

/** Token ids of a prompt, or a `UserError` that says why it has none. */
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

/** Prompts are templated and encoded here; a model, or a server that takes token ids, goes on from there. */
export function tokenResponder(sampler: LazySampler, encoding: Encoding): Responder {
  return {
    prepare(prompt) {
      const ids = encodeWithin(prompt, encoding);
      return {
        tokens: ids.length,
        async ask(asked) {
          const completion = await (await sampler.open()).sample({ ...asked, prompt: ids, wantsText: true });
          return { ...completion, tokens: tokensOf(completion) };
        },
      };
    },
    close: () => sampler.close(),
  };
}

/** Servers that get the messages and template them. */
export function chatResponder(remote: Remote): Responder {
  return {
    prepare: ({ messages }) => ({ tokens: null, ask: (asked) => remote.chat({ ...asked, messages }) }),
    close: async () => {},
  };
}

/** A server may count tokens that it does not show. */
function tokensOf(completion: Completion & { readonly tokens?: number }): number {
  return completion.tokens ?? completion.samples.reduce((total, { ids }) => total + ids.length, 0);
}
