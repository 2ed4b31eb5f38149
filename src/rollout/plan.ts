/**
 * The scheduler: what to compute next, decided purely, so that every question of scheduling is a unit test.
 *
 * The cache is cut into slots of equal capacity, one per running sequence; what is left over keeps the tokens of
 * finished sequences, for prompts that begin alike. A sequence needs its uncomputed tokens run: all but one of them is
 * reading (prompts, in chunks), exactly one is decoding. Sequences that decode stand in the first slots, side by side,
 * because one run covers neighbouring slots. Requests are admitted in the order they came and none overtakes; when
 * longer sequences leave fewer slots, the last ones admitted give theirs up and are computed again later.
 *
 * The order of decisions depends on the requests alone, never on time: the same requests give the same batches.
 */
import { invariant } from "../util/errors.ts";

export type Sequence = {
  readonly id: number;
  /** Sequences of one request begin with the same prompt. */
  readonly request: number;
  /** Prompt and drawn tokens; it grows as tokens are drawn. */
  readonly ids: readonly number[];
  readonly promptLength: number;
  /** The most tokens it can come to have. */
  readonly limit: number;
  /** The distribution after every prompt token is asked for, so none of them is taken from elsewhere. */
  readonly wantsPromptLogprobs: boolean;
};

/** A slot holds the keys and values of the first `length` of `ids`. */
export type Slot = {
  readonly ids: readonly number[];
  readonly length: number;
  /** The running sequence it belongs to; null when it is kept for its prefix. */
  readonly owner: number | null;
  /** Keys of different rope regimes do not mix. */
  readonly regime: number;
  readonly usedAt: number;
};

export type State = {
  readonly step: number;
  /** Tokens a slot can hold; `slots` is as long as the cache allows with it. */
  readonly capacity: number;
  readonly slots: readonly (Slot | null)[];
  /** In the order of admission. */
  readonly running: readonly Sequence[];
  /** In the order of arrival. */
  readonly waiting: readonly Sequence[];
};

export type Limits = {
  /** Tokens the whole cache can hold. */
  readonly cacheTokens: number;
  readonly maxSequences: number;
  /** Prompt tokens read in one step, and in one run of it. */
  readonly maxBatchedTokens: number;
  readonly maxRunTokens: number;
  readonly maxLength: number;
  readonly hasPrefixCache: boolean;
  readonly regimeOf: (length: number) => number;
};

/** Tokens `from` to `to` of a sequence. The followers' prompts are the same: they share what comes out. */
export type RunRow = {
  readonly sequence: Sequence;
  readonly from: number;
  readonly to: number;
  readonly followers: readonly Sequence[];
};

/** What to do, one after the other. A run's rows lie in neighbouring slots from `slot` on. */
export type Action =
  | { readonly do: "layOut"; readonly capacity: number; readonly lengths: readonly number[] }
  | { readonly do: "copy"; readonly from: number; readonly to: number; readonly length: number }
  | { readonly do: "swap"; readonly a: number; readonly b: number; readonly length: number }
  | { readonly do: "run"; readonly slot: number; readonly rows: readonly RunRow[] };

export type Plan = {
  readonly actions: readonly Action[];
  readonly state: State;
  readonly preempted: number;
  /** How much of its beginning each admitted sequence found in the cache, by id. */
  readonly reused: ReadonlyMap<number, number>;
};

/** Prefixes shorter than this are computed again: that is cheaper than a run of their own for the rest. */
export const REUSE_FROM = 16;
/** Tokens of one sequence read in one run: attention's scores take memory in proportion. */
export const CHUNK = 512;
/** The same where every position's distribution is asked for, which takes a row of the vocabulary each. */
export const READ_CHUNK = 64;
/** The share of a run's tokens that must not be padding. */
const MOSTLY = 0.8;
/** Capacities are this times a power of two, or what the longest request needs. */
const SMALLEST_CAPACITY = 64;

