/** A model by its path or its name on the hub: the folder that holds it, downloaded first where it is not here yet. */
import { withChangedConfig } from "../models/changed-config.ts";
import { resolveModel } from "../models/hub.ts";
import { formatBytes } from "../util/format.ts";
import { clearStatus, status } from "../util/log.ts";
import type { TrainContext } from "./context.ts";

/** The folder of a model. A model of the hub is downloaded first, with a live line. */
export async function fetchModel(pathOrId: string, { signal, env }: TrainContext): Promise<string> {
  try {
    return await resolveModel(pathOrId, {
      env,
      signal,
      onProgress: ({ file, doneBytes, totalBytes }) =>
        status(`downloading ${pathOrId} · ${file} · ${formatBytes(doneBytes)} of ${formatBytes(totalBytes)}`),
    });
  } finally {
    clearStatus();
  }
}

/** A model and what verl's keys change in its config.json. */
export type ChangedModel = {
  readonly path: string;
  readonly hf_config_path: string | null;
  readonly override_config: Readonly<Record<string, unknown>>;
};

/** The folder of a model, with the config.json that the keys ask for. */
export async function fetchChangedModel(model: ChangedModel, context: TrainContext): Promise<string> {
  const folder = await fetchModel(model.path, context);
  const configFolder = model.hf_config_path === null ? null : await fetchModel(model.hf_config_path, context);
  return await withChangedConfig(folder, { configFolder, overrides: model.override_config });
}
