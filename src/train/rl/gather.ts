/**
 * The episodes of a step: sampled and scored, groups that teach nothing replaced where that is asked for, and put in an
 * order of like work.
 */
import { balanceMetrics, balanceWorkers } from "../../algos/balancing/balancing.ts";
import { groupRows } from "../../algos/batch.ts";
import type { GroupFilter } from "../../algos/selection/group-filter.ts";
import { groupFilter, samplingSettings } from "../../config/ppo/settings.ts";
import { UserError } from "../../util/errors.ts";
import { warn } from "../../util/log.ts";
import { columnOf, type Episode } from "./episode.ts";
import { rollOut } from "./rollouts.ts";
import type { Scene } from "./scene.ts";

export type Gathered = { readonly episodes: readonly Episode[]; readonly metrics: Record<string, number> };

/** Rounds of sampling for one step after which the user is told, since there may be no end to them. */
const MANY_ROUNDS = 10;

/** Sample the prompts that are next, `rollout.n` responses each. */
export async function gather(scene: Scene, step: number): Promise<Gathered> {
  const { config, loader, prompts, progress, player, signal } = scene;
  const { n } = config.actor_rollout_ref.rollout;
  const filter = groupFilter(config);
  const wanted = config.data.train_batch_size * n;
  const kept: Episode[] = [];
  let [epoch, rounds] = [0, 0];
  while (kept.length < wanted) {
    if (filter !== null && filter.maxRounds > 0 && rounds >= filter.maxRounds) {
      throw new UserError(
        `After ${rounds} rounds of sampling ${kept.length / n} of ${config.data.train_batch_size} groups have scores that ` +
          `differ. The prompts are too easy or too hard; change them, or raise \`${filter.maxRoundsKey}\`.`,
      );
    }
    const batch = loader.next();
    epoch = batch.epoch;
    const fresh = await rollOut(
      player,
      batch.indices.map((index) => prompts.train[index]!),
      {
        sampling: samplingSettings(config, "train"),
        n,
        round: `step ${step} round ${rounds}`,
        signal,
        say: (what) => progress.say(what),
      },
    );
    rounds++;
    kept.push(...(filter === null ? fresh : keptGroups(fresh, filter)));
    if (filter !== null && rounds === MANY_ROUNDS && kept.length < wanted)
      warn(
        `Step ${step}: after ${rounds} rounds of sampling ${kept.length / n} of ${config.data.train_batch_size} groups have scores ` +
          `that differ. Sampling goes on; \`${filter.maxRoundsKey}\` limits it.`,
      );
  }
  const episodes = kept.slice(0, wanted);
  return {
    episodes: balanced(scene, episodes),
    metrics: { "training/epoch": epoch, ...balanceMetricsOf(scene, episodes) },
  };
}

/** The episodes of the groups that a filter keeps. */
function keptGroups(episodes: readonly Episode[], { column, columnKey, keeps }: GroupFilter): Episode[] {
  const groups = groupRows(episodes.map(({ group }) => group));
  return [...groups.values()]
    .map((rows) => rows.map((row) => episodes[row]!))
    .filter((group) =>
      keeps(group.flatMap(({ score }) => (score === null ? [] : [columnOf(score, column, columnKey)]))),
    )
    .flat();
}

const lengthOf = ({ promptIds, responseIds }: Episode): number => promptIds.length + responseIds.length;

/** verl's order for one worker: short sequences first and last. */
function balanced({ config }: Scene, episodes: readonly Episode[]): readonly Episode[] {
  if (!config.trainer.balance_batch) return episodes;
  const [order] = balanceWorkers(episodes.map(lengthOf), { workers: 1 });
  return order!.map((row) => episodes[row]!);
}

function balanceMetricsOf({ config }: Scene, episodes: readonly Episode[]): Record<string, number> {
  if (!config.trainer.balance_batch) return {};
  const lengths = episodes.map(lengthOf);
  return balanceMetrics(lengths, balanceWorkers(lengths, { workers: 1 }));
}

/** ReMax's baseline: the score of the greedy response to each episode's prompt. */
export async function greedyScores(scene: Scene, episodes: readonly Episode[], step: number): Promise<number[]> {
  const { config, player, progress, signal } = scene;
  const groups = [...groupRows(episodes.map(({ group }) => group)).entries()];
  const rows = groups.map(([, members]) => episodes[members[0]!]!.row);
  const greedy = await rollOut(player, rows, {
    sampling: { ...samplingSettings(config, "train"), temperature: 0 },
    n: 1,
    round: `step ${step} greedy`,
    signal,
    say: (what) => progress.say(`${what} (greedy)`),
  });
  const byGroup = new Map(groups.map(([group], i) => [group, greedy[i]!.score?.score ?? 0]));
  return episodes.map(({ group }) => byGroup.get(group)!);
}
