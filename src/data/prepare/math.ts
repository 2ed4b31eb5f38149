/** MATH by rule, and the two competition sets that verl prepares for its code interpreter. */
import { z } from "zod";
import { UserError } from "../../util/errors.ts";
import { describe, parseColumn, placeOf, type Row } from "../row.ts";
import { cellOf, type Dataset, type Output, textOf, trainAndTest, user } from "./dataset.ts";

const mathRepo = "DigitalLearningGmbH/MATH-lighteval";
const instruction = "Let's think step by step and output the final answer within \\boxed{}.";

/**
 * The content of the last box of a solution. As in verl, a single `\boxed ` with a space wins over every `\boxed{…}` and
 * goes up to the next `$`.
 */
function boxedAnswer(row: Row, solution: string): string {
  const spaced = solution.split("\\boxed ").slice(1).at(-1);
  if (spaced !== undefined) return spaced.split("$", 1)[0] ?? "";
  const opener = "\\boxed{";
  const start = solution.lastIndexOf(opener);
  let depth = 0;
  for (let at = start; start >= 0 && at < solution.length; at++) {
    if (solution[at] === "{") depth++;
    else if (solution[at] === "}" && --depth === 0) return solution.slice(start + opener.length, at);
  }
  throw new UserError(
    `${placeOf(row)}, column \`solution\`: expected a solution with its answer in \\boxed{…}, found ${describe(solution)}.`,
  );
}

const Truth = z.looseObject(
  { ground_truth: z.unknown() },
  { error: "an object with `ground_truth`, such as {style, ground_truth}" },
);
const Info = z.record(z.string(), z.unknown(), { error: "an object" });

/** Rows that are in verl's form already, with what its code interpreter needs. */
const withInterpreter: readonly Output[] = [
  {
    file: "train.parquet",
    split: "train",
    takes: [],
    make(row) {
      const { ground_truth } = parseColumn(row, "reward_model", Truth, cellOf(row, "reward_model"));
      const info = parseColumn(row, "extra_info", Info, cellOf(row, "extra_info"));
      const tools_kwargs = { code_interpreter: { create_kwargs: { ground_truth } } };
      return { agent_name: "tool_agent", extra_info: { ...info, need_tools_kwargs: true, tools_kwargs } };
    },
  },
];

export const math: readonly Dataset[] = [
  {
    name: "math",
    aliases: ["math_dataset"],
    summary: `competition math with a rule reward (${mathRepo})`,
    source: { repo: mathRepo, config: null },
    saveDir: "~/data/math",
    hasExamples: true,
    outputs: trainAndTest({
      takes: ["problem", "solution"],
      make: (row, { split, index }) => ({
        data_source: mathRepo,
        prompt: [user(`${textOf(row, "problem")} ${instruction}`)],
        ability: "math",
        reward_model: { style: "rule", ground_truth: boxedAnswer(row, textOf(row, "solution")) },
        extra_info: { split, index },
      }),
    }),
  },
  {
    name: "dapo_multiturn_w_tool",
    aliases: [],
    summary: "DAPO-Math-17k with the tool code_interpreter (BytedTsinghua-SIA/DAPO-Math-17k)",
    source: { repo: "BytedTsinghua-SIA/DAPO-Math-17k", config: null },
    saveDir: "~/data/retool_dapo",
    outputs: withInterpreter,
  },
  {
    name: "aime2024_multiturn_w_tool",
    aliases: [],
    summary: "AIME 2024 with the tool code_interpreter (BytedTsinghua-SIA/AIME-2024)",
    source: { repo: "BytedTsinghua-SIA/AIME-2024", config: null },
    saveDir: "~/data/retool_aime2024",
    outputs: withInterpreter,
  },
];
