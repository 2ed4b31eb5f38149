import { defineConfig } from "vitest/config";

/**
 * What `npm test` leaves out and `npm test -- --all` runs: files that take longer than they tell most contributors, because
 * they start many processes, need Python, or repeat a law in further cases. A new file is in both.
 */
const onlyWithAll = [
  "src/algos/advantages/advantages.test.ts",
  "src/cli/doctor.test.ts",
  "src/cli/dry-run.test.ts",
  "src/cli/export.test.ts",
  "src/engine/embedded/branches.test.ts",
  "src/engine/ray/venv.test.ts",
  "src/models/hub.test.ts",
  "src/rewards/code.test.ts",
  "src/rewards/rewards.test.ts",
  "src/rewards/sandbox/sandbox.test.ts",
  "src/rewards/scorers/nonsense.test.ts",
  "src/track/mlflow.test.ts",
  "src/util/protobuf.test.ts",
  "test/bad-input.test.ts",
  "test/cli-speed.test.ts",
  "test/dashboard.test.ts",
  "test/dataset-hooks.test.ts",
  "test/examples.test.ts",
  "test/extending.test.ts",
  "test/first-hour.test.ts",
  "test/goldens-rollout-correction.test.ts",
  "test/metric-coverage.test.ts",
  "test/package.test.ts",
  "test/quickstart.test.ts",
  "test/ray-balance.test.ts",
  "test/ray-failures.test.ts",
  "test/ray-servers.test.ts",
  "test/ray-weight-transfer.test.ts",
  "test/ray.test.ts",
  "test/recipes-more.test.ts",
  "test/recipes.test.ts",
  "test/reward.test.ts",
  "test/rl-batch-rewards.test.ts",
  "test/rl-checkpoints.test.ts",
  "test/rl-hook-kills.test.ts",
  "test/rl-hooks.test.ts",
  "test/rl-kept.test.ts",
  "test/rl-kills.test.ts",
  "test/rl-reward-tree.test.ts",
  "test/rl-rewards.test.ts",
  "test/rl-runs.test.ts",
  "test/rl-servers.test.ts",
  "test/rl-updates.test.ts",
  "test/rl-verl-keys.test.ts",
  "test/rl-vllm.test.ts",
  "test/run-folders.test.ts",
  "test/run-models.test.ts",
  "test/scripts.test.ts",
  "test/serve-engine.test.ts",
  "test/serve-load.test.ts",
  "test/sft.test.ts",
  "test/signals.test.ts",
  "test/supervisor.test.ts",
  "test/trackers.test.ts",
  "test/transformers.test.ts",
];

/** Set by scripts/bootstrap.mjs for `npm test` alone: not with `--all`, and not with the names of files. */
const isShort = process.env.TRAINYARD_TEST_SHORT === "1";

export default defineConfig({
  test: {
    include: ["src/**/*.test.ts", "test/**/*.test.ts", "bench/**/*.test.ts"],
    exclude: ["**/node_modules/**", ...(isShort ? onlyWithAll : [])],
    setupFiles: ["test/setup.ts"],
    pool: "forks",
    testTimeout: 60_000,
    hookTimeout: 120_000,
    fileParallelism: false, // the engine uses every core; two files at once only get in each other's way
  },
});
