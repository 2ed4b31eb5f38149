/**
 * The keys of the reward: `reward_model.`, `reward_manager.`, `custom_reward_function.` and, of 0.9's tree, `reward.`.
 *
 * A response is scored by one of: a reward function, a reward model that runs here, a reward service or a judge behind an
 * address, or the built-in scorer of its data source; with `reward.sources` by several of them. Departures from verl: no
 * model is named by default; the number of processes follows the machine; `judge`, `service`, `reward.timeout`,
 * `reward.batch_size`, `reward.error_budget`, `reward.sources`, `reward.models` and `reward.functions` are ours.
 */
import {
  bool,
  choice,
  dict,
  field,
  int,
  name,
  nullable,
  number,
  orNull,
  pair,
  path,
  real,
  text,
} from "../../util/field.ts";
import { rewardSources } from "./reward-sources.ts";
import { addresses, rewardFunction, variable } from "./values.ts";

const overlong_buffer_cfg = {
  enable: field(bool, false, "Let the manager dapo take points off responses that come near the limit."),
  len: field(int(0), 0, "So many tokens before the limit the penalty begins."),
  penalty_factor: field(real, 1.0, "The penalty at the limit."),
  log: field(bool, false, "Add the columns overlong_reward and overlong."),
};

/** A generative judge: see `rewards/judge.ts`. */
const judge = {
  url: field(
    addresses,
    null,
    "Address of an OpenAI-compatible API whose chat model scores, or a list of them; null for none. Beside a reward function: what the function may ask.",
  ),
  model: field(nullable(name), null, "The model's name there."),
  template: field(
    nullable(text),
    null,
    "What it is asked: a text with {response}, and where wanted {prompt} and {ground_truth}.",
  ),
  pattern: field(
    nullable(text),
    null,
    "Regular expression whose first group is the score; null for the number after `score`.",
  ),
  range: field(nullable(pair(real)), null, "Least and greatest score that is believed; null for any."),
  temperature: field(number(0), 0, "Temperature of its reply."),
  max_tokens: field(int(1), 1024, "Longest reply in tokens."),
  api_key_env: field(
    nullable(variable),
    null,
    "Environment variable that holds the API key; null for OPENAI_API_KEY, if that is set.",
  ),
};

/** A reward model that is served elsewhere: see `rewards/service.ts`. */
const service = {
  url: field(
    addresses,
    null,
    "Address of a reward service, or a list of them; null for none. Beside a reward function: what the function may ask.",
  ),
  protocol: field(
    choice("vllm", "sglang", "json"),
    "vllm",
    "What it speaks: vLLM's or SGLang's /classify, or a sample as JSON and a score back.",
  ),
  model: field(nullable(name), null, "The model's name there."),
  api_key_env: field(nullable(variable), null, "Environment variable that holds the API key; null for no key."),
};

/** A reward model, a judge or a reward service: `reward_model`, and `reward.models.NAME`. */
export const rewardModelFields = {
  model: {
    path: field(
      nullable(path),
      null,
      "Folder or hub id of the reward model, a classifier with one label; a language model gets a new score head. Of one that service.url serves, only the tokenizer and its chat template are read.",
    ),
    input_tokenizer: field(
      nullable(path),
      "${actor_rollout_ref.model.path}",
      "Folder or hub id of the tokenizer that responses are decoded with, before they go into the reward model's own template; null when both read the same tokens.",
    ),
  },
  max_length: field(nullable(int(1)), null, "Longest conversation it reads in tokens; null for its context."),
  micro_batch_size_per_gpu: field(
    nullable(int(1)),
    null,
    "Responses per pass of the reward model; null fills passes by forward_max_token_len_per_gpu.",
  ),
  use_dynamic_bsz: field(
    bool,
    "${critic.use_dynamic_bsz}",
    "Fill those passes up to forward_max_token_len_per_gpu tokens.",
  ),
  forward_max_token_len_per_gpu: field(int(1), "${critic.forward_max_token_len_per_gpu}", "Tokens per such pass."),
  judge,
  service,
};

export const reward_model = {
  enable: field(orNull(bool, false), false, "Score responses with the reward model of reward_model.model.path."),
  ...rewardModelFields,
  micro_batch_size: field(nullable(int(1)), null, "Older spelling of micro_batch_size_per_gpu."),
  reward_manager: field(orNull(name, "naive"), "naive", "Older spelling of reward_manager.name."),
  reward_kwargs: {
    overlong_buffer_cfg,
    max_resp_len: field(
      nullable(int(1)),
      "${data.max_response_length}",
      "Longest response, which overlong_buffer_cfg.len counts back from.",
    ),
  },
  num_workers: field(
    nullable(int(1)),
    null,
    "Processes that score at the same time; null for one per core, at most 8.",
  ),
  max_concurrent: field(int(1), 1, "Calls at once with the manager rate_limited."),
  max_rpm: field(nullable(number(0)), null, "Calls a minute with the manager rate_limited; null for any."),
  max_tpm: field(nullable(number(0)), null, "Tokens a minute with the manager rate_limited; null for any."),
  estimated_tokens_per_request: field(int(1), 2000, "Tokens that one call counts for there."),
  sandbox_fusion: {
    url: field(nullable(text), null, "Address of a Sandbox Fusion service that runs code; null runs it here."),
    max_concurrent: field(orNull(int(1), 64), 64, "Programs that run there at once."),
    memory_limit_mb: field(orNull(int(1), 1024), 1024, "Memory of one program."),
  },
};

export const reward_manager = {
  source: field(
    orNull(choice("register", "importlib"), "register"),
    "register",
    "Where the manager is from: `register` for ours, `importlib` for the file of module.path.",
  ),
  module: {
    path: field(
      nullable(path),
      null,
      "TypeScript or JavaScript file that exports a reward manager under reward_manager.name: `defineRewardManager`.",
    ),
  },
  name: field(
    orNull(name, "naive"),
    "${reward_model.reward_manager}",
    "How functions are called and scores treated: naive, batch, dapo, prime or rate_limited, or an export of module.path.",
  ),
};

/** A reward function in a file: `custom_reward_function`, and `reward.functions.NAME`. */
export const rewardFunctionFields = {
  path: field(nullable(path), null, "TypeScript, JavaScript or Python file with a reward function; null for built-in."),
  name: field(orNull(name, "compute_score"), "compute_score", "The function in that file."),
  reward_kwargs: field(dict, {}, "Further arguments for it."),
};

export const custom_reward_function = {
  ...rewardFunctionFields,
  function: field(
    rewardFunction,
    null,
    "The function itself, in a TypeScript config, where it may stand as custom_reward_function.",
  ),
};

export const reward = {
  timeout: field(number(0.001), 60, "Seconds one call of the reward function may take."),
  batch_size: field(
    nullable(int(1)),
    null,
    "Samples in one call of the function with the manager batch; null for all samples of a step.",
  ),
  error_budget: field(number(0, 1), 0.01, "Share of the scores that may go wrong before the run stops."),
  sources: field(
    rewardSources,
    null,
    "What scores each data source, `*` for all others: entries with use (function, scorer, model, judge or service), name and weight; null for one of them for all.",
  ),
};
