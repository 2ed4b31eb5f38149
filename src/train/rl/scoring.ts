/**
 * What scores the episodes of a run: the parts of the reward that the config names for each data source
 * (`reward-ways.ts`). An episode goes in; the weighted sum of its parts comes out, adjusted by the reward manager.
 */
import { type PartOf, partsFor, rewardTree, routedServers } from "../../config/ppo/reward-tree.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { managerFile, managerSettings } from "../../config/ppo/settings.ts";
import { type CheckedManager, loadManager } from "../../rewards/manager.ts";
import { openRouter, type Router } from "../../rewards/router.ts";
import { weightedSum } from "../../rewards/weighted-sum.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { rewardApiKey } from "./api-key.ts";
import type { EpisodeScoring } from "./by-round.ts";
import { type OpenPart, openPart, plainInput, type ScoringNeeds } from "./reward-ways.ts";

export type Scoring = OpenPart;

type Needs = Omit<ScoringNeeds, "signal" | "router" | "callsInBatches">;

/** Open what the config says that scores. */
export async function openScoring(needs: Needs): Promise<Scoring> {
  const tree = rewardTree(needs.config);
  const manager = await openManager(needs.config);
  const closing = new AbortController();
  const open = new Map<unknown, OpenPart>();
  let router: Router | null = null;
  const close = async () => {
    closing.abort();
    await Promise.all([...open.values()].map((part) => part.close()));
    await router?.close();
  };
  try {
    const servers = routedServers(needs.config);
    if (servers !== null) router = await openRouterFor(servers, needs.context.env, closing.signal);
    const opening = {
      ...needs,
      router: await routedInput(router, needs),
      signal: closing.signal,
      callsInBatches: manager.callsInBatches,
    };
    for (const part of tree.parts) open.set(part, await openPart(part, opening));
  } catch (error) {
    await close();
    throw error;
  }
  const score: EpisodeScoring["score"] = async (episode, signal) => {
    const sample = plainInput(episode);
    const early = manager.before(sample);
    if (early !== null) return early;
    const weighted = partsFor(tree, episode.prompt.row.dataSource);
    const scores = await Promise.all(weighted.map(({ part }) => open.get(part)!.score(episode, signal)));
    const parts = weighted.flatMap(({ column, weight }, i) => {
      const own = scores[i] ?? null;
      return own === null ? [] : [{ column, weight, score: own }];
    });
    if (parts.length < weighted.length) return null; // a part that failed leaves the sample without a score
    return manager.after(weightedSum(parts, sample.responseLength), sample);
  };
  return {
    score,
    endRound() {
      for (const part of open.values()) part.endRound();
    },
    close,
  };
}

/** The reward manager: one of ours, or that of a file. */
async function openManager(config: PpoConfig): Promise<CheckedManager> {
  const file = managerFile(config);
  if (file !== null) return await loadManager(file, config.reward_manager.name);
  const rule = managerSettings(config);
  return {
    callsInBatches: false, // the tree knows it of ours
    before: () => null,
    after: (score, { responseLength }) => rule(score, responseLength),
  };
}

/** One address for the servers that a function may ask. */
function openRouterFor(
  part: PartOf<"judge" | "service">,
  env: TrainContext["env"],
  signal: AbortSignal,
): Promise<Router> {
  return openRouter({ addresses: part.model[part.use].url, signal, ...rewardApiKey(part, env) });
}

/** What the function gets of it: the address, and the folder of the reward model's tokenizer. */
async function routedInput(router: Router | null, { config, context }: Needs): Promise<ScoringNeeds["router"]> {
  if (router === null) return {};
  const { path } = config.reward_model.model;
  return {
    rewardRouterAddress: router.address,
    ...(path !== null && { rewardModelTokenizer: await fetchModel(path, context) }),
  };
}
