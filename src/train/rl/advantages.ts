/** Advantages of a batch: the KL penalty on rewards, the rollout correction, then the estimator that the config names. */
import { findAdvantage } from "../../algos/advantages/registry.ts";
import type { Rows } from "../../algos/batch.ts";
import { correct } from "../../algos/correction/correct.ts";
import type { KlControl } from "../../algos/kl/control.ts";
import { penalizeRewards } from "../../algos/kl/reward-penalty.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { advantageSettings, correctionSettings, rewardColumns } from "../../config/ppo/settings.ts";
import { componentsOf, type Episode, groupsOf, scoresOf } from "./episode.ts";
import { isCorrecting, type Measurements } from "./measure.ts";

/** Every list has one row per episode. */
export type Estimate = {
  /** What the reward gave for each token. */
  readonly scores: Rows;
  /** The same with the KL penalty. */
  readonly rewards: Rows;
  readonly advantages: Rows;
  readonly returns: Rows;
  /** 1 where a token is trained on: the correction may have left some out. */
  readonly mask: Rows;
  /** Importance weights of the correction. */
  readonly rolloutWeights: Rows | null;
  /** The KL controller for the next step. */
  readonly klControl: KlControl;
  readonly metrics: Readonly<Record<string, number>>;
};

type Known = {
  readonly measured: Measurements;
  /** Rewards of greedy responses, where the estimator needs them. */
  readonly baselines: readonly number[] | null;
  readonly klControl: KlControl;
};

/** Estimate the advantages of a batch. */
export function estimateAdvantages(
  config: PpoConfig,
  episodes: readonly Episode[],
  { measured, baselines, klControl }: Known,
): Estimate {
  const { algorithm } = config;
  const { oldLogprobs, refLogprobs, rolloutLogprobs, values, sumPiSquared } = measured;
  const scores = scoresOf(episodes);
  const kl = { kind: algorithm.kl_penalty, control: klControl };
  const penalized =
    algorithm.use_kl_in_reward && refLogprobs !== null
      ? penalizeRewards({ scores, oldLogprobs, refLogprobs, mask: measured.mask }, kl)
      : { rewards: scores, control: klControl, metrics: {} };
  const correction = correctionSettings(config);
  const corrected =
    isCorrecting(correction) && !correction.isBypass
      ? correct({ trainingLogprobs: oldLogprobs, rolloutLogprobs, mask: measured.mask }, correction)
      : { mask: measured.mask, weights: null, metrics: {} };
  const { mask, weights } = corrected;
  const estimated = findAdvantage(algorithm.adv_estimator).compute(
    {
      rewards: penalized.rewards,
      mask,
      groups: groupsOf(episodes),
      oldLogprobs,
      components: componentsOf(episodes, rewardColumns(config)),
      ...(values && { values }),
      ...(baselines && { baselines }),
      ...(sumPiSquared && { sumPiSquared }),
      ...(weights && { rolloutWeights: weights }),
    },
    advantageSettings(config),
  );
  return {
    scores,
    rewards: penalized.rewards,
    advantages: estimated.advantages,
    returns: estimated.returns,
    mask,
    rolloutWeights: weights,
    klControl: penalized.control,
    metrics: { ...penalized.metrics, ...corrected.metrics },
  };
}