export function emptyState(): State {
  return { step: 0, capacity: 0, slots: [], running: [], waiting: [] };
}

/** The next step. */
export function plan(before: State, limits: Limits): Plan {
  const draft = new Draft(before, limits);
  draft.forgetOtherRegimes();
  draft.makeRoom();
  draft.admit();
  const reading = draft.chooseReading();
  const decoding = draft.decoding();
  draft.arrange(decoding, reading);
  draft.runReading(reading);
  draft.runDecoding(decoding);
  return draft.finish();
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

/** The weights changed: nothing in the cache holds any more. */
export function forget(state: State): State {
  const slots = state.slots.map((slot) => (slot === null || slot.owner === null ? null : { ...slot, length: 0 }));
  return { ...state, slots };
}

/** Whether the distributions within its prompt are still to be told: once it has drawn a token they were. */
export const needsPromptLogprobs = ({ wantsPromptLogprobs, ids, promptLength }: Sequence): boolean =>
  wantsPromptLogprobs && ids.length === promptLength;

type Reading = { readonly sequence: Sequence; readonly tokens: number };

class Draft {
  readonly #limits: Limits;
  readonly #step: number;
  readonly #actions: Action[] = [];
  #capacity: number;
  #slots: (Slot | null)[];
  /** Where each running sequence is. */
  #places = new Map<number, number>();
  /** Who reads a request's prompt for all its sequences: the first of them that has drawn nothing yet. */
  #leaders = new Map<number, Sequence>();
  #waiting: readonly Sequence[];
  #preempted = 0;
  readonly #reused = new Map<number, number>();
  running: Sequence[];

  constructor(state: State, limits: Limits) {
    this.#limits = limits;
    this.#step = state.step + 1;
    this.#capacity = state.capacity;
    this.#slots = [...state.slots];
    this.#waiting = state.waiting;
    this.running = [...state.running];
    this.#index();
    for (const sequence of this.running) this.#lead(sequence);
  }

  /** How many of a running sequence's tokens are not computed yet. */
  missing(sequence: Sequence): number {
    return sequence.ids.length - this.#slots[this.#slotOf(sequence)]!.length;
  }

  /** Keys turned for another length are of no use: such sequences are read anew. */
  forgetOtherRegimes(): void {
    for (const sequence of this.running) {
      const at = this.#slotOf(sequence);
      const slot = this.#slots[at]!;
      const regime = this.#limits.regimeOf(sequence.ids.length);
      if (slot.regime !== regime) this.#slots[at] = { ...slot, regime, length: 0 };
    }
  }

  /** A capacity that holds every running sequence, at the cost of the last ones admitted. */
  makeRoom(): void {
    const need = Math.max(0, ...this.running.map(({ ids }) => ids.length));
    if (need <= this.#capacity) return;
    const capacity = this.#capacityFor(need, this.running.length);
    const count = this.#slotsAt(capacity);
    const leaving = this.running.slice(count);
    for (const sequence of leaving) this.#slots[this.#slotOf(sequence)] = null;
    this.running = this.running.slice(0, count);
    this.#waiting = [...leaving, ...this.#waiting];
    this.#preempted += leaving.length;
    for (const { request, id } of leaving) if (this.#leaders.get(request)?.id === id) this.#leaders.delete(request);
    this.#layOut(capacity);
  }

  /** Give slots to those who wait, first come first served. */
  admit(): void {
    const { maxSequences, regimeOf } = this.#limits;
    let longest = Math.max(0, ...this.running.map(({ ids }) => ids.length));
    let admitted = 0;
    for (const sequence of this.#waiting) {
      const count = this.running.length + 1;
      longest = Math.max(longest, sequence.ids.length);
      if (count > maxSequences) break;
      const isTooSmall = longest > this.#capacity || count > this.#slots.length;
      if (isTooSmall || this.running.length === 0) {
        const others = this.#waiting.length - admitted;
        const capacity = this.#capacityFor(longest, Math.min(maxSequences, this.running.length + others));
        if (isTooSmall && count > this.#slotsAt(capacity)) break;
        // Where nobody has to be moved, growing can be done at once; shrinking would only lose prefixes.
        if (isTooSmall || capacity > this.#capacity) this.#layOut(capacity);
      }
      this.running.push(sequence);
      this.#lead(sequence);
      this.#place(sequence, regimeOf(sequence.ids.length));
      admitted++;
    }
    this.#waiting = this.#waiting.slice(admitted);
  }

  /** What is read in this step: prompts in the order of admission, until the step is full. */
  chooseReading(): Reading[] {
    const reading: Reading[] = [];
    let budget = Math.max(1, this.#limits.maxBatchedTokens);
    for (const sequence of this.running) {
      const missing = this.missing(sequence);
      if (missing === 1 || this.#isFollowing(sequence)) continue;
      const wanted = Math.min(missing, needsPromptLogprobs(sequence) ? READ_CHUNK : CHUNK, this.#limits.maxRunTokens);
      if (wanted > budget && reading.length > 0) break;
      const tokens = Math.min(wanted, budget);
      reading.push({ sequence, tokens });
      budget -= tokens;
    }
    return reading;
  }

  /** Who goes on by one token. */
  decoding(): Sequence[] {
    return this.running.filter((sequence) => this.missing(sequence) === 1 && !this.#isFollowing(sequence));
  }

  /** Decoding sequences into the first slots; those that begin to read behind them, by length, then the others. */
  arrange(decoding: readonly Sequence[], reading: readonly Reading[]): void {
    const fresh = reading
      .filter((entry) => this.#isWhole(entry))
      .map(({ sequence }) => sequence)
      .sort((a, b) => a.ids.length - b.ids.length);
    // Whoever already stands in the range keeps its place; only sequences outside fill the gaps.
    const settle = (group: readonly Sequence[], start: number) => {
      const end = start + group.length;
      const members = new Set(group.map(({ id }) => id));
      const isMember = (at: number) => members.has(this.#slots[at]?.owner ?? -1);
      let gap = start;
      for (const sequence of group) {
        const at = this.#slotOf(sequence);
        if (at >= start && at < end) continue;
        while (isMember(gap)) gap++;
        this.#swap(at, gap);
      }
    };
    settle(decoding, 0);
    // These hold nothing yet, so they can be put in order of length at no cost.
    for (const [i, sequence] of fresh.entries()) this.#swap(this.#slotOf(sequence), decoding.length + i);
  }

  /** Whole prompts side by side in runs of like length and one regime; parts of prompts each in a run of its own. */
  runReading(reading: readonly Reading[]): void {
    const whole = reading.filter((entry) => this.#isWhole(entry));
    const parts = reading.filter((entry) => !whole.includes(entry));
    const bySlot = whole.map(({ sequence }) => ({ sequence, slot: this.#slotOf(sequence) }));
    bySlot.sort((a, b) => a.slot - b.slot);
    let rows: Sequence[] = [];
    bySlot.forEach(({ sequence, slot }, i) => {
      rows.push(sequence);
      const next = bySlot[i + 1];
      const length = next?.sequence.ids.length ?? 0;
      const tokens = length * (rows.length + 1);
      const used = length + rows.reduce((sum, { ids }) => sum + ids.length, 0);
      const isFull = tokens > this.#limits.maxRunTokens || used < tokens * MOSTLY;
      const isOther = this.#limits.regimeOf(length) !== this.#limits.regimeOf(sequence.ids.length);
      if (next === undefined || next.slot !== slot + 1 || isFull || isOther) {
        this.#run(rows.map((row) => ({ sequence: row, from: 0, to: row.ids.length })));
        rows = [];
      }
    });
    for (const { sequence, tokens } of parts) {
      const from = sequence.ids.length - this.missing(sequence);
      this.#run([{ sequence, from, to: from + tokens }]);
    }
  }

  /** One token more for every sequence that has read its prompt. */
  runDecoding(decoding: readonly Sequence[]): void {
    const bySlot = [...decoding].sort((a, b) => this.#slotOf(a) - this.#slotOf(b));
    if (bySlot.length === 0) return;
    this.#run(bySlot.map((sequence) => ({ sequence, from: sequence.ids.length - 1, to: sequence.ids.length })));
  }

  finish(): Plan {
    const state: State = {
      step: this.#step,
      capacity: this.#capacity,
      slots: this.#slots,
      running: this.running,
      waiting: this.#waiting,
    };
    return { actions: this.#actions, state, preempted: this.#preempted, reused: this.#reused };
  }

  #run(rows: readonly Omit<RunRow, "followers">[]): void {
    const slot = this.#slotOf(rows[0]!.sequence);
    const full = rows.map((row) => {
      const isDone = row.to === row.sequence.ids.length;
      return { ...row, followers: isDone ? this.#followersOf(row.sequence) : [] };
    });
    this.#actions.push({ do: "run", slot, rows: full });
    full.forEach(({ sequence, to, followers }, i) => {
      invariant(this.#slots[slot + i]?.owner === sequence.id, "the rows of a run lie side by side");
      this.#slots[slot + i] = { ...this.#slots[slot + i]!, length: to, usedAt: this.#step };
      for (const follower of followers) {
        const at = this.#slotOf(follower);
        this.#actions.push({ do: "copy", from: slot + i, to: at, length: to });
        this.#slots[at] = { ...this.#slots[at]!, length: to, usedAt: this.#step };
      }
    });
  }

  #followersOf(leader: Sequence): Sequence[] {
    if (this.#leaders.get(leader.request) !== leader) return [];
    return this.running.filter((other) => other.request === leader.request && this.#isFollowing(other));
  }

  /** It waits for its leader to read the prompt they share, and copies that. */
  #isFollowing(sequence: Sequence): boolean {
    const leader = this.#leaders.get(sequence.request);
    const isAtStart = sequence.ids.length === sequence.promptLength && this.missing(sequence) === sequence.ids.length;
    return leader !== undefined && leader !== sequence && isAtStart;
  }

  #isWhole({ sequence, tokens }: Reading): boolean {
    return tokens === sequence.ids.length && this.missing(sequence) === tokens && !needsPromptLogprobs(sequence);
  }

  /** A slot for a new sequence, with as much of its beginning as another slot has. */
  #place(sequence: Sequence, regime: number): void {
    // Whoever has a leader leaves it to that one to look for a prefix.
    const hasLeader = (this.#leaders.get(sequence.request) ?? sequence) !== sequence;
    const donor = hasLeader && sequence.ids.length === sequence.promptLength ? null : this.#donorFor(sequence, regime);
    const at = this.#freeSlot(donor?.slot ?? null);
    const length = donor?.length ?? 0;
    if (donor !== null && donor.slot !== at) this.#actions.push({ do: "copy", from: donor.slot, to: at, length });
    this.#slots[at] = { ids: sequence.ids, length, owner: sequence.id, regime, usedAt: this.#step };
    this.#places.set(sequence.id, at);
    if (length > 0) this.#reused.set(sequence.id, length);
  }

  /** The slot that begins like a sequence the longest. At least one token is left to compute. */
  #donorFor(sequence: Sequence, regime: number): { slot: number; length: number } | null {
    if (!this.#limits.hasPrefixCache || needsPromptLogprobs(sequence)) return null;
    let best: { slot: number; length: number } | null = null;
    this.#slots.forEach((slot, at) => {
      if (slot === null || slot.regime !== regime) return;
      const most = Math.min(slot.length, sequence.ids.length - 1);
      if (most < REUSE_FROM || most <= (best?.length ?? 0)) return;
      const length = commonPrefix(slot.ids, sequence.ids, most);
      if (length >= REUSE_FROM && length > (best?.length ?? 0)) best = { slot: at, length };
    });
    return best;
  }

  /** An empty slot, or else the prefix that was of no use for the longest time; a donor only if there is no other. */
  #freeSlot(donor: number | null): number {
    const empty = this.#slots.indexOf(null);
    if (empty >= 0) return empty;
    const kept = this.#slots.flatMap((slot, at) => (slot?.owner === null ? [{ at, usedAt: slot.usedAt }] : []));
    kept.sort((a, b) => Number(a.at === donor) - Number(b.at === donor) || a.usedAt - b.usedAt);
    invariant(kept[0] !== undefined, "there is a slot for whoever is admitted");
    return kept[0].at;
  }

  #swap(a: number, b: number): void {
    if (a === b) return;
    const [left, right] = [this.#slots[a] ?? null, this.#slots[b] ?? null];
    const length = Math.max(left?.length ?? 0, right?.length ?? 0);
    if (length > 0) {
      if ((right?.length ?? 0) === 0) this.#actions.push({ do: "copy", from: a, to: b, length });
      else if ((left?.length ?? 0) === 0) this.#actions.push({ do: "copy", from: b, to: a, length });
      else this.#actions.push({ do: "swap", a, b, length });
    }
    [this.#slots[a], this.#slots[b]] = [right, left];
    if (left?.owner != null) this.#places.set(left.owner, b);
    if (right?.owner != null) this.#places.set(right.owner, a);
  }

  #slotOf({ id }: Sequence): number {
    const at = this.#places.get(id);
    invariant(at !== undefined, "a running sequence has a slot");
    return at;
  }

  #index(): void {
    this.#places = new Map(this.#slots.flatMap((slot, at) => (slot?.owner == null ? [] : [[slot.owner, at]])));
  }

  /** A sequence leads its request if it has drawn nothing and no other leads. */
  #lead(sequence: Sequence): void {
    const isAtPrompt = sequence.ids.length === sequence.promptLength;
    if (isAtPrompt && !this.#leaders.has(sequence.request)) this.#leaders.set(sequence.request, sequence);
  }

  #slotsAt(capacity: number): number {
    return Math.min(this.#limits.maxSequences, Math.floor(this.#limits.cacheTokens / capacity));
  }

  /**
   * A capacity of at least `need`: the one at which `count` sequences can grow to their end if the cache has room for
   * that, else the next power of two.
   */
  #capacityFor(need: number, count: number): number {
    const { maxLength } = this.#limits;
    const everyone = [...this.running, ...this.#waiting];
    const end = Math.max(need, ...everyone.slice(0, count).map(({ limit }) => limit));
    if (this.#slotsAt(end) >= count) return end;
    let capacity = SMALLEST_CAPACITY;
    while (capacity < need) capacity *= 2;
    return Math.max(need, Math.min(capacity, maxLength, this.#limits.cacheTokens));
  }

  /** Cut the cache into slots of another capacity; running sequences move to the front, prefixes stay if they fit. */
  #layOut(capacity: number): void {
    if (capacity === this.#capacity && this.#slots.length > 0) return;
    const count = this.#slotsAt(capacity);
    // Sequences that run come first, so that none stands where there will be no slot.
    const outside = this.running.filter((sequence) => this.#slotOf(sequence) >= count);
    for (const sequence of outside) {
      const to = this.#slots.findIndex((slot, at) => at < count && (slot === null || slot.owner === null));
      this.#swap(this.#slotOf(sequence), to);
    }
    const slots = Array.from({ length: count }, (_, at) => {
      const slot = this.#slots[at] ?? null;
      return slot !== null && (slot.owner !== null || slot.length <= capacity) ? slot : null;
    });
    this.#actions.push({ do: "layOut", capacity, lengths: slots.map((slot) => slot?.length ?? 0) });
    this.#slots = slots;
    this.#capacity = capacity;
    this.#index();
  }
}

function commonPrefix(a: readonly number[], b: readonly number[], most: number): number {
  let length = 0;
  while (length < most && a[length] === b[length]) length++;
  return length;
}
