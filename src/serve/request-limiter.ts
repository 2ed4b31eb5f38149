/**
 * Limits the requests that sample: a maximum number of prompts at once, none while the server stops, none while weights
 * are replaced.
 *
 * Every request that samples holds a permit until its answer is complete. The permit's signal is aborted when the client
 * is gone, when the time limit is over, or when the server stops, whichever comes first. Weights are replaced while no
 * permit is held; requests that arrive meanwhile wait, so every answer comes from one set of weights.
 */
import { formatSeconds } from "../util/format.ts";
import { ClientGone, RequestError } from "./request-error.ts";

export type RequestLimits = {
  /** Prompts that may run and wait; when there are this many, a request is refused. */
  readonly maxPrompts: number;
  /** How long one request may take from its arrival. */
  readonly timeoutMs: number;
};

/** The right to sample. */
export type Permit = { readonly signal: AbortSignal; release(): void };

export class RequestLimiter {
  readonly #limits: RequestLimits;
  readonly #held = new Set<AbortController>();
  #prompts = 0;
  #isStopping = false;
  /** Settled when no weights are being replaced. */
  #weights: Promise<unknown> = Promise.resolve();
  #onEmpty: (() => void)[] = [];

  constructor(limits: RequestLimits) {
    this.#limits = limits;
  }

  /** Requests that hold a permit. */
  get size(): number {
    return this.#held.size;
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Throw if a request would not be admitted now; called before any work on it. */
  check(): void {
    this.#checkOpen();
    const { maxPrompts } = this.#limits;
    if (this.#prompts < maxPrompts) return;
    throw new RequestError(
      429,
      `${this.#prompts} prompts are running or waiting, and this server accepts ${maxPrompts} ` +
        "(`--max-queued-requests`). Try again in a moment.",
      { code: "rate_limit_exceeded" },
    );
  }

  /** Admit a request with this number of prompts, or refuse it. */
  async acquire(prompts: number, client: AbortSignal): Promise<Permit> {
    this.check();
    const { timeoutMs } = this.#limits;
    this.#prompts += prompts;
    const controller = new AbortController();
    const onGone = () => controller.abort(new ClientGone("The client closed the connection."));
    const onTime = () =>
      controller.abort(
        new RequestError(
          504,
          `The answer was not ready within ${formatSeconds(timeoutMs / 1000)} (\`--request-timeout\`).`,
        ),
      );
    const timer = setTimeout(onTime, timeoutMs);
    client.addEventListener("abort", onGone, { once: true });
    if (client.aborted) onGone();
    let isHeld = true;
    const release = () => {
      if (!isHeld) return;
      isHeld = false;
      clearTimeout(timer);
      client.removeEventListener("abort", onGone);
      this.#prompts -= prompts;
      this.#held.delete(controller);
      if (this.#held.size === 0) for (const resolve of this.#onEmpty.splice(0)) resolve();
    };
    try {
      for (let seen: Promise<unknown> | null = null; seen !== this.#weights; ) {
        controller.signal.throwIfAborted();
        seen = this.#weights;
        await Promise.race([seen, aborted(controller.signal)]);
      }
      this.#checkOpen();
    } catch (error) {
      release();
      throw error;
    }
    this.#held.add(controller); // in the same tick as the last check of #weights
    return { signal: controller.signal, release };
  }

  /** Run `work` while no request samples; requests that arrive meanwhile wait for it. */
  async runExclusive<T>(work: () => Promise<T>): Promise<T> {
    this.#checkOpen();
    const done = this.#weights.then(() => this.#empty()).then(work);
    this.#weights = done.catch(() => undefined); // the caller gets its error
    return done;
  }

  /** Refuse new requests and wait for those that run; abort them after the deadline. */
  async stop(deadlineMs: number): Promise<void> {
    this.#isStopping = true;
    const timer = setTimeout(() => {
      for (const controller of this.#held) controller.abort(stopping());
    }, deadlineMs);
    await this.#weights;
    await this.#empty();
    clearTimeout(timer);
  }

  #checkOpen(): void {
    if (this.#isStopping) throw stopping();
  }

  #empty(): Promise<void> {
    return this.#held.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#onEmpty.push(resolve));
  }
}

function stopping(): RequestError {
  return new RequestError(503, "This server is stopping and accepts no more requests.", { code: "server_stopping" });
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
