/**
 * The keys of `data.` for `trainyard ppo`: which prompts are sampled from, how many at a time and in which order.
 *
 * Departure from verl: `data.seed` null is the run's own seed, so that two runs are alike.
 */
import { bool, choice, countOr, dict, field, int, name, nullable, paths } from "../../util/field.ts";
import { datasetKeys, generatorKeys, samplerKeys } from "../hooks.ts";

export const data = {
  train_files: field(
    paths,
    "~/data/rlhf/gsm8k/train.parquet",
    "Prompts to train on: one parquet, jsonl or json file, or several.",
  ),
  val_files: field(
    paths,
    "~/data/rlhf/gsm8k/test.parquet",
    "Prompts to validate on; null for none, which is the default once train_files is given.",
  ),
  train_max_samples: field(countOr("all"), -1, "Use at most this many training rows."),
  val_max_samples: field(countOr("all"), -1, "Use at most this many validation rows."),
  prompt_key: field(name, "prompt", "Column with the prompt: a list of messages, or a text for base models."),
  reward_fn_key: field(name, "data_source", "Column that says where a row is from; it picks the built-in scorer."),
  max_prompt_length: field(int(1), 512, "Longest prompt in tokens; see filter_overlong_prompts and truncation."),
  max_response_length: field(int(1), 512, "Longest response in tokens."),
  train_batch_size: field(int(1), 1024, "Prompts per step; each gets rollout.n responses."),
  gen_batch_size: field(
    nullable(int(1)),
    null,
    "Prompts per round of sampling while algorithm.filter_groups is on; null for train_batch_size.",
  ),
  shuffle: field(bool, true, "Visit the training rows in another order each epoch."),
  validation_shuffle: field(bool, false, "Shuffle the validation rows, in another order each time."),
  seed: field(nullable(int(0)), null, "Seed of the order of the rows; null for trainer.seed."),
  filter_overlong_prompts: field(bool, false, "Leave out rows whose prompt is longer than max_prompt_length."),
  truncation: field(
    choice("error", "left", "right", "middle"),
    "error",
    "What to do with a longer prompt that was not left out: stop, or cut it at that side.",
  ),
  apply_chat_template_kwargs: field(dict, {}, "Further variables for the chat template."),
  sampler: samplerKeys,
  custom_cls: datasetKeys,
  datagen: generatorKeys,
};
