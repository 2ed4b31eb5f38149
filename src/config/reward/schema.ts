/**
 * The keys of `trainyard reward`, which trains a reward model on preference pairs. verl has no such program: the tree is
 * that of its SFT trainer (`sft.ts`), with the columns of a pair in the place of prompt, response and conversation.
 *
 * Defaults that differ from `trainyard sft` are those of reward modelling: one epoch, for pairs are learnt by heart in
 * the second (InstructGPT, arXiv:2203.02155, C.2), and a learning rate of 1e-5.
 */
import { UserError } from "../../util/errors.ts";
import { field, type Input, int, mandatory, name, nullable, number, paths, type Resolved } from "../../util/field.ts";
import { filesOfDataset, type WithDataset } from "../hooks.ts";
import type { Further, raySft } from "../ray/ray.ts";
import type { Schema } from "../schema.ts";
import { type SftConfig, sftSchema } from "../sft/schema.ts";

const { data: sftData, model, optim, trainer } = sftSchema.fields;

const data = {
  train_files: field(paths, mandatory, "Preference pairs to learn from: one parquet, jsonl or json file, or several."),
  val_files: field(paths, null, "Preference pairs to validate on; null for none but those of val_size."),
  val_size: field(int(0), 0, "Pairs to hold out of train_files for validation, chosen by trainer.seed."),
  train_max_samples: sftData.train_max_samples,
  val_max_samples: sftData.val_max_samples,
  train_batch_size: field(int(1), 64, "Pairs per optimizer step."),
  micro_batch_size_per_gpu: field(
    int(1),
    8,
    "Conversations per forward and backward pass when use_dynamic_bsz is false.",
  ),
  use_dynamic_bsz: sftData.use_dynamic_bsz,
  max_token_len_per_gpu: sftData.max_token_len_per_gpu,
  chosen_key: field(name, "chosen", "Column with the preferred side: a text or a list of messages."),
  rejected_key: field(name, "rejected", "Column with the other side."),
  prompt_key: field(name, "prompt", "Column with what both sides answer, where the sides do not hold it themselves."),
  margin_key: field(nullable(name), null, "Column with the lead that the chosen side should have; null for none."),
  max_length: field(int(1), 1024, "Longest conversation in tokens."),
  truncation: sftData.truncation,
  apply_chat_template_kwargs: sftData.apply_chat_template_kwargs,
  custom_cls: sftData.custom_cls,
};

const fields = {
  data,
  model,
  optim: { ...optim, lr: field(number(0), 1e-5, optim.lr.doc) },
  trainer: {
    ...trainer,
    project_name: field(name, "reward-model", trainer.project_name.doc),
    total_epochs: field(int(1), 1, "Passes over the training pairs."),
  },
};

/** The resolved config of a reward-model run. */
export type RewardConfig = Resolved<typeof fields> & Further<typeof raySft>;

/** What a config file may hold for such a run; a dataset may be there itself. */
export type RewardConfigInput = WithDataset<Input<typeof fields> & Input<typeof raySft>>;

const isOurs = ([, key]: readonly [alias: string, key: string]): boolean =>
  !key.startsWith("data.") || Object.hasOwn(data, key.slice("data.".length));

/** The schema of `trainyard reward`. */
export const rewardSchema: Schema<typeof fields, RewardConfig> = {
  ...sftSchema,
  verb: "reward",
  fields,
  aliases: Object.fromEntries(Object.entries(sftSchema.aliases).filter(isOurs)),
  configs: { reward_trainer: {} },
  preset: (given) => ({ defaults: filesOfDataset(given) }),
  finish,
};

/** Keys of a supervised run that pairs have no use for; the rules between keys do not read them. */
const conversationKeys = {
  multiturn: { enable: false },
  messages_key: "",
  tools_key: "",
  enable_thinking_key: "",
  response_key: "",
  prompt_dict_keys: [],
  response_dict_keys: [],
  ignore_input_ids_mismatch: false,
} satisfies Partial<SftConfig["data"]>;

/** The rules of a supervised run, and that held-out pairs come from one place. */
function finish(config: RewardConfig, given: ReadonlySet<string>): { config: RewardConfig; notices: string[] } {
  const { val_files: files, val_size: size } = config.data;
  if (files.length > 0 && size > 0) {
    throw new UserError(
      `\`data.val_files\` is ${files.join(", ")} and \`data.val_size\` is ${size}, but pairs to validate on come from ` +
        "files of their own or out of the training files. Keep one of the two keys.",
    );
  }
  // With pairs held out there is something to validate on, as with files.
  const valFiles = size > 0 ? config.data.train_files : files;
  const asSft: SftConfig = { ...config, data: { ...conversationKeys, ...config.data, val_files: valFiles } };
  const { config: checked, notices } = sftSchema.finish(asSft, given);
  return { config: { ...config, optim: checked.optim, trainer: checked.trainer }, notices: [...notices] };
}
