/**
 * The scheduler against a cache that holds only token ids: every action is applied to it, and before each run the cache
 * must hold exactly the tokens that the run needs.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Action, PREFILL_CHUNK, plan } from "./plan.ts";
import { emptyState, forget, type Limits, release, type Sequence, type State } from "./scheduler-state.ts";

const limits: Limits = {
  cacheTokens: 4096,
  maxSequences: 8,
  maxBatchedTokens: 256,
  maxRunTokens: 10_000,
  maxLength: 512,
  hasPrefixCache: true,
  regimeOf: () => 0,
};

type Growing = Omit<Sequence, "ids"> & { readonly ids: number[] };

function sequence(id: number, ids: number[], more: Partial<Omit<Sequence, "ids">> = {}): Growing {
  return { id, request: id, ids, promptLength: ids.length, limit: ids.length + 4, wantsPromptLogprobs: false, ...more };
}

/** A cache of token ids, and the steps a plan takes on it. */
class Bench {
  state: State = emptyState();
  readonly limits: Limits;
  readonly runs: Extract<Action, { do: "run" }>[] = [];
  copies = 0;
  preempted = 0;
  /** By slot, the tokens whose keys and values it would hold. */
  #cache: number[][] = [];

  constructor(changes: Partial<Limits> = {}) {
    this.limits = { ...limits, ...changes };
  }

  wait(...sequences: Sequence[]): void {
    this.state = { ...this.state, waiting: [...this.state.waiting, ...sequences] };
  }

