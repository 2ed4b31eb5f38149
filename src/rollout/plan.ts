/**
 * The scheduler: decides what to compute next. It is pure, so that every scheduling decision can be a unit test.
 *
 * A running sequence with several tokens that are not computed yet is prefilled, in chunks; one with exactly one such
 * token is decoded. Decoding sequences are in the first slots, side by side, because one run covers neighbouring slots.
 * Requests are admitted in the order they came, and none overtakes another. When longer sequences leave fewer slots, the
 * sequences that were admitted last are preempted and computed again later.
 *
 * Decisions depend on the requests alone, never on time: the same requests give the same batches.
 */
import { invariant } from "../util/errors.ts";
import {
  type Limits,
  needsPromptLogprobs,
  REUSE_FROM,
  type Sequence,
  type Slot,
  type State,
} from "./scheduler-state.ts";

/** Tokens `from` to `to` of a sequence. Its followers have the same prompt and share the result. */
export type RunRow = {
  readonly sequence: Sequence;
  readonly from: number;
  readonly to: number;
  readonly followers: readonly Sequence[];
};

/** What to do, in order. The rows of a run are in neighbouring slots, from `slot` on. */
export type Action =
  | { readonly do: "layOut"; readonly capacity: number; readonly lengths: readonly number[] }
  | { readonly do: "copy"; readonly from: number; readonly to: number; readonly length: number }
  | { readonly do: "swap"; readonly a: number; readonly b: number; readonly length: number }
  | { readonly do: "run"; readonly slot: number; readonly rows: readonly RunRow[] };

export type Plan = {
  readonly actions: readonly Action[];
  readonly state: State;
  readonly preempted: number;
  /** The length of the prefix that each admitted sequence found in the cache, by id. */
  readonly reused: ReadonlyMap<number, number>;
};

/** Tokens of one sequence that are prefilled in one run: the memory of attention scores grows with it. */
export const PREFILL_CHUNK = 512;
/** The same with prompt log-probs, which need a row of the vocabulary's size for each token. */
const PROMPT_LOGPROBS_CHUNK = 64;
/** The minimum share of a run's tokens that are not padding. */
const MIN_FILL = 0.8;
/** Capacities are this times a power of two, or the length that the longest request needs. */
const SMALLEST_CAPACITY = 64;

/** The next step. */
export function plan(before: State, limits: Limits): Plan {
  const planner = new Planner(before, limits);
  planner.clearOtherRegimes();
  planner.makeRoom();
  planner.admit();
  const prefills = planner.choosePrefills();
  const decoding = planner.decoding();
  planner.arrange(decoding, prefills);
  planner.runPrefills(prefills);
  planner.runDecodes(decoding);
  return planner.finish();
}

type Prefill = { readonly sequence: Sequence; readonly tokens: number };

class Planner {
  readonly #limits: Limits;
  readonly #step: number;
  readonly #actions: Action[] = [];
  #capacity: number;
  #slots: (Slot | null)[];
  /** The slot of each running sequence. */
  #places = new Map<number, number>();
  /** The sequence that is prefilled for all sequences of its request: the first that has drawn no token yet. */
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

  /** The number of a running sequence's tokens that are not computed yet. */
  missing(sequence: Sequence): number {
    return sequence.ids.length - this.#slots[this.#slotOf(sequence)]!.length;
  }

  /** Keys of another rope regime cannot be used: such sequences are prefilled again. */
  clearOtherRegimes(): void {
    for (const sequence of this.running) {
      const at = this.#slotOf(sequence);
      const slot = this.#slots[at]!;
      const regime = this.#limits.regimeOf(sequence.ids.length);
      if (slot.regime !== regime) this.#slots[at] = { ...slot, regime, length: 0 };
    }
  }

  /** Find a capacity that holds every running sequence; preempts the sequences admitted last if necessary. */
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

