/** The settings of algorithms as a run gets them: the config's defaults, with some keys set. */
import { parseOverride } from "../../src/config/overrides.ts";
import { ppoSchema } from "../../src/config/ppo/schema.ts";
import { actorSettings, advantageSettings, criticSettings } from "../../src/config/ppo/settings.ts";
import { resolve } from "../../src/config/resolve.ts";

export function settingsWith(...overrides: readonly string[]) {
  const entries = ["actor_rollout_ref.model.path=model", ...overrides].map(parseOverride);
  const { config } = resolve(ppoSchema, [entries], { home: "", env: {} });
  return { actor: actorSettings(config), critic: criticSettings(config), advantage: advantageSettings(config) };
}

/** Those of a config that sets nothing. */
export const defaultSettings = settingsWith();
