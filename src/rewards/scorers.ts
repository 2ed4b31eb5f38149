/**
 * The scorers that come with the program, by `data_source`: the names of verl's `default_compute_score`. Each is a pure
 * function of a response and its ground truth that takes bounded time for any response.
 *
 * Where a scorer differs from verl's on purpose, the header of its file says so. Code is scored by running it, which is
 * not done here: that scorer is an argument. `math-verify.ts`, for answers that are more than numbers, has no data
 * source, as in verl.
 */
import { describe } from "../data/row.ts";
import { nearest, UserError } from "../util/errors.ts";
import type { RewardFunction, RewardInput, RewardValue } from "./reward.ts";
import { scoreGeo3k } from "./scorers/geo3k.ts";
import { scoreGsm8k } from "./scorers/gsm8k.ts";
import { scoreMathDapo } from "./scorers/math-dapo.ts";
import { scoreMathReward } from "./scorers/math-reward.ts";
import { scorePrimeMath } from "./scorers/prime-math.ts";
import { scoreSearchQa } from "./scorers/search-qa.ts";

/** Scorers that the caller provides. */
type ScorerOptions = {
  /** Runs the model's code against the tests in the ground truth. */
  readonly code?: RewardFunction;
};

type Rule = (input: RewardInput, options: ScorerOptions) => RewardValue | Promise<RewardValue>;

const onText = (score: (response: string, truth: string) => RewardValue): Rule => {
  return (input) => score(input.response, truthOf(input));
};
const gsm8k = onText(scoreGsm8k);
const mathReward = onText(scoreMathReward);
const mathDapo = onText(scoreMathDapo);
const primeMath = onText(scorePrimeMath);
const geo3k = onText((response, truth) => scoreGeo3k(response, truth).score);
const searchQa: Rule = (input) => scoreSearchQa(input.response, targetsOf(input));

/** Data sources whose responses are programs. */
export const codeSources = ["codecontests", "apps", "codeforces", "taco"] as const;

const rules: ReadonlyMap<string, Rule> = new Map([
  ["openai/gsm8k", gsm8k],
  ...named(mathReward, "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"),
  ...named(mathDapo, "math_dapo", "math", "math_dapo_reasoning"),
  ...named(primeMath, "numina_aops_forum", "numina_synthetic_math", "numina_amc_aime", "numina_synthetic_amc"),
  ...named(primeMath, "numina_cn_k12", "numina_olympiads"),
  ...named(code, ...codeSources),
  ["hiyouga/geometry3k", geo3k],
  ...named(searchQa, "searchR1_nq", "searchR1_triviaqa", "searchR1_popqa", "searchR1_hotpotqa"),
  ...named(searchQa, "searchR1_2wikimultihopqa", "searchR1_musique", "searchR1_bamboogle"),
]);
/** Every name that begins with this. */
const AIME = "aime";

function named(rule: Rule, ...dataSources: readonly string[]): (readonly [string, Rule])[] {
  return dataSources.map((dataSource) => [dataSource, rule] as const);
}

/** The data sources with a scorer; `aime*` stands for every name that begins with it. */
export const dataSources: readonly string[] = [...rules.keys(), `${AIME}*`];

/** Score a sample by the scorer of its data source. */
export function builtinScore(input: RewardInput, options: ScorerOptions = {}): RewardValue | Promise<RewardValue> {
  return ruleOf(input.dataSource)(input, options);
}

function ruleOf(dataSource: string): Rule {
  const rule = rules.get(dataSource) ?? (dataSource.startsWith(AIME) ? mathDapo : undefined);
  if (rule !== undefined) return rule;
  const close = nearest(dataSource, rules.keys()).map((name) => `"${name}"`);
  throw new UserError(
    `There is no built-in scorer for the data source "${dataSource}". ` +
      (close.length > 0 ? `Did you mean ${close.join(" or ")}? ` : "") +
      `Known: ${dataSources.join(", ")}. Correct the rows' \`data_source\` (or name another column with ` +
      "`data.reward_fn_key`), or write a reward function and set `custom_reward_function.path`.",
  );
}

function code(input: RewardInput, options: ScorerOptions): RewardValue | Promise<RewardValue> {
  if (options.code !== undefined) return options.code(input);
  throw new UserError(
    `The data source "${input.dataSource}" is scored by running the model's code, and no sandbox was given to run it in. ` +
      "`openRewards` provides one; or pass a `codeScorer`.",
  );
}

function truthOf(input: RewardInput): string {
  const { groundTruth } = input;
  if (typeof groundTruth === "string") return groundTruth;
  if (typeof groundTruth === "bigint" || (typeof groundTruth === "number" && Number.isFinite(groundTruth))) {
    return String(groundTruth);
  }
  throw refusedTruth(input, "the answer, a text or a number");
}

function targetsOf(input: RewardInput): readonly string[] {
  const { groundTruth } = input;
  const target =
    typeof groundTruth === "object" && groundTruth !== null && "target" in groundTruth && groundTruth.target;
  const targets: unknown[] = Array.isArray(target) ? target : [target];
  const isText = (value: unknown): value is string => typeof value === "string";
  if (targets.every(isText)) return targets;
  throw refusedTruth(input, "an object with `target`, a text or a list of texts");
}

function refusedTruth({ row, dataSource, groundTruth }: RewardInput, needed: string): UserError {
  return new UserError(
    `\`reward_model.ground_truth\` ${row === undefined ? "" : `of row ${row} `}is ${describe(groundTruth ?? null)}, and the ` +
      `scorer of the data source "${dataSource}" needs ${needed}. Put it there, or set \`custom_reward_function.path\`.`,
  );
}
