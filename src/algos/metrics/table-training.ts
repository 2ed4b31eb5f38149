/** Metrics of a step of reinforcement learning: rewards, lengths, losses, the sampler. */
import { type MetricSection, row } from "./table-row.ts";

export const trainingMetrics: readonly MetricSection[] = [
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
        "Max and min are 0: the answers of every group score alike, and there is nothing to learn.",
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
      row("num_turns/{mean,max,min}", "turns", "Turns of a conversation, with the prompt: 2 for a single answer."),
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
    from: "train/rl/learn.ts",
    rows: [
      row("training/global_step", "steps", "Number of the step, from 1."),
      row("training/epoch", "passes", "Pass over the training rows, from 0."),
      row(
        "actor/entropy",
        "nats",
        "Mean entropy of the policy over the response tokens.",
        "Falls to nearly 0 within a few steps: the policy stops exploring. Raise clip_ratio_high or entropy_coeff. " +
          "Rises without end: the policy falls apart.",
      ),
      row("actor/kl_coef", "", "Coefficient of actor/kl_loss."),
      row("{actor,critic}/loss", "", "The whole loss of the update, all terms with their coefficients."),
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
        "A max near 1: single tokens have very different probabilities.",
      ),
      row(
        "training/rollout_actor_probs_pearson_corr",
        "",
        "Correlation of the two probabilities (arXiv:2506.13585).",
        "Below 0.99.",
      ),
    ],
  },
];
