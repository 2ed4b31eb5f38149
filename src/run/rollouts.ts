/**
 * rollouts.jsonl: some prompts of a step with all their responses, token by token, for people to look at.
 *
 * One line per step and kind: `{"step": n, "kind": "train", "groups": [{"prompt", "truth", "source", "episodes"}]}`.
 * The trainer chooses a bounded sample; training does not resume from it. Numbers have five significant digits; one that
 * is not finite is null. An episode of several turns also has `turns` and `drawn`; the line of a single answer has
 * neither, and the reader adds its one turn. The reader keeps offsets and parses only the lines it is asked for. A line
 * that it cannot read is counted and left out.
 */
import { z } from "zod";
import { bytesAt, LineFollower, openIfThere, stepOfLine } from "./json-lines.ts";
import { rolloutsPath } from "./names.ts";

const Numbers = z.array(z.number().nullable());

const Turn = z.object({
  /** "assistant", "tool", "user", … */
  role: z.string(),
  /** Its tokens are those from `start` up to, not including, `end`. */
  start: z.int().nonnegative(),
  end: z.int().nonnegative(),
  finish_reason: z.string().optional(),
  /** The reward of this turn alone, where there is one. */
  reward: z.number().nullable().optional(),
});

const Episode = z
  .object({
    response: z.string(),
    /** The text of each token. Joined they may differ from `response` where a character takes several tokens. */
    tokens: z.array(z.string()),
    logprobs: Numbers,
    /** Of training episodes only. */
    advantages: Numbers.optional(),
    entropy: Numbers.optional(),
    /** Null where the reward function failed. */
    score: z.number().nullable(),
    /** The other columns that the reward function returned. */
    extra: z.record(z.string(), z.unknown()),
    turns: z.array(Turn).optional(),
    /** 1 for a token that the policy drew, 0 for one of a template, a tool or a user. Absent: the policy drew all. */
    drawn: z.array(z.literal([0, 1])).optional(),
  })
  .transform((episode) => ({ ...episode, turns: episode.turns ?? [singleTurn(episode.tokens.length)] }));

/** The turn of an episode that is a single answer. */
const singleTurn = (tokens: number): z.infer<typeof Turn> => ({ role: "assistant", start: 0, end: tokens });

const Group = z.object({
  prompt: z.string(),
  /** The row's ground truth; null where it has none. */
  truth: z.unknown(),
  /** The row's data source. */
  source: z.string(),
  episodes: z.array(Episode),
});

const Kind = z.enum(["train", "val"]);
const Rollouts = z.object({ step: z.int(), kind: Kind, groups: z.array(Group) });

export type RolloutKind = z.infer<typeof Kind>;
export type RolloutTurn = z.infer<typeof Turn>;
export type RolloutEpisode = z.infer<typeof Episode>;
export type RolloutGroup = z.infer<typeof Group>;
/** One line of the file. */
export type Rollouts = z.infer<typeof Rollouts>;

/** What is written: turns only where there are several. */
type WrittenRollouts = z.input<typeof Rollouts>;
type WrittenEpisode = z.input<typeof Episode>;

/** An episode as the trainer has it, with one number per token in each row. */
export type NewEpisode = {
  readonly response: string;
  readonly tokens: readonly string[];
  readonly logprobs: ArrayLike<number>;
  readonly advantages?: ArrayLike<number> | undefined;
  readonly entropy?: ArrayLike<number> | undefined;
  readonly score: number | null;
  readonly extra: Readonly<Record<string, unknown>>;
  /** The turns of the episode, in their order; absent for a single answer. */
  readonly turns?: readonly RolloutTurn[] | undefined;
  /** 1 where the policy drew the token, 0 elsewhere; absent where it drew all of them. */
  readonly drawn?: ArrayLike<number> | undefined;
};

/** A prompt with the responses to it, as the trainer has them. */
export type NewGroup = {
  readonly prompt: string;
  readonly truth: unknown;
  readonly source: string;
  readonly episodes: readonly NewEpisode[];
};

/** The content of a line without its step. */
export function rolloutRecord(kind: RolloutKind, groups: readonly NewGroup[]): Omit<WrittenRollouts, "step"> {
  return {
    kind,
    groups: groups.map(({ prompt, truth, source, episodes }) => ({
      prompt,
      truth: truth ?? null,
      source,
      episodes: episodes.map(episodeRecord),
    })),
  };
}

