/** Servers that sample for a run: `trainyard serve` processes that load its weights from a folder after every update. */
import type { Model } from "../engine/contract.ts";
import { type CanSample, Remote } from "../rollout/remote.ts";
import { messageOf, UserError } from "../util/errors.ts";
import type { TrainContext } from "./context.ts";

export type RolloutServers = { readonly remote: CanSample; push(actor: Model): Promise<void> };

const SETTING = "actor_rollout_ref.rollout.base_url";

/** Connect; `folder` is where the weights are written, on a disk that the servers see too. */
export async function openServers(
  baseUrls: readonly string[],
  folder: string,
  { signal, env }: TrainContext,
): Promise<RolloutServers> {
  const key = env.OPENAI_API_KEY || undefined;
  const identity = { model: null, modelSetting: "actor_rollout_ref.model.path", ...(key && { apiKey: key }) };
  const remote = await Remote.open({ baseUrls, setting: SETTING, ...identity }, signal);
  return {
    remote,
    async push(actor) {
      await actor.save(folder);
      await Promise.all(baseUrls.map((url) => reload(url, folder, key)));
    },
  };
}

/** Not cut short by Ctrl-C: the step that these weights are from is learnt, and is to be saved. */
async function reload(url: string, path: string, key: string | undefined): Promise<void> {
  const address = new URL("/reload_weights", url);
  const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
  const response = await fetch(address, { method: "POST", headers, body: JSON.stringify({ path }) }).catch(
    (error: unknown) => {
      throw new UserError(
        `${address} (\`${SETTING}\`) does not answer: ${messageOf(error)}. Is the server still there?`,
        {
          cause: error,
        },
      );
    },
  );
  if (response.ok) return;
  throw new UserError(
    `${address} refused the new weights (${response.status}): ${(await response.text()).slice(0, 300)}. ` +
      "Start it with `trainyard serve MODEL --allow-reload`, or with a key that OPENAI_API_KEY holds here too.",
  );
}
