/** What `trainyard ppo` and `trainyard generate` would make of rows with prompts. */
import { generateSchema } from "../config/generate/schema.ts";
import { ppoSchema } from "../config/ppo/schema.ts";
import { rewardWay } from "../config/ppo/settings.ts";
import type { PpoConfig } from "../config/ppo/tree.ts";
import { promptOf } from "../data/messages.ts";
import { chooseSamples, encodePrompt, type RlRow, rlRow } from "../data/rl-rows.ts";
import { columnOf } from "../data/row.ts";
import { parseTests } from "../rewards/code-cases.ts";
import { builtinScore } from "../rewards/scorers.ts";
import { encodeWithin } from "../train/generate/responder.ts";
import { type Check, configOf, eachRow, openReading, type Reading, Repeats, spread } from "./data-check.ts";
import type { Findings } from "./data-findings.ts";

/** Rows to sample from and to reward. */
export const checkPpo: Check = async (task, findings) => {
  const { config, hasModel } = configOf(task, ppoSchema, {
    modelKey: "actor_rollout_ref.model.path",
    keys: { "data.train_files": [task.file] },
  });
  const { data, trainer, actor_rollout_ref: all } = config;
  const { path, tokenizer_path: tokenizerPath } = all.model;
  const reading = await openReading(hasModel ? { path, tokenizerPath } : null, task, findings);
  const selection = { maxSamples: data.train_max_samples, shuffle: data.shuffle, seed: data.seed ?? trainer.seed };
  const used = chooseSamples(task.rows.length, selection).map((index) => task.rows[index]!);
  const columns = { promptKey: data.prompt_key, rewardFnKey: data.reward_fn_key };
  const repeats = new Repeats();
  const lengths: number[] = [];
  let kept = 0;

  await eachRow(used, task.signal, async (row) => {
    const read = await findings.attempt(row, () => rlRow(row, columns));
    if (read === null) return;
    const first = repeats.earlier(row, read.prompt);
    if (first !== null)
      findings.add("warning", row, `the prompt is that of row ${first} again. Remove it, unless it is to count twice.`);
    if (read.prompt.every(({ content }) => content === ""))
      findings.add(
        "warning",
        row,
        `column \`${data.prompt_key}\`: the prompt is empty. Remove the row, or fill it in.`,
      );
    await checkReward(read, config, findings);
    const length = reading.model === null ? null : await checkPrompt(read, config, reading, findings);
    if (length !== null) lengths.push(length);
    if (length === null || length <= data.max_prompt_length || !data.filter_overlong_prompts) kept++;
  });

  if (lengths.length > 0)
    findings.say(
      "note",
      `The prompts have ${spread(lengths)}; \`data.max_prompt_length\` is ${data.max_prompt_length}.`,
    );
  if (kept < data.train_batch_size) {
    const isSet = task.overrides.some(({ path: key }) => key === "data.train_batch_size");
    findings.say(
      isSet ? "error" : "warning",
      `The file gives ${kept} prompt${kept === 1 ? "" : "s"}, fewer than the ${data.train_batch_size} of one step (\`data.train_batch_size\`). ` +
        "Lower it, or give more prompts.",
    );
  }
  return used.length;
};

/** The length of a prompt in tokens; null where the chat template refuses it. */
async function checkPrompt(
  row: RlRow,
  { data, actor_rollout_ref: all }: PpoConfig,
  { tokenizer }: Reading,
  findings: Findings,
): Promise<number | null> {
  const template = { extra: data.apply_chat_template_kwargs, template: all.model.custom_chat_template };
  const limit = data.max_prompt_length;
  const isLeftOut = data.filter_overlong_prompts;
  const whole = await findings.attempt(
    row.source,
    () => encodePrompt(row, tokenizer, { ...template, maxPromptLength: Number.POSITIVE_INFINITY, truncation: "error" }),
    isLeftOut ? "warning" : "error", // with the filter on, a row that the template refuses is left out
  );
  if (whole === null || whole.length <= limit) return whole?.length ?? null;
  const said = `the prompt has ${whole.length} tokens, and \`data.max_prompt_length\` is ${limit}`;
  if (isLeftOut)
    findings.add("warning", row.source, `${said}: the row is left out (\`data.filter_overlong_prompts\`).`);
  else if (data.truncation !== "error")
    findings.add("warning", row.source, `${said}: it is cut (\`data.truncation\`=${data.truncation}).`);
  else
    await findings.attempt(row.source, () =>
      encodePrompt(row, tokenizer, { ...template, maxPromptLength: limit, truncation: data.truncation }),
    );
  return whole.length;
}

/** Score an empty response: a scorer that cannot use the ground truth, or is not there, says so. */
async function checkReward(row: RlRow, config: PpoConfig, findings: Findings): Promise<void> {
  const { kind } = rewardWay(config);
  if (kind === "function" && (row.rewardModel?.ground_truth ?? null) === null)
    findings.add("warning", row.source, "there is no `reward_model.ground_truth`, so the reward function gets null.");
  if (kind !== "builtin") return;
  const input = {
    dataSource: row.dataSource,
    prompt: "",
    response: "",
    responseLength: 0,
    row: row.source.row,
    groundTruth: row.rewardModel?.ground_truth,
    extraInfo: row.extraInfo,
  };
  await findings.attempt(row.source, () =>
    builtinScore(input, {
      code(sample) {
        parseTests(sample);
        return 0;
      },
    }),
  );
}

/** Rows to sample responses to. */
export const checkGenerate: Check = async (task, findings) => {
  const { config, hasModel } = configOf(task, generateSchema, {
    modelKey: "model.path",
    keys: { "data.path": [task.file], "data.output_path": "responses.jsonl" },
  });
  const { data, model, rollout } = config;
  const reading = await openReading(
    hasModel ? { path: model.path, tokenizerPath: model.tokenizer_path } : null,
    task,
    findings,
  );
  const used = data.train_max_samples < 0 ? task.rows : task.rows.slice(0, data.train_max_samples);
  const maxPositions = reading.model?.maxPositions ?? Number.POSITIVE_INFINITY;
  const encoding = {
    tokenizer: reading.tokenizer,
    vocabSize: reading.model?.vocabSize ?? null,
    extra: data.apply_chat_template_kwargs,
    template: model.custom_chat_template,
    maxLength: Math.min(rollout.max_model_len ?? maxPositions, maxPositions),
    maxLengthSetting: rollout.max_model_len === null ? "the model's context" : "`rollout.max_model_len`",
    ...(reading.model === null ? {} : { maxPromptLength: rollout.prompt_length, truncation: data.truncation }),
  };
  const lengths: number[] = [];
  await eachRow(used, task.signal, async (row) => {
    const ids = await findings.attempt(row, () =>
      encodeWithin(promptOf(row, data.prompt_key, columnOf(row, data.prompt_key, "data.prompt_key")), encoding),
    );
    if (ids !== null) lengths.push(ids.length);
  });
  if (reading.model !== null && lengths.length > 0)
    findings.say("note", `The prompts have ${spread(lengths)}; \`rollout.prompt_length\` is ${rollout.prompt_length}.`);
  return used.length;
};
