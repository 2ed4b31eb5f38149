/**
 * Golden cases of topic `reward_scores`: every scorer and the choice of one by data source. verl 0.9 looks into the box
 * where `math_dapo` finds no "Answer:", 0.7 does not.
 */
import { z } from "zod";
import { scoreGeo3k } from "../../src/rewards/scorers/geo3k.ts";
import { extractGsm8k, type Gsm8kMethod, scoreGsm8k } from "../../src/rewards/scorers/gsm8k.ts";
import { normalizeHendrycks } from "../../src/rewards/scorers/hendrycks.ts";
import { normalizeDapo, scoreMathDapo } from "../../src/rewards/scorers/math-dapo.ts";
import { contentOf, lastBox, scoreMathReward } from "../../src/rewards/scorers/math-reward.ts";
import { scoreMathVerify } from "../../src/rewards/scorers/math-verify.ts";
import { extractPrimeAnswer, scorePrimeMath } from "../../src/rewards/scorers/prime-math.ts";
import {
  extractSearchAnswer,
  normalizeSearchAnswer,
  type SearchQaOptions,
  scoreSearchQa,
} from "../../src/rewards/scorers/search-qa.ts";
import { builtinScore } from "../../src/rewards/scorers.ts";
import { check, type GoldenCase } from "./compare.ts";

const TextInputs = z.object({ solution_str: z.string(), ground_truth: z.string() });
const QaInputs = TextInputs.extend({
  ground_truth: z.object({ target: z.union([z.string().transform((it) => [it]), z.array(z.string())]) }),
});
const DispatchInputs = z.object({ data_source: z.string(), solution_str: z.string(), ground_truth: z.unknown() });

type Texts = z.infer<typeof TextInputs>;
type Compute = (golden: GoldenCase) => unknown;
const onTexts = (compute: (texts: Texts, golden: GoldenCase) => unknown): Compute => {
  return (golden) => compute(TextInputs.parse(golden.inputs), golden);
};

const computes: Readonly<Record<string, Compute>> = {
  "gsm8k.compute_score": onTexts((texts) => ({ strict: gsm8k(texts, "strict"), flexible: gsm8k(texts, "flexible") })),
  "math_reward.compute_score": onTexts(mathReward),
  "math_dapo.compute_score": onTexts(mathDapo),
  "search_r1_like_qa_em.compute_score": searchQa,
  "geo3k.compute_score": onTexts(({ solution_str, ground_truth }) => scoreGeo3k(solution_str, ground_truth)),
  "prime_math.compute_score": onTexts(primeMath),
  "math_verify.compute_score": onTexts((texts) => ({ score: scoreMathVerify(texts.solution_str, texts.ground_truth) })),
  default_compute_score: dispatch,
};

/** What differs from the golden outputs; empty when nothing does. */
export async function checkRewardScores(golden: GoldenCase): Promise<string[]> {
  const name = golden.function ?? "";
  const compute = Object.hasOwn(computes, name) ? computes[name] : undefined;
  return compute === undefined
    ? [`${golden.name}: there is no check for \`${name}\``]
    : check(golden, () => compute(golden));
}

function gsm8k({ solution_str, ground_truth }: Texts, method: Gsm8kMethod) {
  return {
    extracted: extractGsm8k(solution_str, method),
    score: scoreGsm8k(solution_str, ground_truth, { method }),
    "score_format0.1": scoreGsm8k(solution_str, ground_truth, { method, formatScore: 0.1 }),
  };
}

function mathReward({ solution_str, ground_truth }: Texts) {
  const box = lastBox(solution_str);
  const answer = box === null ? null : contentOf(box);
  const stripped = [answer === null ? null : normalizeHendrycks(answer), normalizeHendrycks(ground_truth)];
  return {
    score: scoreMathReward(solution_str, ground_truth),
    last_boxed: box,
    stripped_pred_gt: box !== null && answer === null ? null : stripped,
  };
}

function mathDapo({ solution_str, ground_truth }: Texts, { version = "" }: GoldenCase) {
  const isNew = !version.startsWith("0.7");
  const scored = scoreMathDapo(solution_str, ground_truth, { boxedFallback: isNew });
  if (isNew) return { default: scored };
  return {
    minerva: scored,
    strict_box: scoreMathDapo(solution_str, ground_truth, { strictBox: true }),
    normalized_ground_truth: normalizeDapo(ground_truth),
  };
}

function searchQa({ inputs }: GoldenCase) {
  const { solution_str, ground_truth } = QaInputs.parse(inputs);
  const score = (options: SearchQaOptions) => scoreSearchQa(solution_str, ground_truth.target, options);
  return {
    em: score({}),
    "em_format0.2": score({ formatScore: 0.2 }),
    subem: score({ substring: true }),
    extracted: extractSearchAnswer(solution_str),
    normalized_targets: ground_truth.target.map(normalizeSearchAnswer),
  };
}

/**
 * verl's second value, whether the form is right, is true where there are steps and a box; and where the answer is right by
 * the first of two rules. Which rule it was is not told apart here.
 */
function primeMath({ solution_str, ground_truth }: Texts, { outputs }: GoldenCase) {
  const theirs = z.object({ result: z.tuple([z.boolean(), z.boolean(), z.string()]) }).safeParse(outputs).data;
  const isRight = scorePrimeMath(solution_str, ground_truth) === 1;
  const hasForm = solution_str.includes("Step 2:") && solution_str.includes("\\box");
  const isForm = hasForm || (isRight && theirs?.result[1] === true);
  return { result: [isRight, isForm, extractPrimeAnswer(solution_str)] };
}

async function dispatch({ inputs }: GoldenCase) {
  const { data_source: dataSource, solution_str: response, ground_truth: groundTruth } = DispatchInputs.parse(inputs);
  const input = { dataSource, response, groundTruth, prompt: "", extraInfo: {}, responseLength: response.length };
  return { score: await builtinScore(input) };
}
