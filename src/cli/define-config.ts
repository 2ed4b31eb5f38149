/** The typed way to write a config file: `export default defineConfig({ … })` in `trainyard.config.ts`. */
import type { ConfigInput } from "./verbs.ts";

/** Returns its argument. It is there so that an editor completes and checks the keys. */
export function defineConfig<const T extends ConfigInput>(config: T): T {
  return config;
}
