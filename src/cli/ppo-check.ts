/** What `trainyard ppo` would say about a file of prompts: each row is read, scored with an empty response, and encoded. */

import { checkDataSource, partsFor, rewardTree } from "../config/ppo/reward-tree.ts";
import { ppoSchema } from "../config/ppo/schema.ts";
import type { PpoConfig } from "../config/ppo/tree.ts";
import { chooseSamples, encodePrompt, type RlRow, rlRow } from "../data/rl-rows.ts";
import { parseTests } from "../rewards/code-cases.ts";
import type { RewardFunction } from "../rewards/reward.ts";
import { builtinScore } from "../rewards/scorers.ts";
import { promptOptions } from "../train/prompt-options.ts";
import type { Findings } from "./findings.ts";
import {
  type Check,
  type CheckTask,
  configOf,
  eachRow,
  openReading,
  type Reading,
  Repeats,
  rowsOf,
  spread,
} from "./row-check.ts";

/** Check rows to sample from and to reward. */
export const checkPrompts: Check = async (task, findings) => {
  const { config, hasModel } = configOf(task, ppoSchema, {
    modelKey: "actor_rollout_ref.model.path",
    keys: { "data.train_files": [task.file] },
  });
  const { data, trainer, actor_rollout_ref: all } = config;
  const { path, tokenizer_path: tokenizerPath } = all.model;
  const reading = await openReading(hasModel ? { path, tokenizerPath } : null, task, findings);
  const selection = { maxSamples: data.train_max_samples, shuffle: data.shuffle, seed: data.seed ?? trainer.seed };
  const rows = await rowsOf(task, data, reading);
  const used = chooseSamples(rows.length, selection).map((index) => rows[index]!);
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
    const length = reading.model === null ? null : await checkLength(read, config, reading, findings);
    if (length !== null) lengths.push(length);
    if (length === null || length <= data.max_prompt_length || !data.filter_overlong_prompts) kept++;
  });

  if (lengths.length > 0)
    findings.say(
      "note",
      `The prompts have ${spread(lengths)}; \`data.max_prompt_length\` is ${data.max_prompt_length}.`,
    );
  checkCount(kept, config, task, findings);
  return used.length;
};

/** Fewer prompts than a step takes; a warning where the size of a step is only the default. */
function checkCount(
  kept: number,
  { data }: PpoConfig,
  { config: given, overrides }: CheckTask,
  findings: Findings,
): void {
  if (kept >= data.train_batch_size) return;
  const isSet = [...given, ...overrides].some(({ path }) => path === "data.train_batch_size");
  findings.say(
    isSet ? "error" : "warning",
    `The file gives ${kept} prompt${kept === 1 ? "" : "s"}, fewer than the ${data.train_batch_size} of one step (\`data.train_batch_size\`). ` +
      "Lower it, or give more prompts.",
  );
}

/** The length of a prompt in tokens; null where the chat template refuses it. */
async function checkLength(
  row: RlRow,
  config: PpoConfig,
  { tokenizer }: Reading,
  findings: Findings,
): Promise<number | null> {
  const { data } = config;
  const options = promptOptions(config);
  const { maxPromptLength: limit } = options;
  const isLeftOut = data.filter_overlong_prompts;
  const whole = await findings.attempt(
    row.source,
    () => encodePrompt(row, tokenizer, { ...options, maxPromptLength: Number.POSITIVE_INFINITY }),
    isLeftOut ? "warning" : "error", // with the filter on, a row that the template refuses is left out
  );
  if (whole === null || whole.length <= limit) return whole?.length ?? null;
  const message = `the prompt has ${whole.length} tokens, and \`data.max_prompt_length\` is ${limit}`;
  if (isLeftOut)
    findings.add("warning", row.source, `${message}: the row is left out (\`data.filter_overlong_prompts\`).`);
  else if (data.truncation !== "error")
    findings.add("warning", row.source, `${message}: it is cut (\`data.truncation\`=${data.truncation}).`);
  else await findings.attempt(row.source, () => encodePrompt(row, tokenizer, options));
  return whole.length;
}

/** Score an empty response: a missing scorer, or one that cannot use the ground truth, gives a message. */
async function checkReward(row: RlRow, config: PpoConfig, findings: Findings): Promise<void> {
  const tree = rewardTree(config);
  const parts = await findings.attempt(row.source, () => {
    checkDataSource(tree, row.dataSource);
    return partsFor(tree, row.dataSource);
  });
  if (parts === null) return;
  const isCalled = parts.some(({ part }) => part.use === "function");
  if (isCalled && (row.rewardModel?.ground_truth ?? null) === null)
    findings.add("warning", row.source, "there is no `reward_model.ground_truth`, so the reward function gets null.");
  const input = {
    dataSource: row.dataSource,
    prompt: "",
    response: "",
    responseLength: 0,
    row: row.source.row,
    groundTruth: row.rewardModel?.ground_truth,
    extraInfo: row.extraInfo,
  };
  const code: RewardFunction = (sample) => {
    parseTests(sample);
    return 0;
  };
  for (const { part } of parts) {
    if (part.use !== "scorer" || part.scorer.kind !== "builtin") continue;
    const { name } = part.scorer;
    await findings.attempt(row.source, () => builtinScore(input, { code, ...(name !== undefined && { name }) }));
  }
}
