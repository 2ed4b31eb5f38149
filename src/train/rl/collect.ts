/**
 * Collect: fill the batch of a step with groups of episodes. A filter may leave groups out; then further prompts are
 * sampled until the batch is full. The episodes are put in verl's order for balanced work.
 */
import { balanceMetrics, balanceWorkers } from "../../algos/balancing/balancing.ts";
import { groupRows } from "../../algos/batch.ts";
import { samplingSettings } from "../../config/ppo/settings.ts";
import { UserError } from "../../util/errors.ts";
import { warn } from "../../util/log.ts";
import type { RlContext } from "./context.ts";
import { columnOf, type Episode } from "./episode.ts";
import { produceAll } from "./produce.ts";

/** The episodes that a step trains on, in the order in which mini-batches are cut. */
export type Batch = { readonly episodes: readonly Episode[]; readonly metrics: Record<string, number> };

/** Rounds of sampling for one step after which the user gets a warning, since there may be no end to them. */
const MANY_ROUNDS = 10;

/** Sample the next prompts of the loader, `rollout.n` responses each, until a batch is full. */
export async function collect(context: RlContext, step: number): Promise<Batch> {
  const { config, loader, prompts, progress, rollout, signal } = context;
  const { n } = config.actor_rollout_ref.rollout;
  const wanted = config.data.train_batch_size;
  const keeps = groupFilter(context);
  const kept: Episode[] = [];
  let epoch = 0;
  for (let rounds = 0; kept.length < wanted * n; rounds++) {
    checkRounds(context, { step, rounds, groups: kept.length / n });
    const batch = loader.next();
    epoch = batch.epoch;
    const episodes = await produceAll(
      rollout,
      batch.indices.map((index) => prompts.train[index]!),
      {
        sampling: samplingSettings(config, "train"),
        n,
        round: `step ${step} round ${rounds}`,
        version: step - 1,
        signal,
        say: (what) => progress.say(what),
      },
    );
    for (const group of groupsIn(episodes)) if (keeps(group)) kept.push(...group);
  }
  const episodes = kept.slice(0, wanted * n);
  return { episodes: balanced(context, episodes), metrics: { "training/epoch": epoch, ...balance(context, episodes) } };
}

const groupsIn = (episodes: readonly Episode[]): Episode[][] => [
  ...Map.groupBy(episodes, ({ group }) => group).values(),
];

/** Which groups are trained on: all, or with `algorithm.filter_groups` those whose scores differ. */
function groupFilter({ config }: RlContext): (group: readonly Episode[]) => boolean {
  const { enable, metric } = config.algorithm.filter_groups;
  if (!enable) return () => true;
  // DAPO's dynamic sampling (arXiv:2503.14476): where all scores are equal, there is nothing to learn.
  return (group) => {
    const columns = group.flatMap(({ score }) =>
      score === null ? [] : [columnOf(score, metric ?? "score", "algorithm.filter_groups.metric")],
    );
    return columns.some((column) => column !== columns[0]);
  };
}

type Rounds = { readonly step: number; readonly rounds: number; readonly groups: number };

/** Warn after many rounds of sampling, and end the run after as many as the config allows. */
function checkRounds({ config }: RlContext, { step, rounds, groups }: Rounds): void {
  const { max_num_gen_batches: most } = config.algorithm.filter_groups;
  const found = `after ${rounds} rounds of sampling ${groups} of ${config.data.train_batch_size} groups have scores that differ`;
  if (most > 0 && rounds >= most) {
    throw new UserError(
      `Step ${step}: ${found}. The prompts are too easy or too hard; change them, or raise ` +
        "`algorithm.filter_groups.max_num_gen_batches`.",
    );
  }
  if (rounds === MANY_ROUNDS)
    warn(`Step ${step}: ${found}. Sampling goes on; \`algorithm.filter_groups.max_num_gen_batches\` limits it.`);
}

const lengthOf = ({ ledger }: Episode): number => ledger.ids.length;

/** verl's order for one worker: short sequences first and last. */
function balanced({ config }: RlContext, episodes: readonly Episode[]): readonly Episode[] {
  if (!config.trainer.balance_batch) return episodes;
  const [order] = balanceWorkers(episodes.map(lengthOf), { workers: 1 });
  return order!.map((row) => episodes[row]!);
}

function balance({ config }: RlContext, episodes: readonly Episode[]): Record<string, number> {
  if (!config.trainer.balance_batch) return {};
  const lengths = episodes.map(lengthOf);
  return balanceMetrics(lengths, balanceWorkers(lengths, { workers: 1 }));
}

/** The score of the greedy response to each episode's prompt: a baseline that some estimators need. */
export async function greedyScores(
  { config, rollout, progress, signal }: RlContext,
  episodes: readonly Episode[],
  step: number,
): Promise<number[]> {
  const groups = [...groupRows(episodes.map(({ group }) => group)).entries()];
  const greedy = await produceAll(
    rollout,
    groups.map(([, members]) => episodes[members[0]!]!.prompt),
    {
      sampling: { ...samplingSettings(config, "train"), temperature: 0 },
      n: 1,
      round: `step ${step} greedy`,
      version: step - 1,
      signal,
      say: (what) => progress.say(`${what} (greedy)`),
    },
  );
  const byGroup = new Map(groups.map(([group], i) => [group, greedy[i]!.score?.score ?? 0]));
  return episodes.map(({ group }) => byGroup.get(group)!);
}
