/**
 * Every metric that a run logs: what it means, its unit, and when to worry. The names are verl's, letter for letter.
 *
 * docs/metrics.md is made from this table, and a test holds it against what the functions of this room return. A name
 * may be a pattern: `{mean,max,min}` is one of these, `{section}` is anything. What has nothing to count in a step (no
 * episode, no token) is absent from that step.
 */
import { criteria } from "../correction/rejection.ts";

export type MetricRow = {
  readonly name: string;
  readonly meaning: string;
  /** Of one number; "" for a plain ratio or count. */
  readonly unit: string;
  /** What value or course asks for a look, and at what; "" when none does. */
  readonly worry: string;
};

export type MetricSection = {
  readonly title: string;
  /** The file under src/ that makes these metrics. */
  readonly from: string;
  readonly rows: readonly MetricRow[];
};

/** verl 0.9's rejection options. */
const options = `{${Object.keys(criteria).join(",")}}`;

const row = (name: string, unit: string, meaning: string, worry = ""): MetricRow => ({ name, unit, meaning, worry });

export const metricTable: readonly MetricSection[] = [
  {
    title: "Rewards and advantages",
    from: "algos/metrics/data-metrics.ts",
    rows: [
      row(
        "critic/score/{mean,max,min}",
        "score",
        "What the reward function gave, summed over an episode; aborted episodes left out.",
        "The mean does not rise, or max equals min: every answer scores alike and there is nothing to learn.",
      ),
      row(
        "critic/rewards/{mean,max,min}",
        "score",
        "The score after the KL penalty (algorithm.use_kl_in_reward).",
        "Falls away from critic/score: the penalty outweighs the task.",
      ),
      row(
        "critic/advantages/{mean,max,min}",
        "",
        "Advantages of the tokens that the policy chose.",
        "Max and min are 0: groups whose answers all score alike teach nothing.",
      ),
      row("critic/returns/{mean,max,min}", "score", "What the critic is to predict, over the same tokens."),
      row("critic/values/{mean,max,min}", "score", "What the critic predicts; with a critic only."),
      row(
        "critic/vf_explained_var",
        "",
        "Share of the variance of returns that the critic explains: 1 is all, 0 is no better than a constant.",
        "Stays at or below 0 after the critic's warm-up: its learning rate or its start is wrong.",
      ),
    ],
  },
  {
    title: "Lengths and turns",
    from: "algos/metrics/data-metrics.ts",
    rows: [
      row(
        "response_length/{mean,max,min}",
        "tokens",
        "Tokens of a response, those of tools included.",
        "Runs towards the limit, or collapses to a few tokens, while the score does not rise.",
      ),
      row(
        "response_length/clip_ratio",
        "share",
        "Responses that reached data.max_response_length.",
        "More than a few percent: answers are cut off before they end. Raise the limit, or see whether the model stops.",
      ),
      row(
        "response_length_non_aborted/{mean,max,min,clip_ratio}",
        "tokens, share",
        "The same without aborted episodes, whose length is 0.",
      ),
      row(
        "response/aborted_ratio",
        "share",
        "Episodes without a response.",
        "Above 0: look for errors of the sampler or its tools. At 1 there are no scores in this step.",
      ),
      row("prompt_length/{mean,max,min}", "tokens", "Tokens of a prompt."),
      row(
        "prompt_length/clip_ratio",
        "share",
        "Prompts as long as data.max_prompt_length.",
        "More than a few percent: prompts may be cut.",
      ),
      row("num_turns/{mean,max,min}", "turns", "Turns of a conversation; with several turns only."),
      row(
        "tool_call_counts/{mean,max,min}",
        "calls",
        "Calls of tools in an episode; with tools only.",
        "Falls to 0 (tools are given up) or runs to the limit (tools are called in circles).",
      ),
    ],
  },
  {
    title: "Actor: the policy loss",
    from: "algos/losses/actor-loss.ts",
    rows: [
      row(
        "actor/pg_loss",
        "",
        "The policy loss, as aggregated by loss_agg_mode. It is near 0 and need not fall.",
        "Grows in size from step to step.",
      ),
      row(
        "actor/pg_clipfrac",
        "share",
        "Tokens whose ratio to the old policy was clipped; in clip_cov, tokens dropped for their covariance.",
        "Above about 0.3: updates are too large. Lower the learning rate, or take fewer passes over a batch. " +
          "Sequence-level losses (gspo) clip more and still learn.",
      ),
      row(
        "actor/pg_clipfrac_lower",
        "share",
        "Tokens with negative advantage whose loss was bounded by clip_ratio_c (dual clip).",
        "Well above 0: the policy runs away from bad answers faster than the old policy can judge them.",
      ),
      row(
        "actor/ppo_kl",
        "nats",
        "Mean log-ratio of the old to the new policy: how far the update moves away from the sampler.",
        "Climbs from step to step, or is far from 0 in the first mini-batch, where both are the same policy.",
      ),
      row("actor/entropy_loss", "nats", "The entropy term of the loss, before entropy_coeff.", "See actor/entropy."),
      row(
        "actor/kl_loss",
        "nats",
        "KL to the reference policy (actor.use_kl_loss), before its coefficient.",
        "Climbs without end: the policy leaves the reference. Raise kl_loss_coef, or lower the learning rate.",
      ),
    ],
  },
  {
    title: "Actor: KL in the reward",
    from: "algos/kl/estimates.ts",
    rows: [
      row(
        "actor/reward_kl_penalty",
        "nats",
        "Mean KL to the reference policy that was taken off the rewards.",
        "Stays far above the target of an adaptive controller.",
      ),
      row(
        "actor/reward_kl_penalty_coeff",
        "",
        "Its coefficient; constant unless the controller is adaptive.",
        "Grows without end: the controller cannot hold the policy near the reference.",
      ),
    ],
  },
  {
    title: "Critic: the value loss",
    from: "algos/losses/value-loss.ts",
    rows: [
      row("critic/vf_loss", "", "Half the squared error of the values, clipped.", "Rises, or does not fall at all."),
      row(
        "critic/vf_clipfrac",
        "share",
        "Tokens where the clipped error was the larger one.",
        "Most of them: cliprange_value is small for the scale of the rewards.",
      ),
      row("critic/vpred_mean", "score", "Mean prediction during the update.", "Far from critic/returns/mean."),
    ],
  },
  {
    title: "The training loop",
    from: "train/rl/rl.ts",
    rows: [
      row("training/global_step", "steps", "Number of the step, from 1."),
      row("training/epoch", "passes", "Pass over the training rows, from 0."),
      row(
        "actor/entropy",
        "nats",
        "Mean entropy of the policy over the response tokens.",
        "Falls to nearly 0 within a few steps: the policy stops exploring. Raise clip_ratio_high or entropy_coeff. " +
          "Rises without end: it comes apart.",
      ),
      row("actor/kl_coef", "", "Coefficient of actor/kl_loss."),
      row(
        "{actor,critic}/grad_norm",
        "",
        "Norm of the gradient before clipping.",
        "Jumps by orders of magnitude, or is not finite: that update is skipped.",
      ),
      row("{actor,critic}/lr", "", "Learning rate of the update."),
    ],
  },
  {
    title: "Sampler and trainer",
    from: "algos/metrics/sampler-agreement.ts",
    rows: [
      row(
        "training/rollout_probs_diff_valid",
        "",
        "1 when sampled tokens were compared, 0 when there were none to compare.",
        "0: no response token was sampled.",
      ),
      row(
        "training/rollout_probs_diff_mean",
        "probability",
        "Mean difference between the probability a token was sampled with and the trainer's.",
        "verl's FAQ: below 0.005 is healthy, above 0.01 is a problem of precision. " +
          "Where sampler and trainer are one engine it is 0 to rounding.",
      ),
      row(
        "training/rollout_probs_diff_{max,std}",
        "probability",
        "Its largest value and its spread.",
        "A max near 1: single tokens are judged altogether differently.",
      ),
      row(
        "training/rollout_actor_probs_pearson_corr",
        "",
        "Correlation of the two probabilities (arXiv:2506.13585).",
        "Below 0.99.",
      ),
    ],
  },
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
        "The ratios that verl 0.7's levels (token, sequence, geometric) hold against their bounds.",
      ),
      row(
        "rollout_corr/rollout_rs_seq_{mean,max,min,std,max_deviation,fraction_high,fraction_low}",
        "",
        "The same by response.",
      ),
      row(
        `rollout_corr/rollout_rs_${options}_{mean,max,min,std,fraction_high,fraction_low,masked_fraction}`,
        "",
        "The divergence that an option of verl 0.9 holds against its bounds, what is out of them, what it rejects.",
      ),
      row(
        `rollout_corr/rollout_rs_${options}_seq_{mean,max,min,std,max_deviation,fraction_high,fraction_low,masked_fraction}`,
        "",
        "The same by response.",
      ),
      row(
        "rollout_corr/rollout_is_{veto_fraction,catastrophic_token_fraction}",
        "share",
        "Responses vetoed for one token that the trainer finds next to impossible, and such tokens.",
        "Above 0 again and again.",
      ),
    ],
  },
  {
    title: "Variance of the gradient",
    from: "algos/metrics/variance-proxy.ts",
    rows: [
      row("variance_proxy/proxy1_signal_strength", "", "Squared norm of the gradient: the signal."),
      row(
        "variance_proxy/proxy2_total_power",
        "",
        "Mean squared norm of one episode's gradient, estimated: signal and noise.",
      ),
      row(
        "variance_proxy/proxy3_pure_noise",
        "",
        "Estimated variance of the batch's gradient.",
        "Far above proxy1_signal_strength: use more episodes in a batch, or a better baseline.",
      ),
      row("variance_proxy/expected_{a_squared,w}", "", "The two factors of the total power: advantage and score norm."),
    ],
  },
  {
    title: "Balance across workers",
    from: "algos/balancing/balancing.ts",
    rows: [
      row("global_seqlen/{min,max,mean}", "tokens", "Tokens of a worker if rows were dealt out as they come."),
      row("global_seqlen/minmax_diff", "tokens", "Their difference, which balancing takes away."),
      row(
        "global_seqlen/balanced_{min,max}",
        "tokens",
        "Tokens of a worker as rows are dealt out.",
        "Far apart: single sequences are longer than a worker's share, and the others wait.",
      ),
    ],
  },
  {
    title: "Time",
    from: "algos/metrics/timing-metrics.ts",
    rows: [
      row(
        "timing_s/{section}",
        "s",
        "Duration of a section of the step: gen, reward, old_log_prob, ref, values, adv, update_critic, update_actor, " +
          "update_weights, testing, save_checkpoint, step.",
        "One section outgrows the others.",
      ),
      row(
        "timing_per_token_ms/{gen,ref,values,adv,update_critic,update_actor}",
        "ms",
        "The same per token: of responses for gen, of prompts and responses for the others; 0 without tokens.",
      ),
      row("perf/total_num_tokens", "tokens", "Tokens of prompts and responses in the step."),
      row("perf/time_per_step", "s", "Duration of the step."),
      row("perf/throughput", "tokens/s", "Tokens per second and worker.", "Falls while lengths stay as they are."),
    ],
  },
  {
    title: "Validation",
    from: "algos/metrics/validation-metrics.ts",
    rows: [
      ...["val-core", "val-aux"].map((section) =>
        row(
          `${section}/{data_source}/{variable}/mean@{n}`,
          "score",
          section === "val-core"
            ? "Mean over the n answers to each prompt, then over prompts; of acc, or else of reward. The number to watch."
            : "The same of other variables, and of prompts with fewer answers.",
          section === "val-core" ? "Falls while critic/score rises: the training rows are learnt by heart." : "",
        ),
      ),
      row("val-aux/{data_source}/{variable}/std@{n}", "score", "Spread of the n answers to a prompt, over prompts."),
      row(
        "{val-core,val-aux}/{data_source}/{variable}/best@{k}/{mean,std}",
        "score",
        "The best of k answers drawn with replacement, by bootstrap; lower than what k answers give, see pass@.",
      ),
      row("val-aux/{data_source}/{variable}/worst@{k}/{mean,std}", "score", "The worst of k answers, by bootstrap."),
      row(
        "{val-core,val-aux}/{data_source}/{variable}/maj@{k}/{mean,std}",
        "score",
        "The score of the prediction that most of k answers share, by bootstrap; ties go to the one seen first.",
        "Below mean@: the common answer is wrong.",
      ),
      row(
        "val-aux/{data_source}/{variable}/pass@{k}",
        "share",
        "Chance that one of k answers is right, without bias; of variables that are 0 or 1. Not in verl.",
        "Falls while mean@ rises: answers lose their variety.",
      ),
      row("val-aux/num_turns/{mean,max,min}", "turns", "Turns of a validation conversation."),
    ],
  },
  {
    title: "Supervised fine-tuning",
    from: "train/supervised/sft.ts",
    rows: [
      row("train/loss", "nats/token", "Mean cross-entropy of the target tokens.", "Rises, or does not fall."),
      row("train/grad_norm", "", "Norm of the gradient before clipping.", "Jumps by orders of magnitude."),
      row("train/lr", "", "Learning rate of the step."),
      row("train/global_tokens", "tokens", "Tokens of the step."),
      row("train/total_tokens(B)", "10^9 tokens", "Tokens since the start."),
      row(
        "train/skipped_steps",
        "steps",
        "Steps skipped because their gradient was not finite. Not in verl.",
        "Above 0.",
      ),
      row(
        "val/loss",
        "nats/token",
        "Loss on the validation rows.",
        "Rises while train/loss falls: stop, or use more rows.",
      ),
    ],
  },
];
