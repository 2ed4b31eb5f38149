/**
 * The keys of `actor_rollout_ref.rollout`: how responses are sampled, in training and in validation.
 *
 * Defaults are verl's, except that a temperature given for validation switches sampling on there, as verl's agent loop
 * does with any `do_sample`. `base_url` and `seed` are ours (0.9 has a `seed` too). The sampler is the model that is
 * trained; which engine verl would sample with (`rollout.name`) has a meaning on Ray only (`ray.ts`).
 */
import { bool, field, int, names, nullable, number } from "../../util/field.ts";
import { logProbPasses } from "./actor.ts";
import { topK, topP } from "./values.ts";

const val_kwargs = {
  n: field(int(1), 1, "Responses per validation prompt."),
  do_sample: field(
    bool,
    false,
    "Draw tokens in validation; false takes the likeliest. True once val_kwargs.temperature is given.",
  ),
  temperature: field(number(0), 0, "Temperature in validation."),
  top_k: field(topK, -1, "Draw from this many of the likeliest tokens in validation."),
  top_p: field(topP, 1.0, "Draw from the likeliest tokens with this probability in validation."),
};

export const rollout = {
  n: field(int(1), 1, "Responses per prompt: the size of a group."),
  temperature: field(number(0), 1.0, "Temperature of sampling."),
  top_k: field(topK, -1, "Draw from this many of the likeliest tokens."),
  top_p: field(topP, 1, "Draw from the likeliest tokens that together have this probability."),
  do_sample: field(bool, true, "Draw tokens; training needs it."),
  ignore_eos: field(bool, false, "Go on past the model's end-of-sequence token."),
  prompt_length: field(int(1), "${data.max_prompt_length}", "Longest prompt in tokens."),
  response_length: field(int(1), "${data.max_response_length}", "Longest response in tokens."),
  seed: field(nullable(int(0)), null, "Seed of the samples; null for trainer.seed."),
  max_num_seqs: field(int(1), 256, "Responses that are sampled together, at most."),
  max_num_batched_tokens: field(int(1), 8192, "Prompt tokens that are computed in one step."),
  max_model_len: field(nullable(int(1)), null, "Longest prompt and response together; null for the model's context."),
  enable_prefix_caching: field(bool, true, "Compute what prompts begin alike with only once."),
  base_url: field(
    names,
    null,
    "Address of a server to sample from, or several: `trainyard serve`, vLLM or SGLang; null samples with the model itself.",
  ),
  ...logProbPasses("the actor's"),
  val_kwargs,
};
