/**
 * What scores the episodes of a run: a function of the user, a built-in scorer, a reward model of the run, or a judge or
 * service behind an address. In each case an episode goes in and a score comes out, adjusted by the reward manager.
 */
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { isServed, managerSettings, microBatching, rewardWay } from "../../config/ppo/settings.ts";
import type { Model } from "../../engine/contract.ts";
import { judgeReward } from "../../rewards/judge.ts";
import { describeFailure, type Failure } from "../../rewards/outcome.ts";
import type { RemoteOptions } from "../../rewards/remote.ts";
import type { RewardInput, Score } from "../../rewards/reward.ts";
import { type ModelSample, type RewardModelOptions, scoreSamples, servedText } from "../../rewards/reward-model.ts";
import { openRewards, type Scorer, takesBatches } from "../../rewards/rewards.ts";
import { type ServedSample, serviceReward } from "../../rewards/service.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { invariant, UserError } from "../../util/errors.ts";
import { counted } from "../../util/format.ts";
import { warn } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { scorerOf } from "../reward-scorer.ts";
import { rewardApiKey } from "./api-key.ts";
import { responseIds, responseLength, type UnscoredEpisode } from "./episode.ts";

export type Scoring = {
  /** Null where the reward failed, within the error budget. */
  score(episode: UnscoredEpisode, signal?: AbortSignal): Promise<Score | null>;
  /** Called when all episodes of a round have ended: a reward model or a batch function scores them together. */
  endRound(): void;
  close(): Promise<void>;
};

type Needs = {
  readonly config: PpoConfig;
  readonly tokenizer: Tokenizer;
  /** Present where the config asks for one. */
  readonly rewardModel: Model | undefined;
};

/** Open what the config says that scores. */
export async function openScoring(needs: Needs, context: TrainContext): Promise<Scoring> {
  const manage = managerSettings(needs.config);
  const way = rewardWay(needs.config);
  const closing = new AbortController(); // a call that nobody waits for any more must not keep the program alive
  const apiKey = rewardApiKey(needs.config, context.env);
  const calling = { signal: closing.signal, ...(apiKey !== undefined && { apiKey }) };
  const scoring =
    way.kind === "model"
      ? await modelScoring(needs, context)
      : await functionScoring(
          needs.config,
          way.kind === "function" ? way.scorer : remoteScorer(needs.config, way.kind, calling),
          isServed(needs.config) ? await servedInput(needs, context) : plainInput,
        );
  return {
    endRound: scoring.endRound,
    async close() {
      closing.abort();
      await scoring.close();
    },
    async score(episode, signal) {
      const score = await scoring.score(episode, signal);
      return score && manage(score, responseLength(episode));
    },
  };
}

function remoteScorer(
  { reward_model: model }: PpoConfig,
  kind: "judge" | "service" | "builtin",
  calling: Pick<RemoteOptions, "signal" | "apiKey">,
): Scorer {
  if (kind === "judge") {
    const { url, model: name, template, pattern, range, temperature, max_tokens: maxTokens } = model.judge;
    if (url === null || name === null || template === null) {
      const missing = name === null ? "model" : "template";
      throw new UserError(
        `\`reward_model.judge.url\` is set, and \`reward_model.judge.${missing}\` is not. Set it too.`,
      );
    }
    const optional = { ...(pattern !== null && { pattern }), ...(range !== null && { range }) };
    const asking = { url, model: name, template, temperature, maxTokens, ...calling };
    return { kind: "function", run: judgeReward({ ...asking, ...optional }) };
  }
  if (kind === "service") {
    const { url, protocol, model: name } = model.service;
    return {
      kind: "function",
      run: serviceReward({ url: url ?? "", protocol, ...calling, ...(name !== null && { model: name }) }),
    };
  }
  return { kind };
}

type InputOf = (episode: UnscoredEpisode) => RewardInput;

async function functionScoring(config: PpoConfig, scorer: Scorer, inputOf: InputOf): Promise<Scoring> {
  const { reward_model: model, reward_manager: manager, reward } = config;
  const { url: fusionUrl, max_concurrent: maxConcurrent, memory_limit_mb: memoryMb } = model.sandbox_fusion;
  const rateLimit = {
    maxConcurrent: model.max_concurrent,
    maxRpm: model.max_rpm,
    maxTpm: model.max_tpm,
    estimatedTokensPerRequest: model.estimated_tokens_per_request,
  };
  const rewards = await openRewards({
    scorer,
    timeoutMs: reward.timeout * 1000,
    errorBudget: reward.error_budget,
    ...(reward.batch_size === null ? {} : { batchSize: reward.batch_size }),
    ...(model.num_workers === null ? {} : { workers: model.num_workers }),
    ...(fusionUrl === null ? {} : { code: { fusionUrl, maxConcurrent, memoryMb } }),
    ...(manager.name === "rate_limited" ? { rateLimit } : {}),
  });
  const close = () => rewards.close();
  if (takesBatches(scorer)) {
    const scoreRound: ScoreRound = async (episodes, signal) => {
      const outcomes = await rewards.scoreBatch(episodes.map(inputOf), signal);
      warnOf(outcomes.flatMap(({ failure }) => failure ?? []));
      return outcomes.map(({ score }) => score ?? null);
    };
    return { ...byRound(scoreRound), close };
  }
  return {
    async score(episode, signal) {
      const { score, failure } = await rewards.score(inputOf(episode), signal);
      if (failure !== undefined) warnOf([failure]);
      return score ?? null;
    },
    endRound: () => undefined,
    close,
  };
}

