/**
 * From prompts to episodes: all prompts are sampled together, and each response is scored as soon as it ends, or by a
 * reward model together with the others.
 *
 * The seed of a prompt's samples comes from the run's seed, the round and the place of the prompt, so a step that is
 * taken again gives the same episodes.
 */
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { encodePrompt, type RlRow } from "../../data/rl-rows.ts";
import type { CanSample } from "../../rollout/remote.ts";
import type { Sampling } from "../../rollout/request.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { Random } from "../../util/random.ts";
import type { Episode, Unscored } from "./episode.ts";
import type { Scoring } from "./scoring.ts";

/** What samples and scores. */
export type Player = {
  readonly config: PpoConfig;
  readonly model: CanSample;
  readonly tokenizer: Tokenizer;
  readonly scoring: Scoring;
};

export type Order = {
  readonly sampling: Sampling;
  readonly n: number;
  /** Names the round: `step 12`, `validation 12`; with the seed it decides what is drawn. */
  readonly round: string;
  readonly signal: AbortSignal;
  /** Called with what is going on: sampling, then waiting for rewards. */
  readonly say: (what: string) => void;
};

/** Sample and score; the episodes of a prompt stand side by side, prompts in their order. */
export async function rollOut(player: Player, rows: readonly RlRow[], order: Order): Promise<Episode[]> {
  const { rollout } = player.config.actor_rollout_ref;
  const random = new Random(rollout.seed ?? player.config.trainer.seed, order.round);
  const total = rows.length * order.n;
  let [ended, scored] = [0, 0];
  const report = () =>
    order.say(
      ended < total
        ? `sampling ${ended}/${total}`
        : `waiting for the rewards of ${total - scored} of ${total} responses`,
    );
  const groups = rows.map(async (row, index) => {
    const promptIds = promptOf(player, row);
    const promptText = player.tokenizer.decode(promptIds);
    const episodes: Promise<Episode>[] = [];
    await player.model.sample({
      ...order.sampling,
      prompt: promptIds,
      n: order.n,
      seed: random.bits(),
      wantsText: true,
      signal: order.signal,
      onSample: ({ index: place, ids, logprobs, text }) => {
        const group = `${order.round}/${index}`;
        const sample: Unscored = { group, place, row, promptIds, promptText, responseIds: ids, text, logprobs };
        episodes[place] = player.scoring.score(sample, order.signal).then((score) => {
          scored++;
          if (scored < total) report();
          return { ...sample, score };
        });
        episodes[place].catch(() => undefined); // awaited below, once all samples of the prompt have ended
        ended++;
        report();
        if (ended === total) player.scoring.endRound();
      },
    });
    return await Promise.all(episodes);
  });
  return (await Promise.all(groups)).flat();
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

function promptOf({ config, tokenizer }: Player, row: RlRow): Int32Array {
  const { data, actor_rollout_ref: all } = config;
  return encodePrompt(row, tokenizer, {
    maxPromptLength: data.max_prompt_length,
    truncation: data.truncation,
    extra: data.apply_chat_template_kwargs,
    template: all.model.custom_chat_template,
  });
}
