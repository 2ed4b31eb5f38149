/**
 * The table of policy losses, by the names of `policy_loss.loss_mode`, and how users add their own.
 *
 * Departure from verl: a name cannot be given to a second loss, so nobody changes `vanilla` by accident.
 */
import { UserError, unknownName } from "../../../util/errors.ts";
import { bypass_mode } from "./bypass.ts";
import { cispo, sapo, vanilla } from "./clip.ts";
import { clip_cov, kl_cov } from "./covariance.ts";
import { dppo_kl, dppo_tv } from "./divergence.ts";
import { dro, gpg } from "./gradient.ts";
import type { PolicyLoss } from "./policy-loss.ts";
import { geo_mean, gspo } from "./sequence.ts";

const builtIn: readonly PolicyLoss[] = [
  vanilla,
  gspo,
  sapo,
  gpg,
  clip_cov,
  kl_cov,
  geo_mean,
  cispo,
  bypass_mode,
  dppo_tv,
  dppo_kl,
  dro,
];

const losses = new Map<string, PolicyLoss>(builtIn.map((loss) => [loss.name, loss]));

/** The names of all losses there are, with those of users. */
export const policyLossNames = (): string[] => [...losses.keys()];

/** The loss of that name. */
export function findPolicyLoss(name: string): PolicyLoss {
  const loss = losses.get(name);
  if (loss === undefined) throw unknownName("`policy_loss.loss_mode`", name, policyLossNames());
  return loss;
}

/** Make a loss of one's own available as `policy_loss.loss_mode`; the result is the loss. */
export function registerPolicyLoss(loss: PolicyLoss): PolicyLoss {
  const known = losses.get(loss.name);
  if (known !== undefined && known !== loss) {
    throw new UserError(`There is a policy loss called "${loss.name}" already. Give yours another name.`);
  }
  losses.set(loss.name, loss);
  return loss;
}
