/**
 * The rewards of a run: samples in, scores out, one by one or, for a function that takes batches, many in one call. The
 * training loop, validation and `trainyard eval` use it.
 *
 * Reward functions run in the processes of a pool (`workers/`), which ends them at their deadline, so none can stop the
 * program. Only a function that is given as a value runs on the main thread. A sample whose reward function failed has
 * a named failure instead of a score. Once there are more failures than the error budget allows, every call is rejected
 * with one `UserError`.
 */
import { availableParallelism } from "node:os";
import type { UserError } from "../util/errors.ts";
import { localLane } from "../workers/call-runner.ts";
import type { OpenLane } from "../workers/lane.ts";
import { nodeLane } from "../workers/node-lane.ts";
import { Pool } from "../workers/pool.ts";
import { ErrorBudget } from "./budget.ts";
import type { CodeScorerOptions } from "./code.ts";
import { checkRewardFile, givenReward, isPython, type RewardSource } from "./custom.ts";
import { type Failure, failed, type Outcome } from "./outcome.ts";
import { pythonReward } from "./python-reward.ts";
import { RateLimit, type RateLimitOptions } from "./rate-limit.ts";
import type { RewardFunction, RewardInput } from "./reward.ts";
import { type Outcomes, rewardHandler, rewardModule, type Samples } from "./reward-worker.ts";
import type { Sandbox } from "./sandbox/sandbox.ts";
import { scoresCode } from "./scorers.ts";

/** Which reward function: one that another process can load, or a value that stays on the main thread. */
export type Scorer = RewardSource | { readonly kind: "function"; readonly run: RewardFunction };

export type RewardsOptions = {
  readonly scorer: Scorer;
  /** Where code of the model runs, for the built-in scorers: in our sandbox unless a Sandbox Fusion service is named. */
  readonly code?: CodePlace;
  /** The largest number of samples in one call of a function that takes batches; no limit if absent. */
  readonly batchSize?: number;
  /** The largest number of processes; they are started when there is work for them. */
  readonly workers?: number;
  /** How long one call may take. */
  readonly timeoutMs?: number;
  /** How long it may take to load the reward function. */
  readonly loadTimeoutMs?: number;
  /** How much memory a process may take. */
  readonly memoryMb?: number;
  /** The share of the last 1,000 rewards that may fail before everything stops. */
  readonly errorBudget?: number;
  /** Limits the calls to a judge. */
  readonly rateLimit?: RateLimitOptions;
  /** The command of Python, for reward files that need it. */
  readonly python?: string;
};

/** Counts so far. */
type RewardCounts = {
  readonly scored: number;
  readonly failed: number;
  /** Processes that hung or crashed and were replaced. */
  readonly restarts: number;
};

/** `reward_model.sandbox_fusion`. */
type CodePlace = CodeScorerOptions & { readonly fusionUrl?: string | null };

/** How long a program may take for all its test cases; each case has a limit of its own too. */
const CODE_TIMEOUT_MS = 300_000; // verl's limit in the manager prime
const REWARD = { what: "the reward function", logPrefix: "reward" } as const;
const MAX_WORKERS = 8; // verl's reward.num_workers

/** Load a reward function; a file that cannot be loaded is a `UserError`. */
export async function openRewards(options: RewardsOptions): Promise<Rewards> {
  const { scorer, code = {}, timeoutMs = 60_000, loadTimeoutMs = 60_000, errorBudget = 0.01, rateLimit } = options;
  const budget = new ErrorBudget(errorBudget);
  const limit = rateLimit === undefined ? null : new RateLimit(rateLimit);
  if (scorer.kind === "file") checkRewardFile(scorer);
  const workers = options.workers ?? Math.min(MAX_WORKERS, Math.max(2, availableParallelism()));
  const limits = { what: REWARD.what, timeoutMs, loadTimeoutMs };
  const lanes = scorer.kind === "function" ? 1 : workers;
  const pool = await Pool.open(laneOf(options, timeoutMs), { ...limits, lanes });
  const programs = lazyCode(code);
  const codeTimeoutMs = Math.max(timeoutMs, CODE_TIMEOUT_MS);
  const codeLane = localLane(rewardHandler(givenReward(programs.run)), codeTimeoutMs);
  const codePool = await Pool.open(codeLane, { ...limits, timeoutMs: codeTimeoutMs, lanes: 1 });
  return new Rewards({
    pool,
    codePool,
    closeCode: programs.close,
    runsCode: ({ dataSource }) => scorer.kind === "builtin" && scoresCode(dataSource, scorer.name),
    budget,
    limit,
    batchSize: takesBatches(scorer) ? (options.batchSize ?? Number.POSITIVE_INFINITY) : null,
  });
}

