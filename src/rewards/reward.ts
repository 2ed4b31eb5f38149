/**
 * What a reward function is: one finished sample in, a score out. Everything in this room produces or consumes these.
 * This file is also the module `trainyard/reward`, which a reward function imports.
 */
export { type ScorerInput, scorers } from "./scorers/scorers.ts";

/** A sample to be scored, with the fields of its data row. */
export type RewardInput = {
  /** Picks the built-in scorer: the row's `data_source`. */
  readonly dataSource: string;
  /** The prompt as the model read it, special tokens included. */
  readonly prompt: string;
  /** The response, special tokens left out. */
  readonly response: string;
  /** The row's `reward_model.ground_truth`. */
  readonly groundTruth: unknown;
  /** The row's `extra_info`; empty if the row has none. */
  readonly extraInfo: Readonly<Record<string, unknown>>;
  /** How many tokens the response has. */
  readonly responseLength: number;
  /** The row in its file, for messages. */
  readonly row?: number;
  /**
   * For a function beside `reward_model.judge.url` or `reward_model.service.url`: an address such as `127.0.0.1:41234`
   * that spreads requests over these servers (verl's `reward_router_address`).
   */
  readonly rewardRouterAddress?: string;
  /** Beside it, the folder of the tokenizer of `reward_model.model.path` (verl's `reward_model_tokenizer`). */
  readonly rewardModelTokenizer?: string;
};

/**
 * What a reward function may return: the score (true is 1), an object with the score and further columns to log, or
 * one reward per token of the response.
 */
export type RewardValue =
  | number
  | boolean
  | (Readonly<Record<string, unknown>> & { readonly score: number | boolean })
  | readonly number[];

export type RewardFunction = (input: RewardInput) => RewardValue | Promise<RewardValue>;

/** A reward function in a file, called with one sample and `reward_kwargs`. */
export type CustomReward = (
  input: RewardInput,
  kwargs: Readonly<Record<string, unknown>>,
) => RewardValue | Promise<RewardValue>;

/** A checked reward. */
export type Score = {
  readonly score: number;
  /** One reward per response token, if the function gave these; `score` is then their sum. */
  readonly tokens?: readonly number[];
  /** Other columns, such as `acc` and `pred`. */
  readonly extra: Readonly<Record<string, unknown>>;
};

/** Types a reward function in a file of its own; it returns its argument. */
export const defineReward = (reward: CustomReward): CustomReward => reward;
