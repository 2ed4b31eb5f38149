/** Metrics of a run besides its losses: gradients, workers, time, validation, supervised fine-tuning. */
import { type MetricSection, row } from "./table-row.ts";

export const runMetrics: readonly MetricSection[] = [
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
      row("global_seqlen/{min,max,mean}", "tokens", "Tokens of a worker if rows were given out in order."),
      row("global_seqlen/minmax_diff", "tokens", "Their difference, which balancing reduces."),
      row(
        "global_seqlen/balanced_{min,max}",
        "tokens",
        "Tokens of a worker as rows are given out.",
        "Far apart: single sequences are longer than a worker's share, and the others wait.",
      ),
    ],
  },
  {
    title: "Time",
    from: "algos/metrics/timing-metrics.ts",
    rows: [
      row(
        "timing_s/{gen,gen_max,old_log_prob,ref,values,adv,update_critic,update_actor,update_weights,dump_rollout_generations}",
        "s",
        "Duration of a section of the step.",
        "One section outgrows the others.",
      ),
      row(
        "timing_s/reward",
        "s",
        "Time between the end of the last response and the last score; responses are scored while others are sampled.",
        "Grows: the reward is slower than sampling.",
      ),
      row("timing_s/testing", "s", "Duration of a validation."),
      row(
        "timing_s/save_checkpoint",
        "s",
        "Time to save the last checkpoint. It is logged with the step after it, since the metrics of a step are written " +
          "before its checkpoint.",
      ),
      row("timing_s/step", "s", "Duration of the step, without validation and checkpoint."),
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
    title: "Memory and use of the machine",
    from: "train/with-run.ts",
    rows: [
      row(
        "perf/max_memory_allocated_gb",
        "GB",
        "The most memory that the process of the run has had so far; on Ray without its workers.",
        "Climbs from step to step.",
      ),
      row("perf/cpu_memory_used_gb", "GB", "Memory in use on the machine, by all programs, or in the container."),
      row(
        "perf/mfu/{actor,critic,actor_infer}",
        "share",
        "Operations per second of the update of the actor and of the critic, and of the pass old_log_prob, as a share of " +
          "those of a plain product of matrices, which is measured at the start. On the CPU with the embedded engine.",
      ),
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
          section === "val-core" ? "Falls while critic/score rises: the training rows are memorised." : "",
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
      row(
        "train/loss",
        "nats/token",
        "Mean cross-entropy of the target tokens; of a reward model, mean loss of a pair.",
        "Rises, or does not fall.",
      ),
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
  {
    title: "Reward models",
    from: "algos/losses/preference-loss.ts",
    rows: [
      row(
        "{train,val}/accuracy",
        "share",
        "Pairs whose chosen side scores higher.",
        "The validation stays near 0.5 while training rises: the pairs are memorised.",
      ),
      row("{train,val}/margin", "score", "Mean lead of the chosen side."),
      row("{train,val}/{chosen_score,rejected_score}", "score", "Mean score of each side."),
    ],
  },
];
