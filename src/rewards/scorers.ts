/**
 * The scorers that come with the program, by `data_source`: the names of verl's `default_compute_score`. Each is a pure
 * function of a response and its ground truth that takes bounded time for any response. A run may also name one.
 *
 * Where a scorer differs from verl's on purpose, the header of its file says so. Code is scored by running it, which is
 * not done here: that scorer is an argument. `math_verify`, for answers that are more than numbers, has no data source,
 * as in verl.
 */
import { nearest, UserError, unknownName } from "../util/errors.ts";
import type { RewardFunction, RewardInput, RewardValue } from "./reward.ts";
import { scorers } from "./scorers/scorers.ts";

type ScorerOptions = {
  /** Which scorer; that of the data source if absent. */
  readonly name?: string;
  /** Runs the model's code against the tests in the ground truth. */
  readonly code?: RewardFunction;
};

type Rule = (input: RewardInput, options: ScorerOptions) => RewardValue | Promise<RewardValue>;

/** The scorers by the name that a config gives them. */
const named = {
  gsm8k: scorers.gsm8k,
  math: scorers.math,
  math_dapo: scorers.mathDapo,
  math_verify: scorers.mathVerify,
  prime_math: scorers.primeMath,
  geo3k: scorers.geo3k,
  search_qa: scorers.searchQa,
  code,
} satisfies Readonly<Record<string, Rule>>;

type ScorerName = keyof typeof named;

/** The names of the scorers. */
// Safe: an object literal has these keys and no other.
export const scorerNames = Object.keys(named) as ScorerName[];

/** Data sources whose responses are programs. */
const codeSources = ["codecontests", "apps", "codeforces", "taco"] as const;

const rules: ReadonlyMap<string, ScorerName> = new Map([
  ["openai/gsm8k", "gsm8k"],
  ...all("math", "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"),
  ...all("math_dapo", "math_dapo", "math", "math_dapo_reasoning"),
  ...all("prime_math", "numina_aops_forum", "numina_synthetic_math", "numina_amc_aime", "numina_synthetic_amc"),
  ...all("prime_math", "numina_cn_k12", "numina_olympiads"),
  ...all("code", ...codeSources),
  ["hiyouga/geometry3k", "geo3k"],
  ...all("search_qa", "searchR1_nq", "searchR1_triviaqa", "searchR1_popqa", "searchR1_hotpotqa"),
  ...all("search_qa", "searchR1_2wikimultihopqa", "searchR1_musique", "searchR1_bamboogle"),
]);
/** Every name that begins with this. */
const AIME = "aime";

function all(name: ScorerName, ...dataSources: readonly string[]): (readonly [string, ScorerName])[] {
  return dataSources.map((dataSource) => [dataSource, name] as const);
}

/** The data sources with a scorer; `aime*` stands for every name that begins with it. */
export const dataSources: readonly string[] = [...rules.keys(), `${AIME}*`];

/** Score a sample by the scorer of its data source, or by the one that is named. */
export function builtinScore(input: RewardInput, options: ScorerOptions = {}): RewardValue | Promise<RewardValue> {
  const rule: Rule = named[scorerOf(input.dataSource, options.name ?? null)];
  return rule(input, options);
}

/** The name of the scorer of a data source; one that is named stays as it is. */
export function scorerOf(dataSource: string, name: string | null): ScorerName {
  if (name !== null) {
    const found = scorerNames.find((known) => known === name);
    if (found === undefined) throw unknownName("The built-in scorer", name, scorerNames);
    return found;
  }
  const found = rules.get(dataSource) ?? (dataSource.startsWith(AIME) ? "math_dapo" : undefined);
  if (found !== undefined) return found;
  const close = nearest(dataSource, rules.keys()).map((known) => `"${known}"`);
  throw new UserError(
    `There is no built-in scorer for the data source "${dataSource}". ` +
      (close.length > 0 ? `Did you mean ${close.join(" or ")}? ` : "") +
      `Known: ${dataSources.join(", ")}. Correct the rows' \`data_source\` (or name another column with ` +
      "`data.reward_fn_key`), name a scorer in `reward.sources`, or write a reward function and set " +
      "`custom_reward_function.path`.",
  );
}

/** Whether such samples are scored by running their code. */
export function scoresCode(dataSource: string, name?: string): boolean {
  return (name ?? rules.get(dataSource)) === "code";
}

function code(input: RewardInput, options: ScorerOptions): RewardValue | Promise<RewardValue> {
  if (options.code !== undefined) return options.code(input);
  throw new UserError(
    `The data source "${input.dataSource}" is scored by running the model's code, and no sandbox was given to run it in. ` +
      "`openRewards` provides one; or pass a `codeScorer`.",
  );
}