/** What a reward function gets of an episode. */
function plainInput(episode: UnscoredEpisode): RewardInput {
  const { row, text } = episode.prompt;
  return {
    dataSource: row.dataSource,
    prompt: text,
    response: episode.text,
    extraInfo: row.extraInfo,
    groundTruth: row.rewardModel?.ground_truth,
    responseLength: responseLength(episode),
    row: row.source.row,
  };
}

/** With the text that a served reward model reads: the conversation in its own chat template. */
async function servedInput(needs: Needs, context: TrainContext): Promise<InputOf> {
  const { path } = needs.config.reward_model.model;
  invariant(path !== null, "a served reward model has a path");
  const served = await loadTokenizer(await fetchModel(path, context));
  const input = (await inputTokenizer(needs, context)) ?? needs.tokenizer;
  return (episode): ServedSample => {
    const response = input.decode(responseIds(episode), { skipSpecialTokens: true });
    return { ...plainInput(episode), servedText: servedText(served, promptOf(episode), response) };
  };
}

/** The prompt before any template. */
const promptOf = ({ prompt: { row } }: UnscoredEpisode): ModelSample["prompt"] => row.promptText ?? row.prompt;

/** What responses are decoded with for a reward model: the actor's tokenizer, unless the config names another. */
async function inputTokenizer({ config, tokenizer }: Needs, context: TrainContext): Promise<Tokenizer | null> {
  const { input_tokenizer: path } = config.reward_model.model;
  if (path === null || path === config.actor_rollout_ref.model.path) return path === null ? null : tokenizer;
  return await loadTokenizer(await fetchModel(path, context));
}

/** One warning for all samples that failed in the same way, as the samples of one call do. */
function warnOf(failures: readonly Failure[]): void {
  for (const [first, ...others] of Map.groupBy(failures, ({ message }) => message).values()) {
    const leftOut =
      others.length === 0
        ? "The sample is left out of training."
        : `The same happened to ${counted(others.length, "other sample")}. They are left out of training.`;
    warn(`${describeFailure(first!)}. ${leftOut}`);
  }
}

async function modelScoring(needs: Needs, context: TrainContext): Promise<Scoring> {
  const { config, rewardModel } = needs;
  const { model, max_length: maxLength } = config.reward_model;
  invariant(rewardModel !== undefined && model.path !== null, "a run that is scored by a reward model has opened one");
  const { maxPositions, raw } = rewardModel.config;
  const micro = microBatching(config, "reward_model");
  const options: RewardModelOptions = {
    tokenizer: await loadTokenizer(await fetchModel(model.path, context)),
    inputTokenizer: await inputTokenizer(needs, context),
    padId: typeof raw.pad_token_id === "number" ? raw.pad_token_id : null,
    maxLength: maxLength ?? maxPositions,
    truncation: "left",
  };
  const maxTokens = "maxTokens" in micro ? micro.maxTokens : micro.rows * options.maxLength;
  const scorer = scorerOf(rewardModel, maxTokens);
  const scoreRound: ScoreRound = async (episodes) => {
    const samples = episodes.map((episode) => ({
      prompt: promptOf(episode),
      promptIds: episode.prompt.ids,
      responseIds: responseIds(episode),
    }));
    const scores = await scoreSamples(scorer, samples, options);
    return scores.map((score) => ({ score, extra: {} }));
  };
  return { ...byRound(scoreRound), close: async () => undefined };
}

/** Scores all episodes of a round, in their order. */
type ScoreRound = (episodes: readonly UnscoredEpisode[], signal?: AbortSignal) => Promise<readonly (Score | null)[]>;

/**
 * The episodes of a round are scored together, in the order of their prompts and places. A reward model's score of a
 * sequence depends, by rounding, on the batch it is computed in, and a batch function may compare its samples. So the
 * order in which responses end must not decide what is scored together.
 */
function byRound(scoreRound: ScoreRound): Pick<Scoring, "score" | "endRound"> {
  type Waiting = {
    readonly episode: UnscoredEpisode;
    readonly signal: AbortSignal | undefined;
    readonly done: PromiseWithResolvers<Score | null>;
  };
  let waiting: Waiting[] = [];
  const scoreAll = async () => {
    const stopped = waiting.filter(({ signal }) => signal?.aborted); // also those of a round that never ended
    const batch = waiting.filter(({ signal }) => !signal?.aborted).sort((a, b) => inOrder(a.episode, b.episode));
    waiting = [];
    for (const { done, signal } of stopped) done.reject(signal!.reason);
    try {
      const episodes = batch.map(({ episode }) => episode);
      const scores = await scoreRound(episodes, batch[0]?.signal);
      for (const [i, { done }] of batch.entries()) done.resolve(scores[i]!);
    } catch (error) {
      for (const { done } of batch) done.reject(error);
    }
  };
  return {
    score(episode, signal) {
      const done = Promise.withResolvers<Score | null>();
      waiting.push({ episode, signal, done });
      return done.promise;
    },
    endRound: () => void scoreAll(),
  };
}

const collator = new Intl.Collator("en", { numeric: true }); // `step 2 round 0/9` is before `step 2 round 0/10`
const inOrder = (a: UnscoredEpisode, b: UnscoredEpisode): number =>
  collator.compare(a.group, b.group) || a.place - b.place;
