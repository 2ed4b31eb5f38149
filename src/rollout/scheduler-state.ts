/**
 * The state of the scheduler: which sequences run and wait, and what the slots of the cache hold.
 *
 * The cache is divided into slots of equal capacity. A slot belongs to a running sequence, or keeps the tokens of a
 * finished one for prompts with the same prefix. `plan.ts` computes the next state; the functions here change it when a
 * sequence ends and when the weights change.
 */

export type Sequence = {
  readonly id: number;
  /** Sequences of one request have the same prompt. */
  readonly request: number;
  /** Prompt and drawn tokens; it grows as tokens are drawn. */
  readonly ids: readonly number[];
  readonly promptLength: number;
  /** The maximum number of its tokens. */
  readonly limit: number;
  /** The log-probs of the prompt are wanted, so all of it must be computed and no prefix is reused. */
  readonly wantsPromptLogprobs: boolean;
};

/** A slot holds the keys and values of the first `length` tokens of `ids`. */
export type Slot = {
  readonly ids: readonly number[];
  readonly length: number;
  /** The running sequence that it belongs to; null if it is kept for its prefix. */
  readonly owner: number | null;
  /** Keys of different rope regimes cannot be used together. */
  readonly regime: number;
  readonly usedAt: number;
};

export type State = {
  readonly step: number;
  /** Tokens that a slot can hold; the cache is divided into as many slots as fit. */
  readonly capacity: number;
  readonly slots: readonly (Slot | null)[];
  /** In order of admission. */
  readonly running: readonly Sequence[];
  /** In order of arrival. */
  readonly waiting: readonly Sequence[];
};

export type Limits = {
  /** Tokens that the whole cache can hold. */
  readonly cacheTokens: number;
  readonly maxSequences: number;
  /** Prompt tokens that are prefilled in one step, and in one run of a step. */
  readonly maxBatchedTokens: number;
  readonly maxRunTokens: number;
  readonly maxLength: number;
  readonly hasPrefixCache: boolean;
  readonly regimeOf: (length: number) => number;
};

/** Shorter prefixes are computed again: that is cheaper than a separate run for the rest. */
export const REUSE_FROM = 16;

export function emptyState(): State {
  return { step: 0, capacity: 0, slots: [], running: [], waiting: [] };
}

/** A sequence ended: its slot is kept for its prefix, or emptied. */
export function release(state: State, id: number, isKept: boolean): State {
  const slots = state.slots.map((slot) => {
    if (slot?.owner !== id) return slot;
    return isKept && slot.length >= REUSE_FROM ? { ...slot, owner: null, usedAt: state.step } : null;
  });
  const others = (sequence: Sequence) => sequence.id !== id;
  const running = state.running.filter(others);
  const isWaiting = running.length === state.running.length;
  return { ...state, slots, running, waiting: isWaiting ? state.waiting.filter(others) : state.waiting };
}

/** The weights changed: everything in the cache is invalid. */
export function forget(state: State): State {
  const slots = state.slots.map((slot) => (slot === null || slot.owner === null ? null : { ...slot, length: 0 }));
  return { ...state, slots };
}

/** Whether the log-probs of its prompt are wanted and not computed yet: they are once it has drawn a token. */
export const needsPromptLogprobs = ({ wantsPromptLogprobs, ids, promptLength }: Sequence): boolean =>
  wantsPromptLogprobs && ids.length === promptLength;
