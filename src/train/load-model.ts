/**
 * A model for the user's own programs: it samples responses, computes log-probs, and is trained with a loss.
 *
 * Prompts and responses may be texts or token ids, so that a training loop is short to write. What a batch, a loss and an
 * optimizer step are is said by the engine's contract. Requests that are made together are sampled together, from the
 * current weights.
 */
import { encodePromptTurn } from "../data/messages.ts";
import type { Engine, Model, ModelSpec, TokenRow } from "../engine/contract.ts";
import type { Sample, SampleRequest } from "../rollout/request.ts";
import type { Message } from "../text/chat-template.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { UserError } from "../util/errors.ts";
import type { TrainContext } from "./context.ts";
import { fetchModel } from "./fetch-model.ts";

/** A chat, which the model's template turns into tokens, or a plain text, which is encoded as it is. */
export type TextPrompt = string | readonly Message[];

/** How to sample: everything of a request but the prompt. `maxNewTokens` is 256 unless it is given. */
export type GenerateOptions = Partial<Omit<SampleRequest, "prompt" | "wantsText">>;

/** A prompt as token ids with its samples, in order of their index. */
export type Generated = { readonly promptIds: Int32Array; readonly samples: readonly Sample[] };

/** A response to a prompt: a text, or token ids such as those of a sample. */
export type PromptAndResponse = { readonly prompt: TextPrompt; readonly response: string | readonly number[] };

export type LoadOptions = Partial<TrainContext> & {
  readonly device?: "cpu" | "webgpu" | "cuda";
  /** 0, the default, for all cores. */
  readonly threads?: number;
  /** What sampling may use. */
  readonly sampler?: ModelSpec["sampler"];
};

export type LoadedModel = Pick<Model, "config" | "parameterCount" | "train" | "step" | "save"> &
  AsyncDisposable & {
    readonly tokenizer: Tokenizer;
    /** Sample responses to a prompt. */
    generate(prompt: TextPrompt, options?: GenerateOptions): Promise<Generated>;
    /** The reply to a chat, or to a text as a user's only message. */
    chat(messages: TextPrompt, options?: GenerateOptions): Promise<string>;
    /** The log-prob of each token of each response, given its prompt. */
    logprobs(pairs: readonly PromptAndResponse[], options?: { readonly temperature?: number }): Promise<Float32Array[]>;
    close(): Promise<void>;
  };

const MAX_NEW_TOKENS = 256;
/** Padded tokens per forward pass. */
const PASS_TOKENS = 8192;

/** Load a Hugging Face folder, or a hub id; HF_TOKEN, HF_HOME and the like are read from `env`. */
export async function loadModel(path: string, options: LoadOptions = {}): Promise<LoadedModel> {
  const { device = "cpu", threads = 0, sampler = {}, env = {}, signal = AbortSignal.any([]) } = options;
  const folder = await fetchModel(path, { env, signal });
  const tokenizer = await loadTokenizer(folder);
  const { EmbeddedEngine } = await import("../engine/embedded/engine.ts");
  const engine = new EmbeddedEngine({ device, threads });
  try {
    return loaded(await engine.open({ folder, sampler }), tokenizer, engine);
  } catch (error) {
    await engine.close();
    throw error;
  }
}

function loaded(model: Model, tokenizer: Tokenizer, engine: Engine): LoadedModel {
  const generate = async (prompt: TextPrompt, options: GenerateOptions = {}): Promise<Generated> => {
    const promptIds = idsOf(tokenizer, prompt);
    const request = { maxNewTokens: MAX_NEW_TOKENS, ...options, prompt: promptIds, wantsText: true };
    const { samples } = await model.sample(request);
    return { promptIds, samples: samples.toSorted((a, b) => a.index - b.index) };
  };
  const close = () => engine.close();
  return {
    config: model.config,
    parameterCount: model.parameterCount,
    tokenizer,
    generate,
    close,
    train: (rows, loss, options) => model.train(rows, loss, options),
    step: (optimizer) => model.step(optimizer),
    save: (dir, format) => model.save(dir, format),
    async chat(messages, options) {
      const chat = typeof messages === "string" ? [{ role: "user", content: messages }] : messages;
      return (await generate(chat, options)).samples[0]!.text;
    },
    async logprobs(pairs, { temperature = 1 } = {}) {
      const rows = pairs.map((pair) => rowOf(tokenizer, pair));
      const outputs = await model.forward(rows, ["logprobs"], { micro: { maxTokens: PASS_TOKENS }, temperature });
      return outputs.map(({ logprobs }, i) => logprobs!.slice(rows[i]!.mask.indexOf(1)));
    },
    [Symbol.asyncDispose]: close,
  };
}

function idsOf(tokenizer: Tokenizer, prompt: TextPrompt): Int32Array {
  if (typeof prompt === "string") return tokenizer.encode(prompt);
  return encodePromptTurn(tokenizer, { messages: prompt, text: null }, {});
}

function rowOf(
  tokenizer: Tokenizer,
  { prompt, response }: PromptAndResponse,
): TokenRow & { readonly mask: Uint8Array } {
  const before = idsOf(tokenizer, prompt);
  const after = typeof response === "string" ? tokenizer.encode(response, { addSpecialTokens: false }) : response;
  if (before.length === 0 || after.length === 0)
    throw new UserError(
      `The ${before.length === 0 ? "prompt" : "response"} ${JSON.stringify(before.length === 0 ? prompt : response)} has no tokens, ` +
        "and a log-prob needs a token and another one before it. Give a text that has some.",
    );
  const ids = Int32Array.of(...before, ...after);
  return { ids, mask: new Uint8Array(ids.length).fill(1, before.length) };
}
