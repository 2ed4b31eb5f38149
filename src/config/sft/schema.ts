/**
 * The keys of `trainyard sft`: verl's `sft_trainer_engine` tree, with the keys of its older `sft_trainer` mapped onto it.
 *
 * Defaults are verl's, letter for letter, except: `model.path` must be given, `trainer.device` starts as cpu,
 * `trainer.logger` as [console]; `trainer.console`, `trainer.engine` and `trainer.threads` are ours. Where the two trees differ,
 * `model.partial_pretrain` (the older tree's model key) or `--config-name=sft_trainer` selects the older defaults.
 */
import { checkTrackers, type LoggerName } from "../../track/open.ts";
import { UserError } from "../../util/errors.ts";
import {
  bool,
  choice,
  countOr,
  dict,
  either,
  field,
  type Input,
  int,
  mandatory,
  name,
  names,
  namesOf,
  nullable,
  path,
  paths,
  type Resolved,
  text,
} from "../../util/field.ts";
import { datasetKeys, filesOfDataset, isNamed, type WithDataset } from "../hooks.ts";
import { optim, settleOptim } from "../optim.ts";
import { checkRay, type Further, offloadKeys, type raySft, whyNotOffloaded } from "../ray/ray.ts";
import { sftOnRay } from "../ray/verl.ts";
import type { Preset, Schema } from "../schema.ts";
import { sftAliases, sftGroups, sftInert, sftRefused } from "./verl.ts";

const frequency = either(countOr("never"), choice("after_each_epoch"));

const data = {
  train_files: field(
    paths,
    "~/data/gsm8k/train.parquet",
    "Training rows: one parquet, jsonl or json file, or several.",
  ),
  val_files: field(paths, null, "Validation rows; null for none."),
  train_max_samples: field(countOr("all"), -1, "Use at most this many training rows."),
  val_max_samples: field(countOr("all"), -1, "Use at most this many validation rows."),
  train_batch_size: field(int(1), 256, "Rows per optimizer step."),
  micro_batch_size_per_gpu: field(int(1), 4, "Rows per forward and backward pass when use_dynamic_bsz is false."),
  use_dynamic_bsz: field(
    bool,
    true,
    "Fill each pass up to max_token_len_per_gpu tokens instead of a fixed number of rows.",
  ),
  max_token_len_per_gpu: field(int(1), 8192, "Tokens per forward and backward pass when use_dynamic_bsz is true."),
  multiturn: {
    enable: field(
      bool,
      true,
      "Rows hold conversations (messages_key) rather than one prompt and response; false when prompt_key or response_key is given.",
    ),
  },
  messages_key: field(name, "messages", "Column with the list of messages of a conversation."),
  tools_key: field(name, "tools", "Column with the tools of a conversation, if there is one."),
  enable_thinking_key: field(
    name,
    "enable_thinking",
    "Column that switches thinking on or off in the chat template, if there is one.",
  ),
  prompt_key: field(name, "question", "Column with the prompt of a single-turn row."),
  response_key: field(name, "answer", "Column with the response of a single-turn row."),
  prompt_dict_keys: field(names, null, "Keys to follow inside the prompt column, when it is a struct."),
  response_dict_keys: field(names, null, "Keys to follow inside the response column, when it is a struct."),
  max_length: field(int(1), 1024, "Longest row in tokens, prompt and response together."),
  truncation: field(
    choice("error", "left", "right"),
    "error",
    "What to do with a longer row: stop, or cut it at that side.",
  ),
  apply_chat_template_kwargs: field(dict, {}, "Further variables for the chat template."),
  ignore_input_ids_mismatch: field(
    bool,
    false,
    "Train on turns that are templated one by one even if the whole conversation templates differently.",
  ),
  custom_cls: datasetKeys,
};

const model = {
  path: field(path, mandatory, "Hugging Face folder or hub id of the model to train."),
  tokenizer_path: field(nullable(path), null, "Folder or hub id of the tokenizer; null for the model's own."),
  custom_chat_template: field(nullable(text), null, "Jinja chat template to use instead of the tokenizer's own."),
};

const trainer = {
  project_name: field(name, "gsm8k-sft", "Project the run belongs to. With a config file and no name, its folder."),
  experiment_name: field(name, "test", "Name of the run. With a config file and no name, its file."),
  default_local_dir: field(
    path,
    "checkpoints/${trainer.project_name}/${trainer.experiment_name}",
    "Run folder: config, metrics, log and checkpoints.",
  ),
  total_epochs: field(int(1), 4, "Passes over the training rows."),
  total_training_steps: field(nullable(int(1)), null, "Optimizer steps; null for what total_epochs gives."),
  save_freq: field(frequency, -1, "Steps between checkpoints; the last step is always saved."),
  test_freq: field(frequency, -1, "Steps between validations; the last step always validates."),
  max_ckpt_to_keep: field(nullable(int(1)), null, "Delete older checkpoints beyond this many; null keeps all."),
  resume_mode: field(
    choice("auto", "disable", "resume_path"),
    "auto",
    "Continue from the run folder's last checkpoint, start again, or continue from resume_from_path.",
  ),
  resume_from_path: field(
    nullable(path),
    null,
    "Checkpoint (global_step_N folder) to go on from when resume_mode is resume_path.",
  ),
  logger: field(
    namesOf<LoggerName>(names.expects),
    ["console"],
    "Where metrics go besides metrics.jsonl: console, file, tensorboard, wandb, mlflow; null for nowhere else.",
  ),
  console: field(
    choice("table", "verl"),
    "table",
    "How the console shows metrics: a table that is redrawn, or verl's line per step on stdout.",
  ),
  seed: field(int(0), 1, "Seed of everything random in the run."),
  device: field(choice("cpu", "webgpu", "cuda"), "cpu", "Device to train on."),
  threads: field(int(0), 0, "Threads of the cpu device, with trainer.engine=ray of each worker; 0 for all cores."),
  engine: field(
    choice("embedded", "ray"),
    "embedded",
    "Engine that trains: embedded runs in this process, without Python; ray runs PyTorch on the workers of a cluster.",
  ),
};