/** Whether the function is called with a list of samples. */
export const takesBatches = (scorer: Scorer): boolean => scorer.kind === "file" && scorer.isBatch === true;

/** A scorer of code whose interpreters are started when the first program comes. */
function lazyCode({ fusionUrl = null, ...options }: CodePlace): { run: RewardFunction; close(): Promise<void> } {
  let sandbox: Promise<Sandbox> | null = null;
  let scorer: Promise<RewardFunction> | null = null;
  const open = async (): Promise<RewardFunction> => {
    const { codeScorer } = await import("./code.ts");
    if (fusionUrl !== null) return codeScorer(fusionUrl, options);
    const { openSandbox } = await import("./sandbox/sandbox.ts");
    sandbox = openSandbox();
    return codeScorer(await sandbox, options);
  };
  return {
    async run(input) {
      scorer ??= open();
      return (await scorer)(input);
    },
    close: async () => (await sandbox)?.close(),
  };
}

function laneOf(options: RewardsOptions, timeoutMs: number): OpenLane<Samples, Outcomes> {
  const { scorer, memoryMb = 2048, python = "python3" } = options;
  if (scorer.kind === "function") return localLane(rewardHandler(givenReward(scorer.run)), timeoutMs);
  if (scorer.kind === "file" && isPython(scorer.path))
    return pythonReward({ source: scorer, timeoutMs, memoryMb, python, ...REWARD });
  return nodeLane({ module: rewardModule, settings: scorer, timeoutMs, memoryMb, ...REWARD });
}

type RewardPool = Pool<Samples, Outcomes>;

type Parts = {
  readonly pool: RewardPool;
  /** Scores samples that are programs; these run in processes of their own. */
  readonly codePool: RewardPool;
  runsCode(input: RewardInput): boolean;
  readonly closeCode: () => Promise<void>;
  readonly budget: ErrorBudget;
  readonly limit: RateLimit | null;
  /** The largest number of samples in one call; null if the function takes one sample. */
  readonly batchSize: number | null;
};

/** Scores samples until it is closed. */
export class Rewards {
  readonly #parts: Parts;
  /** The error budget is used up. */
  #error: UserError | null = null;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Score one sample. If its reward function fails, the outcome has a `failure`. */
  async score(input: RewardInput, signal?: AbortSignal): Promise<Outcome> {
    const { pool, codePool, runsCode } = this.#parts;
    const [outcome] = this.#counted(await this.#run(runsCode(input) ? codePool : pool, [input], signal));
    return outcome as Outcome; // a call has as many outcomes as samples
  }

  /**
   * Score samples, in their order: in chunks of `batchSize` if the function takes batches, else in a call for each. What
   * fails a call fails all samples of its chunk; failures are counted in the order of the samples.
   */
  async scoreBatch(inputs: readonly RewardInput[], signal?: AbortSignal): Promise<readonly Outcome[]> {
    const { pool, batchSize } = this.#parts;
    if (batchSize === null) return await Promise.all(inputs.map((input) => this.score(input, signal)));
    const chunks: Samples[] = [];
    for (let i = 0; i < inputs.length; i += batchSize) chunks.push(inputs.slice(i, i + batchSize));
    const outcomes = await Promise.all(chunks.map((samples) => this.#run(pool, samples, signal)));
    return this.#counted(outcomes.flat());
  }

  /** The latest failures, oldest first. */
  get failures(): readonly Failure[] {
    return this.#parts.budget.failures;
  }

  get counts(): RewardCounts {
    const { budget, pool } = this.#parts;
    return { scored: budget.scored, failed: budget.failed, restarts: pool.restarts };
  }

  /** End all processes; calls that are not answered yet are rejected. */
  async close(): Promise<void> {
    await this.#stop(new Error("The rewards were closed before this sample was scored."));
  }

  async #run(pool: RewardPool, samples: Samples, signal?: AbortSignal): Promise<Outcomes> {
    const { limit } = this.#parts;
    const { output, failure } = await (limit === null
      ? pool.run(samples, signal)
      : limit.run(() => pool.run(samples, signal), signal));
    return output ?? samples.map((sample) => failed(sample, failure.reason, failure.message));
  }

  /** Count failures against the error budget; beyond it, everything stops. */
  #counted(outcomes: Outcomes): Outcomes {
    for (const { failure } of outcomes) {
      this.#error ??= this.#parts.budget.add(failure);
    }
    if (this.#error === null) return outcomes;
    void this.#stop(this.#error);
    throw this.#error;
  }

  async #stop(error: Error): Promise<void> {
    const { pool, codePool, closeCode } = this.#parts;
    await Promise.all([pool.stop(error), codePool.stop(error)]);
    await closeCode();
  }
}
