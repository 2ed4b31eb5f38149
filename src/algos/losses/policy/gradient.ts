/**
 * Losses without a clip: the policy gradient itself (`gpg`, and `reinforce`, which `bypass_mode` uses), and the policy
 * gradient with a quadratic leash (`dro`). They act as if the policy had not moved since it sampled, so use them with
 * one update per batch.
 */
import type { Node } from "../../../graph/node.ts";
import * as o from "../../../graph/ops.ts";
import { UserError } from "../../../util/errors.ts";
import type { PolicyLoss, PolicyTerms } from "./policy-loss.ts";

/** Group Policy Gradient (arXiv:2504.02546): -advantage x log-prob. verl reports no metrics for it. */
export const gpg: PolicyLoss = {
  name: "gpg",
  build: (terms) => ({ loss: terms.total(gradientLoss(terms)), metrics: {} }),
};

/** REINFORCE: -advantage x log-prob x rollout weight. Not a `loss_mode` of its own in verl. */
export const reinforce: PolicyLoss = {
  name: "reinforce",
  build: (terms) => ({
    loss: terms.total(gradientLoss(terms)),
    metrics: { "actor/ppo_kl": terms.mean(o.neg(terms.logRatio)) },
  }),
};

/** Direct Reward Optimisation (arXiv:2405.19107): -(advantage x log-prob - beta/2 (log-prob - old log-prob)²). */
export const dro: PolicyLoss = {
  name: "dro",
  build(terms, { policy_loss: { dro_beta: beta } }) {
    if (beta === null || !(beta > 0)) {
      throw new UserError(`\`policy_loss.dro_beta\` is ${beta}, and the loss \`dro\` needs a number above 0. Try 0.1.`);
    }
    const leash = o.mul(o.square(terms.logRatio), beta / 2);
    return {
      loss: terms.total(o.add(gradientLoss(terms), leash)),
      metrics: { "actor/ppo_kl": terms.mean(o.neg(terms.logRatio)) },
    };
  },
};

const gradientLoss = ({ logprobs, advantages }: PolicyTerms): Node => o.neg(o.mul(logprobs, advantages));
