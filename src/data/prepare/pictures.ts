/**
 * Datasets with pictures: Geometry3K by rule and with a tool, and the captions of verl's example of supervised
 * fine-tuning with pictures.
 *
 * The bytes of the pictures are copied (verl's scripts encode them again, to the same pixels). The embedded
 * engine trains on text only and refuses such rows; the files are for engines that take them.
 */
import { z } from "zod";
import { UserError } from "../../util/errors.ts";
import { Random } from "../../util/random.ts";
import { parseColumn, placeOf, type Row } from "../row.ts";
import { cellOf, type Dataset, type Made, system, textOf, trainAndTest, user } from "./dataset.ts";

const geometry = { repo: "hiyouga/geometry3k", config: null } as const;
const instruction =
  "You FIRST think about the reasoning process as an internal monologue and then provide the final answer. " +
  "The reasoning process MUST BE enclosed within <think> </think> tags. " +
  "The final answer MUST BE put in \\boxed{}.";
const toolPrompt =
  "You are a math expert. You are given a question and you need to solve it step by step. " +
  "Reasoning step by step before any tool call. " +
  "You should use the `calc_geo3k_reward` tool after step by step solving the question, " +
  "before generate final answer at least once and refine your answer if necessary. ";

/** The parts of a problem that both forms use. */
function problemOf(row: Row) {
  cellOf(row, "images");
  const [problem, answer] = [textOf(row, "problem"), textOf(row, "answer")];
  return { problem, answer, question: user(`${problem} ${instruction}`) };
}

const rule = (answer: string): Made => ({ style: "rule", ground_truth: answer });

const Conversation = z.array(
  z.object({ from: z.string({ error: "text" }), value: z.string({ error: "text" }) }, { error: "{from, value}" }),
  { error: "a list of {from, value}" },
);
const roles: Readonly<Record<string, string | undefined>> = { human: "user", gpt: "assistant" };

function messagesOf(row: Row): readonly Made[] {
  return parseColumn(row, "conversations", Conversation, cellOf(row, "conversations")).map(({ from, value }) => {
    const role = roles[from];
    if (role === undefined)
      throw new UserError(
        `${placeOf(row)}, column \`conversations\`: a turn is from "${from}", not from human or gpt.`,
      );
    return { role, content: value };
  });
}

/** A tenth of the rows, rounded up, is for testing, chosen with a fixed seed (verl chooses again every time). */
function tenth(count: number, isTest: boolean): readonly number[] {
  const drawn = [...new Random(1, "pokemon").permutation(count)];
  const testCount = Math.ceil(count / 10);
  return isTest ? drawn.slice(0, testCount) : drawn.slice(testCount);
}

export const pictures: readonly Dataset[] = [
  {
    name: "geo3k",
    aliases: ["geometry3k"],
    summary: "geometry problems with pictures and a rule reward (hiyouga/geometry3k)",
    source: geometry,
    saveDir: "~/data/geo3k",
    outputs: trainAndTest({
      takes: ["problem", "answer"],
      make(row, { split, index }) {
        const { problem, answer, question } = problemOf(row);
        return {
          data_source: geometry.repo,
          prompt: [question],
          ability: "math",
          reward_model: rule(answer),
          extra_info: { split, index, answer, question: problem },
        };
      },
    }),
  },
  {
    name: "geo3k_multiturn_w_tool",
    aliases: [],
    summary: "the same with the tool calc_geo3k_reward and agent_name=tool_agent",
    source: geometry,
    saveDir: "~/data/geo3k_multiturn_w_tool",
    outputs: trainAndTest({
      takes: ["problem", "answer"],
      make(row, { split, index }) {
        const { problem, answer, question } = problemOf(row);
        const tools_kwargs = { calc_geo3k_reward: { create_kwargs: { ground_truth: answer } } };
        return {
          data_source: geometry.repo,
          agent_name: "tool_agent",
          prompt: [system(toolPrompt), question],
          ability: "math",
          reward_model: rule(answer),
          extra_info: { split, index, answer, question: problem, need_tools_kwargs: true, tools_kwargs },
        };
      },
    }),
  },
  {
    name: "pokemon",
    aliases: [],
    summary: "picture captions as conversations (llamafactory/pokemon-gpt4o-captions)",
    source: { repo: "llamafactory/pokemon-gpt4o-captions", config: null },
    saveDir: "~/data/pokemon-gpt4o-captions",
    outputs: [false, true].map((isTest) => ({
      file: isTest ? "test.parquet" : "train.parquet",
      split: "train",
      takes: ["conversations"],
      choose: (count) => tenth(count, isTest),
      make: (row) => ({ messages: messagesOf(row) }),
    })),
  },
];
