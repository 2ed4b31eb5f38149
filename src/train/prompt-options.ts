/** How a config says that prompts become tokens: the chat template, and the longest prompt with what happens beyond it. */
import type { GenerateConfig } from "../config/generate/schema.ts";
import type { PpoConfig } from "../config/ppo/schema.ts";
import type { Template } from "../data/messages.ts";
import type { Truncation } from "../data/truncate.ts";

/** The options of `encodePrompt` and `encodeWithin`. */
export type PromptOptions = Required<Template> & {
  readonly maxPromptLength: number;
  readonly truncation: Truncation;
};

/** The options for the prompts of a run of `trainyard ppo` or `trainyard generate`. */
export function promptOptions(config: PpoConfig | GenerateConfig): PromptOptions {
  const isRl = "actor_rollout_ref" in config;
  const { custom_chat_template: template } = isRl ? config.actor_rollout_ref.model : config.model;
  return {
    maxPromptLength: isRl ? config.data.max_prompt_length : config.rollout.prompt_length,
    truncation: config.data.truncation,
    extra: config.data.apply_chat_template_kwargs,
    template,
  };
}
