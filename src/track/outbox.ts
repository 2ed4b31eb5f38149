/**
 * A queue between the training loop and something slow or unreliable: a server, a disk.
 *
 * `put` never waits. Items are sent one at a time, in order, each until it is taken or refused for good. An outage is
 * reported once, and sending is retried at growing intervals. The queue is limited in bytes: if a new item does not fit,
 * the oldest ones are dropped, and `close` reports how many did not arrive.
 */
import { messageOf } from "../util/errors.ts";
import { counted } from "../util/format.ts";
import { info, warn } from "../util/log.ts";

/** Why an item will never be taken. */
export type Refusal = { readonly refused: string };

export type OutboxOptions<Item> = {
  /** The name of the receiver, for messages. */
  readonly name: string;
  /** Send one item; throws if a later try may work. Then the item is sent again, which must do no harm. */
  send(item: Item, signal: AbortSignal): Promise<Refusal | undefined>;
  /** The bytes an item takes while it waits. */
  sizeOf(item: Item): number;
  readonly limitBytes?: number;
  /** The first pause after an error, doubled up to `maxRetryMs`. */
  readonly retryMs?: number;
  readonly maxRetryMs?: number;
  /** How long `close` waits for the rest. */
  readonly closeMs?: number;
};

export class Outbox<Item> {
  readonly #options: Required<OutboxOptions<Item>>;
  readonly #items: Item[] = [];
  readonly #abort = new AbortController();
  #bytes = 0;
  #lost = 0;
  #isDown = false;
  #hasRefused = false;
  /** The item that is being sent. It is not in the queue, so it cannot be dropped meanwhile. */
  #current: Item | undefined;
  #isClosing = false;
  #draining: Promise<void> | null = null;
  #wake: () => void = () => {};

  constructor(options: OutboxOptions<Item>) {
    this.#options = { limitBytes: 32 * 2 ** 20, retryMs: 500, maxRetryMs: 30_000, closeMs: 10_000, ...options };
  }

  /** Queue an item. */
  put(item: Item): void {
    this.#items.push(item);
    this.#bytes += this.#options.sizeOf(item);
    while (this.#bytes > this.#options.limitBytes && this.#items.length > 1) this.#drop();
    this.#draining ??= this.#drain();
  }

  /** Send what is queued, within the time limit. */
  async close(): Promise<void> {
    const { name, closeMs } = this.#options;
    this.#isClosing = true;
    this.#wake();
    const deadline = Promise.withResolvers<void>();
    const timer = setTimeout(deadline.resolve, closeMs);
    await Promise.race([this.#draining, deadline.promise]);
    clearTimeout(timer);
    this.#abort.abort();
    this.#wake();
    const lost = this.#lost + this.#items.length + (this.#current === undefined ? 0 : 1);
    if (lost === 0) return;
    warn(`${name}: ${counted(lost, "record")} did not arrive. The run folder's metrics.jsonl has every metric.`);
  }

  async #drain(): Promise<void> {
    let pauseMs = this.#options.retryMs;
    while (!this.#abort.signal.aborted) {
      const item = this.#take();
      if (item === undefined) break;
      this.#current = item;
      try {
        const refusal = await this.#options.send(item, this.#abort.signal);
        if (refusal === undefined) this.#sayUp();
        else this.#refuse(refusal);
        pauseMs = this.#options.retryMs;
        this.#current = undefined;
      } catch (error) {
        this.#putBack(item);
        this.#current = undefined;
        this.#sayDown(error);
        await this.#pause(pauseMs);
        pauseMs = this.#isClosing ? this.#options.retryMs : Math.min(2 * pauseMs, this.#options.maxRetryMs);
      }
    }
    this.#draining = null;
  }

  #take(): Item | undefined {
    const item = this.#items.shift();
    if (item !== undefined) this.#bytes -= this.#options.sizeOf(item);
    return item;
  }

  #putBack(item: Item): void {
    this.#items.unshift(item);
    this.#bytes += this.#options.sizeOf(item);
  }

  #drop(): void {
    this.#take();
    this.#lost++;
  }

  #refuse({ refused }: Refusal): void {
    this.#lost++;
    if (!this.#hasRefused) warn(`${this.#options.name}: ${refused}`);
    this.#hasRefused = true;
  }

  #sayDown(error: unknown): void {
    if (!this.#isDown && !this.#abort.signal.aborted) {
      warn(`${this.#options.name}: ${messageOf(error)}. Training continues; this is retried meanwhile.`);
    }
    this.#isDown = true;
  }

  #sayUp(): void {
    if (this.#isDown) info(`${this.#options.name}: works again.`);
    this.#isDown = false;
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      timer.unref(); // a run that ends without closing does not wait for it
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
