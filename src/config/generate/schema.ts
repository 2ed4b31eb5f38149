/**
 * The keys of `trainyard generate`: verl's `generation` tree (main_generation), with the keys that main_generation_server
 * reads from the `ppo_trainer` tree mapped onto it.
 *
 * Defaults are verl's, letter for letter, except: `model.path`, `data.path` and `data.output_path` must be given, and
 * `trainer.device` starts as cpu. `rollout.base_url`, `rollout.endpoint`, `rollout.seed` and `trainer.threads` are ours,
 * and so is `data.truncation`: verl cuts prompts without a message. Keys under `actor_rollout_ref.`, and `rollout.base_url`,
 * select the defaults of main_generation_server.
 */
import { extname } from "node:path";
import { z } from "zod";
import { UserError } from "../../util/errors.ts";
import {
  bool,
  choice,
  countOr,
  dict,
  field,
  type Input,
  int,
  mandatory,
  name,
  names,
  nullable,
  number,
  path,
  paths,
  type Resolved,
  text,
} from "../../util/field.ts";
import type { Preset, Schema } from "../schema.ts";
import { generateAliases, generateInert, generateRefused } from "./verl.ts";

const data = {
  path: field(paths, mandatory, "Rows with the prompts: one parquet, jsonl or json file, or several."),
  output_path: field(path, mandatory, "Where the rows go with their responses: a .parquet or .jsonl file."),
  prompt_key: field(name, "prompt", "Column with the prompt: a list of messages, or a text."),
  n_samples: field(int(1), 5, "Responses per prompt."),
  batch_size: field(int(1), 128, "Prompts that are worked on at the same time."),
  train_max_samples: field(countOr("all"), -1, "Use at most this many rows."),
  truncation: field(
    choice("error", "left", "right", "middle"),
    "error",
    "What to do with a prompt of more than rollout.prompt_length tokens: stop, or cut it at that side.",
  ),
  apply_chat_template_kwargs: field(dict, {}, "Further variables for the chat template."),
};

const model = {
  path: field(
    path,
    mandatory,
    "Hugging Face folder or hub id of the model, or a run folder or checkpoint; at a server, the name it has there.",
  ),
  tokenizer_path: field(nullable(path), null, "Folder or hub id of the tokenizer; null for the model's own."),
  custom_chat_template: field(nullable(text), null, "Jinja chat template to use instead of the tokenizer's own."),
};

const rollout = {
  temperature: field(number(0), 1.0, "Temperature of sampling; 0 takes the likeliest token."),
  top_k: field(
    { ...int(-1), expects: "a whole number of at least 1, or 0 or -1 for all" },
    50,
    "Draw from this many of the likeliest tokens.",
  ),
  top_p: field(
    { schema: z.number().gt(0).max(1), expects: "a number above 0 and at most 1" },
    0.7,
    "Draw from the likeliest tokens that together have this probability.",
  ),
  do_sample: field(bool, true, "Draw tokens; false takes the likeliest, as temperature=0 does."),
  ignore_eos: field(bool, false, "Go on past the model's end-of-sequence token."),
  prompt_length: field(int(1), 1536, "Longest prompt in tokens; see data.truncation."),
  response_length: field(int(1), 512, "Longest response in tokens."),
  seed: field(int(0), 42, "Seed of the samples; each prompt has its own, drawn from it."),
  max_num_seqs: field(int(1), 1024, "Responses that are sampled together, at most."),
  max_num_batched_tokens: field(int(1), 8192, "Prompt tokens that are computed in one step."),
  max_model_len: field(nullable(int(1)), null, "Longest prompt and response together; null for the model's context."),
  enable_prefix_caching: field(bool, true, "Compute what prompts begin alike with only once."),
  base_url: field(
    names,
    null,
    "Address of an OpenAI-compatible server, or several; null samples in this process. OPENAI_API_KEY is its key.",
  ),
  endpoint: field(
    choice("chat", "completions"),
    "chat",
    "With base_url: send messages, which the server templates, or the token ids of the prompt templated here.",
  ),
};

const trainer = {
  device: field(choice("cpu", "webgpu", "cuda"), "cpu", "Device to sample on."),
  threads: field(int(0), 0, "Threads of the cpu device; 0 for all cores."),
};

const fields = { data, model, rollout, trainer };

