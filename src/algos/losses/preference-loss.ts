/**
 * Learning from preferences (Bradley and Terry 1952; InstructGPT, arXiv:2203.02155, eq. 1): the chosen side of a pair
 * should score higher, with probability σ(chosen − rejected − margin).
 *
 *   loss = −mean log σ(d),  d = chosen − rejected − margin,  ∂loss/∂chosen = −σ(−d) / pairs = −∂loss/∂rejected
 *
 * An engine may cut a batch between the two sides of a pair, so no traced loss sees both. It need not: the loss reads
 * the scores alone, so its derivative by each score, taken from a forward pass, makes a linear loss with exactly the
 * same gradient. The margin column is Llama 2's (arXiv:2307.09288, eq. 2).
 */
import * as o from "../../graph/ops.ts";
import { invariant } from "../../util/errors.ts";
import { named } from "./aggregate.ts";
import { combineTerms, type LossTerm, type TokenLoss } from "./token-loss.ts";

/** The scores of some pairs. */
export type PairScores = {
  readonly chosen: ArrayLike<number>;
  readonly rejected: ArrayLike<number>;
  readonly margins: ArrayLike<number>;
};

/** The loss of a batch of pairs: means over its pairs, and the derivative of the loss by each score. */
export type PreferenceResult = {
  /** `loss`, `accuracy` (share of pairs whose chosen side scores higher), `margin` (its lead), both mean scores. */
  readonly metrics: Readonly<Record<(typeof preferenceMetrics)[number], number>>;
  readonly chosenWeights: Float64Array;
  readonly rejectedWeights: Float64Array;
};

const preferenceMetrics = ["loss", "accuracy", "margin", "chosen_score", "rejected_score"] as const;

/** Loss, metrics and derivatives of at least one pair. */
export function bradleyTerry({ chosen, rejected, margins }: PairScores): PreferenceResult {
  const pairs = chosen.length;
  invariant(
    pairs > 0 && rejected.length === pairs && margins.length === pairs,
    "a pair has two scores and a margin, and there is a pair",
  );
  const totals = { loss: 0, accuracy: 0, margin: 0, chosen_score: 0, rejected_score: 0 };
  const chosenWeights = new Float64Array(pairs);
  const rejectedWeights = new Float64Array(pairs);
  for (let i = 0; i < pairs; i++) {
    const lead = chosen[i]! - rejected[i]!;
    const d = lead - margins[i]!;
    totals.loss += softplus(-d);
    totals.accuracy += lead > 0 ? 1 : 0;
    totals.margin += lead;
    totals.chosen_score += chosen[i]!;
    totals.rejected_score += rejected[i]!;
    chosenWeights[i] = -sigmoid(-d) / pairs;
    rejectedWeights[i] = -chosenWeights[i]!;
  }
  for (const name of preferenceMetrics) totals[name] /= pairs;
  return { metrics: totals, chosenWeights, rejectedWeights };
}

const weightedScoreTerm: LossTerm = {
  name: "loss",
  weight: 1,
  heads: ["scores"],
  extra: ["weight"],
  build: (tensors) => ({ loss: o.sum(o.mul(named(tensors, "scores"), named(tensors, "weight"))) }),
};

/** The linear loss: each score times the weight that its row has. */
export const weightedScores: TokenLoss = combineTerms("weighted scores", "weighted scores", [weightedScoreTerm]);

/** log(1 + exp(x)), for any x. */
function softplus(x: number): number {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}

function sigmoid(x: number): number {
  const small = Math.exp(-Math.abs(x));
  return x >= 0 ? 1 / (1 + small) : small / (1 + small);
}