  /** Give slots to waiting sequences, first come first served. */
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
        // If no sequence has to move, the capacity can grow at once; shrinking would only lose prefixes.
        if (isTooSmall || capacity > this.#capacity) this.#layOut(capacity);
      }
      this.running.push(sequence);
      this.#lead(sequence);
      this.#place(sequence, regimeOf(sequence.ids.length));
      admitted++;
    }
    this.#waiting = this.#waiting.slice(admitted);
  }

  /** The prompts to prefill in this step, in order of admission, until the step is full. */
  choosePrefills(): Prefill[] {
    const prefills: Prefill[] = [];
    let budget = Math.max(1, this.#limits.maxBatchedTokens);
    for (const sequence of this.running) {
      const missing = this.missing(sequence);
      if (missing === 1 || this.#isFollowing(sequence)) continue;
      const wanted = Math.min(
        missing,
        needsPromptLogprobs(sequence) ? PROMPT_LOGPROBS_CHUNK : PREFILL_CHUNK,
        this.#limits.maxRunTokens,
      );
      if (wanted > budget && prefills.length > 0) break;
      const tokens = Math.min(wanted, budget);
      prefills.push({ sequence, tokens });
      budget -= tokens;
    }
    return prefills;
  }

  /** The sequences that get one more token. */
  decoding(): Sequence[] {
    return this.running.filter((sequence) => this.missing(sequence) === 1 && !this.#isFollowing(sequence));
  }

  /** Move decoding sequences into the first slots; after them new sequences by length, then the others. */
  arrange(decoding: readonly Sequence[], prefills: readonly Prefill[]): void {
    const fresh = prefills
      .filter((entry) => this.#isWhole(entry))
      .map(({ sequence }) => sequence)
      .sort((a, b) => a.ids.length - b.ids.length);
    // Sequences that are already in the range keep their slots; only sequences outside fill the gaps.
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
    // Their slots are empty, so sorting them by length costs nothing.
    for (const [i, sequence] of fresh.entries()) this.#swap(this.#slotOf(sequence), decoding.length + i);
  }

  /** Whole prompts in runs of similar length and one regime; each part of a prompt in a run of its own. */
  runPrefills(prefills: readonly Prefill[]): void {
    const whole = prefills.filter((entry) => this.#isWhole(entry));
    const parts = prefills.filter((entry) => !whole.includes(entry));
    const bySlot = whole.map(({ sequence }) => ({ sequence, slot: this.#slotOf(sequence) }));
    bySlot.sort((a, b) => a.slot - b.slot);
    let rows: Sequence[] = [];
    bySlot.forEach(({ sequence, slot }, i) => {
      rows.push(sequence);
      const next = bySlot[i + 1];
      const length = next?.sequence.ids.length ?? 0;
      const tokens = length * (rows.length + 1);
      const used = length + rows.reduce((sum, { ids }) => sum + ids.length, 0);
      const isFull = tokens > this.#limits.maxRunTokens || used < tokens * MIN_FILL;
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

  /** One token more for every sequence whose prompt is prefilled. */
  runDecodes(decoding: readonly Sequence[]): void {
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
      invariant(this.#slots[slot + i]?.owner === sequence.id, "the rows of a run are in neighbouring slots");
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

  /** It waits until its leader has prefilled the prompt that they share, and copies the result. */
  #isFollowing(sequence: Sequence): boolean {
    const leader = this.#leaders.get(sequence.request);
    const isAtStart = sequence.ids.length === sequence.promptLength && this.missing(sequence) === sequence.ids.length;
    return leader !== undefined && leader !== sequence && isAtStart;
  }

  #isWhole({ sequence, tokens }: Prefill): boolean {
    return tokens === sequence.ids.length && this.missing(sequence) === tokens && !needsPromptLogprobs(sequence);
  }

  /** Give a new sequence a slot, with the longest prefix that another slot has. */
  #place(sequence: Sequence, regime: number): void {
    // The leader looks for a prefix for all its followers.
    const hasLeader = (this.#leaders.get(sequence.request) ?? sequence) !== sequence;
    const donor = hasLeader && sequence.ids.length === sequence.promptLength ? null : this.#donorFor(sequence, regime);
    const at = this.#freeSlot(donor?.slot ?? null);
    const length = donor?.length ?? 0;
    if (donor !== null && donor.slot !== at) this.#actions.push({ do: "copy", from: donor.slot, to: at, length });
    this.#slots[at] = { ids: sequence.ids, length, owner: sequence.id, regime, usedAt: this.#step };
    this.#places.set(sequence.id, at);
    if (length > 0) this.#reused.set(sequence.id, length);
  }

  /** The slot with the longest common prefix. At least one token is left to compute. */
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

  /** An empty slot, or else the least recently used prefix; the donor only if there is no other. */
  #freeSlot(donor: number | null): number {
    const empty = this.#slots.indexOf(null);
    if (empty >= 0) return empty;
    const kept = this.#slots.flatMap((slot, at) => (slot?.owner === null ? [{ at, usedAt: slot.usedAt }] : []));
    kept.sort((a, b) => Number(a.at === donor) - Number(b.at === donor) || a.usedAt - b.usedAt);
    invariant(kept[0] !== undefined, "there is a slot for every admitted sequence");
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

  /** A sequence leads its request if it has drawn no token and no other sequence leads. */
  #lead(sequence: Sequence): void {
    const isAtPrompt = sequence.ids.length === sequence.promptLength;
    if (isAtPrompt && !this.#leaders.has(sequence.request)) this.#leaders.set(sequence.request, sequence);
  }

  #slotsAt(capacity: number): number {
    return Math.min(this.#limits.maxSequences, Math.floor(this.#limits.cacheTokens / capacity));
  }

  /**
   * A capacity of at least `need`: one at which `count` sequences can grow to their limit, if the cache has room for
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

  /** Divide the cache into slots of another capacity; running sequences move to the front, prefixes stay if they fit. */
  #layOut(capacity: number): void {
    if (capacity === this.#capacity && this.#slots.length > 0) return;
    const count = this.#slotsAt(capacity);
    // Running sequences move first, so that none is where there will be no slot.
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
