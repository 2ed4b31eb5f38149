/**
 * The API key of a judge or a reward service. It comes from an environment variable, so it is in no config and in no
 * file of a run.
 *
 * A judge takes `OPENAI_API_KEY`, unless `reward_model.judge.api_key_env` names another variable. A service is any
 * program, so it is sent a key only if `reward_model.service.api_key_env` names one.
 */
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { rewardWay } from "../../config/ppo/settings.ts";
import { UserError } from "../../util/errors.ts";
import type { TrainContext } from "../context.ts";

/** The key for what scores the responses; absent where none is configured. */
export function rewardApiKey(config: PpoConfig, env: TrainContext["env"]): string | undefined {
  const { kind } = rewardWay(config);
  if (kind !== "judge" && kind !== "service") return undefined;
  const { api_key_env: named } = config.reward_model[kind];
  const variable = named ?? (kind === "judge" ? "OPENAI_API_KEY" : null);
  const key = variable === null ? "" : (env[variable] ?? "").trim();
  if (key === "" && named !== null) {
    throw new UserError(
      `\`reward_model.${kind}.api_key_env\` names the environment variable ${named}, and it is not set. ` +
        "Set it to the API key, or leave the config key out.",
    );
  }
  if (!/^[\x21-\x7e]*$/.test(key)) {
    throw new UserError(
      `The environment variable ${variable} holds a space or another character that an API key cannot have. ` +
        "Set it to the API key alone.",
    );
  }
  return key === "" ? undefined : key;
}
