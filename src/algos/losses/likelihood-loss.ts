/**
 * What supervised fine-tuning trains on: the mean negative log-likelihood of the tokens to learn, over the whole batch,
 * however it is cut into micro-batches. `tokens` is their number.
 */
import { div, mul, neg, sum } from "../../graph/ops.ts";
import { named } from "./aggregate.ts";
import { combineTerms, type LossTerm, type TokenLoss } from "./token-loss.ts";

const likelihoodTerm: LossTerm = {
  name: "loss",
  weight: 1,
  heads: ["logprobs"],
  scalars: ["tokens"],
  build: (tensors) => ({
    loss: div(neg(sum(mul(named(tensors, "logprobs"), tensors.mask))), named(tensors, "tokens")),
  }),
};

/** The loss of `trainyard sft`. */
export const likelihoodLoss: TokenLoss = combineTerms("sft", "sft", [likelihoodTerm]);
