/**
 * rollouts.jsonl: some prompts of a step with all their responses, token by token, for people to look at.
 *
 * One line per step and kind: `{"step": n, "kind": "train", "groups": [{"prompt", "truth", "source", "episodes"}]}`.
 * It is a sample that the trainer bounds, not what training resumes from. Numbers have five significant digits; one that
 * is not finite is null. The reader keeps offsets and parses only the lines it is asked for; a line that it cannot read
 * is counted and passed over.
 */
import { z } from "zod";
import { bytesAt, LineFollower, openIfThere, stepOfLine } from "./json-lines.ts";
import { rolloutsPath } from "./names.ts";

const Numbers = z.array(z.number().nullable());

const Episode = z.object({
  response: z.string(),
  /** The text of each token; together they may differ from `response` where a character takes several tokens. */
  tokens: z.array(z.string()),
  logprobs: Numbers,
  /** Of training episodes only. */
  advantages: Numbers.optional(),
  entropy: Numbers.optional(),
  /** Null where the reward went wrong. */
  score: z.number().nullable(),
  /** What the reward function returned beside the score. */
  extra: z.record(z.string(), z.unknown()),
});

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
export type RolloutEpisode = z.infer<typeof Episode>;
export type RolloutGroup = z.infer<typeof Group>;
/** One line of the file. */
export type Rollouts = z.infer<typeof Rollouts>;

/** An episode as the trainer has it; rows have one number per token. */
export type NewEpisode = {
  readonly response: string;
  readonly tokens: readonly string[];
  readonly logprobs: ArrayLike<number>;
  readonly advantages?: ArrayLike<number> | undefined;
  readonly entropy?: ArrayLike<number> | undefined;
  readonly score: number | null;
  readonly extra: Readonly<Record<string, unknown>>;
};

/** A prompt with the responses to it, as the trainer has them. */
export type NewGroup = {
  readonly prompt: string;
  readonly truth: unknown;
  readonly source: string;
  readonly episodes: readonly NewEpisode[];
};

/** What a line holds beside its step. */
export function rolloutRecord(kind: RolloutKind, groups: readonly NewGroup[]): Omit<Rollouts, "step"> {
  return {
    kind,
    groups: groups.map(({ prompt, truth, source, episodes }) => ({
      prompt,
      truth: truth ?? null,
      source,
      episodes: episodes.map(({ response, tokens, logprobs, advantages, entropy, score, extra }) => ({
        response,
        tokens: [...tokens],
        logprobs: rounded(logprobs),
        ...(advantages && { advantages: rounded(advantages) }),
        ...(entropy && { entropy: rounded(entropy) }),
        score: score === null ? null : round(score),
        extra: { ...extra },
      })),
    })),
  };
}

const rounded = (row: ArrayLike<number>): (number | null)[] => Array.from(row, round);

/** Five significant digits: enough to read and to colour by, and a fraction of the file. */
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

  /** Another number after each time that the file was cut back. */
  get version(): number {
    return this.#version;
  }

  /** Lines that are none of ours. */
  get unreadable(): number {
    return this.#unreadable;
  }

  /** The lines of a kind, by ascending step. */
  entries(kind: RolloutKind): RolloutEntry[] {
    return [...this.#entries[kind].values()].sort((a, b) => a.step - b.step);
  }

  /** The line of a step; null where there is none, or none that can be read. */
  async read(kind: RolloutKind, step: number): Promise<Rollouts | null> {
    const entry = this.#entries[kind].get(step);
    if (entry === undefined) return null;
    const [text = ""] = await this.readTexts([entry]);
    return parseRollouts(text);
  }

  /** Lines as they are written; those that stand side by side are read in one go. */
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

/** The last training lines of a run, at most `count`, found without reading what is far before them. */
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

/** A line of the file as a value; null for one that cannot be read. */
export function parseRollouts(text: string): Rollouts | null {
  try {
    return Rollouts.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}
