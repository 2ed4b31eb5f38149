/**
 * Rewards from a reward model: the tokens that it reads of finished samples, and its scores.
 *
 * This room knows no engine: the function that scores token sequences is an argument. A reward model with another
 * tokenizer or chat template than the actor's reads the conversation in its own: the response is decoded without special
 * tokens, and the messages are templated again (verl's `reward_model.model.input_tokenizer`). Otherwise it reads the
 * actor's tokens.
 */
import { encodeConversation, limited, type ScoringTemplate } from "../data/preference-rows.ts";
import { type Message, renderChat } from "../text/chat-template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { invariant, UserError } from "../util/errors.ts";

/** Scores token sequences, one finite number each, in order. */
export type SequenceScorer = { score(rows: readonly Int32Array[]): Promise<readonly number[]> };

/** A finished sample as a reward model reads it. */
export type ModelSample = {
  /** The prompt before any template: the row's messages, or its text. */
  readonly prompt: readonly Message[] | string;
  /** The tokens as the actor read and wrote them. */
  readonly promptIds: ArrayLike<number>;
  readonly responseIds: ArrayLike<number>;
};

export type RewardModelOptions = ScoringTemplate & {
  /** The reward model's tokenizer. */
  readonly tokenizer: Tokenizer;
  /** Decodes the samples if they are templated again; null if the reward model reads the actor's tokens. */
  readonly inputTokenizer: Tokenizer | null;
};

/** The score of each sample. */
export async function scoreSamples(
  scorer: SequenceScorer,
  samples: readonly ModelSample[],
  options: RewardModelOptions,
): Promise<readonly number[]> {
  const scores = await scorer.score(samples.map((sample) => sampleTokens(sample, options)));
  invariant(scores.length === samples.length, `${samples.length} samples have ${scores.length} scores`);
  const at = scores.findIndex((score) => !Number.isFinite(score));
  if (at < 0) return scores;
  throw new UserError(
    `The reward model gives the score ${scores[at]} to sample ${at + 1} of ${samples.length}. ` +
      "Its weights are damaged or overflow; check them with a text of your own, or use another checkpoint.",
  );
}

/** The tokens that the reward model reads of a sample. */
export function sampleTokens(sample: ModelSample, options: RewardModelOptions): Int32Array {
  const { tokenizer, inputTokenizer, template } = options;
  if (inputTokenizer === null) {
    const ids = new Int32Array(sample.promptIds.length + sample.responseIds.length);
    ids.set(sample.promptIds);
    ids.set(sample.responseIds, sample.promptIds.length);
    return limited(ids, options);
  }
  const response = inputTokenizer.decode(sample.responseIds, { skipSpecialTokens: true });
  const isChat = (template ?? tokenizer.chatTemplate) !== null;
  const conversation =
    typeof sample.prompt === "string" && !isChat
      ? { text: sample.prompt + response }
      : { messages: answered(sample.prompt, response) };
  return limited(encodeConversation(tokenizer, conversation, options), options);
}

/**
 * The text that a served reward model is sent: the conversation in its chat template. A prompt that is a text stays one
 * where the tokenizer has no template. A beginning-of-sequence token that the tokenizer adds by itself is removed from
 * the template's text, because the server adds it again.
 */
export function servedText(
  tokenizer: Tokenizer,
  prompt: ModelSample["prompt"],
  response: string,
  options: Pick<ScoringTemplate, "template" | "extra"> = {},
): string {
  if (typeof prompt === "string" && (options.template ?? tokenizer.chatTemplate) === null) return prompt + response;
  const text = renderChat(tokenizer, answered(prompt, response), options);
  const { bosId, specialTokens } = tokenizer;
  const bos = specialTokens.bos_token ?? "";
  const isAdded = bosId !== null && tokenizer.encode("")[0] === bosId;
  return isAdded && text.startsWith(bos) ? text.slice(bos.length) : text;
}

function answered(prompt: ModelSample["prompt"], response: string): Message[] {
  const asked: readonly Message[] = typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt;
  return [...asked, { role: "assistant", content: response }];
}
