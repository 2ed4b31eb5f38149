/** The config keys of rollout correction, `algorithm.rollout_correction.*`. `preset` and `version` are ours. */
import { bool, choice, either, field, name, nullable, positive, text } from "../../util/field.ts";

const bound = nullable(either(positive, text));

/** The losses of bypass mode. */
export const lossTypes = ["ppo_clip", "reinforce"] as const;

/** Every key. */
export const correctionFields = {
  preset: field(nullable(name), null, "A correction by verl's name for it; keys given beside it win."),
  rollout_is: field(nullable(name), null, "Importance weights per token or per sequence; null for none."),
  rollout_is_threshold: field(bound, 2.0, "Largest weight, or 'lower_upper' outside of which weights become 0."),
  rollout_is_batch_normalize: field(bool, false, "Divide the weights by their mean over the batch."),
  rollout_rs: field(
    nullable(text),
    null,
    "What is rejected: options such as seq_mean_k1, comma separated; null for nothing.",
  ),
  rollout_rs_threshold: field(bound, null, "Bounds of rejection: one for all options, or one per option."),
  rollout_rs_threshold_lower: field(
    bound,
    null,
    "Lower bound of a level of verl 0.7; null for the inverse of the upper.",
  ),
  rollout_token_veto_threshold: field(bound, null, "Reject rows with a token whose ratio is below this; verl 0.7."),
  bypass_mode: field(bool, false, "Take the sampler's log-probs as the old ones and correct inside each update."),
  loss_type: field(choice(...lossTypes), "ppo_clip", "The loss in bypass mode."),
  version: field(choice("0.9", "0.7"), "${algorithm.version}", "Whose presets and weight metrics."),
};
