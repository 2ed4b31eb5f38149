/** What `trainyard reward` would say about a file of preference pairs. */
import { rewardSchema } from "../config/reward/schema.ts";
import { isUndecidable } from "../data/preference-rows.ts";
import { pairEncoder } from "../train/row-encoders.ts";
import { paddingOf } from "../train/supervised/preference-data.ts";
import { type Check, checkVocabulary, eachRow, Repeats } from "./row-check.ts";
import { firstRows, openSupervised, sayLengths, unlimited } from "./supervised-check.ts";

/** Check preference pairs. */
export const checkPairs: Check = async (task, findings) => {
  const { config, reading, rows } = await openSupervised(task, rewardSchema, findings);
  const { data } = config;
  const used = firstRows(rows, data.train_max_samples);
  const padId = reading.model === null ? null : (paddingOf(reading.model) ?? reading.tokenizer.padId);
  const encodeWhole = pairEncoder(config, reading.tokenizer, { padId, limits: unlimited });
  const encode = pairEncoder(config, reading.tokenizer, { padId });
  const { max_length: maxLength } = data;
  const repeats = new Repeats();
  const lengths: number[] = [];
  await eachRow(used, task.signal, async (row) => {
    const whole = await findings.attempt(row, () => encodeWhole(row));
    if (whole === null) return;
    const longest = Math.max(whole.chosen.length, whole.rejected.length);
    lengths.push(whole.chosen.length, whole.rejected.length);
    const isLong = reading.model !== null && longest > maxLength;
    const pair = isLong ? await findings.attempt(row, () => encode(row)) : whole;
    if (pair === null) return;
    for (const ids of [pair.chosen, pair.rejected])
      await findings.attempt(row, () => checkVocabulary(row, ids, reading));
    if (isUndecidable(pair))
      findings.add("warning", row, "cut to `data.max_length`, its two sides are the same: the pair is left out.");
    else if (pair.isCut) findings.add("warning", row, `a side is cut to \`data.max_length\`=${maxLength}.`);
    const { [data.prompt_key]: prompt, [data.chosen_key]: chosen, [data.rejected_key]: rejected } = row.values;
    const first = repeats.earlier(row, [prompt, chosen, rejected]);
    if (first !== null)
      findings.add("warning", row, `the pair is that of row ${first} again. Remove it, unless it is to count twice.`);
  });
  sayLengths(findings, "sides", { lengths, limit: maxLength, reading });
  return used.length;
};
