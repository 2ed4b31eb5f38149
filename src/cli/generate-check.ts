/** What `trainyard generate` would say about a file of prompts. */
import { generateSchema } from "../config/generate/schema.ts";
import { promptOf } from "../data/messages.ts";
import { columnOf } from "../data/row.ts";
import { encodeWithin } from "../train/generate/responder.ts";
import { contextOf, encodingOf } from "../train/generate/source.ts";
import { type Check, configOf, eachRow, openReading, spread } from "./row-check.ts";

/** In the place of a model that is not named. */
const UNKNOWN_MODEL = { maxPositions: Number.POSITIVE_INFINITY, vocabSize: null };

/** Check rows to sample responses to. */
export const checkPrompts: Check = async (task, findings) => {
  const { config, hasModel } = configOf(task, generateSchema, {
    modelKey: "model.path",
    keys: { "data.path": [task.file], "data.output_path": "responses.jsonl" },
  });
  const { data, model, rollout } = config;
  const paths = { path: model.path, tokenizerPath: model.tokenizer_path };
  const reading = await openReading(hasModel ? paths : null, task, findings);
  const used = data.train_max_samples < 0 ? task.rows : task.rows.slice(0, data.train_max_samples);
  const encoding = encodingOf(config, reading.tokenizer, contextOf(config, reading.model ?? UNKNOWN_MODEL));
  // Without a model, lengths are unknown.
  const limited = reading.model === null ? { ...encoding, maxPromptLength: Number.POSITIVE_INFINITY } : encoding;
  const lengths: number[] = [];
  await eachRow(used, task.signal, async (row) => {
    const ids = await findings.attempt(row, () =>
      encodeWithin(promptOf(row, data.prompt_key, columnOf(row, data.prompt_key, "data.prompt_key")), limited),
    );
    if (ids !== null) lengths.push(ids.length);
  });
  if (reading.model !== null && lengths.length > 0)
    findings.say("note", `The prompts have ${spread(lengths)}; \`rollout.prompt_length\` is ${rollout.prompt_length}.`);
  return used.length;
};
