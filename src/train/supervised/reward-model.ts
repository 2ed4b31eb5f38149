/**
 * Reward-model training: of two conversations, score the preferred one higher; one optimizer step per batch of pairs.
 * `supervised.ts` is the loop.
 *
 * Each step scores its pairs first, because the two sides of a pair may run in different micro-batches: what the scores
 * say about the loss (`preference-loss.ts`) is then the weight of each score in the pass that makes the gradient.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { bradleyTerry, type PreferenceResult, weightedScores } from "../../algos/losses/preference-loss.ts";
import type { RewardConfig } from "../../config/reward/schema.ts";
import type { PreferencePair } from "../../data/preference-rows.ts";
import type { ForwardOptions, Model, TokenRow } from "../../engine/contract.ts";
import { counted } from "../../util/format.ts";
import { info } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { readTrainable } from "../open-engine.ts";
import { lastToken, scoreRows } from "../reward-scorer.ts";
import { loadPairs } from "./preference-data.ts";
import { trainRows } from "./supervised.ts";

/** Train to the end, or until the signal is aborted. */
export async function trainReward(config: RewardConfig, context: TrainContext): Promise<void> {
  const folder = await fetchModel(config.model.path, context);
  const modelConfig = await readTrainable(config, folder); // before all the pairs are read
  const pairs = await loadPairs(config, { folder, model: modelConfig }, context);
  const { train, validation, tokenizerFolder, fingerprint } = pairs;
  await trainRows<PreferencePair>(
    config,
    {
      verb: "reward",
      role: "reward",
      noun: "pair",
      train,
      validation,
      fingerprint,
      model: { folder, tokenizerFolder, head: "score", seed: config.trainer.seed },
      async learn(model, batch, { pass }) {
        const result = await compare(model, batch, pass("scoring"));
        const rows = weighted(batch, result);
        await model.train(rows, weightedScores, pass("training"));
        return { metrics: prefixed("train/", result.metrics), rows };
      },
      measure: async (model, rows, options) => prefixed("val/", (await compare(model, rows, options)).metrics),
      finish: (dir) => namePadding(dir, pairs.padId),
      conclude: (measured) => sayValidation(measured, validation.length),
    },
    context,
  );
}

/** Score both sides of every pair, and say what that means for the loss. */
async function compare(
  model: Model,
  pairs: readonly PreferencePair[],
  options: ForwardOptions,
): Promise<PreferenceResult> {
  const scores = await scoreRows(model, sidesOf(pairs), options);
  const chosen = scores.slice(0, pairs.length);
  const rejected = scores.slice(pairs.length);
  return bradleyTerry({ chosen, rejected, margins: pairs.map(({ margin }) => margin) });
}

/** The conversations of some pairs: all that were chosen, then all that were rejected. */
function sidesOf(pairs: readonly PreferencePair[]): Int32Array[] {
  return [...pairs.map(({ chosen }) => chosen), ...pairs.map(({ rejected }) => rejected)];
}

/** The conversations with the weight that their score has in the loss. */
function weighted(pairs: readonly PreferencePair[], result: PreferenceResult): TokenRow[] {
  const weights = [...result.chosenWeights, ...result.rejectedWeights];
  return sidesOf(pairs).map((ids, i) => {
    const mask = lastToken(ids);
    return { ids, mask, extra: { weight: Float32Array.from(mask, (counts) => counts * weights[i]!) } };
  });
}

const prefixed = (prefix: string, metrics: PreferenceResult["metrics"]): Record<string, number> =>
  Object.fromEntries(Object.entries(metrics).map(([name, value]) => [prefix + name, value]));

/** Make config.json name the padding token, without which transformers refuses to score more than one row at a time. */
async function namePadding(dir: string, padId: number | null): Promise<void> {
  if (padId === null) return;
  const path = join(dir, "config.json");
  const text = await readFile(path, "utf8");
  const entry = `"pad_token_id": ${padId}`;
  const known = /"pad_token_id": [^,\n]+/;
  // By text, because the file spells some numbers in ways that JSON.stringify does not.
  await writeFile(path, known.test(text) ? text.replace(known, entry) : text.replace("{\n", `{\n  ${entry},\n`));
}

function sayValidation(measured: Record<string, number>, pairs: number): void {
  const [accuracy, margin] = [measured["val/accuracy"]!, measured["val/margin"]!];
  info(
    `${(100 * accuracy).toFixed(1)}% of ${counted(pairs, "held-out pair")} are ranked right; ` +
      `the chosen side leads by ${margin.toFixed(3)} on average.`,
  );
}
