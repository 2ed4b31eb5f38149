/** Questions to be answered with a search tool, from the rows of Search-R1. */
import { UserError } from "../../util/errors.ts";
import { isObject } from "../json-files.ts";
import { placeOf } from "../row.ts";
import { type Dataset, system, textOf, trainAndTest, user } from "./dataset.ts";

const repo = "PeterJinGo/nq_hotpotqa_train";
const assistantPrompt = "You are a helpful and harmless assistant.";
/** The protocol of the answer; the scorer of `searchR1_*` reads <answer>. */
const protocol =
  "Answer the given question. You must conduct reasoning inside <think> and </think> " +
  "first every time you get new information. After reasoning, if you find you lack " +
  "some knowledge, you can call a search engine by <tool_call> query </tool_call> " +
  "and it will return the top searched results between <tool_response> and " +
  "</tool_response>. You can search as many times as your want. If you find no " +
  "further external knowledge needed, you can directly provide the answer inside " +
  "<answer> and </answer>, without detailed illustrations. For example, " +
  "<answer> Beijing </answer>. Question: ";

export const searchR1: Dataset = {
  name: "search_r1",
  aliases: ["preprocess_search_r1_dataset", "searchr1"],
  summary: `questions to answer with a search tool (${repo})`,
  source: { repo, config: null },
  saveDir: "~/data/searchR1_processed_direct",
  outputs: trainAndTest({
    takes: "all",
    make(row, { split, index }) {
      const question = textOf(row, "question");
      const data_source = `searchR1_${textOf(row, "data_source")}`;
      const { reward_model: model = null, golden_answers: answers = [], ability = null, metadata = null } = row.values;
      const ground_truth = isObject(model) && Object.hasOwn(model, "ground_truth") ? model.ground_truth : answers;
      if (ground_truth === null)
        throw new UserError(`${placeOf(row)}: there is neither \`reward_model.ground_truth\` nor \`golden_answers\`.`);
      const create_kwargs = { ground_truth, question, data_source };
      return {
        data_source,
        prompt: [system(assistantPrompt), user(protocol + question)],
        ability,
        reward_model: model,
        extra_info: { index, need_tools_kwargs: true, question, split, tools_kwargs: { search: { create_kwargs } } },
        metadata,
      };
    },
  }),
};
