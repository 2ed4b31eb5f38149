/** What takes minutes: `npm run test:long`. The files here end in `.long.ts`, so that `npm test` passes them over. */
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    root: fileURLToPath(new URL("../..", import.meta.url)),
    include: ["test/long/*.long.ts", "test/serve-load.test.ts"],
    setupFiles: ["test/setup.ts"],
    env: { TRAINYARD_LOAD_SECONDS: "60" },
    pool: "forks",
    testTimeout: 600_000,
    hookTimeout: 120_000,
    fileParallelism: false,
  },
});
