/**
 * The ways to score an episode, as a table: a function of the user, a built-in scorer, a reward model of the run, a judge
 * and a service behind addresses. Each row opens one part of the reward; a new way is a row.
 */

import { isServed, type PartOf, type RewardPart } from "../../config/ppo/reward-tree.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { microBatching } from "../../config/ppo/settings.ts";
import type { Model } from "../../engine/contract.ts";
import { judgeReward } from "../../rewards/judge.ts";
import { describeFailure, type Failure } from "../../rewards/outcome.ts";
import type { RewardInput } from "../../rewards/reward.ts";
import { type ModelSample, type RewardModelOptions, scoreSamples, servedText } from "../../rewards/reward-model.ts";
import { openRewards, type Scorer, takesBatches } from "../../rewards/rewards.ts";
import { type ServedSample, serviceReward } from "../../rewards/service.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { invariant } from "../../util/errors.ts";
import { counted } from "../../util/format.ts";
import { warn } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { scorerOf } from "../reward-scorer.ts";
import { rewardApiKey } from "./api-key.ts";
import { byRound, type EpisodeScoring, type ScoreRound } from "./by-round.ts";
import { responseIds, responseLength, turnCount, type UnscoredEpisode } from "./episode.ts";

/** One open part of the reward. */
export type OpenPart = EpisodeScoring & { close(): Promise<void> };

/** What the parts of a run are opened with. */
export type ScoringNeeds = {
  readonly config: PpoConfig;
  readonly tokenizer: Tokenizer;
  /** The reward models of the run, by their config keys. */
  readonly rewardModels: ReadonlyMap<string, Model>;
  readonly context: TrainContext;
  /** What a function that asks a judge or a service gets. */
  readonly router: Pick<RewardInput, "rewardRouterAddress" | "rewardModelTokenizer">;
  /** A manager of the user's own asks for calls with all samples of a step. */
  readonly callsInBatches: boolean;
  /** Ends calls that nobody waits for any more, so that they do not keep the program alive. */
  readonly signal: AbortSignal;
};

type Ways = {
  readonly [Use in RewardPart["use"]]: (part: PartOf<Use>, needs: ScoringNeeds) => Promise<OpenPart>;
};

const ways: Ways = {
  function: ({ scorer }, { config, router, callsInBatches }) =>
    functionScoring(
      config,
      callsInBatches && scorer.kind === "file" ? { ...scorer, isBatch: true } : scorer,
      (episode) => ({ ...plainInput(episode), ...router }),
    ),
  scorer: ({ scorer }, { config }) => functionScoring(config, scorer, plainInput),
  model: modelScoring,
  judge: (part, { config, context, signal }) => {
    const { url: urls, model, template, pattern, range, temperature, max_tokens: maxTokens } = part.model.judge;
    invariant(model !== null && template !== null, "a judge has a model and a template");
    const run = judgeReward({
      urls,
      model,
      template,
      temperature,
      maxTokens,
      signal,
      ...rewardApiKey(part, context.env),
      ...(pattern !== null && { pattern }),
      ...(range !== null && { range }),
    });
    return functionScoring(config, { kind: "function", run }, plainInput);
  },
  service: async (part, needs) => {
    const { url: urls, protocol, model } = part.model.service;
    const run = serviceReward({
      urls,
      protocol,
      signal: needs.signal,
      ...rewardApiKey(part, needs.context.env),
      ...(model !== null && { model }),
    });
    const inputOf = isServed(part) ? await servedInput(part, needs) : plainInput;
    return await functionScoring(needs.config, { kind: "function", run }, inputOf);
  },
};

/** Open a part of the reward. */
export async function openPart(part: RewardPart, needs: ScoringNeeds): Promise<OpenPart> {
  // Safe: each row of `ways` takes the parts of its own way.
  const open = ways[part.use] as (part: RewardPart, needs: ScoringNeeds) => Promise<OpenPart>;
  return await open(part, needs);
}

type InputOf = (episode: UnscoredEpisode) => RewardInput;

async function functionScoring(config: PpoConfig, scorer: Scorer, inputOf: InputOf): Promise<OpenPart> {
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
export function plainInput(episode: UnscoredEpisode): RewardInput {
  const { row, text } = episode.prompt;
  return {
    dataSource: row.dataSource,
    prompt: text,
    response: episode.text,
    // As in verl; no tool or environment gives rewards during a single answer. What the row says itself is kept.
    extraInfo: { num_turns: turnCount(episode), rollout_reward_scores: {}, ...row.extraInfo },
    groundTruth: row.rewardModel?.ground_truth,
    responseLength: responseLength(episode),
    row: row.source.row,
  };
}

/** With the text that a served reward model reads: the conversation in its own chat template. */
async function servedInput(part: PartOf<"service">, needs: ScoringNeeds): Promise<InputOf> {
  const { path } = part.model.model;
  invariant(path !== null, "a served reward model has a path");
  const served = await loadTokenizer(await fetchModel(path, needs.context));
  const input = (await inputTokenizer(part, needs)) ?? needs.tokenizer;
  return (episode): ServedSample => {
    const response = input.decode(responseIds(episode), { skipSpecialTokens: true });
    return { ...plainInput(episode), servedText: servedText(served, promptOf(episode), response) };
  };
}

/** The prompt before any template. */
const promptOf = ({ prompt: { row } }: UnscoredEpisode): ModelSample["prompt"] => row.promptText ?? row.prompt;

/** What responses are decoded with for a reward model: the actor's tokenizer, unless the config names another. */
async function inputTokenizer(
  { model }: PartOf<"model" | "service">,
  { config, tokenizer, context }: ScoringNeeds,
): Promise<Tokenizer | null> {
  const { input_tokenizer: path } = model.model;
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

async function modelScoring(part: PartOf<"model">, needs: ScoringNeeds): Promise<OpenPart> {
  const { model, max_length: maxLength } = part.model;
  const rewardModel = needs.rewardModels.get(part.key);
  invariant(rewardModel !== undefined && model.path !== null, "a run that is scored by a reward model has opened one");
  const { maxPositions, raw } = rewardModel.config;
  const micro = microBatching(needs.config, part);
  const options: RewardModelOptions = {
    tokenizer: await loadTokenizer(await fetchModel(model.path, needs.context)),
    inputTokenizer: await inputTokenizer(part, needs),
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