  /** One step: each sequence whose tokens are all computed draws one more, and ends at its limit. */
  step(): void {
    const { actions, state, preempted } = plan(this.state, this.limits);
    this.state = state;
    this.preempted += preempted;
    const done: Growing[] = [];
    for (const action of actions) {
      if (action.do === "layOut") {
        const { capacity, lengths } = action;
        expect(capacity * lengths.length).toBeLessThanOrEqual(this.limits.cacheTokens);
        this.#cache = lengths.map((length, at) => (this.#cache[at] ?? []).slice(0, length));
      } else if (action.do === "copy") {
        this.#cache[action.to] = this.#cache[action.from]!.slice(0, action.length);
        this.copies++;
      } else if (action.do === "swap") {
        [this.#cache[action.a], this.#cache[action.b]] = [this.#cache[action.b]!, this.#cache[action.a]!];
      } else {
        done.push(...this.#run(action));
      }
    }
    expect(new Set(done).size, "nobody draws twice in a step").toBe(done.length);
    for (const { ids, limit, id } of done) {
      ids.push(1000 + ids.length * 7 + id);
      if (ids.length >= limit) this.state = release(this.state, id, true);
    }
  }

  #run(action: Extract<Action, { do: "run" }>): Growing[] {
    this.runs.push(action);
    const time = Math.max(...action.rows.map(({ from, to }) => to - from));
    expect(action.rows.length === 1 || time === 1 || action.rows.every(({ from }) => from === 0)).toBe(true);
    const regimes = new Set(action.rows.map(({ sequence }) => this.limits.regimeOf(sequence.ids.length)));
    expect(time === 1 || regimes.size === 1, "what is read together is of one regime").toBe(true);
    return action.rows.flatMap(({ sequence, from, to, followers }, i) => {
      const slot = this.#cache[action.slot + i]!;
      expect(slot.slice(0, from)).toEqual(sequence.ids.slice(0, from));
      expect(to).toBeLessThanOrEqual(this.state.capacity);
      this.#cache[action.slot + i] = sequence.ids.slice(0, to);
      return to === sequence.ids.length ? ([sequence, ...followers] as Growing[]) : []; // made by `sequence` above
    });
  }

  finish(): void {
    for (let steps = 0; this.state.running.length + this.state.waiting.length > 0; steps++) {
      expect(steps).toBeLessThan(20_000);
      this.step();
    }
  }
}

const numbers = (length: number, from = 0) => Array.from({ length }, (_, i) => from + i);

test("for any requests, every run finds its past tokens in the cache and every sequence is finished", () => {
  const request = fc.record({
    length: fc.integer({ min: 1, max: 120 }),
    more: fc.integer({ min: 1, max: 60 }),
    family: fc.integer({ min: 0, max: 2 }),
    n: fc.integer({ min: 1, max: 4 }),
    after: fc.integer({ min: 0, max: 6 }),
    isCancelled: fc.boolean(),
  });
  const setting = fc.record({
    cacheTokens: fc.integer({ min: 200, max: 1500 }),
    maxSequences: fc.integer({ min: 1, max: 9 }),
    maxBatchedTokens: fc.integer({ min: 20, max: 200 }),
    maxRunTokens: fc.integer({ min: 10, max: 200 }),
    hasPrefixCache: fc.boolean(),
    changes: fc.integer({ min: 0, max: 12 }),
  });
  fc.assert(
    fc.property(fc.array(request, { minLength: 1, maxLength: 14 }), setting, (requests, { changes, ...given }) => {
      // Past 100 tokens every length has other frequencies, as with dynamic scaling.
      const bench = new Bench({ ...given, maxLength: 180, regimeOf: (length) => (length < 100 ? 0 : length) });
      const all: Growing[] = [];
      let id = 0;
      requests.forEach(({ length, more, family, n, after, isCancelled }, request) => {
        const prompt = () => [
          ...numbers(Math.floor(length / 2), family * 1000),
          ...numbers(Math.ceil(length / 2), length),
        ];
        const some = Array.from({ length: n }, () =>
          sequence(id++, prompt(), {
            request,
            limit: Math.min(180, length + more),
            wantsPromptLogprobs: request % 5 === 4,
          }),
        );
        bench.wait(...some);
        for (let i = 0; i < after; i++) bench.step();
        if (request === changes) bench.state = forget(bench.state);
        if (isCancelled) bench.state = release(bench.state, some[0]!.id, false);
        else all.push(some[0]!);
        all.push(...some.slice(1));
      });
      bench.finish();
      for (const { ids, limit } of all) expect(ids.length).toBe(limit);
      expect(bench.state.slots.every((slot) => slot === null || slot.owner === null)).toBe(true);
    }),
    { numRuns: 100, endOnFailure: true },
  );
});

test("no sequence overtakes another: they are admitted in the order they came", () => {
  const bench = new Bench({ cacheTokens: 300, maxSequences: 8 });
  bench.wait(sequence(0, numbers(200), { limit: 250 }), sequence(1, numbers(250)), sequence(2, numbers(3)));
  bench.step();
  expect(bench.state.running.map(({ id }) => id)).toEqual([0]);
  expect(bench.state.waiting.map(({ id }) => id)).toEqual([1, 2]);
});

test("the prompt of several samples is prefilled once", () => {
  const bench = new Bench();
  bench.wait(...[0, 1, 2, 3].map((id) => sequence(id, numbers(40), { request: 9 })));
  bench.step();
  expect(bench.runs).toHaveLength(1);
  expect(bench.runs[0]!.rows.map(({ from, to, followers }) => [from, to, followers.length])).toEqual([[0, 40, 3]]);
  bench.step();
  expect(bench.runs[1]!.rows).toHaveLength(4);
});

describe("the prompt of several samples is prefilled once, also", () => {
  const readBy = (bench: Bench) =>
    bench.runs.flatMap(({ rows }) =>
      rows.flatMap(({ from, to, sequence }) => (to <= sequence.promptLength ? to - from : 0)),
    );
  test.each<[what: string, prompt: number, changes: Partial<Limits>]>([
    ["whole", 40, {}],
    ["of one token", 1, {}],
    ["in chunks of which the last is one token", PREFILL_CHUNK + 1, { maxLength: 2000, maxBatchedTokens: 2000 }],
    ["in steps of which the last is one token", 41, { maxBatchedTokens: 20 }],
    ["without prefixes of others", 40, { hasPrefixCache: false }],
  ])("%s", (_, length, changes) => {
    const bench = new Bench({ cacheTokens: 8192, ...changes });
    bench.wait(...[0, 1, 2, 3].map((id) => sequence(id, numbers(length), { request: 9 })));
    for (let steps = 0; steps < 4; steps++) bench.step();
    expect(readBy(bench).reduce((a, b) => a + b)).toBe(length);
    bench.finish();
  });
  test("after a prefix that was in the cache", () => {
    const bench = new Bench();
    bench.wait(sequence(9, numbers(60)));
    bench.finish();
    for (const [rest, read] of [
      [[7, 7, 7], 3],
      [[8], 1],
    ] as const) {
      bench.runs.length = 0;
      const from = rest.length * 10;
      bench.wait(...numbers(4, from).map((id) => sequence(id, [...numbers(40), ...rest], { request: from })));
      bench.finish();
      expect(readBy(bench).reduce((a, b) => a + b)).toBe(read);
    }
  });
});

test("a prompt with the prefix of an earlier one is prefilled from where they differ", () => {
  const bench = new Bench();
  bench.wait(sequence(0, numbers(100)));
  bench.finish();
  bench.runs.length = 0;
  bench.wait(sequence(1, [...numbers(80), 7, 7, 7]));
  bench.step();
  expect(bench.runs[0]!.rows.map(({ from, to }) => [from, to])).toEqual([[80, 83]]);
});

test("a long prompt is prefilled in chunks while others decode", () => {
  const bench = new Bench({ maxLength: 4000, maxBatchedTokens: 10_000 });
  bench.wait(sequence(0, numbers(5), { limit: 20 }));
  bench.step();
  bench.wait(sequence(1, numbers(PREFILL_CHUNK * 2 + 10)));
  bench.runs.length = 0;
  for (let i = 0; i < 3; i++) bench.step();
  const own = (id: number) => bench.runs.flatMap(({ rows }) => rows.filter(({ sequence }) => sequence.id === id));
  expect(own(1).map(({ from, to }) => [from, to])).toEqual([
    [0, PREFILL_CHUNK],
    [PREFILL_CHUNK, 2 * PREFILL_CHUNK],
    [2 * PREFILL_CHUNK, 2 * PREFILL_CHUNK + 10],
  ]);
  expect(own(0)).toHaveLength(3);
});

test("prompts of similar length are prefilled together, others separately", () => {
  const bench = new Bench({ maxBatchedTokens: 1000 });
  bench.wait(...[30, 200, 31, 29].map((length, id) => sequence(id, numbers(length, id * 300))));
  bench.step();
  expect(bench.runs.map(({ rows }) => rows.map(({ to }) => to))).toEqual([[29, 30, 31], [200]]);
});

test("no run prefills more than `maxRunTokens`, and all prefills of a step come before its decoding", () => {
  const bench = new Bench({ maxBatchedTokens: 1000, maxRunTokens: 64 });
  bench.wait(...numbers(7).map((id) => sequence(id, numbers(30, id * 300))), sequence(7, numbers(100, 5000)));
  bench.step();
  expect(bench.runs.map(({ rows }) => rows.map(({ to }) => to))).toEqual([[30, 30], [30, 30], [30, 30], [30], [64]]);
  bench.step();
  expect(bench.runs.at(-1)!.rows).toHaveLength(7);
});

describe("when sequences outgrow the cache", () => {
  test("the sequences admitted last are preempted, and are finished later", () => {
    const bench = new Bench({ cacheTokens: 512, maxSequences: 8, maxLength: 512, hasPrefixCache: false });
    const all = numbers(8).map((id) => sequence(id, numbers(20, id * 100), { limit: 140 }));
    bench.wait(...all);
    bench.finish();
    expect(bench.preempted).toBeGreaterThan(0);
    for (const { ids } of all) expect(ids).toHaveLength(140);
  });
  test("no sequence is preempted if all fit at their full length", () => {
    const bench = new Bench({ cacheTokens: 8 * 140, maxSequences: 8, maxLength: 512 });
    bench.wait(...numbers(8).map((id) => sequence(id, numbers(20, id * 100), { limit: 140 })));
    bench.finish();
    expect(bench.preempted).toBe(0);
  });
});

test("the same requests give the same plans", () => {
  const actions = () => {
    const bench = new Bench();
    bench.wait(...numbers(12).map((id) => sequence(id, numbers(10 + ((id * 37) % 50), id))));
    bench.finish();
    return bench.runs.map(({ slot, rows }) => [slot, rows.map(({ sequence, from, to }) => [sequence.id, from, to])]);
  };
  expect(actions()).toEqual(actions());
});
