/**
 * A reward manager of one's own, in a file: `reward_manager.source=importlib`, `reward_manager.module.path` and, for the
 * export, `reward_manager.name`. It decides whether the function is called for a sample, and what becomes of the score.
 *
 * It runs on the main thread, unlike a reward function, so it should only calculate. What it returns is checked as the
 * value of a reward function is.
 */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { UserError } from "../util/errors.ts";
import { describeThrown } from "../workers/result.ts";
import { checkReward } from "./check.ts";
import { importUserFile, isPython } from "./custom.ts";
import type { RewardInput, RewardValue, Score } from "./reward.ts";

export type RewardManager = {
  /** Functions in files get all samples of a step in one call, as with the manager `batch`. */
  readonly callsInBatches?: boolean;
  /** A reward that needs no call, or null to call what scores the sample. */
  before?(sample: RewardInput): RewardValue | null;
  /** What becomes of the score of a sample; the columns are those of the result. */
  after?(score: Score, sample: RewardInput): RewardValue | Promise<RewardValue>;
};

/** Types a reward manager in a file of its own; it returns its argument. */
export const defineRewardManager = (manager: RewardManager): RewardManager => manager;

/** A manager whose results are checked. */
export type CheckedManager = {
  readonly callsInBatches: boolean;
  before(sample: RewardInput): Score | null;
  after(score: Score, sample: RewardInput): Score | Promise<Score>;
};

const way =
  "Write it in TypeScript: export const NAME = defineRewardManager({ after: … }), with defineRewardManager of `trainyard`";

/** Check the file of a manager as far as possible without running it. */
export function checkManagerFile(path: string): void {
  if (isPython(path))
    throw new UserError(`\`reward_manager.module.path\` is ${path}. Python classes are not loaded. ${way}.`);
  if (!existsSync(resolve(path)))
    throw new UserError(`\`reward_manager.module.path\` is ${path}, and there is no such file.`);
}

/** Load a manager from its file; the default export counts where there is none of that name. */
export async function loadManager(path: string, name: string): Promise<CheckedManager> {
  checkManagerFile(path);
  const exports = await importUserFile(path);
  const found = exports[name] ?? exports.default;
  if (isManager(found)) return checked(found, path);
  const names = Object.keys(exports).map((it) => `\`${it}\``);
  throw new UserError(
    `${path} has no reward manager \`${name}\` (\`reward_manager.name\`), an object with \`before\` or \`after\`. ` +
      `It exports ${names.length === 0 ? "nothing" : names.join(", ")}. ${way}.`,
  );
}

function isManager(value: unknown): value is RewardManager {
  if (typeof value !== "object" || value === null) return false;
  const hooks = ["before", "after"].map((hook) => Reflect.get(value, hook) as unknown);
  return (
    hooks.every((hook) => hook === undefined || typeof hook === "function") &&
    (hooks.some((hook) => hook !== undefined) || "callsInBatches" in value)
  );
}

function checked(manager: RewardManager, path: string): CheckedManager {
  const failure = (hook: string, message: string, cause?: unknown) =>
    new UserError(`The reward manager of ${path}: \`${hook}\` ${message}.`, { cause });
  const scoreOf = (hook: string, value: unknown, sample: RewardInput): Score => {
    const { score, failure: problem } = checkReward(value, sample);
    if (score !== undefined) return score;
    throw failure(hook, problem.message);
  };
  return {
    callsInBatches: manager.callsInBatches === true,
    before(sample) {
      try {
        const value = manager.before?.(sample) ?? null;
        return value === null ? null : scoreOf("before", value, sample);
      } catch (error) {
        throw error instanceof UserError
          ? error
          : failure("before", `threw ${describeThrown(error, resolve(path))}`, error);
      }
    },
    async after(score, sample) {
      if (manager.after === undefined) return score;
      try {
        return scoreOf("after", await manager.after(score, sample), sample);
      } catch (error) {
        throw error instanceof UserError
          ? error
          : failure("after", `threw ${describeThrown(error, resolve(path))}`, error);
      }
    },
  };
}