/** The resolved config of a generation. */
export type GenerateConfig = Resolved<typeof fields>;

/** What a config file may hold for one. */
export type GenerateInput = Input<typeof fields>;

const serverDefaults = {
  "data.n_samples": 1,
  "rollout.top_k": -1,
  "rollout.top_p": 1,
  "rollout.prompt_length": 512,
  "rollout.max_num_seqs": 256,
};

/** The schema of `trainyard generate`. */
export const generateSchema: Schema<typeof fields, GenerateConfig> = {
  verb: "generate",
  fields,
  aliases: generateAliases,
  inert: generateInert,
  refused: generateRefused,
  groups: {},
  configs: { generation: {}, ppo_trainer: serverDefaults },
  preset,
  finish,
};

function preset(given: ReadonlySet<string>, configName: string | undefined): Preset {
  const first = [...given].find((key) => key.startsWith("actor_rollout_ref.") || key === "rollout.base_url");
  const isServer = configName === "ppo_trainer" || (configName === undefined && first !== undefined);
  if (!isServer) return { defaults: {} };
  const used = Object.entries(serverDefaults).filter(([key]) => !given.has(key));
  const listed = used.map(([key, value]) => `${key}=${value}`).join(" ");
  const reason = configName === undefined ? `\`${first}\` is given` : "`ppo_trainer` is the config";
  const notice = `${reason}, as for verl's main_generation_server, so its defaults apply: ${listed}`;
  return { defaults: serverDefaults, ...(used.length === 0 ? {} : { notice }) };
}

function finish(config: GenerateConfig, given: ReadonlySet<string>): { config: GenerateConfig; notices: string[] } {
  const { data, rollout } = config;
  if (![".parquet", ".jsonl", ".ndjson"].includes(extname(data.output_path))) {
    throw new UserError(
      `\`data.output_path\` is ${data.output_path}. Its extension is the format: end it in .parquet or .jsonl.`,
    );
  }
  if (data.path.length === 0) throw new UserError("`data.path` names no file. Give the file with the prompts.");
  const isGreedy = rollout.temperature === 0 || !rollout.do_sample;
  if (isGreedy && data.n_samples > 1) {
    const why = rollout.do_sample ? "`rollout.temperature` is 0" : "`rollout.do_sample` is false";
    throw new UserError(
      `\`data.n_samples\` is ${data.n_samples}, and ${why}: all responses of a prompt would be the same. ` +
        "Set data.n_samples=1, or a rollout.temperature above 0.",
    );
  }
  if (rollout.max_model_len !== null && rollout.max_model_len <= rollout.prompt_length) {
    throw new UserError(
      `\`rollout.max_model_len\` is ${rollout.max_model_len}, which leaves no room for a response behind a prompt of ` +
        `\`rollout.prompt_length\`=${rollout.prompt_length} tokens. Raise the one or lower the other.`,
    );
  }
  return { config, notices: unused(config, given) };
}

const localKeys = [
  "data.truncation",
  "data.apply_chat_template_kwargs",
  "model.tokenizer_path",
  "model.custom_chat_template",
  "rollout.prompt_length",
];
const engineKeys = [
  ...["max_num_seqs", "max_num_batched_tokens", "max_model_len", "enable_prefix_caching"].map(
    (key) => `rollout.${key}`,
  ),
  "trainer.device",
  "trainer.threads",
];

/** Keys that were given and mean nothing beside the others. */
function unused({ rollout }: GenerateConfig, given: ReadonlySet<string>): string[] {
  const listed = (keys: readonly string[]) => keys.filter((key) => given.has(key)).map((key) => `\`${key}\``);
  const noEffect = (keys: readonly string[], why: string) => {
    const found = listed(keys);
    return found.length === 0 ? [] : [`${found.join(", ")} ${found.length === 1 ? "has" : "have"} no effect: ${why}.`];
  };
  if (rollout.base_url.length === 0)
    return noEffect(["rollout.endpoint"], "`rollout.base_url` names no server, so the model runs in this process");
  return [
    ...noEffect(engineKeys, "the server at `rollout.base_url` decides that"),
    ...(rollout.endpoint === "chat"
      ? noEffect(localKeys, "the server templates the messages (`rollout.endpoint`=chat)")
      : []),
  ];
}
