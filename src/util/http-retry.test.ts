import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { isTransientStatus, MAX_WAIT_MS, type RetryState, retry, retryAfterMs, TransientError } from "./http-retry.ts";

const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

describe("a request is tried again after the status", () => {
  test.each([
    ["modelServer", [408, 409, 425, 429, 500, 502, 503, 504, 529]],
    ["service", [408, 429, ...range(500, 600)]],
  ] as const)("of a %s that may pass, and after no other", (kind, statuses) => {
    expect(range(100, 600).filter((status) => isTransientStatus[kind](status))).toEqual([...statuses]);
  });
});

describe("Retry-After", () => {
  const of = (value: string) => retryAfterMs(new Headers({ "retry-after": value }));
  beforeEach(() => {
    vi.useFakeTimers({ now: Date.parse("2026-01-01T00:00:00Z") });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test.each([
    ["0", 0],
    ["3", 3000],
    ["1.5", 1500],
    ["Thu, 01 Jan 2026 00:00:10 GMT", 10_000],
    ["Wed, 31 Dec 2025 00:00:00 GMT", 0],
    ["soon", 0],
    ["-5", 0],
    ["", 0],
  ])("of %j is %d ms", (value, ms) => {
    expect(of(value)).toBe(ms);
  });

  test("that is missing is 0", () => {
    expect(retryAfterMs(new Headers())).toBe(0);
  });
});

describe("retry", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** The states and the result of a call that fails some times and then gives 7. */
  async function failing(
    failures: readonly TransientError[],
    options: { firstWaitMs?: number; isJittered?: boolean; attemptMs?: number } = {},
  ) {
    const { firstWaitMs = 100, isJittered = false, attemptMs = 0 } = options;
    const states: RetryState[] = [];
    const result = retry(
      async (tries) => {
        await new Promise((resolve) => setTimeout(resolve, attemptMs));
        const failure = failures[tries - 1];
        if (failure !== undefined) throw failure;
        return 7;
      },
      {
        firstWaitMs,
        isJittered,
        onFailure: (_, state) => {
          states.push(state);
          return state.waitMs;
        },
      },
    );
    await vi.runAllTimersAsync();
    return { states, result: await result };
  }

  test("waits twice as long each time, never longer than the limit, at least as long as the server asks", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(100_000), { maxLength: 12 }),
        fc.integer({ min: 1, max: 10_000 }),
        async (asked, firstWaitMs) => {
          const failures = asked.map((waitMs) => new TransientError("busy", { waitMs }));
          const { states, result } = await failing(failures, { firstWaitMs });
          expect(result).toBe(7);
          expect(states.map(({ tries }) => tries)).toEqual(range(1, asked.length + 1));
          expect(states.map(({ waitMs }) => waitMs)).toEqual(
            asked.map((waitMs, i) => Math.min(MAX_WAIT_MS, Math.max(waitMs, firstWaitMs * 2 ** i))),
          );
        },
      ),
      { numRuns: 30 },
    );
  });

  test("with jitter waits from half of that to all of it", async () => {
    const failures = range(0, 9).map(() => new TransientError("busy"));
    const { states } = await failing(failures, { isJittered: true });
    for (const [i, { waitMs }] of states.entries()) {
      expect(waitMs).toBeGreaterThanOrEqual(Math.min(MAX_WAIT_MS, 50 * 2 ** i));
      expect(waitMs).toBeLessThanOrEqual(Math.min(MAX_WAIT_MS, 100 * 2 ** i));
    }
  });

  test("counts from the start, and from the first failure with its silence", async () => {
    const failures = [new TransientError("silent", { silentMs: 400 }), new TransientError("silent", { silentMs: 400 })];
    const { states } = await failing(failures, { attemptMs: 500 });
    expect(states.map(({ elapsedMs, failingMs }) => [elapsedMs, failingMs])).toEqual([
      [500, 400],
      [1100, 1000],
    ]);
  });

  test("does not try again after any other error", async () => {
    const attempt = vi.fn(async () => {
      throw new Error("refused");
    });
    await expect(retry(attempt, { firstWaitMs: 1, onFailure: () => 0 })).rejects.toThrow("refused");
    expect(attempt).toHaveBeenCalledTimes(1);
  });

  test("gives up with the error of `onFailure`", async () => {
    const attempt = vi.fn(async () => {
      throw new TransientError("busy");
    });
    const onFailure = (error: TransientError, { tries, waitMs }: RetryState) => {
      if (tries === 3) throw new Error(`${error.message} for too long`);
      return waitMs;
    };
    const result = expect(retry(attempt, { firstWaitMs: 1, onFailure })).rejects.toThrow("busy for too long");
    await vi.runAllTimersAsync();
    await result;
    expect(attempt).toHaveBeenCalledTimes(3);
  });

  const stop = new Error("stopped");

  test("that is aborted before it starts makes no attempt", async () => {
    const attempt = vi.fn(async () => 7);
    const signal = AbortSignal.abort(stop);
    await expect(retry(attempt, { firstWaitMs: 1, signal, onFailure: () => 0 })).rejects.toBe(stop);
    expect(attempt).not.toHaveBeenCalled();
  });

  test("that is aborted during an attempt or a wait ends at once with the signal's reason, and leaves no timer", async () => {
    for (const abortAfterMs of [5, 5000]) {
      const controller = new AbortController();
      const attempt = async () => {
        await new Promise((resolve) => setTimeout(resolve, 10));
        throw new TransientError("busy");
      };
      const onFailure = (_: TransientError, { waitMs }: RetryState) => waitMs;
      const result = expect(retry(attempt, { firstWaitMs: 20_000, signal: controller.signal, onFailure })).rejects.toBe(
        stop,
      );
      setTimeout(() => controller.abort(stop), abortAfterMs);
      await vi.advanceTimersByTimeAsync(Math.max(abortAfterMs, 10));
      await result;
      expect(vi.getTimerCount()).toBe(0);
    }
  });
});
