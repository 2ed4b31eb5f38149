/**
 * The ledger of an episode: every token of it, and which of them the policy sampled.
 *
 * A ledger starts with the prompt and grows by turns: what the policy sampled, and what was given to it between two
 * samples (a template's suffix, a tool's output, a user's message). It is append-only: each function returns a longer
 * ledger and leaves its argument as it was. Sampled ids are stored as they were sampled, never decoded and encoded
 * again. A single answer is a ledger with one turn.
 */
import { invariant } from "../util/errors.ts";
import type { FinishReason, Sample } from "./request.ts";

/** Tokens from `start` to the start of the next span were sampled with these weights, as far as they were sampled. */
export type VersionSpan = { readonly start: number; readonly version: number };

/** Further numbers per token: `width` numbers for each token of the ledger, 0 where nobody gave any. */
export type Column = { readonly width: number; readonly values: Float32Array };

/** A piece of the episode after the prompt: tokens `start` up to `end`. */
export type Turn = {
  /** `assistant` for a sample; otherwise who said it (`user`, `tool`, …). */
  readonly role: string;
  readonly start: number;
  readonly end: number;
  /** Why the sample ended; null for given tokens. */
  readonly finishReason: FinishReason | null;
  /** The reward of this turn alone; null without one. */
  readonly reward: number | null;
};

/** `drawn` and `logprobs` have one entry per token of `ids`. */
export type Ledger = {
  readonly ids: Int32Array;
  readonly promptLength: number;
  /** 1: the policy sampled the token. 0: prompt, template, tool output, user. */
  readonly drawn: Uint8Array;
  /** Of sampled tokens, as they were sampled; 0 elsewhere. */
  readonly logprobs: Float64Array;
  /** In order of `start`; the first one starts at the first sampled token. */
  readonly versions: readonly VersionSpan[];
  readonly columns: Readonly<Record<string, Column>>;
  /** In order, without gaps: they cover all tokens after the prompt. */
  readonly turns: readonly Turn[];
};

/** What a ledger stores of a sample. */
export type LedgerSample = Pick<Sample, "ids" | "logprobs" | "finishReason"> & {
  /** `width` numbers for each token of the sample, by name. */
  readonly columns?: Readonly<Record<string, { readonly width: number; readonly values: ArrayLike<number> }>>;
};

/** A ledger of the prompt alone. */
export function startLedger(promptIds: ArrayLike<number>): Ledger {
  return {
    ids: Int32Array.from(promptIds),
    promptLength: promptIds.length,
    drawn: new Uint8Array(promptIds.length),
    logprobs: new Float64Array(promptIds.length),
    versions: [],
    columns: {},
    turns: [],
  };
}

/** Append what the policy sampled with the weights `version`. */
export function appendSampled(ledger: Ledger, sample: LedgerSample, version: number): Ledger {
  const { ids, logprobs, finishReason, columns = {} } = sample;
  invariant(ids.length === logprobs.length, `${ids.length} sampled tokens have ${logprobs.length} log-probs`);
  const start = ledger.ids.length;
  const end = start + ids.length;
  const isNewVersion = ids.length > 0 && ledger.versions.at(-1)?.version !== version;
  return {
    ids: extended(ledger.ids, end, ids),
    promptLength: ledger.promptLength,
    drawn: extended(ledger.drawn, end).fill(1, start),
    logprobs: extended(ledger.logprobs, end, logprobs),
    versions: isNewVersion ? [...ledger.versions, { start, version }] : ledger.versions,
    columns: extendedColumns(ledger, end, columns),
    turns: [...ledger.turns, { role: "assistant", start, end, finishReason, reward: null }],
  };
}

/** Append tokens that the policy did not sample. */
export function appendGiven(ledger: Ledger, ids: ArrayLike<number>, role: string): Ledger {
  const start = ledger.ids.length;
  const end = start + ids.length;
  return {
    ids: extended(ledger.ids, end, ids),
    promptLength: ledger.promptLength,
    drawn: extended(ledger.drawn, end),
    logprobs: extended(ledger.logprobs, end),
    versions: ledger.versions,
    columns: extendedColumns(ledger, end, {}),
    turns: [...ledger.turns, { role, start, end, finishReason: null, reward: null }],
  };
}

/** The ledger of a single answer. */
export function singleTurn(promptIds: ArrayLike<number>, sample: LedgerSample, version: number): Ledger {
  return appendSampled(startLedger(promptIds), sample, version);
}

/** A copy with `length` entries: the old ones, then the new ones, then zeros. */
function extended<A extends Int32Array | Uint8Array | Float32Array | Float64Array>(
  old: A,
  length: number,
  added: ArrayLike<number> = [],
): A {
  const copy = new (old.constructor as new (length: number) => A)(length); // the same class as `old`
  copy.set(old);
  copy.set(added, old.length);
  return copy;
}

/** All columns for `length` tokens. A column that is new is 0 for the tokens before it, one that is not given for the new ones. */
function extendedColumns(ledger: Ledger, length: number, added: NonNullable<LedgerSample["columns"]>) {
  const start = ledger.ids.length;
  const names = new Set([...Object.keys(ledger.columns), ...Object.keys(added)]);
  const columns: Record<string, Column> = {};
  for (const name of names) {
    const [old, given] = [ledger.columns[name], added[name]];
    const width = given?.width ?? old?.width ?? 0;
    invariant(old === undefined || old.width === width, `column ${name} is ${old?.width} wide, not ${width}`);
    const count = given === undefined ? 0 : given.values.length;
    invariant(given === undefined || count === (length - start) * width, `column ${name} has ${count} numbers`);
    const before = old?.values ?? new Float32Array(start * width);
    columns[name] = { width, values: extended(before, length * width, given?.values) };
  }
  return columns;
}
