/**
 * Supervised fine-tuning: learn the marked tokens of every row, one optimizer step per batch. `supervised.ts` is the loop.
 */
import { likelihoodLoss } from "../../algos/losses/likelihood-loss.ts";
import type { SftConfig } from "../../config/sft/schema.ts";
import type { TokenRow } from "../../engine/contract.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { readTrainable } from "../open-engine.ts";
import { loadExamples } from "./sft-data.ts";
import { trainRows } from "./supervised.ts";

/** Train to the end, or until the signal is aborted. */
export async function trainSft(config: SftConfig, context: TrainContext): Promise<void> {
  const folder = await fetchModel(config.model.path, context);
  await readTrainable(config, folder); // a model that cannot be trained says so before all the rows are read
  const { train, validation, tokenizerFolder, fingerprint } = await loadExamples(config, folder, context);
  await trainRows<TokenRow>(
    config,
    {
      verb: "sft",
      role: "actor",
      noun: "row",
      model: { folder, tokenizerFolder },
      train,
      validation,
      fingerprint,
      async learn(model, rows, { pass }) {
        const { loss } = await model.train(rows, likelihoodLoss, {
          ...pass("training"),
          scalars: { tokens: countTargets(rows) },
        });
        return { metrics: { "train/loss": loss! }, rows };
      },
      // The mean negative log-likelihood over all validation tokens.
      async measure(model, rows, options) {
        let total = 0;
        for (const { logprobs } of await model.forward(rows, ["logprobs"], options))
          for (const value of logprobs!) total -= value;
        return { "val/loss": total / countTargets(rows) };
      },
    },
    context,
  );
}

/** Tokens to learn; the first token of a row has nothing before it to be predicted from. */
function countTargets(rows: readonly TokenRow[]): number {
  let count = 0;
  for (const { ids, mask } of rows) for (let t = 1; t < ids.length; t++) count += mask[t]!;
  return Math.max(1, count);
}
