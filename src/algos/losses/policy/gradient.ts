/**
 * Losses without a clip: the policy gradient itself (`gpg`, and `reinforce`, which `bypass_mode` uses), and the policy
 * gradient with a quadratic penalty (`dro`). They act as if the policy had not moved since it sampled, so use them with
 * one update per batch.
 */
import type { Node } from "../../../graph/node.ts";
import * as o from "../../../graph/ops.ts";
import { UserError } from "../../../util/errors.ts";
import { field, nullable, positive } from "../../../util/field.ts";
import { type PolicyTensors, policyLoss } from "./policy-loss.ts";

/** Group Policy Gradient (arXiv:2504.02546): -advantage x log-prob. verl reports no metrics for it. */
export const gpg = policyLoss({
  name: "gpg",
  paper: "arXiv:2504.02546",
  fields: {},
  build: (tensors) => ({ loss: tensors.total(gradientLoss(tensors)), metrics: {} }),
});

/** REINFORCE: -advantage x log-prob x rollout weight. Not a `loss_mode` of its own in verl. */
export const reinforce = policyLoss({
  name: "reinforce",
  fields: {},
  build: (tensors) => ({
    loss: tensors.total(gradientLoss(tensors)),
    metrics: { "actor/ppo_kl": tensors.mean(o.neg(tensors.logRatio)) },
  }),
});

const dro_beta = field(nullable(positive), null, "Weight of dro's quadratic term, which must be given for it.");

/** Direct Reward Optimisation (arXiv:2405.19107): -(advantage x log-prob - beta/2 (log-prob - old log-prob)²). */
export const dro = policyLoss({
  name: "dro",
  paper: "arXiv:2405.19107",
  fields: { policy_loss: { dro_beta } },
  check({ policy_loss: { dro_beta: beta } }) {
    if (beta !== null && beta > 0) return;
    throw new UserError(`\`policy_loss.dro_beta\` is ${beta}, and the loss \`dro\` needs a number above 0. Try 0.1.`);
  },
  build(tensors, { policy_loss }) {
    const beta = policy_loss.dro_beta ?? 0; // `check` has refused null
    const penalty = o.mul(o.square(tensors.logRatio), beta / 2);
    return {
      loss: tensors.total(o.add(gradientLoss(tensors), penalty)),
      metrics: { "actor/ppo_kl": tensors.mean(o.neg(tensors.logRatio)) },
    };
  },
});

const gradientLoss = ({ logprobs, advantages }: PolicyTensors): Node => o.neg(o.mul(logprobs, advantages));
