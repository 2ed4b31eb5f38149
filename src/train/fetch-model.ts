/** A model by its path or its name on the hub: the folder that holds it, downloaded first where it is not here yet. */
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
