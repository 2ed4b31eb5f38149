/**
 * What scores a run's responses: a function of the user's, a built-in scorer, a reward model that runs here, or a judge
 * or service behind an address. Whichever it is, a sample goes in and a score comes out, treated as the reward manager
 * says.
 */
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { managerSettings, microBatching, rewardWay } from "../../config/ppo/settings.ts";
import type { Engine } from "../../engine/contract.ts";
import { readAnyConfig } from "../../models/config.ts";
import { judgeReward } from "../../rewards/judge.ts";
import { describeFailure } from "../../rewards/outcome.ts";
import type { Score } from "../../rewards/reward.ts";
import { type RewardModelOptions, type SequenceScorer, scoreSamples } from "../../rewards/reward-model.ts";
import { openRewards, type Scorer } from "../../rewards/rewards.ts";
import { serviceReward } from "../../rewards/service.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { UserError } from "../../util/errors.ts";
import { warn } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { openScorer } from "../reward-scorer.ts";
import type { Unscored } from "./episode.ts";

export type Scoring = {
  /** Null where the reward went wrong, within the error budget. */
  score(sample: Unscored, signal?: AbortSignal): Promise<Score | null>;
  /** All samples of a round have ended: those that are scored together can be. */
  endRound(): void;
  close(): Promise<void>;
};

type Needs = { readonly config: PpoConfig; readonly engine: Engine; readonly tokenizer: Tokenizer };

/** Load what scores. */
export async function openScoring(needs: Needs, context: TrainContext): Promise<Scoring> {
  const manage = managerSettings(needs.config);
  const way = rewardWay(needs.config);
  const closing = new AbortController(); // a call that nobody waits for any more must not keep the program alive
  const scoring =
    way.kind === "model"
      ? await modelScoring(needs, context)
      : await functionScoring(
          needs.config,
          way.kind === "function" ? way.scorer : remoteScorer(needs.config, way.kind, closing.signal),
        );
  return {
    endRound: scoring.endRound,
    async close() {
      closing.abort();
      await scoring.close();
    },
    async score(sample, signal) {
      const score = await scoring.score(sample, signal);
      return score && manage(score, sample.responseIds.length);
    },
  };
}

function remoteScorer(
  { reward_model: model }: PpoConfig,
  kind: "judge" | "service" | "builtin",
  signal: AbortSignal,
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
    const asking = { url, model: name, template, temperature, maxTokens, signal };
    return { kind: "function", run: judgeReward({ ...asking, ...optional }) };
  }
  if (kind === "service") {
    const { url, protocol, model: name } = model.service;
    return {
      kind: "function",
      run: serviceReward({ url: url ?? "", protocol, signal, ...(name !== null && { model: name }) }),
    };
  }
  return { kind };
}

async function functionScoring(config: PpoConfig, scorer: Scorer): Promise<Scoring> {
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
    ...(model.num_workers === null ? {} : { workers: model.num_workers }),
    ...(fusionUrl === null ? {} : { code: { fusionUrl, maxConcurrent, memoryMb } }),
    ...(manager.name === "rate_limited" ? { rateLimit } : {}),
  });
  return {
    async score({ row, promptText, text, responseIds }, signal) {
      const input = {
        dataSource: row.dataSource,
        prompt: promptText,
        response: text,
        extraInfo: row.extraInfo,
        groundTruth: row.rewardModel?.ground_truth,
        responseLength: responseIds.length,
        row: row.source.row,
      };
      const { score, failure } = await rewards.score(input, signal);
      if (failure !== undefined) warn(`${describeFailure(failure)}. The sample teaches nothing.`);
      return score ?? null;
    },
    endRound: () => undefined,
    close: () => rewards.close(),
  };
}

async function modelScoring({ config, engine, tokenizer }: Needs, context: TrainContext): Promise<Scoring> {
  const { model, max_length: maxLength } = config.reward_model;
  if (model.path === null) {
    throw new UserError("`reward_model.enable` is true, and `reward_model.model.path` names no model. Set it.");
  }
  const folder = await fetchModel(model.path, context);
  const { maxPositions, raw } = await readAnyConfig(folder);
  const micro = microBatching(config, "reward_model");
  const options: RewardModelOptions = {
    tokenizer: await loadTokenizer(folder),
    inputTokenizer: model.input_tokenizer === null ? null : tokenizer,
    padId: typeof raw.pad_token_id === "number" ? raw.pad_token_id : null,
    maxLength: maxLength ?? maxPositions,
    truncation: "left",
  };
  const maxTokens = "maxTokens" in micro ? micro.maxTokens : micro.rows * options.maxLength;
  const scorer = await openScorer(engine, folder, { maxTokens });
  return { ...byRound(scorer, options), close: () => scorer.close() };
}

/**
 * The samples of a round are scored together, in an order of their own. What stands beside a sample in a batch moves its
 * score by rounding, so batches of what happens to have ended would make two runs of one seed differ.
 */
function byRound(scorer: SequenceScorer, options: RewardModelOptions): Pick<Scoring, "score" | "endRound"> {
  type Waiting = { readonly sample: Unscored; readonly done: PromiseWithResolvers<Score> };
  let waiting: Waiting[] = [];
  const flush = async () => {
    const batch = waiting.sort((a, b) => inOrder(a.sample, b.sample));
    waiting = [];
    try {
      const samples = batch.map(({ sample: { row, promptIds, responseIds } }) => ({
        prompt: row.promptText ?? row.prompt,
        promptIds,
        responseIds,
      }));
      const scores = await scoreSamples(scorer, samples, options);
      for (const [i, { done }] of batch.entries()) done.resolve({ score: scores[i]!, extra: {} });
    } catch (error) {
      for (const { done } of batch) done.reject(error);
    }
  };
  return {
    score(sample) {
      const done = Promise.withResolvers<Score>();
      waiting.push({ sample, done });
      return done.promise;
    },
    endRound: () => void flush(),
  };
}

const inOrder = (a: Unscored, b: Unscored): number =>
  a.group === b.group ? a.place - b.place : a.group < b.group ? -1 : 1;
