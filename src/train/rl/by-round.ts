/**
 * Scores the episodes of a round together, in the order of their prompts and places.
 *
 * A reward model's score of a sequence depends, by rounding, on the batch it is computed in, and a batch function may
 * compare its samples. So the order in which responses end must not decide what is scored together.
 */
import type { Score } from "../../rewards/reward.ts";
import type { UnscoredEpisode } from "./episode.ts";

export type EpisodeScoring = {
  /** Null where the reward failed, within the error budget. */
  score(episode: UnscoredEpisode, signal?: AbortSignal): Promise<Score | null>;
  /** Called when all episodes of a round have ended: a reward model or a batch function scores them together. */
  endRound(): void;
};

/** Scores all episodes of a round, in their order. */
export type ScoreRound = (
  episodes: readonly UnscoredEpisode[],
  signal?: AbortSignal,
) => Promise<readonly (Score | null)[]>;

/** A scoring that waits for the end of a round; a round without episodes asks nothing. */
export function byRound(scoreRound: ScoreRound): EpisodeScoring {
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
    if (batch.length === 0) return;
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
