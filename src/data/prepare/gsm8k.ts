/**
 * GSM8K in the forms verl's scripts give it: questions to train on by rule, conversations for supervised fine-tuning,
 * and questions with a tool or an interaction.
 */
import { UserError } from "../../util/errors.ts";
import { describe, placeOf, type Row } from "../row.ts";
import { type At, assistant, type Dataset, type Made, system, textOf, trainAndTest, user } from "./dataset.ts";

const source = { repo: "openai/gsm8k", config: "main" } as const;
const takes = ["question", "answer"] as const;

/** What the scorer of `openai/gsm8k` looks for; the second spelling is that of verl's scripts with tools. */
const instruction = 'Let\'s think step by step and output the final answer after "####".';
const toolInstruction = "Let's think step by step and output the final answer after `####`.";

const expert = "You are a math expert. You are given a question and you need to solve it step by step.";
const answerForm = "Put your final answer in the format of `#### <answer>`.";
const toolPrompt = `${expert} Reasoning step by step before any tool call. \
You should use the \`calc_gsm8k_reward\` tool after step by step solving the question, \
before generate final answer at least once and refine your answer if necessary. ${answerForm}`;
const interactionPrompt = `${expert} You should rethinking carefully if user point out your answer is wrong. ${answerForm}`;

/** The number behind the first `#### `, without thousands commas. */
function solutionOf(row: Row, answer: string): string {
  const found = /#### (-?[0-9.,]+)/.exec(answer)?.[1];
  if (found !== undefined) return found.replaceAll(",", "");
  throw new UserError(
    `${placeOf(row)}, column \`answer\`: expected a solution that ends in #### and a number, found ${describe(answer)}.`,
  );
}

type Question = { readonly raw: string; readonly answer: string; readonly solution: string };

function questionOf(row: Row): Question {
  const answer = textOf(row, "answer");
  return { raw: textOf(row, "question"), answer, solution: solutionOf(row, answer) };
}

/** The columns that all reinforcement-learning forms share; `more` goes into `extra_info`. */
function rlRow(
  { raw, answer, solution }: Question,
  { split, index }: At,
  prompt: Made["prompt"],
  more: Made = {},
): Made {
  return {
    prompt,
    ability: "math",
    reward_model: { style: "rule", ground_truth: solution },
    extra_info: { split, index, answer, question: raw, ...more },
  };
}

/** The prompt and the keywords of rows that use the tool `calc_gsm8k_reward`. */
function toolRow(row: Row, at: At): Made {
  const question = questionOf(row);
  const content = `${question.raw} ${toolInstruction}`;
  const truth = { ground_truth: question.solution };
  return rlRow(question, at, [system(toolPrompt), user(content)], {
    need_tools_kwargs: true,
    tools_kwargs: { calc_gsm8k_reward: { create_kwargs: truth } },
    interaction_kwargs: { query: content, ...truth },
  });
}

const dataSource = { data_source: source.repo };

export const gsm8k: readonly Dataset[] = [
  {
    name: "gsm8k",
    aliases: [],
    summary: "grade-school math with a rule reward (openai/gsm8k): 7473 train, 1319 test",
    source,
    saveDir: "~/data/gsm8k",
    outputs: trainAndTest({
      takes,
      make(row, at) {
        const question = questionOf(row);
        return { ...dataSource, ...rlRow(question, at, [user(`${question.raw} ${instruction}`)]) };
      },
    }),
  },
  {
    name: "gsm8k_multiturn_sft",
    aliases: ["gsm8k_sft"],
    summary: "GSM8K as conversations in the column messages, for `trainyard sft`",
    source,
    saveDir: "~/data/gsm8k_sft",
    outputs: trainAndTest({
      takes,
      make: (row) => ({
        messages: [user(`${textOf(row, "question")} ${instruction}`), assistant(textOf(row, "answer"))],
      }),
    }),
  },
  {
    name: "gsm8k_multiturn_w_tool",
    aliases: [],
    summary: "GSM8K with the tool calc_gsm8k_reward in tools_kwargs",
    source,
    saveDir: "~/data/gsm8k",
    outputs: trainAndTest({ takes, make: (row, at) => ({ ...dataSource, ...toolRow(row, at) }) }),
  },
  {
    name: "gsm8k_tool_agent_loop",
    aliases: [],
    summary: "the same, with agent_name=tool_agent in every row",
    source,
    saveDir: "~/data/gsm8k",
    outputs: trainAndTest({
      takes,
      make: (row, at) => ({ ...dataSource, agent_name: "tool_agent", ...toolRow(row, at) }),
    }),
  },
  {
    name: "gsm8k_multiturn_w_interaction",
    aliases: [],
    summary: "GSM8K with the interaction gsm8k in interaction_kwargs",
    source,
    saveDir: "~/data/gsm8k",
    outputs: trainAndTest({
      takes,
      make(row, at) {
        const question = questionOf(row);
        const content = `${question.raw} ${toolInstruction}`;
        const kwargs = { name: "gsm8k", query: content, ground_truth: question.solution };
        const prompt = [system(interactionPrompt), user(content)];
        return { ...dataSource, ...rlRow(question, at, prompt, { interaction_kwargs: kwargs }) };
      },
    }),
  },
];