const fields = { data, model, optim, trainer };

const olderDefaults = {
  "data.val_files": "~/data/gsm8k/test.parquet",
  "data.use_dynamic_bsz": false,
  "data.multiturn.enable": false,
  "optim.lr": 1e-5,
  "optim.betas": [0.9, 0.95],
  "optim.lr_warmup_steps_ratio": 0.1,
  "optim.lr_scheduler_type": "cosine",
};

/** The resolved config of a supervised fine-tuning run. */
export type SftConfig = Resolved<typeof fields> & Further<typeof raySft>;

/** What a config file may hold for such a run; a dataset may be there itself. */
export type SftInput = WithDataset<Input<typeof fields> & Input<typeof raySft>>;

/** The schema of `trainyard sft`. */
export const sftSchema: Schema<typeof fields, SftConfig> = {
  verb: "sft",
  fields,
  aliases: sftAliases,
  inert: sftInert,
  refused: sftRefused,
  groups: sftGroups,
  engines: { ray: sftOnRay({ inert: sftInert, groups: sftGroups }) },
  configs: { sft_trainer_engine: {}, sft_trainer: olderDefaults },
  preset,
  finish,
};

const singleTurnKeys = ["data.prompt_key", "data.response_key", "data.prompt_dict_keys", "data.response_dict_keys"];

function preset(given: ReadonlySet<string>, configName: string | undefined): Preset {
  const isOlder = configName === "sft_trainer" || (configName === undefined && given.has("model.partial_pretrain"));
  const files = filesOfDataset(given);
  if (!isOlder) {
    const isSingle = singleTurnKeys.some((key) => given.has(key));
    return { defaults: { ...files, ...(isSingle && { "data.multiturn.enable": false }) } };
  }
  const used = Object.entries(olderDefaults).filter(([key]) => !given.has(key));
  const listed = used.map(([key, value]) => `${key}=${Array.isArray(value) ? `[${value.join(",")}]` : value}`);
  const reason = configName === undefined ? "`model.partial_pretrain` belongs to" : "`sft_trainer` is";
  const notice = `${reason} verl's fsdp_sft_trainer, so its defaults apply: ${listed.join(" ")}`;
  return { defaults: { ...olderDefaults, ...files }, ...(listed.length === 0 ? {} : { notice }) };
}

function finish(config: SftConfig, given: ReadonlySet<string>): { config: SftConfig; notices: string[] } {
  const { data, trainer } = config;
  const notices: string[] = [];
  if (data.use_dynamic_bsz && data.max_token_len_per_gpu < data.max_length) {
    throw new UserError(
      `\`data.max_token_len_per_gpu\` is ${data.max_token_len_per_gpu}, less than one row of \`data.max_length\`=${data.max_length} tokens. ` +
        `Set data.max_token_len_per_gpu to at least ${data.max_length}, or lower data.max_length.`,
    );
  }
  if (trainer.resume_mode === "resume_path" && trainer.resume_from_path === null) {
    throw new UserError(
      "`trainer.resume_mode` is resume_path, and `trainer.resume_from_path` is missing. Set it to a global_step_N folder, or use trainer.resume_mode=auto.",
    );
  }
  if (trainer.resume_mode === "disable" && trainer.resume_from_path !== null) {
    throw new UserError(
      `\`trainer.resume_from_path\` is ${trainer.resume_from_path}, but \`trainer.resume_mode\` is disable. Use trainer.resume_mode=resume_path, or drop the path.`,
    );
  }
  if (data.use_dynamic_bsz && given.has("data.micro_batch_size_per_gpu")) {
    notices.push(
      "`data.micro_batch_size_per_gpu` has no effect while `data.use_dynamic_bsz` is true: passes are filled up to `data.max_token_len_per_gpu` tokens.",
    );
  }
  if (!data.use_dynamic_bsz && given.has("data.max_token_len_per_gpu")) {
    notices.push(
      "`data.max_token_len_per_gpu` has no effect while `data.use_dynamic_bsz` is false: passes hold `data.micro_batch_size_per_gpu` rows.",
    );
  }
  const hasDataset = isNamed(data.custom_cls);
  if (data.val_files.length === 0 && !hasDataset && given.has("trainer.test_freq") && trainer.test_freq !== -1) {
    notices.push(
      `\`trainer.test_freq\`=${trainer.test_freq} has no effect: \`data.val_files\` names no file to validate on.`,
    );
  }
  checkRay(config);
  const why = whyNotOffloaded(config);
  if (why !== null) {
    for (const key of offloadKeys) if (given.has(key)) notices.push(`\`${key}\` has no effect: ${why}.`);
  }
  const rates = settleOptim("optim", config.optim);
  const { names: logger, notices: missing } = checkTrackers(trainer.logger);
  if (given.has("trainer.console") && !logger.includes("console")) {
    notices.push(`\`trainer.console\`=${trainer.console} has no effect: \`trainer.logger\` does not name console.`);
  }
  return {
    config: { ...config, optim: rates.optim, trainer: { ...trainer, logger } },
    notices: [...notices, ...rates.notices, ...missing],
  };
}
