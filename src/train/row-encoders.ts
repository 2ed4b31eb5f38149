/**
 * Encoders of the rows of `trainyard sft` and `trainyard reward`, made from their configs.
 *
 * The limits are the config's own unless others are given: a check of the data encodes rows without a limit first, to
 * know their whole length.
 */
import type { RewardConfig } from "../config/reward/schema.ts";
import type { SftConfig } from "../config/sft/schema.ts";
import { type PreferencePair, preferenceEncoder } from "../data/preference-rows.ts";
import type { Row } from "../data/row.ts";
import { multiTurnEncoder, type SftLimits, type SftRow, singleTurnEncoder } from "../data/sft-rows.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

/** The longest row, and what happens to a longer one. */
export type RowLimits = Pick<SftLimits, "maxLength" | "truncation">;

/** The encoder of rows with a prompt and a response, or with a conversation. */
export function sftEncoder(
  { data, model }: SftConfig,
  tokenizer: Tokenizer,
  { maxLength, truncation }: RowLimits = limitsOf(data),
): (row: Row) => SftRow {
  const common = {
    maxLength,
    truncation,
    extra: data.apply_chat_template_kwargs,
    template: model.custom_chat_template,
  };
  if (data.multiturn.enable) {
    return multiTurnEncoder(tokenizer, {
      ...common,
      messagesKey: data.messages_key,
      toolsKey: data.tools_key,
      enableThinkingKey: data.enable_thinking_key,
      ignoreInputIdsMismatch: data.ignore_input_ids_mismatch,
    });
  }
  return singleTurnEncoder(tokenizer, {
    ...common,
    promptKey: data.prompt_key,
    responseKey: data.response_key,
    promptDictKeys: data.prompt_dict_keys,
    responseDictKeys: data.response_dict_keys,
  });
}

/** The encoder of preference pairs; `padId` is the padding token of the model's config.json. */
export function pairEncoder(
  { data, model }: RewardConfig,
  tokenizer: Tokenizer,
  { padId, limits = limitsOf(data) }: { readonly padId: number | null; readonly limits?: RowLimits },
): (row: Row) => PreferencePair {
  return preferenceEncoder(tokenizer, {
    chosenKey: data.chosen_key,
    rejectedKey: data.rejected_key,
    promptKey: data.prompt_key,
    marginKey: data.margin_key,
    maxLength: limits.maxLength,
    truncation: limits.truncation,
    extra: data.apply_chat_template_kwargs,
    template: model.custom_chat_template,
    padId,
  });
}

type Limited = Pick<SftConfig["data"], "max_length" | "truncation">;

function limitsOf({ max_length: maxLength, truncation }: Limited): RowLimits {
  return { maxLength, truncation };
}
