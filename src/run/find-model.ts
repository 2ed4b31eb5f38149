/** The model that a path means: a model folder itself, a role of a checkpoint, or of a run's latest checkpoint. */
import { readdir } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { codeOf, UserError } from "../util/errors.ts";
import { info } from "../util/log.ts";
import { latestCheckpoint } from "./checkpoint.ts";
import { metricsPath, roleDir, stepOf, type TrainedRole, trainedRoles } from "./names.ts";

/** The model folder that a path means; without a role, that of the model that the run trains. */
export async function findModelFolder(path: string, role: TrainedRole | undefined): Promise<string> {
  const names = await listFolder(path);
  if (names === null) throw new UserError(`There is no folder ${path}. Name a run folder or one of its checkpoints.`);
  if (isModel(names)) {
    if (role === undefined) return path;
    throw new UserError(`${path} is a model, which has no roles. Leave --role out, or name the checkpoint above it.`);
  }
  const found = await rolesIn(path);
  const chosen = role ?? trainedRoles.find((name) => found?.roles.includes(name));
  if (found === null || chosen === undefined) {
    throw new UserError(
      `${path} holds neither a checkpoint (global_step_N) nor a model (config.json and *.safetensors). ` +
        "Name a run folder that has saved something, or a checkpoint in it.",
    );
  }
  if (found.roles.includes(chosen)) return roleDir(found.checkpoint, chosen);
  throw new UserError(`${found.checkpoint} has no ${chosen}. It holds: ${found.roles.join(", ")}.`);
}

/**
 * The model to sample from where a path may be a run folder or a checkpoint: its actor. Whatever else it is, a model
 * folder or the name of a model on the hub, is returned as it is.
 */
export async function findActor(path: string): Promise<string> {
  const names = await listFolder(path).catch(() => null);
  if (names === null || isModel(names)) return path;
  const found = await rolesIn(path);
  if (found === null) {
    if (!names.includes(basename(metricsPath(path)))) return path;
    throw new UserError(`${path} is a run folder without a checkpoint, so it has no model yet.`);
  }
  const { checkpoint, roles } = found;
  if (!roles.includes("actor"))
    throw new UserError(
      `${checkpoint} has no actor, and only an actor writes text. It holds: ${roles.length === 0 ? "no model" : roles.join(", ")}.`,
    );
  const folder = roleDir(checkpoint, "actor");
  info(`The model of ${path} is ${folder}.`);
  return folder;
}

type Roles = { readonly checkpoint: string; readonly roles: readonly TrainedRole[] };

/** The models of a checkpoint, or of the latest one of a run; null where there is no checkpoint. */
async function rolesIn(path: string): Promise<Roles | null> {
  const checkpoint = stepOf(resolve(path)) === null ? (await latestCheckpoint(path))?.dir : path;
  if (checkpoint === undefined) return null;
  return { checkpoint, roles: ((await listFolder(checkpoint)) ?? []).filter(isRole) };
}

export const isRole = (name: string): name is TrainedRole => trainedRoles.some((role) => role === name);

/** Whether a folder with these names in it is a model. */
export const isModel = (names: readonly string[]): boolean =>
  names.includes("config.json") && names.some((name) => name.endsWith(".safetensors"));

/** The names in a folder; null where there is none. */
export async function listFolder(path: string): Promise<string[] | null> {
  try {
    return await readdir(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    if (codeOf(error) === "ENOTDIR") throw new UserError(`${path} is a file. Name a folder.`, { cause: error });
    throw error;
  }
}
