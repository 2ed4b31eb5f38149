/**
 * What scores the episodes of a run: the parts of the reward that the config names for each data source
 * (`reward-ways.ts`). An episode goes in; the weighted sum of its parts comes out, adjusted by the reward manager.
 */
import { partsFor, rewardTree } from "../../config/ppo/reward-tree.ts";
import { managerSettings } from "../../config/ppo/settings.ts";
import { weightedSum } from "../../rewards/weighted-sum.ts";
import type { EpisodeScoring } from "./by-round.ts";
import { responseLength } from "./episode.ts";
import { type OpenPart, openPart, type ScoringNeeds } from "./reward-ways.ts";

export type Scoring = OpenPart;

/** Open what the config says that scores. */
export async function openScoring(needs: Omit<ScoringNeeds, "signal">): Promise<Scoring> {
  const tree = rewardTree(needs.config);
  const manage = managerSettings(needs.config);
  const closing = new AbortController();
  const open = new Map<unknown, OpenPart>();
  const close = async () => {
    closing.abort();
    await Promise.all([...open.values()].map((part) => part.close()));
  };
  try {
    for (const part of tree.parts) open.set(part, await openPart(part, { ...needs, signal: closing.signal }));
  } catch (error) {
    await close();
    throw error;
  }
  const score: EpisodeScoring["score"] = async (episode, signal) => {
    const weighted = partsFor(tree, episode.prompt.row.dataSource);
    const scores = await Promise.all(weighted.map(({ part }) => open.get(part)!.score(episode, signal)));
    const parts = weighted.flatMap(({ column, weight }, i) => {
      const own = scores[i] ?? null;
      return own === null ? [] : [{ column, weight, score: own }];
    });
    if (parts.length < weighted.length) return null; // a part that failed leaves the sample without a score
    const length = responseLength(episode);
    return manage(weightedSum(parts, length), length);
  };
  return {
    score,
    endRound() {
      for (const part of open.values()) part.endRound();
    },
    close,
  };
}
