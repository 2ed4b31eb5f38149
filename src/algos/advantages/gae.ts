/**
 * Estimators that look along one row: gae with a critic, reinforce_plus_plus and remax without.
 *
 * Departures from verl. Masked positions get 0; verl leaves there a whitened leftover (gae), the return of what follows
 * (remax, reinforce_plus_plus of 0.7) or the critic's value (gae's returns). A batch with a single unmasked token is
 * not whitened where verl raises. In 0.7 reinforce_plus_plus forgets the reward at every masked token, so that nothing
 * before a tool's output learns from what came after it; 0.9 carries it across, and so does `version: "0.9"`.
 */

import type { Rows } from "../batch.ts";
import { advantage, gamma, lam, needed } from "./estimator.ts";
import { refuseRow, rewardsToGo, whiten, zerosLike } from "./token-rows.ts";

/**
 * Generalised advantage estimation (arXiv:1506.02438): the discounted sum of the critic's surprises
 * `r_t + gamma V_(t+1) - V_t`, whitened over the batch. The next token is the next unmasked one.
 */
export const gae = advantage({
  name: "gae",
  paper: "arXiv:1506.02438",
  hasCritic: true,
  needs: ["values"],
  fields: { gamma, lam },
  compute({ rewards, mask, values }, settings) {
    const critic = { values: needed(values, "values"), gamma: settings.gamma, lam: settings.lam };
    const { raw, returns } = surprises(rewards, mask, critic);
    return { advantages: whiten(raw, mask, raw), returns };
  },
});

type Critic = { readonly values: Rows; readonly gamma: number; readonly lam: number };

function surprises(rewards: Rows, mask: Rows, { values, gamma, lam }: Critic) {
  const [raw, returns] = [zerosLike(mask), zerosLike(mask)];
  raw.forEach((row, i) => {
    const [given, counts, value, target] = [rewards[i]!, mask[i]!, values[i]!, returns[i]!];
    let [nextValue, sum] = [0, 0];
    for (let t = row.length - 1; t >= 0; t--) {
      if (counts[t] === 0) continue;
      sum = given[t]! + gamma * nextValue - value[t]! + gamma * lam * sum;
      nextValue = value[t]!;
      row[t] = sum;
      target[t] = sum + nextValue;
    }
    if (!Number.isFinite(sum)) refuseRow(i, mask, { rewards, values });
  });
  return { raw, returns };
}

/** REINFORCE++ (arXiv:2501.03262): the discounted reward to go, whitened over the batch. */
export const reinforcePlusPlus = advantage({
  name: "reinforce_plus_plus",
  paper: "arXiv:2501.03262",
  hasCritic: false,
  needs: [],
  fields: { gamma },
  compute({ rewards, mask }, settings) {
    const returns = rewardsToGo(rewards, mask, { gamma: settings.gamma, stopsAtMask: settings.version === "0.7" });
    return { advantages: whiten(returns, mask), returns };
  },
});

/** ReMax (arXiv:2310.10505): the reward to go less the reward of the greedy answer to the same prompt. */
export const remax = advantage({
  name: "remax",
  paper: "arXiv:2310.10505",
  hasCritic: false,
  needs: ["baselines"],
  fields: {},
  compute({ rewards, mask, baselines }) {
    const [returns, advantages] = [rewardsToGo(rewards, mask), zerosLike(mask)];
    const greedy = needed(baselines, "baselines");
    advantages.forEach((row, i) => {
      const [gain, counts, baseline] = [returns[i]!, mask[i]!, greedy[i]!];
      for (let t = 0; t < row.length; t++) if (counts[t] !== 0) row[t] = gain[t]! - baseline;
    });
    return { advantages, returns };
  },
});
