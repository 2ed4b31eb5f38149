/**
 * A reward function in Python, in verl's signature:
 * `compute_score(data_source, solution_str, ground_truth, extra_info, **reward_kwargs)`, sync or async, or one that takes
 * lists of these (`data_sources`, …). Of a tuple the first element is the reward, as in verl. A function beside a judge or
 * a service also gets verl's `reward_router_address` and `reward_model_tokenizer`, if it takes them.
 */
import type { OpenLane } from "../workers/lane.ts";
import { pythonLane } from "../workers/python-lane.ts";
import { CUSTOM_KEY, DEFAULT_NAME, noExport, type RewardFile } from "./custom.ts";
import type { RewardInput } from "./reward.ts";
import { checkValue, type Outcomes, type Samples } from "./reward-worker.ts";

type PythonRewardOptions = {
  readonly source: RewardFile;
  readonly timeoutMs: number;
  readonly memoryMb: number;
  /** The command of the interpreter. */
  readonly python: string;
  readonly what: string;
  readonly logPrefix: string;
};

const adapter = `
import functools
import inspect


def call(function, samples):
    routed = [routed_arguments(function, s.pop("routed")) for s in samples]
    kwargs = {**routed[0], **adapter_options["kwargs"]}
    if adapter_options["isBatch"]:
        columns = ["data_sources", "solution_strs", "ground_truths", "extra_infos"]
        return function(**{column: [s[column[:-1]] for s in samples] for column in columns}, **kwargs)
    return function(**samples[0], **kwargs)


def routed_arguments(function, routed):
    """What a function that asks a reward model gets, as far as it takes it."""
    if routed is None:
        return {}
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    given = {}
    if takes_all or "reward_router_address" in parameters:
        given["reward_router_address"] = routed["address"]
    if takes_all or "reward_model_tokenizer" in parameters:
        given["reward_model_tokenizer"] = tokenizer_of(routed["tokenizer"], "reward_model_tokenizer" in parameters)
    return given


@functools.cache
def tokenizer_of(folder, is_named):
    if folder is None:
        return None
    try:
        from transformers import AutoTokenizer
    except ImportError:
        if is_named:
            raise ImportError("reward_model_tokenizer needs the package transformers: pip install transformers") from None
        return None
    return AutoTokenizer.from_pretrained(folder)


def first(value):
    return value[0] if isinstance(value, tuple) and value else value


def output(value):
    is_list = adapter_options["isBatch"] and isinstance(value, (list, tuple))
    return [first(item) for item in value] if is_list else first(value)
`;

export function pythonReward(options: PythonRewardOptions): OpenLane<Samples, Outcomes> {
  const { source, timeoutMs, memoryMb, python, what, logPrefix } = options;
  const { path, name = DEFAULT_NAME, kwargs = {}, isBatch = false, key = CUSTOM_KEY } = source;
  return pythonLane({
    python,
    path,
    function: name,
    module: "custom_reward_function",
    adapter: { source: adapter, options: { kwargs, isBatch } },
    timeoutMs,
    memoryMb,
    what,
    logPrefix,
    encode: (samples: Samples) => samples.map(verlSample),
    decode: (value, samples) => checkValue(value, samples, isBatch),
    noPython: (error) =>
      `\`${key}.path\` is ${path}, which needs Python, and \`${python}\` cannot be started ` +
      `(${error.message}). Install Python 3.9 or newer, or write the reward function in TypeScript.`,
    noFunction: (names) => noExport(source, names).message,
  });
}

/** A sample under the names of verl's arguments. */
function verlSample({ dataSource, response, groundTruth, extraInfo, ...input }: RewardInput): object {
  const { rewardRouterAddress: address, rewardModelTokenizer: tokenizer = null } = input;
  return {
    data_source: dataSource,
    solution_str: response,
    ground_truth: groundTruth ?? null,
    extra_info: extraInfo,
    routed: address === undefined ? null : { address, tokenizer },
  };
}
