/** The typed way to write a config file: `export default defineConfig({ … })` in `trainyard.config.ts`. */
import type { SftInput } from "./sft.ts";

/** What any verb's config file may say. */
export type ConfigInput = SftInput;

/** Returns its argument; its use is that an editor completes and checks the keys. */
export function defineConfig(config: ConfigInput): ConfigInput {
  return config;
}
