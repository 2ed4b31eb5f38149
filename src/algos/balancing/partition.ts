/**
 * Number partitioning: items of given weights into parts whose sums are as equal as possible.
 *
 * `karmarkarKarp` is the largest differencing method (Karmarkar & Karp, 1982) for any number of parts, with verl's order
 * among equals, so that parts are verl's to the index.It takes n log n steps for any number of parts: a state holds
 * only the sets that are not empty, where verl's holds all k of them.
 */
import { invariant, UserError } from "../../util/errors.ts";
import { Heap } from "./heap.ts";

/** Item numbers of each part, ascending. */
export type Parts = readonly (readonly number[])[];

type Options = {
  /** Every part gets the same number of items, which must divide. */
  readonly equalSize?: boolean;
};

/** Sets of items, of which the smallest and the largest are known; pairs of states are merged until one is left. */
type State = { readonly sets: Heap<number>; readonly largest: number; readonly spread: number };

/**
 * Parts by largest differencing: of all states take the two with the widest spread, and merge the largest set of one
 * with the smallest of the other, the second largest with the second smallest, and so on. Sets that are not there weigh
 * nothing. The part with the largest sum is first.
 */
export function karmarkarKarp(weights: ArrayLike<number>, parts: number, { equalSize = false }: Options = {}): Parts {
  checkParts(weights, parts, equalSize);
  const all = new ItemSets(weights);
  const isBefore = (a: State, b: State) =>
    a.spread === b.spread ? all.compare(a.largest, b.largest) > 0 : a.spread > b.spread;
  // Few of the states are merged ones at any time: those are in a heap, the others are sorted once, widest spread last.
  const unmerged = firstStates(all, parts, equalSize ? parts : 1).sort((a, b) => (isBefore(a, b) ? 1 : -1));
  const mergedOnes = new Heap<State>(isBefore);
  const take = (): State => {
    const next = unmerged.at(-1);
    const isMerged = next === undefined || (mergedOnes.size > 0 && isBefore(mergedOnes.first, next));
    return isMerged ? mergedOnes.pop() : unmerged.pop()!;
  };
  while (unmerged.length + mergedOnes.size > 1) mergedOnes.push(merged(all, take(), take(), parts));
  return [...take().sets].sort((a, b) => all.compare(b, a)).map((set) => all.items(set).sort((a, b) => a - b));
}

/** States of one item each; or, for parts of equal size, of items of like weight, one for every part. */
function firstStates(all: ItemSets, parts: number, size: number): State[] {
  const order = Array.from({ length: all.sum.length }, (_, item) => item).sort((a, b) => all.compare(a, b));
  const isSmaller = (a: number, b: number) => all.compare(a, b) < 0;
  const states: State[] = [];
  for (let start = 0; start < order.length; start += size) {
    const sets = new Heap<number>(isSmaller);
    for (let i = start; i < start + size; i++) sets.push(order[i]!);
    states.push(stateOf(all, sets, order[start + size - 1]!, parts));
  }
  return states;
}

function stateOf(all: ItemSets, sets: Heap<number>, largest: number, parts: number): State {
  return { sets, largest, spread: all.sum[largest]! - (sets.size < parts ? 0 : all.sum[sets.first]!) };
}

/** One state from two, which are used up. No more sets are moved than the smaller state has. */
function merged(all: ItemSets, a: State, b: State, parts: number): State {
  // Only the smallest sets of each find a partner that is there; the smallest of `a` gets the largest of those of `b`.
  const pairs = Math.max(0, a.sets.size + b.sets.size - parts);
  const moved: number[] = [];
  for (let i = 0; i < pairs; i++) moved.push(b.sets.pop());
  for (let i = pairs - 1; i >= 0; i--) moved[i] = all.join(a.sets.pop(), moved[i]!);

  let largest = -1;
  const note = (set: number) => {
    if (largest < 0 || all.compare(set, largest) > 0) largest = set;
  };
  if (a.sets.size > 0) note(a.largest);
  if (b.sets.size > 0) note(b.largest);
  moved.forEach(note);
  const [into, rest] = a.sets.size >= b.sets.size ? [a.sets, b.sets] : [b.sets, a.sets];
  for (const set of rest) into.push(set);
  for (const set of moved) into.push(set);
  return stateOf(all, into, largest, parts);
}

/** The total weight of each part. */
export function partSums(weights: ArrayLike<number>, parts: Parts): number[] {
  return parts.map((items) => items.reduce((sum, item) => sum + weights[item]!, 0));
}

/** Sets of items that can be joined and compared; a set is named by its first item. */
class ItemSets {
  readonly sum: Float64Array;
  readonly #count: Uint32Array;
  readonly #last: Uint32Array;
  readonly #next: Int32Array; // -1 after the last item of a set

  /** One set for each item. */
  constructor(weights: ArrayLike<number>) {
    this.sum = Float64Array.from(weights);
    this.#count = new Uint32Array(weights.length).fill(1);
    this.#last = Uint32Array.from({ length: weights.length }, (_, item) => item);
    this.#next = new Int32Array(weights.length).fill(-1);
  }

  /** By sum, then by number of items, then by first item: never 0 for two sets. */
  compare(a: number, b: number): number {
    return this.sum[a]! - this.sum[b]! || this.#count[a]! - this.#count[b]! || a - b;
  }

  /** All items of both, those of `a` first. */
  join(a: number, b: number): number {
    this.#next[this.#last[a]!] = b;
    this.#last[a] = this.#last[b]!;
    this.#count[a] = this.#count[a]! + this.#count[b]!;
    this.sum[a] = this.sum[a]! + this.sum[b]!;
    return a;
  }

  items(set: number): number[] {
    const items: number[] = [];
    for (let item = set; item >= 0; item = this.#next[item]!) items.push(item);
    return items;
  }
}

function checkParts(weights: ArrayLike<number>, parts: number, equalSize: boolean): void {
  invariant(Number.isInteger(parts) && parts >= 1, `a number of parts is a positive whole number, not ${parts}`);
  for (let i = 0; i < weights.length; i++)
    invariant(weights[i]! >= 0 && weights[i]! < Number.POSITIVE_INFINITY, `item ${i} weighs ${weights[i]}`);
  const count = weights.length;
  if (count < parts) {
    throw new UserError(
      `${count} sequences cannot be divided among ${parts} parts. Use more sequences, or fewer parts.`,
    );
  }
  if (equalSize && count % parts !== 0) {
    throw new UserError(
      `${count} sequences cannot be divided evenly among ${parts} parts: ${count % parts} are left over. ` +
        `Use ${count - (count % parts)} or ${count - (count % parts) + parts} sequences.`,
    );
  }
}
