import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Clock, RateLimit, type RateLimitOptions, TokenBucket } from "./rate-limit.ts";

/** A clock that stands still while anything can be done, then jumps to the next sleeper. */
class TestClock implements Clock {
  #now = 0;
  readonly #sleepers: { at: number; wake: () => void }[] = [];

  now = (): number => this.#now;

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#sleepers.push({ at: this.#now + ms, wake: resolve });
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  }

  async run(): Promise<void> {
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      const next = this.#sleepers.sort((a, b) => a.at - b.at).shift();
      if (next === undefined) return;
      this.#now = next.at;
      next.wake();
    }
  }
}

/** When each of some requests that come at once begins, in seconds, if each takes `seconds`. */
async function starts(options: RateLimitOptions, count: number, seconds = 0): Promise<number[]> {
  const clock = new TestClock();
  const limit = new RateLimit(options, clock);
  const times: number[] = [];
  const all = Array.from({ length: count }, () =>
    limit.run(async () => {
      times.push(Number((clock.now() / 1000).toFixed(6)));
      if (seconds > 0) await clock.sleep(seconds * 1000);
    }),
  );
  await clock.run();
  await Promise.all(all);
  return times;
}

describe("requests that come at once begin", () => {
  const wide = { maxConcurrent: 100 };
  const cases: readonly [what: string, options: RateLimitOptions, seconds: number, times: readonly number[]][] = [
    ["one after the other by default", {}, 2, [0, 2, 4, 6]],
    ["two at a time", { maxConcurrent: 2 }, 2, [0, 0, 2, 2]],
    ["all at once without a limit", wide, 2, [0, 0, 0, 0]],
    ["two at once and then two a second at 120 a minute", { ...wide, maxRpm: 120 }, 0, [0, 0, 0.5, 1]],
    // Half a request fits in the bucket: the first waits for the missing half.
    ["every two seconds at 30 a minute", { ...wide, maxRpm: 30 }, 0, [1, 3, 5, 7]],
    ["by their tokens", { ...wide, maxTpm: 60_000, estimatedTokensPerRequest: 500 }, 0, [0, 0, 0.5, 1]],
    ["late when one needs more tokens than a second brings", { ...wide, maxTpm: 60_000 }, 0, [1, 3, 5, 7]],
    ["by the tighter of two limits", { ...wide, maxRpm: 120, maxTpm: 60_000 }, 0, [1, 3, 5, 7]],
  ];
  for (const [what, options, seconds, times] of cases) {
    test(what, async () => expect(await starts(options, times.length, seconds)).toEqual(times));
  }
});

test("no bucket gives more than it held and received, and calls keep their order", () => {
  const arrivals = fc.array(fc.record({ afterMs: fc.nat(3000), amount: fc.integer({ min: 1, max: 50 }) }));
  fc.assert(
    fc.property(fc.integer({ min: 60, max: 6000 }), arrivals, (perMinute, takers) => {
      const bucket = new TokenBucket(perMinute, 0);
      let [now, taken, previous] = [0, 0, 0];
      for (const { afterMs, amount } of takers) {
        now += afterMs;
        taken += amount;
        const at = now + bucket.take(amount, now);
        expect(at).toBeGreaterThanOrEqual(previous - 1e-6);
        expect(taken).toBeLessThanOrEqual(perMinute / 60 + (at * perMinute) / 60_000 + 1e-6);
        previous = at;
      }
    }),
  );
});

test("a call that throws frees its place for the next", async () => {
  const limit = new RateLimit({});
  const first = limit.run(() => Promise.reject(new Error("no")));
  const second = limit.run(async () => "yes");
  await expect(first).rejects.toThrow("no");
  expect(await second).toBe("yes");
});

test("a call that is aborted while it waits leaves the queue", async () => {
  const limit = new RateLimit({});
  const release = Promise.withResolvers<void>();
  const first = limit.run(() => release.promise);
  const abort = new AbortController();
  const second = limit.run(async () => "never", abort.signal);
  const third = limit.run(async () => "third");
  abort.abort(new Error("stopped"));
  await expect(second).rejects.toThrow("stopped");
  release.resolve();
  await first;
  expect(await third).toBe("third");
  expect(await limit.run(async () => "fourth")).toBe("fourth");
});

test.each([{ maxConcurrent: 0 }, { maxRpm: -1 }, { maxTpm: 0 }])("a limit of %o is refused", (options) => {
  expect(() => new RateLimit(options)).toThrow(/It must be above 0/);
});
