/**
 * Limits the calls to a paid or shared judge: calls at once, requests per minute and tokens per minute (verl's manager
 * `rate_limited`).
 *
 * A bucket fills at `perMinute / 60` a second, holds the amount of one second, and starts full. A call takes its amount
 * at once, even if the bucket goes below zero, and then waits until it is back at zero. So calls are served in their
 * order. As in verl, a call needs a free place first, then a request, then its tokens.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { UserError } from "../util/errors.ts";

/** Keys and defaults as in verl; null or absent means no limit. */
export type RateLimitOptions = {
  readonly maxConcurrent?: number;
  readonly maxRpm?: number | null;
  readonly maxTpm?: number | null;
  readonly estimatedTokensPerRequest?: number;
};

/** The clock, which tests replace so that they need not wait. */
export type Clock = { now(): number; sleep(ms: number, signal?: AbortSignal): Promise<void> };

const wallClock: Clock = {
  now: () => performance.now(),
  async sleep(ms, signal) {
    await sleep(ms, undefined, signal && { signal });
  },
};

/** A token bucket that fills over time; pure, because the time is an argument. */
export class TokenBucket {
  readonly #perMs: number;
  readonly #capacity: number;
  #level: number;
  #filledAt: number;

  constructor(perMinute: number, now: number) {
    this.#perMs = perMinute / 60_000;
    this.#capacity = perMinute / 60;
    this.#level = this.#capacity;
    this.#filledAt = now;
  }

  /** Take `amount` now; returns how many milliseconds to wait before using it. */
  take(amount: number, now: number): number {
    this.#level = Math.min(this.#capacity, this.#level + (now - this.#filledAt) * this.#perMs) - amount;
    this.#filledAt = now;
    return Math.max(0, -this.#level / this.#perMs);
  }
}

/** The queue in front of a reward function. */
export class RateLimit {
  readonly #clock: Clock;
  readonly #requests: TokenBucket | null;
  readonly #tokens: TokenBucket | null;
  readonly #tokensPerRequest: number;
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(options: RateLimitOptions, clock: Clock = wallClock) {
    const { maxConcurrent = 1, maxRpm = null, maxTpm = null, estimatedTokensPerRequest = 2000 } = options;
    for (const [name, value] of Object.entries({ maxConcurrent, maxRpm, maxTpm, estimatedTokensPerRequest }))
      if (value !== null && !(value > 0))
        throw new UserError(`The rate limit \`${name}\` is ${value}. It must be above 0.`);
    this.#clock = clock;
    this.#free = maxConcurrent;
    this.#requests = maxRpm === null ? null : new TokenBucket(maxRpm, clock.now());
    this.#tokens = maxTpm === null ? null : new TokenBucket(maxTpm, clock.now());
    this.#tokensPerRequest = estimatedTokensPerRequest;
  }

  /** Run a call when its turn has come. */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.#enter(signal);
    try {
      await this.#wait(this.#requests, 1, signal);
      await this.#wait(this.#tokens, this.#tokensPerRequest, signal);
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }

  async #enter(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.#free >= 1) {
      this.#free--;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const abort = () => {
        this.#waiting.splice(this.#waiting.indexOf(enter), 1);
        reject(signal?.reason);
      };
      const enter = () => {
        signal?.removeEventListener("abort", abort);
        resolve();
      };
      this.#waiting.push(enter);
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  async #wait(bucket: TokenBucket | null, amount: number, signal?: AbortSignal): Promise<void> {
    const waitMs = bucket?.take(amount, this.#clock.now()) ?? 0;
    if (waitMs > 0) await this.#clock.sleep(waitMs, signal);
  }
}
