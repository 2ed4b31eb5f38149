/**
 * The verbs of trainyard: one line each. A verb is imported only when it is called, so that help and mistakes are
 * answered at once.
 */
import type { AnySchema } from "../config/schema.ts";
import { loadVerbs, type Verbs } from "./verb.ts";

export const verbs = {
  ppo: { summary: "train by reinforcement learning: PPO, GRPO, RLOO, …", load: () => import("./ppo.ts") },
  sft: { summary: "fine-tune a model on prompts and responses or conversations", load: () => import("./sft.ts") },
  reward: { summary: "train a reward model on preference pairs (Bradley-Terry)", load: () => import("./reward.ts") },
  generate: { summary: "sample responses to the prompts of a file", load: () => import("./generate.ts") },
  eval: { summary: "score the responses of a file", load: () => import("./eval.ts") },
  chat: { summary: "talk to a model", load: () => import("./chat.ts") },
  data: { summary: "prepare datasets, show and check data files", load: () => import("./data.ts") },
  serve: { summary: "serve a model over HTTP, as OpenAI's API", load: () => import("./serve.ts") },
  dashboard: { summary: "show runs in the browser", load: () => import("./dashboard.ts") },
  export: { summary: "write the model of a checkpoint as a Hugging Face folder", load: () => import("./export.ts") },
  doctor: { summary: "say what this machine has and lacks for training", load: () => import("./doctor.ts") },
  completion: { summary: "print a script that completes commands in a shell", load: () => import("./completion.ts") },
} satisfies Verbs;

/** The schemas of all verbs that have one, in the order of the table. */
export async function loadSchemas(): Promise<readonly AnySchema[]> {
  return (await loadVerbs(verbs)).flatMap(([, { schema }]) => schema ?? []);
}
