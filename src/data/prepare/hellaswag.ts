/** HellaSwag: the beginning of a text as the prompt, the four endings and the right one in `reward_model`. */
import { z } from "zod";
import { UserError } from "../../util/errors.ts";
import { parseColumn, placeOf, type Row } from "../row.ts";
import { cellOf, type Dataset, type Output, textOf, user } from "./dataset.ts";

const repo = "Rowan/hellaswag";
const Endings = z.array(z.string({ error: "text" }), { error: "a list of texts" });

/** The text without the marks of the web pages that it was taken from. */
function cleaned(text: string): string {
  return stripped(text)
    .replaceAll(" [title]", ". ")
    .replace(/\[[^\n]*?\]/g, "")
    .replaceAll("  ", " ");
}

/** Python's `strip`: white space in Python's sense, which the byte order mark is not. */
function stripped(text: string): string {
  const space = "[\\t-\\r\\x1c-\\x1f \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
  return text.replace(new RegExp(`^${space}|${space}$`, "g"), "");
}

/** Python's `capitalize`: the first letter large, all others small. */
function capitalized(text: string): string {
  const [first = "", ...rest] = text;
  return first.toUpperCase() + rest.join("").toLowerCase();
}

function labelOf(row: Row): number {
  const label = Number(textOf(row, "label"));
  if (Number.isInteger(label)) return label;
  throw new UserError(
    `${placeOf(row)}, column \`label\`: expected the number of an ending, found "${textOf(row, "label")}".`,
  );
}

const outputOf = (split: string): Output => ({
  file: `${split}.parquet`,
  split,
  takes: [],
  make(row, { index }) {
    const context = `${textOf(row, "ctx_a")} ${capitalized(textOf(row, "ctx_b"))}`;
    const choices = parseColumn(row, "endings", Endings, cellOf(row, "endings")).map(cleaned);
    return {
      data_source: repo,
      prompt: [user(cleaned(`${textOf(row, "activity_label")}: ${context}`))],
      ability: "nlp",
      reward_model: { style: "model", eval: "multiple_choice", ground_truth: labelOf(row), choices },
      extra_info: { split, index },
    };
  },
});

export const hellaswag: Dataset = {
  name: "hellaswag",
  aliases: [],
  summary: `sentence completion with four choices (${repo})`,
  source: { repo, config: null },
  saveDir: "~/data/hellaswag",
  read: (row) => (textOf(row, "label") === "" ? null : row),
  outputs: ["train", "validation", "test"].map(outputOf),
};
