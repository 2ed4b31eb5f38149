/**
 * The keys of `trainyard eval`: verl's `evaluation` tree (main_eval).
 *
 * Defaults are verl's, except: `data.path` must be given, and without `custom_reward_function.path` the built-in scorers
 * judge by the row's data source, where verl insists on a function. `data.group_key`, `data.output_path`, `reward_manager.name`,
 * `eval.pass_score` and the limits under `reward.` are ours.
 */
import { extname } from "node:path";
import { z } from "zod";
import { UserError } from "../../util/errors.ts";
import {
  choice,
  dict,
  field,
  type Input,
  int,
  mandatory,
  name,
  nullable,
  number,
  path,
  paths,
  type Resolved,
  text,
} from "../../util/field.ts";
import type { Inert, Refused, Schema } from "../schema.ts";

const data = {
  path: field(paths, mandatory, "Rows with responses, as trainyard generate writes them: parquet, jsonl or json."),
  prompt_key: field(name, "prompt", "Column with the prompt, which a reward function may read."),
  response_key: field(name, "responses", "Column with the list of responses."),
  data_source_key: field(name, "data_source", "Column that says where a row is from; it picks the built-in scorer."),
  reward_model_key: field(name, "reward_model", "Column with ground_truth in it."),
  group_key: field(
    nullable(name),
    null,
    "Column to report on by value within each data source, such as ability or extra_info.level.",
  ),
  output_path: field(nullable(path), null, "A .json file for the figures and the score of every response."),
};

const custom_reward_function = {
  path: field(nullable(path), null, "TypeScript, JavaScript or Python file with a reward function; null for built-in."),
  name: field(name, "compute_score", "The function in that file."),
  reward_kwargs: field(dict, {}, "Further arguments for it."),
};

const reward = {
  num_workers: field(
    nullable(int(1)),
    null,
    "Processes that score at the same time; null for one per core, at most 8.",
  ),
  timeout: field(number(0.001), 60, "Seconds one call of the reward function may take."),
  batch_size: field(
    nullable(int(1)),
    null,
    "Samples in one call of the function with the manager batch; null for all responses of the files.",
  ),
  error_budget: field(number(0, 1), 0.01, "Share of the scores that may go wrong before everything stops."),
  sandbox_fusion: {
    url: field(nullable(text), null, "Address of a Sandbox Fusion service that runs code; null runs it here."),
    max_concurrent: field(int(1), 64, "Programs that run there at once."),
    memory_limit_mb: field(int(1), 1024, "Memory of one program there."),
  },
};

const reward_manager = {
  name: field(
    choice("naive", "batch"),
    "naive",
    "How the function is called: naive with one sample, batch with a list of samples.",
  ),
};

const fields = {
  data,
  custom_reward_function,
  reward_manager,
  reward,
  eval: {
    pass_score: field(
      { schema: z.number(), expects: "a number" },
      1,
      "A response passes with at least this score; where the reward gives `acc`, with at least this acc.",
    ),
  },
};

/** The resolved config of an evaluation. */
export type EvalConfig = Resolved<typeof fields>;

/** What a config file may hold for one. */
export type EvalInput = Input<typeof fields>;

const inert: Readonly<Record<string, Inert>> = {
  ...Object.fromEntries(
    ["ray_init", "ray_kwargs", "hydra"].map((key) => [key, { instead: "there is no Hydra and no Ray here", same: [] }]),
  ),
  "data.use_shm": { instead: "rows are read in this process", same: [false] },
  "data.batch_size": { instead: "rows are scored as they come", same: [] },
};

const refused: Readonly<Record<string, Refused>> = {
  "data.last_user_msg_template": {
    because: "Responses are scored as they are in the file. Leave the key out.",
    allowed: [null],
  },
};

/** The schema of `trainyard eval`. */
export const evalSchema: Schema<typeof fields, EvalConfig> = {
  verb: "eval",
  fields,
  aliases: {
    "reward_model.reward_manager": "reward_manager.name",
    "reward.reward_manager.name": "reward_manager.name",
    "reward.custom_reward_function.path": "custom_reward_function.path",
    "reward.custom_reward_function.name": "custom_reward_function.name",
    "reward.custom_reward_function.reward_kwargs": "custom_reward_function.reward_kwargs",
  },
  inert,
  refused,
  groups: {},
  configs: { evaluation: {} },
  preset: () => ({ defaults: {} }),
  finish(config) {
    const { path: files, output_path: output } = config.data;
    if (files.length === 0) throw new UserError("`data.path` names no file. Give the file with the responses.");
    if (output !== null && extname(output) !== ".json")
      throw new UserError(`\`data.output_path\` is ${output}. The figures are JSON: end it in .json.`);
    return { config, notices: [] };
  },
};