function episodeRecord(episode: NewEpisode): WrittenEpisode {
  const { response, tokens, logprobs, advantages, entropy, score, extra, turns, drawn } = episode;
  const mask = drawn && Array.from(drawn, (it): 0 | 1 => (it === 0 ? 0 : 1));
  const hasSeveralTurns = (turns?.length ?? 1) > 1 || mask?.includes(0);
  return {
    response,
    tokens: [...tokens],
    logprobs: rounded(logprobs),
    ...(advantages && { advantages: rounded(advantages) }),
    ...(entropy && { entropy: rounded(entropy) }),
    score: score === null ? null : round(score),
    extra: { ...extra },
    ...(hasSeveralTurns && turns && { turns: turns.map((turn) => ({ ...turn })) }),
    ...(hasSeveralTurns && mask && { drawn: mask }),
  };
}

const rounded = (row: ArrayLike<number>): (number | null)[] => Array.from(row, round);

/** Five significant digits: enough to read and to colour by, and the file is much smaller. */
const round = (value: number): number | null => (Number.isFinite(value) ? Number(value.toPrecision(5)) : null);

/** Where a line is. */
export type RolloutEntry = {
  readonly step: number;
  readonly kind: RolloutKind;
  readonly start: number;
  readonly bytes: number;
};

/** The rollouts of a run folder, which may be growing; `refresh` looks for new lines. */
export class RolloutsReader {
  readonly #path: string;
  readonly #follower: LineFollower;
  readonly #entries: Record<RolloutKind, Map<number, RolloutEntry>> = { train: new Map(), val: new Map() };
  #version = 0;
  #unreadable = 0;

  constructor(dir: string) {
    this.#path = rolloutsPath(dir);
    this.#follower = new LineFollower(this.#path, {
      onReset: () => this.#reset(),
      onLine: (line, start) => this.#index(line, start),
    });
  }

  async refresh(): Promise<void> {
    await this.#follower.refresh();
  }

  /** Changes each time the file is cut back. */
  get version(): number {
    return this.#version;
  }

  /** How many lines cannot be read. */
  get unreadable(): number {
    return this.#unreadable;
  }

  /** The lines of a kind, by ascending step. */
  entries(kind: RolloutKind): RolloutEntry[] {
    return [...this.#entries[kind].values()].sort((a, b) => a.step - b.step);
  }

  /** The line of a step; null if there is none, or if it cannot be read. */
  async read(kind: RolloutKind, step: number): Promise<Rollouts | null> {
    const entry = this.#entries[kind].get(step);
    if (entry === undefined) return null;
    const [text = ""] = await this.readTexts([entry]);
    return parseRollouts(text);
  }

  /** Lines as text, read with one access from the first to the last. */
  async readTexts(entries: readonly RolloutEntry[]): Promise<string[]> {
    const begin = Math.min(...entries.map(({ start }) => start));
    const end = Math.max(...entries.map(({ start, bytes }) => start + bytes));
    const file = entries.length === 0 ? null : await openIfThere(this.#path);
    try {
      if (file === null) return entries.map(() => "");
      const all = await bytesAt(file, begin, end);
      return entries.map(({ start, bytes }) => all.toString("utf8", start - begin, start - begin + bytes));
    } finally {
      await file?.close();
    }
  }

  #reset(): void {
    this.#entries.train.clear();
    this.#entries.val.clear();
    this.#unreadable = 0;
    this.#version++;
  }

  #index(line: Buffer, start: number): void {
    const step = stepOfLine(line);
    const kind = Kind.safeParse(/^\{"step":\d+,"kind":"(\w+)",/.exec(line.toString("latin1", 0, 64))?.[1]);
    if (step === null || !kind.success) this.#unreadable++;
    else this.#entries[kind.data].set(step, { step, kind: kind.data, start, bytes: line.length });
  }
}

/** The last training lines of a run, at most `count`; only the end of the file is read. */
export async function newestRollouts(dir: string, count: number): Promise<Rollouts[]> {
  const file = await openIfThere(rolloutsPath(dir));
  try {
    const size = file === null ? 0 : (await file.stat()).size;
    const tail = file === null ? "" : (await bytesAt(file, Math.max(0, size - tailBytes), size)).toString("utf8");
    const lines = tail.split("\n").filter((line) => /^\{"step":\d+,"kind":"train",/.test(line));
    return lines
      .slice(-count)
      .map(parseRollouts)
      .filter((line) => line !== null);
  } finally {
    await file?.close();
  }
}

const tailBytes = 4 << 20;

/** Parse a line of the file; null for one that cannot be read. */
export function parseRollouts(text: string): Rollouts | null {
  try {
    return Rollouts.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}
