/** What a training run says at its end: where its model is and how to use it, or why there is none. */
import type { TrainedRole } from "../run/names.ts";
import { hasChatTemplate } from "../text/tokenizer.ts";
import { counted } from "../util/format.ts";
import { info } from "../util/log.ts";

/** A model that was saved. */
export type SavedModel = { readonly folder: string; readonly role: TrainedRole };

/** Say that all steps are done; a text is why no model was saved. */
export async function sayDone(totalSteps: number, saved: SavedModel | string): Promise<void> {
  const done = `Done: ${counted(totalSteps, "step")}.`;
  if (typeof saved === "string") return info(`${done} No model was saved: ${saved}`);
  info(`${done} The model is in ${saved.folder}`);
  await sayUse(saved);
}

type Finished = { readonly totalSteps: number; readonly step: number; readonly limit: string };

/** Say that there is nothing left to do; `limit` is the key that says how long a run is. */
export async function sayComplete({ totalSteps, step, limit }: Finished, saved: SavedModel): Promise<void> {
  const more = `Raise \`${limit}\` to train longer, or start over with \`trainer.resume_mode=disable\`.`;
  const complete = `Training is already complete (${counted(totalSteps, "step")}).`;
  info(`${complete} The model of step ${step} is in ${saved.folder}. ${more}`);
  await sayUse(saved);
}

async function sayUse({ folder, role }: SavedModel): Promise<void> {
  const path = /^[\w./:@+-]+$/.test(folder) ? folder : `'${folder}'`;
  if (role === "reward")
    info(`Reward with it: npx trainyard ppo reward_model.enable=true reward_model.model.path=${path} …`);
  else if (await hasChatTemplate(folder)) info(`Talk to it: npx trainyard chat ${path}`);
  else info(`Let it continue texts: npx trainyard generate model.path=${path} data.path=PROMPTS.jsonl`);
}
