/** The typed way to write a config file: `export default defineConfig({ … })` in `trainyard.config.ts`. */
import type { EvalInput } from "./eval.ts";
import type { GenerateInput } from "./generate.ts";
import type { PpoInput } from "./ppo.ts";
import type { RewardConfigInput } from "./reward.ts";
import type { SftInput } from "./sft.ts";

/** What any verb's config file may say. */
export type ConfigInput = PpoInput | SftInput | RewardConfigInput | GenerateInput | EvalInput;

/** Returns its argument; its use is that an editor completes and checks the keys. */
export function defineConfig<const T extends ConfigInput>(config: T): T {
  return config;
}
