/**
 * A trained model in a checkpoint: weights, optimizer state, or both, as `checkpoint.save_contents` and `load_contents`
 * say. What a checkpoint does not have is replaced by the start of a run, with a message.
 */
import { readdir, stat } from "node:fs/promises";
import type { CheckpointSettings } from "../../config/ppo/checkpoint.ts";
import type { Engine, Model, ModelSpec } from "../../engine/contract.ts";
import { optimizerDir, type TrainedRole } from "../../run/names.ts";
import { UserError } from "../../util/errors.ts";
import { warn } from "../../util/log.ts";

type Contents = CheckpointSettings["save_contents"];

/** Whether a checkpoint with these contents has weights. */
export const hasWeights = (contents: Contents) => contents.includes("model") || contents.includes("hf_model");
const hasOptimizer = (contents: Contents) => contents.includes("optimizer");

/** The calls that write a model into its folder of a checkpoint. */
export function saveCalls(model: Model, folder: string, contents: Contents): (() => Promise<void>)[] {
  return [
    ...(hasWeights(contents) ? [() => model.save(folder)] : []),
    ...(hasOptimizer(contents) ? [() => model.saveOptimizer(optimizerDir(folder))] : []),
  ];
}

type Saved = { readonly folder: string; readonly role: TrainedRole; readonly contents: Contents };

/** Open a model from its folder of a checkpoint; `given` is how a new run opens it. */
export async function openSaved(engine: Engine, given: ModelSpec, { folder, role, contents }: Saved): Promise<Model> {
  if (hasWeights(contents)) await checkWeights(folder, role);
  else
    warn(
      `The weights of ${folder} are not read (\`checkpoint.load_contents\`): the ${role} starts from ${given.folder}.`,
    );
  const model = await engine.open(hasWeights(contents) ? { ...given, folder } : given);
  const state = optimizerDir(folder);
  if (hasOptimizer(contents) && (await isThere(state))) await model.loadOptimizer(state);
  else {
    const why = hasOptimizer(contents)
      ? `${folder} has no optimizer state`
      : `The optimizer state of ${folder} is not read (\`checkpoint.load_contents\`)`;
    warn(`${why}: the moments of the ${role}'s optimizer start at zero again.`);
  }
  return model;
}

/** A folder without any file of a model was saved without weights. */
async function checkWeights(folder: string, role: TrainedRole): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  if (names.some((name) => name !== "optimizer")) return;
  throw new UserError(
    `${folder} has no weights (\`checkpoint.save_contents\` of that run). Set the ${role}'s \`checkpoint.load_contents\` to ` +
      "[optimizer] to start from the model's path with this optimizer state, or start over with `trainer.resume_mode=disable`.",
  );
}

function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
