/**
 * The optimizer on several threads: its speed is bounded by memory bandwidth, and one core does not use all of it.
 *
 * The caller does the first share itself. Results are the same, bit for bit, with any number of threads.
 */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { siblingModule } from "../util/sibling-module.ts";
import { type AdamW, countPieces, doShare, normOf, type Work } from "./optimizer.ts";
import type { Arena } from "./vectors.ts";

/** With fewer pieces, asking a thread takes longer than the work. */
const WORTH_SHARING = 4;

export class OptimizerPool {
  readonly #threads: number;
  readonly #workers: Worker[] = [];

  constructor(threads: number) {
    this.#threads = threads;
  }

  async gradientNorm(arenas: readonly Arena[]): Promise<number> {
    return normOf(await this.#share(arenas));
  }

  async adamw(arenas: readonly Arena[], step: AdamW): Promise<void> {
    await this.#share(arenas, step);
  }

  async #share(arenas: readonly Arena[], step?: AdamW): Promise<number[]> {
    const of = countPieces(arenas) < WORTH_SHARING ? 1 : this.#threads;
    const jobs = Array.from(
      { length: of },
      (_, index): Work => ({ arenas, share: { index, of }, ...(step && { step }) }),
    );
    const answers = jobs.slice(1).map((job, i) => this.#ask(i, job));
    const own = doShare(jobs[0]!);
    return [own, ...(await Promise.all(answers))].flat();
  }

  async #ask(index: number, work: Work): Promise<number[]> {
    this.#workers[index] ??= new Worker(siblingModule("optimizer-thread", import.meta.url));
    const worker = this.#workers[index];
    worker.postMessage(work);
    const [answer] = await once(worker, "message"); // an `error` of the thread rejects
    return answer;
  }
}
