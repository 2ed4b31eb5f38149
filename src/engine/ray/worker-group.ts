/**
 * The workers of one pool, which hold models together. One call at a time goes to all of them, so that workers that wait
 * for each other are always in the same call; the groups of several pools compute at the same time.
 */
import { pack } from "./wire.ts";

/** Where a worker runs. */
export type WorkerPlace = { readonly pid: number; readonly host: string; readonly node: string };

/** What a worker answers. */
export type WorkerAnswer = Readonly<Record<string, unknown>>;

/** Sends a method with a packed message for every worker, and returns their answers in the order of their ranks. */
type Send = (method: string, args: readonly Uint8Array[]) => Promise<WorkerAnswer[]>;

export class WorkerGroup {
  /** By rank. */
  readonly workers: readonly WorkerPlace[];
  readonly #send: Send;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(workers: readonly WorkerPlace[], send: Send) {
    this.workers = workers;
    this.#send = send;
  }

  /** Call a method of every worker, with a message for each rank. */
  call(method: string, message: (rank: number) => object): Promise<WorkerAnswer[]> {
    const messages = this.workers.map((_, rank) => message(rank));
    const result = this.#queue.then(() => this.#send(method, messages.map(pack)));
    this.#queue = result.catch(() => undefined);
    return result;
  }
}
