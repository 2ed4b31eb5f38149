/**
 * From scores to token rewards and logged columns: verl's reward managers as pure rules.
 *
 * A score is the reward of the last token of its response. The managers differ in how they call their functions, which
 * is not done here. Only `dapo` changes scores: it adds a penalty for length. Departures from verl: an empty response
 * has no token and gets no reward, where verl rewards padding; columns have one entry per response, null where a scorer
 * does not give them; `prime` takes scores with columns, where verl sets the whole batch to 0; `dapo` without an
 * overlong buffer has no penalty, where verl 0.7 raises.
 */
import { UserError, unknownName } from "../util/errors.ts";
import type { Score } from "./reward.ts";

/** `reward_model.reward_kwargs.overlong_buffer_cfg`, with verl's names. */
type OverlongBuffer = {
  readonly enable: boolean;
  /** The penalty begins this many tokens before the limit. */
  readonly len: number;
  /** The penalty at the limit. */
  readonly penalty_factor: number;
  /** Add the columns `overlong_reward` and `overlong`. */
  readonly log: boolean;
};

/** `reward_model.reward_kwargs`. */
type ManagerOptions = {
  readonly overlong_buffer_cfg?: OverlongBuffer | null | undefined;
  readonly max_resp_len?: number | null | undefined;
};

/** How a manager changes the score of a response with this number of tokens. */
export type ManagerRule = (score: Score, responseLength: number) => Score;

type ManagerName = "naive" | "batch" | "dapo" | "prime" | "rate_limited" | "remote" | "gdpo";

const managers: Readonly<Record<ManagerName, (options: ManagerOptions) => ManagerRule>> = {
  naive: () => withColumns,
  batch: () => withColumns,
  prime: () => withColumns,
  rate_limited: () => withColumns,
  remote: () => withColumns,
  gdpo: () => withColumns,
  dapo: overlongRule,
};
const isManager = (name: string): name is ManagerName => Object.hasOwn(managers, name);

/** The rule of a manager, `reward_model.reward_manager`. */
export function managerRule(name: string, options: ManagerOptions = {}): ManagerRule {
  if (!isManager(name)) throw unknownName("`reward_model.reward_manager`", name, Object.keys(managers));
  return managers[name](options);
}

/** A plain score becomes the column `acc`; a score with columns becomes the column `score`, before any penalty. */
function withColumns({ score, tokens, extra }: Score): Score {
  if (tokens !== undefined) return { score, tokens, extra };
  return { score, extra: Object.keys(extra).length === 0 ? { acc: score } : { score, ...extra } };
}

/** Soft overlong punishment (DAPO, arXiv:2503.14476): it grows linearly over the last `len` tokens before the limit. */
function overlongRule({ overlong_buffer_cfg: buffer, max_resp_len: limit }: ManagerOptions): ManagerRule {
  if (buffer === undefined || buffer === null || !buffer.enable) return withColumns;
  const key = "`reward_model.reward_kwargs";
  if (limit === undefined || limit === null) {
    throw new UserError(
      `${key}.overlong_buffer_cfg\` is on, and ${key}.max_resp_len\` is not set. Set it to the longest response in tokens.`,
    );
  }
  if (!(buffer.len > 0 && buffer.len <= limit)) {
    throw new UserError(
      `${key}.overlong_buffer_cfg.len\` is ${buffer.len}, and a response has at most ${limit} tokens ` +
        `(${key}.max_resp_len\`). Set the buffer to at least 1 token and at most that many.`,
    );
  }
  return (given, responseLength) => {
    const { score, tokens, extra } = withColumns(given);
    const excess = responseLength - (limit - buffer.len);
    const penalty = excess > 0 ? (-excess / buffer.len) * buffer.penalty_factor : 0;
    const last = responseLength - 1;
    return {
      score: score + penalty,
      ...(tokens !== undefined && { tokens: tokens.map((reward, i) => (i === last ? reward + penalty : reward)) }),
      extra: buffer.log ? { ...extra, overlong_reward: penalty, overlong: penalty < 0 } : extra,
    };
  };
}

/** The reward of each token of a response: on the last one, unless the reward function gave one for each. */
export function tokenRewards({ score, tokens }: Score, responseLength: number): Float64Array {
  if (tokens !== undefined) return Float64Array.from(tokens);
  const rewards = new Float64Array(responseLength);
  if (responseLength > 0) rewards[responseLength - 1] = score;
  return rewards;
}

/** The columns of a list of scores, one entry per score. */
export function rewardColumns(scores: readonly Score[]): Record<string, readonly unknown[]> {
  const names = new Set(scores.flatMap(({ extra }) => Object.keys(extra)));
  return Object.fromEntries([...names].map((name) => [name, scores.map(({ extra }) => extra[name] ?? null)]));
}
