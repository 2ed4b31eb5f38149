/**
 * The API key of a judge or a reward service. It comes from an environment variable, so it is in no config and in no
 * file of a run.
 *
 * A judge takes `OPENAI_API_KEY`, unless its `judge.api_key_env` names another variable. A service is any program, so it is
 * sent a key only if its `service.api_key_env` names one.
 */
import type { RewardPart } from "../../config/ppo/reward-tree.ts";
import { UserError } from "../../util/errors.ts";
import type { TrainContext } from "../context.ts";

/** The key for what a part of the reward asks; absent where none is configured. */
export function rewardApiKey(part: RewardPart, env: TrainContext["env"]): { readonly apiKey?: string } {
  if (part.use !== "judge" && part.use !== "service") return {};
  const { use, key: branch } = part;
  const { api_key_env: named } = part.model[use];
  const variable = named ?? (use === "judge" ? "OPENAI_API_KEY" : null);
  const apiKey = variable === null ? "" : (env[variable] ?? "").trim();
  if (apiKey === "" && named !== null) {
    throw new UserError(
      `\`${branch}.${use}.api_key_env\` names the environment variable ${named}, and it is not set. ` +
        "Set it to the API key, or leave the config key out.",
    );
  }
  if (!/^[\x21-\x7e]*$/.test(apiKey)) {
    throw new UserError(
      `The environment variable ${variable} holds a space or another character that an API key cannot have. ` +
        "Set it to the API key alone.",
    );
  }
  return apiKey === "" ? {} : { apiKey };
}
