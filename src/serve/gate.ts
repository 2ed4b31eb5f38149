/**
 * Who may come in: a bounded number of prompts under way, none while the server stops, none while weights are replaced.
 *
 * Every request that samples holds a ticket from the moment it is admitted until its answer has been made. The ticket's
 * signal ends with the client, with the time limit or with the server, whichever comes first. Weights are replaced when
 * no ticket is out; requests that arrive meanwhile wait, so that every answer comes from one set of weights.
 */
import { formatSeconds } from "../util/format.ts";
import { ClientGone, Refusal } from "./refusal.ts";

export type GateLimits = {
  /** Prompts under way, running and waiting; a request that finds so many is refused. */
  readonly maxPrompts: number;
  /** How long one request may take, from its arrival. */
  readonly timeoutMs: number;
};

/** The right to sample. */
export type Ticket = { readonly signal: AbortSignal; leave(): void };

export class Gate {
  readonly #limits: GateLimits;
  readonly #out = new Set<AbortController>();
  #prompts = 0;
  #isStopping = false;
  /** Settled when no weights are being replaced. */
  #weights: Promise<unknown> = Promise.resolve();
  #onEmpty: (() => void)[] = [];

  constructor(limits: GateLimits) {
    this.#limits = limits;
  }

  /** Requests under way. */
  get size(): number {
    return this.#out.size;
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Refuse a request that would not be admitted now; asked before anything is spent on it. */
  check(): void {
    this.#checkOpen();
    const { maxPrompts } = this.#limits;
    if (this.#prompts < maxPrompts) return;
    throw new Refusal(
      429,
      `${this.#prompts} prompts are under way or waiting, and this server takes ${maxPrompts} ` +
        "(`--max-queued-requests`). Try again in a moment.",
      { code: "rate_limit_exceeded" },
    );
  }

  /** Admit a request with so many prompts, or refuse it. */
  async enter(prompts: number, client: AbortSignal): Promise<Ticket> {
    this.check();
    const { timeoutMs } = this.#limits;
    this.#prompts += prompts;
    const controller = new AbortController();
    const onGone = () => controller.abort(new ClientGone("The client closed the connection."));
    const onTime = () =>
      controller.abort(
        new Refusal(504, `The answer was not ready within ${formatSeconds(timeoutMs / 1000)} (\`--request-timeout\`).`),
      );
    const timer = setTimeout(onTime, timeoutMs);
    client.addEventListener("abort", onGone, { once: true });
    if (client.aborted) onGone();
    let isOut = true;
    const leave = () => {
      if (!isOut) return;
      isOut = false;
      clearTimeout(timer);
      client.removeEventListener("abort", onGone);
      this.#prompts -= prompts;
      this.#out.delete(controller);
      if (this.#out.size === 0) for (const resolve of this.#onEmpty.splice(0)) resolve();
    };
    try {
      for (let seen: Promise<unknown> | null = null; seen !== this.#weights; ) {
        controller.signal.throwIfAborted();
        seen = this.#weights;
        await Promise.race([seen, aborted(controller.signal)]);
      }
      this.#checkOpen();
    } catch (error) {
      leave();
      throw error;
    }
    this.#out.add(controller); // in the same turn as the last look at #weights
    return { signal: controller.signal, leave };
  }

  /** Do `work` while no request samples; those that come meanwhile wait for it. */
  async alone<T>(work: () => Promise<T>): Promise<T> {
    this.#checkOpen();
    const done = this.#weights.then(() => this.#empty()).then(work);
    this.#weights = done.catch(() => undefined); // its error is for the one who asked
    return done;
  }

  /** Refuse what comes from now on, and wait for what is under way; after the deadline it is ended. */
  async stop(deadlineMs: number): Promise<void> {
    this.#isStopping = true;
    const timer = setTimeout(() => {
      for (const controller of this.#out) controller.abort(stopping());
    }, deadlineMs);
    await this.#weights;
    await this.#empty();
    clearTimeout(timer);
  }

  #checkOpen(): void {
    if (this.#isStopping) throw stopping();
  }

  #empty(): Promise<void> {
    return this.#out.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#onEmpty.push(resolve));
  }
}

function stopping(): Refusal {
  return new Refusal(503, "This server is stopping and takes no more requests.", { code: "server_stopping" });
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
