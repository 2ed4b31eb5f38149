/**
 * Produce: prompts in, groups of scored episodes out. All prompts are sampled together. Each response is scored as soon
 * as it ends, or by a reward model together with the others of the round.
 *
 * The seed of a prompt's samples comes from the run's seed, the name of the round and the place of the prompt in it, so a
 * step that is taken again gives the same episodes. The order in which groups finish is not part of that: who needs a
 * fixed order sorts by `index`.
 */
import { singleTurn } from "../../rollout/ledger.ts";
import type { Sampling } from "../../rollout/request.ts";
import { Random } from "../../util/random.ts";
import type { Episode, UnscoredEpisode } from "./episode.ts";
import type { Prompt } from "./prompts.ts";
import type { RolloutClient } from "./rollout-client.ts";

export type ProduceOptions = {
  readonly sampling: Sampling;
  /** How many responses to each prompt. */
  readonly n: number;
  /** The name of the round, such as `step 12`; with the seed it decides what is drawn. */
  readonly round: string;
  /** The version of the weights that draw the tokens: the number of steps they have been trained for. */
  readonly version: number;
  readonly signal: AbortSignal;
  /** Called with what is going on: sampling, then waiting for rewards. */
  readonly say: (what: string) => void;
  /** Called once, with the seconds between the end of the last response and the last score. */
  readonly onScored?: (waited: number) => void;
};

/** The scored responses to one prompt, in the order of their places. */
export type Group = { readonly index: number; readonly episodes: readonly Episode[] };

/** Sample and score; groups come as they finish. */
export async function* produce(
  client: RolloutClient,
  prompts: readonly Prompt[],
  options: ProduceOptions,
): AsyncGenerator<Group> {
  const { rollout } = client.config.actor_rollout_ref;
  const random = new Random(rollout.seed ?? client.config.trainer.seed, options.round);
  const counts = new Counts(prompts.length * options.n, options.say);
  const groups = prompts.map((prompt, index) =>
    answer(client, prompt, { ...options, index, seed: random.bits(), counts }),
  );
  yield* asTheyFinish(groups);
  options.onScored?.(counts.waited());
}

/** All groups, in the order of their prompts. */
export async function inOrder(groups: AsyncIterable<Group>): Promise<Group[]> {
  const all: Group[] = [];
  for await (const group of groups) all.push(group);
  return all.sort((a, b) => a.index - b.index);
}

type Answering = ProduceOptions & { readonly index: number; readonly seed: number; readonly counts: Counts };

async function answer(client: RolloutClient, prompt: Prompt, options: Answering): Promise<Group> {
  const { sampling, n, round, version, signal, index, seed, counts } = options;
  const episodes: Promise<Episode>[] = [];
  await client.model.sample({
    ...sampling,
    prompt: prompt.ids,
    n,
    seed,
    wantsText: true,
    signal,
    onSample: (sample) => {
      const { index: place, text } = sample;
      const ledgers = [singleTurn(prompt.ids, sample, version)];
      const episode: UnscoredEpisode = { group: `${round}/${index}`, place, prompt, ledgers, text };
      episodes[place] = client.scoring.score(episode, signal).then((score) => {
        counts.addScored();
        return { ...episode, score };
      });
      episodes[place].catch(() => undefined); // awaited below, once all samples of the prompt have ended
      if (counts.addEnded()) client.scoring.endRound();
    },
  });
  return { index, episodes: await Promise.all(episodes) };
}

/** How many responses of a round have ended and how many have a score, for the progress line. */
class Counts {
  readonly #total: number;
  readonly #say: (what: string) => void;
  #ended = 0;
  #scored = 0;
  #lastEnd = 0;

  constructor(total: number, say: (what: string) => void) {
    this.#total = total;
    this.#say = say;
  }

  /** One more response has ended; true for the last one. */
  addEnded(): boolean {
    this.#ended++;
    this.#lastEnd = performance.now();
    this.#report();
    return this.#ended === this.#total;
  }

  /** Seconds since the last response ended. */
  waited(): number {
    return this.#ended === 0 ? 0 : (performance.now() - this.#lastEnd) / 1000;
  }

  addScored(): void {
    this.#scored++;
    if (this.#scored < this.#total) this.#report();
  }

  #report(): void {
    const [total, ended] = [this.#total, this.#ended];
    this.#say(
      ended < total
        ? `sampling ${ended}/${total}`
        : `waiting for the rewards of ${total - this.#scored} of ${total} responses`,
    );
  }
}

/** The results of promises in the order in which they settle; the first rejection ends it. */
async function* asTheyFinish<T>(promises: readonly Promise<T>[]): AsyncGenerator<T> {
  const settled = promises.map(() => Promise.withResolvers<T>());
  for (const { promise } of settled) promise.catch(() => undefined); // a later one that nobody waits for any more
  let next = 0;
  for (const promise of promises) {
    promise.then(
      (value) => settled[next++]!.resolve(value),
      (error: unknown) => settled[next++]!.reject(error),
    );
  }
  for (const { promise } of settled) yield await promise;
}

/** What the work gives; null where the user asked to stop and its sampling ended for that. */
export async function unlessStopped<T>(signal: AbortSignal, work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if (signal.aborted && error instanceof Error && error.name === "AbortError") return null;
    throw error;
  }
}
