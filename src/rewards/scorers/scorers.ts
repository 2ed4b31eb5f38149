/**
 * The built-in scorers as functions of a sample: for a reward function of one's own, for a test, and for a run that names
 * one (`reward.sources`). Each is pure and takes bounded time for any response.
 *
 * A scorer reads `response` and `groundTruth` only. A ground truth that it cannot use is a `UserError`, never a score.
 * Code is scored by running it, which is not done here: see `codeScorer`.
 */
import { describe } from "../../data/row.ts";
import { UserError } from "../../util/errors.ts";
import { scoreGeo3k } from "./geo3k.ts";
import { scoreGsm8k } from "./gsm8k.ts";
import { scoreMathDapo } from "./math-dapo.ts";
import { scoreMathReward } from "./math-reward.ts";
import { scoreMathVerify } from "./math-verify.ts";
import { scorePrimeMath } from "./prime-math.ts";
import { scoreSearchQa } from "./search-qa.ts";

/** What a scorer reads of a sample; the input of a reward function is one. */
export type ScorerInput = {
  readonly response: string;
  readonly groundTruth: unknown;
  /** For messages. */
  readonly dataSource?: string;
  readonly row?: number;
};

/** A scorer of a response and an answer that is a text. */
const onText =
  <Value>(score: (response: string, truth: string) => Value) =>
  (input: ScorerInput): Value =>
    score(input.response, truthOf(input));

const math = onText(scoreMathReward);

/** The built-in scorers. */
export const scorers = {
  /** 1 if the number after the last `####` is the ground truth. */
  gsm8k: onText((response, truth) => scoreGsm8k(response, truth)),
  /** 1 if the content of the last box is the ground truth, after normalisation. */
  math,
  /** `math` for a list of samples: verl's `math_batch`. */
  mathBatch: (inputs: readonly ScorerInput[]): number[] => inputs.map(math),
  /** 1 or -1, with the columns `acc` and `pred`: the last `Answer:` line, else the last box. */
  mathDapo: onText((response, truth) => scoreMathDapo(response, truth)),
  /** 1 if the answer has the meaning of the ground truth, like Math-Verify: for answers that are more than numbers. */
  mathVerify: onText(scoreMathVerify),
  /** 1 if the answer is mathematically equal to the ground truth, by the rules of PRIME. */
  primeMath: onText(scorePrimeMath),
  /** Nine tenths for the answer, one tenth for the format. */
  geo3k: onText((response, truth) => scoreGeo3k(response, truth).score),
  /** 1 if the text in `<answer>` is one of the targets of the ground truth, `{target: …}`. */
  searchQa: (input: ScorerInput): number => scoreSearchQa(input.response, targetsOf(input)),
} as const;

function truthOf(input: ScorerInput): string {
  const { groundTruth } = input;
  if (typeof groundTruth === "string") return groundTruth;
  if (typeof groundTruth === "bigint" || (typeof groundTruth === "number" && Number.isFinite(groundTruth))) {
    return String(groundTruth);
  }
  throw refusedTruth(input, "the answer, a text or a number");
}

function targetsOf(input: ScorerInput): readonly string[] {
  const { groundTruth } = input;
  const target =
    typeof groundTruth === "object" && groundTruth !== null && "target" in groundTruth && groundTruth.target;
  const targets: unknown[] = Array.isArray(target) ? target : [target];
  const isText = (value: unknown): value is string => typeof value === "string";
  if (targets.every(isText)) return targets;
  throw refusedTruth(input, "an object with `target`, a text or a list of texts");
}

function refusedTruth({ row, dataSource, groundTruth }: ScorerInput, needed: string): UserError {
  const scorer = dataSource === undefined ? "the scorer" : `the scorer of the data source "${dataSource}"`;
  return new UserError(
    `\`reward_model.ground_truth\` ${row === undefined ? "" : `of row ${row} `}is ${describe(groundTruth ?? null)}, and ` +
      `${scorer} needs ${needed}. Put it there, or set \`custom_reward_function.path\`.`,
  );
}
