/**
 * Golden cases of topic `reward_managers`: scores of a batch, what managers make of them, rewards on tokens, columns.
 *
 * Responses are taken from the texts in the golden file, their lengths from the attention mask; only tokens of responses
 * are compared. verl's lists of columns leave out the rows whose scorer has none, ours hold null there. Its older path,
 * which made these cases, has no column `acc` for a bare score outside of `dapo`; its newer one and ours have. And where
 * its manager `prime` turns a batch into zeros because one score has columns, ours takes the score.
 */
import { z } from "zod";
import { checkReward } from "../../src/rewards/check.ts";
import { managerRule, rewardColumns, tokenRewards } from "../../src/rewards/placement.ts";
import type { RewardInput, RewardValue, Score } from "../../src/rewards/reward.ts";
import { builtinScore } from "../../src/rewards/scorers.ts";
import { invariant } from "../../src/util/errors.ts";
import { check, type GoldenCase } from "./compare.ts";

const Rows = z.array(z.array(z.number()));
const Inputs = z.object({
  responses: Rows,
  attention_mask: Rows,
  decoded_valid_responses: z.array(z.string()),
  ground_truth: z.array(z.unknown()),
  data_source: z.array(z.string()),
  rm_scores: Rows.optional(),
  overlong_buffer_cfg: z
    .object({ enable: z.boolean(), len: z.number(), penalty_factor: z.number(), log: z.boolean() })
    .nullish(),
  max_resp_len: z.number().nullish(),
});
type Inputs = z.infer<typeof Inputs>;
const Outputs = z.object({ reward_tensor: Rows, reward_extra_info: z.record(z.string(), z.array(z.unknown())) });

const managers: Readonly<Record<string, string>> = {
  NaiveRewardManager: "naive",
  BatchRewardManager: "batch",
  DAPORewardManager: "dapo",
  PrimeRewardManager: "prime",
};

/** What differs from the golden outputs; empty when nothing does. */
export async function checkRewardManagers(golden: GoldenCase): Promise<string[]> {
  const name = golden.function ?? "";
  const manager = Object.hasOwn(managers, name) ? managers[name] : undefined;
  if (manager === undefined) return [`${golden.name}: there is no check for \`${name}\``];
  const parsed = Outputs.safeParse(golden.outputs);
  if (!parsed.success) return check(golden, () => managed(manager, Inputs.parse(golden.inputs), rewardOf(golden)));
  const inputs = Inputs.parse(golden.inputs);
  const expected = golden.name.startsWith("prime/with_dict_scorer")
    ? { ...parsed.data, reward_tensor: await takenScores(inputs) }
    : parsed.data;
  const tokens = expected.reward_tensor.map((row, i) => row.slice(0, lengthOf(inputs, i)));
  return check({ ...golden, outputs: { ...expected, reward_tensor: tokens } }, () =>
    managed(manager, inputs, rewardOf(golden)),
  );
}

type Reward = (input: RewardInput, row: number) => RewardValue | Promise<RewardValue>;

/** The reward function of a case. */
function rewardOf({ name }: GoldenCase): Reward {
  if (!name.startsWith("naive/custom(score=len(solution_str)/8)")) return (input) => builtinScore(input);
  return ({ response }) => ({ score: response.length / 8, acc: response.length > 8, fmt: 0.25 });
}

async function managed(manager: string, inputs: Inputs, value: Reward) {
  const rule = managerRule(manager, inputs);
  const given = await scoresOf(inputs, value);
  const scores = given.map((score, i) => rule(score, lengthOf(inputs, i)));
  const isBare = given.map(({ extra }) => Object.keys(extra).length === 0);
  const columns = Object.entries(rewardColumns(scores)).map(([column, values]) => {
    const isTold = (i: number) => values[i] !== null && (column !== "acc" || manager === "dapo" || !isBare[i]);
    return [column, values.filter((_, i) => isTold(i))] as const;
  });
  return {
    reward_tensor: scores.map((score, i) => tokenRewards(score, lengthOf(inputs, i))),
    reward_extra_info: Object.fromEntries(columns),
  };
}

function scoresOf(inputs: Inputs, value: Reward): Promise<Score[]> {
  return Promise.all(
    inputs.decoded_valid_responses.map(async (response, i) => {
      const responseLength = lengthOf(inputs, i);
      const input = {
        dataSource: inputs.data_source[i] ?? "",
        groundTruth: inputs.ground_truth[i],
        response,
        responseLength,
        prompt: "",
        extraInfo: {},
      };
      const fromModel = inputs.rm_scores?.[i]?.slice(0, responseLength);
      const { score, failure } = checkReward(fromModel ?? (await value(input, i)), input);
      invariant(score !== undefined, `row ${i} of a golden case has no score: ${failure?.message}`);
      return score;
    }),
  );
}

/** Every score on its last token. */
async function takenScores(inputs: Inputs): Promise<number[][]> {
  const scores = await scoresOf(inputs, (input) => builtinScore(input));
  return scores.map(({ score }, i) =>
    Array.from({ length: lengthOf(inputs, i) }, (_, t) => (t === lengthOf(inputs, i) - 1 ? score : 0)),
  );
}

/** How many tokens a response has: the ones of its attention mask behind the prompt. */
function lengthOf({ responses, attention_mask }: Inputs, row: number): number {
  const width = responses[row]?.length ?? 0;
  return (attention_mask[row] ?? []).slice(-width).reduce((sum, it) => sum + it, 0);
}
