/** The typed way to write a config file: `export default defineConfig({ … })` in `trainyard.config.ts`. */
import type { EvalInput } from "./eval/schema.ts";
import type { GenerateInput } from "./generate/schema.ts";
import type { PpoInput } from "./ppo/schema.ts";
import type { RewardConfigInput } from "./reward/schema.ts";
import type { SftInput } from "./sft/schema.ts";

/** What the config file of any verb may hold. */
export type ConfigInput = PpoInput | SftInput | RewardConfigInput | GenerateInput | EvalInput;

/** Returns its argument; its use is that an editor completes and checks the keys. */
export function defineConfig<const T extends ConfigInput>(config: T): T {
  return config;
}
