/** Metrics of rollout correction. */
import { criteria } from "../correction/rejection.ts";
import { type MetricSection, row } from "./table-row.ts";

/** verl 0.9's rejection options. */
const options = `{${Object.keys(criteria).join(",")}}`;
/** Those that have a lower bound. */
const signed = `{${Object.keys(criteria)
  .filter((name) => name.endsWith("k1"))
  .join(",")}}`;

export const correctionSections: readonly MetricSection[] = [
  {
    title: "Rollout correction: how far sampler and trainer are apart",
    from: "algos/metrics/off-policy-metrics.ts",
    rows: [
      row("rollout_corr/{training,rollout}_ppl", "", "Mean perplexity of the responses under trainer and sampler."),
      row("rollout_corr/{training,rollout}_log_ppl", "nats", "Mean of its logarithm."),
      row(
        "rollout_corr/{kl,k3_kl}",
        "nats",
        "KL of the sampler to the trainer: the plain estimate, and one that is never negative.",
        "k3_kl climbs from step to step.",
      ),
      row(
        "rollout_corr/log_ppl_{diff,abs_diff,diff_max,diff_min}",
        "nats",
        "Difference of the two log-perplexities of a response: mean, mean size, largest, smallest.",
        "abs_diff climbs from step to step.",
      ),
      row("rollout_corr/ppl_ratio", "", "Mean ratio of the two perplexities.", "Far from 1."),
      row(
        "rollout_corr/chi2_{token,seq}",
        "",
        "Chi-squared divergence, which is the variance of the importance weights, by token and by response.",
        "Large: importance weights rest on few samples.",
      ),
    ],
  },
  {
    title: "Rollout correction: importance weights",
    from: "algos/correction/importance.ts",
    rows: [
      row(
        "rollout_corr/rollout_is_{mean,max,min,std}",
        "",
        "Importance weights, trainer over sampler.",
        "The mean is far from 1.",
      ),
      row(
        "rollout_corr/rollout_is_eff_sample_size",
        "share",
        "Effective sample size: the part of the batch that the weights leave in use.",
        "Below about 0.5.",
      ),
      row(
        "rollout_corr/rollout_is_ratio_fraction_{high,low}",
        "share",
        "Weights above rollout_is_threshold, and below its lower bound.",
        "More than a few percent.",
      ),
      row(
        "rollout_corr/rollout_is_seq_{mean,max,min,std,max_deviation,fraction_high,fraction_low}",
        "",
        "The same of the mean weight of each response; max_deviation is the largest distance from 1.",
      ),
      row(
        "rollout_corr/rollout_is_oob_ratio",
        "share",
        "Weights out of both bounds, which count 0 (IcePop).",
        "More than a few percent.",
      ),
      row("rollout_corr/rollout_is_batch_norm_factor", "", "What all weights were divided by to have mean 1."),
    ],
  },
  {
    title: "Rollout correction: rejection",
    from: "algos/correction/rejection.ts",
    rows: [
      row(
        "rollout_corr/rollout_rs_{masked_fraction,seq_masked_fraction}",
        "share",
        "Tokens that were rejected, and responses with a rejected token.",
        "More than a tenth: most of the sampling is thrown away.",
      ),
      row(
        "rollout_corr/rollout_rs_{mean,max,min,std,eff_sample_size,ratio_fraction_high,ratio_fraction_low}",
        "",
        "The ratios that verl 0.7's levels (token, sequence, geometric) compare with their bounds.",
      ),
      row(
        "rollout_corr/rollout_rs_seq_{mean,max,min,std,max_deviation,fraction_high,fraction_low}",
        "",
        "The same by response.",
      ),
      row(
        `rollout_corr/rollout_rs_${options}_{mean,max,min,std,fraction_high,fraction_low,masked_fraction}`,
        "",
        "The divergence that an option of verl 0.9 compares with its bounds, what is out of them, what it rejects.",
      ),
      row(
        `rollout_corr/rollout_rs_${options}_seq_{mean,max,min,std,max_deviation,fraction_high,masked_fraction}`,
        "",
        "The same by response.",
      ),
      row(
        `rollout_corr/rollout_rs_${signed}_seq_fraction_low`,
        "share",
        "Responses below the lower bound; of the options that have one.",
      ),
      row(
        "rollout_corr/rollout_is_{veto_fraction,catastrophic_token_fraction}",
        "share",
        "Responses vetoed for one token that the trainer finds next to impossible, and such tokens.",
        "Above 0 again and again.",
      ),
    ],
  },
];
