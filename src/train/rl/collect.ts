/**
 * Collect: fill the batch of a step with groups of episodes. A filter may leave groups out; then further prompts are
 * sampled until the batch is full. The episodes are put in verl's order for balanced work.
 */
import { balanceBatch, balanceMetrics } from "../../algos/balancing/balancing.ts";
import { groupRows } from "../../algos/batch.ts";
import type { GroupFilter } from "../../algos/selection/group-filter.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { groupFilter, samplingSettings } from "../../config/ppo/settings.ts";
import { workerCount } from "../../config/ray/ray.ts";
import { UserError } from "../../util/errors.ts";
import { warn } from "../../util/log.ts";
import type { Clock } from "../clock.ts";
import type { RlContext } from "./context.ts";
import { columnOf, type Episode, tokenCount } from "./episode.ts";
import { type Group, inOrder, produce } from "./produce.ts";

/** Rounds of sampling for one step after which the user gets a warning, since there may be no end to them. */
const MANY_ROUNDS = 10;

/** A group, with the round of its step that it was sampled in and the epoch of its prompt. */
type RoundGroup = Group & { readonly round: number; readonly epoch: number };

/**
 * Groups of the next prompts, `rollout.n` responses each: round after round, in the order of the prompts. What a
 * round waits for scores after its last response is the section `reward` of the clock.
 */
export async function* sampleRounds(context: RlContext, step: number, clock: Clock): AsyncGenerator<RoundGroup> {
  const { config, rows, progress, rollout, signal } = context;
  const most = groupFilter(config)?.maxRounds ?? 0;
  for (let round = 0; most === 0 || round < most; round++) {
    const { prompts, epoch } = await rows.next(step);
    const options = {
      sampling: samplingSettings(config, "train"),
      n: config.actor_rollout_ref.rollout.n,
      round: `step ${step} round ${round}`,
      version: step - 1,
      signal,
      say: (what: string) => progress.say(what),
      onScored: (waited: number) => clock.move(waited, { from: "gen", to: "reward" }),
    };
    for (const group of await inOrder(produce(rollout, prompts, options))) yield { ...group, round, epoch };
  }
}

/** The episodes that a step trains on, in the order in which mini-batches are cut. */
export type Batch = {
  readonly episodes: readonly Episode[];
  /** The same episodes by their prompts, in the order in which these were drawn. */
  readonly groups: readonly Group[];
  readonly metrics: Record<string, number>;
};

/** Fill the batch of a step with the groups that the filter keeps. */
export async function collect({ config }: RlContext, step: number, groups: AsyncIterable<RoundGroup>): Promise<Batch> {
  const wanted = config.data.train_batch_size;
  const filter = groupFilter(config);
  const kept: RoundGroup[] = [];
  let rounds = 0;
  const found = () =>
    `Step ${step}: after ${rounds} rounds of sampling ${kept.length} of ${wanted} groups have scores that differ.`;
  for await (const group of groups) {
    if (filter !== null && group.round === MANY_ROUNDS && rounds === MANY_ROUNDS)
      warn(`${found()} Sampling goes on; \`${filter.maxRoundsKey}\` limits it.`);
    rounds = group.round + 1;
    if (keeps(group, filter)) kept.push(group);
    if (kept.length === wanted) break;
  }
  if (filter !== null && kept.length < wanted) {
    throw new UserError(
      `${found()} The prompts are too easy or too hard; change them, or raise \`${filter.maxRoundsKey}\`.`,
    );
  }
  const episodes = kept.flatMap((group) => group.episodes);
  const { order, metrics } = balance(config, episodes);
  return { episodes: order, groups: kept, metrics: { "training/epoch": kept.at(-1)!.epoch, ...metrics } };
}

/** Whether a group is trained on. */
function keeps({ episodes }: Group, filter: GroupFilter | null): boolean {
  if (filter === null) return true;
  const { column, columnKey } = filter;
  return filter.keeps(episodes.flatMap(({ score }) => (score === null ? [] : [columnOf(score, column, columnKey)])));
}

/** verl's order, each worker's short sequences first and last, and how even the work of the workers is. */
function balance(
  config: PpoConfig,
  episodes: readonly Episode[],
): { readonly order: readonly Episode[]; readonly metrics: Record<string, number> } {
  if (!config.trainer.balance_batch) return { order: episodes, metrics: {} };
  const lengths = episodes.map(tokenCount);
  const { parts, order } = balanceBatch(lengths, workerCount(config));
  return { order: order.map((row) => episodes[row]!), metrics: balanceMetrics(lengths, parts) };
}

/** The score of the greedy response to each episode's prompt: a baseline that some estimators need. */
export async function greedyScores(
  { config, rollout, progress, signal }: RlContext,
  episodes: readonly Episode[],
  step: number,
): Promise<number[]> {
  const groups = [...groupRows(episodes.map(({ group }) => group)).entries()];
  const prompts = groups.map(([, members]) => episodes[members[0]!]!.prompt);
  const greedy = await inOrder(
    produce(rollout, prompts, {
      sampling: { ...samplingSettings(config, "train"), temperature: 0 },
      n: 1,
      round: `step ${step} greedy`,
      version: step - 1,
      signal,
      say: (what) => progress.say(`${what} (greedy)`),
    }),
  );
  const byGroup = new Map(groups.map(([group], i) => [group, greedy[i]!.episodes[0]!.score?.score ?? 0]));
  return episodes.map(({ group }) => byGroup.get(group)!);
}
