/**
 * Spreads calls over lanes, and keeps going whatever the reward functions do.
 *
 * A lane that says nothing for as long as a call may take is ended and replaced, and so is one that ended by itself. The
 * call that was running then has failed. If none was running and several promises were pending, any of them may be to
 * blame: each is called again with a lane to itself. All other calls of the lane are sent again, so none is lost. Lanes
 * are opened when there is work for them. It knows nothing of scores; `rewards.ts` counts them.
 */
import { UserError } from "../util/errors.ts";
import { warn } from "../util/log.ts";
import type { Call, Lane, LaneEvent, OpenLane } from "./lane.ts";
import { type FailureReason, failed, type Outcome, overdue } from "./outcome.ts";
import type { RewardInput } from "./reward.ts";

export type PoolOptions = {
  /** At most so many lanes. */
  readonly lanes: number;
  /** How long a call may take. */
  readonly timeoutMs: number;
  /** How long it may take to load the reward function. */
  readonly loadTimeoutMs: number;
};

type Job = Call & {
  readonly done: PromiseWithResolvers<readonly Outcome[]>;
  /** To be called again with a lane to itself. */
  isAlone: boolean;
  /** How many lanes ended with this call waiting in them. */
  losses: number;
  /** Nobody waits for it any more. */
  isDropped: boolean;
};

type Slot = {
  readonly lane: Lane;
  isReady: boolean;
  /** Sent, and neither answered nor pending, in their order. */
  readonly sent: Job[];
  /** Whether the lane has begun with `sent`. */
  isReceived: boolean;
  readonly pending: Map<number, Job>;
  sentAt: number;
  heardAt: number;
};

const POLL_MS = 50;
/** The deadlines of promises are kept inside the lane; so much later it must have said so. */
const GRACE_MS = 1000;
/** A call is given up after so many lanes ended without having begun it. */
const MAX_LOSSES = 3;
const MAX_PENDING = 64;
/** Calls are sent in chunks that take about 10 ms, so that messages cost little and nobody waits long behind others. */
const MAX_CHUNK = 64;
const SHORT_CHUNK_MS = 5;
const LONG_CHUNK_MS = 20;

export class Pool {
  /** How many lanes had to be replaced. */
  restarts = 0;
  readonly #openLane: OpenLane;
  readonly #options: PoolOptions;
  readonly #slots = new Set<Slot>();
  readonly #opened = Promise.withResolvers<void>();
  #queue: Job[] = [];
  #nextId = 0;
  #chunk = 1;
  #isDispatching = false;
  #poll: NodeJS.Timeout | null = null;
  #polledAt = 0;
  #end: Error | null = null;
  readonly #strays = new Set<string>();

  private constructor(openLane: OpenLane, options: PoolOptions) {
    this.#openLane = openLane;
    this.#options = options;
  }

  /** Opens the first lane and waits until its reward function is loaded. */
  static async open(openLane: OpenLane, options: PoolOptions): Promise<Pool> {
    const pool = new Pool(openLane, options);
    pool.#addLane();
    await pool.#opened.promise;
    return pool;
  }

  /** Call the reward function with one sample, or with several where it takes batches. */
  run(inputs: readonly RewardInput[], signal?: AbortSignal): Promise<readonly Outcome[]> {
    const done = Promise.withResolvers<readonly Outcome[]>();
    const job: Job = { id: this.#nextId++, inputs, done, isAlone: false, losses: 0, isDropped: false };
    if (this.#end !== null) done.reject(this.#end);
    else if (signal?.aborted) done.reject(signal.reason);
    else {
      this.#queue.push(job);
      this.#dispatchSoon();
    }
    return signal === undefined ? done.promise : abortable(job, signal);
  }

  /** Stop everything: every call that is not answered is rejected with `error`, and so is every later one. */
  async stop(error: Error): Promise<void> {
    this.#end ??= error;
    const slots = [...this.#slots];
    const jobs = [...this.#queue, ...slots.flatMap((slot) => [...slot.sent, ...slot.pending.values()])];
    this.#slots.clear();
    this.#queue = [];
    if (this.#poll !== null) clearInterval(this.#poll);
    this.#poll = null;
    this.#opened.reject(this.#end);
    for (const job of jobs) job.done.reject(this.#end);
    await Promise.all(slots.map(({ lane }) => lane.stop()));
  }

  /** All calls made in one go are seen together, so that they can be sent together. */
  #dispatchSoon(): void {
    if (this.#isDispatching) return;
    this.#isDispatching = true;
    queueMicrotask(() => {
      this.#isDispatching = false;
      this.#dispatch();
    });
  }

  #dispatch(): void {
    for (const slot of this.#slots) if (this.#queue.length > 0 && isHungry(slot)) this.#feed(slot);
    const opening = [...this.#slots].filter(({ isReady }) => !isReady).length;
    if (this.#queue.length > opening && this.#slots.size < this.#options.lanes && this.#end === null) this.#addLane();
  }

  #feed(slot: Slot): void {
    const jobs = this.#nextJobs(slot);
    if (jobs.length === 0) return;
    slot.sent.push(...jobs);
    slot.isReceived = false;
    slot.sentAt = slot.heardAt = performance.now();
    slot.lane.send(jobs.map(({ id, inputs }) => ({ id, inputs })));
    this.#watch();
  }

  /** A chunk of the queue for a lane: calls that have to be alone come alone. */
  #nextJobs(slot: Slot): Job[] {
    const fair = Math.ceil(this.#queue.length / this.#options.lanes);
    const most = Math.min(this.#chunk, fair, MAX_PENDING - slot.pending.size);
    const jobs: Job[] = [];
    for (let job = this.#queue[0]; job !== undefined && jobs.length < most; job = this.#queue[0]) {
      if (job.isAlone && !job.isDropped && slot.pending.size + jobs.length > 0) break;
      this.#queue.shift();
      if (!job.isDropped) jobs.push(job);
      if (job.isAlone && !job.isDropped) break;
    }
    return jobs;
  }

  #addLane(): void {
    const now = performance.now();
    const slot: Slot = {
      lane: this.#openLane((event) => this.#hear(slot, event)),
      isReady: false,
      sent: [],
      isReceived: false,
      pending: new Map(),
      sentAt: now,
      heardAt: now,
    };
    this.#slots.add(slot);
    this.#watch();
  }

  #hear(slot: Slot, event: LaneEvent): void {
    if (!this.#slots.has(slot)) return;
    slot.heardAt = performance.now();
    switch (event.kind) {
      case "ready":
        slot.isReady = true;
        this.#opened.resolve();
        break;
      case "refused":
        void this.stop(new UserError(event.message));
        break;
      case "received":
        slot.isReceived = true;
        break;
      case "pending": {
        const job = this.#take(slot, event.id);
        if (job !== undefined) slot.pending.set(job.id, job);
        break;
      }
      case "answer":
        this.#take(slot, event.id)?.done.resolve(event.outcomes);
        break;
      case "stray":
        this.#warnOnce(event.message);
        break;
      case "gone":
        this.#lose(slot, "crashed", event.message);
        break;
      default:
        event satisfies never;
    }
    this.#dispatchSoon();
  }

  /** Take a call off the lane's list; when it was the last one sent, what the chunk took sets the size of the next. */
  #take(slot: Slot, id: number): Job | undefined {
    const pending = slot.pending.get(id);
    if (slot.pending.delete(id)) return pending;
    const index = slot.sent.findIndex((job) => job.id === id);
    const [job] = index < 0 ? [] : slot.sent.splice(index, 1);
    if (job !== undefined && slot.sent.length === 0) {
      const tookMs = slot.heardAt - slot.sentAt;
      if (tookMs < SHORT_CHUNK_MS) this.#chunk = Math.min(this.#chunk * 2, MAX_CHUNK);
      if (tookMs > LONG_CHUNK_MS) this.#chunk = Math.max(Math.floor(this.#chunk / 2), 1);
    }
    return job;
  }

  /** A lane is gone: find the call that is to blame, and send the others again. */
  #lose(slot: Slot, reason: FailureReason, message: string): void {
    this.#slots.delete(slot);
    if (!slot.isReady) return void this.stop(new UserError(`The reward function cannot be loaded: it ${message}.`));
    this.restarts++;
    const [running] = slot.isReceived ? slot.sent : [];
    const suspects = running === undefined ? [...slot.pending.values()] : [running];
    const [culprit, ...others] = suspects;
    for (const job of suspects) job.isAlone = true;
    const waiting = [...slot.pending.values(), ...slot.sent];
    if (culprit === undefined) for (const job of waiting) job.losses++;
    const isFailed = (job: Job) => job.losses >= MAX_LOSSES || (job === culprit && others.length === 0);
    for (const job of waiting.filter(isFailed))
      job.done.resolve(job.inputs.map((input) => failed(input, reason, message)));
    this.#queue.unshift(...waiting.filter((job) => !isFailed(job)));
    this.#dispatchSoon();
  }

  #warnOnce(message: string): void {
    if (this.#strays.has(message) || this.#strays.size >= MAX_PENDING) return;
    this.#strays.add(message);
    warn(`the reward function threw ${message}, outside of any call. The scores are not affected.`);
  }

  /** Look at the clocks from time to time while there is anything to wait for. */
  #watch(): void {
    if (this.#poll !== null) return;
    this.#polledAt = performance.now();
    this.#poll = setInterval(() => this.#look(), POLL_MS);
  }

  #look(): void {
    const now = performance.now();
    // While this thread did something else it heard nothing, which is no lane's fault.
    const late = now - this.#polledAt - POLL_MS;
    this.#polledAt = now;
    if (late > POLL_MS) for (const slot of this.#slots) slot.heardAt += late;
    let isWaiting = this.#queue.length > 0;
    for (const slot of this.#slots) {
      const isBusy = !slot.isReady || slot.sent.length > 0 || slot.pending.size > 0;
      isWaiting ||= isBusy;
      if (isBusy && now - slot.heardAt > this.#patience(slot)) this.#giveUp(slot);
    }
    if (isWaiting || this.#poll === null) return;
    clearInterval(this.#poll);
    this.#poll = null;
  }

  #patience(slot: Slot): number {
    if (!slot.isReady) return this.#options.loadTimeoutMs;
    const isRunning = slot.isReceived && slot.sent.length > 0;
    return this.#options.timeoutMs + (isRunning ? 0 : GRACE_MS);
  }

  #giveUp(slot: Slot): void {
    const limitMs = slot.isReady ? this.#options.timeoutMs : this.#options.loadTimeoutMs;
    this.#lose(slot, "deadline", overdue(limitMs));
    void slot.lane.stop();
  }
}

async function abortable(job: Job, signal: AbortSignal): Promise<readonly Outcome[]> {
  const abort = () => {
    job.isDropped = true;
    job.done.reject(signal.reason);
  };
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await job.done.promise;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Whether a lane can be sent more: it has begun all it was sent, and does not wait for too many promises. */
function isHungry(slot: Slot): boolean {
  const isToItself = [...slot.pending.values()].some(({ isAlone }) => isAlone);
  return slot.isReady && slot.sent.length === 0 && slot.pending.size < MAX_PENDING && !isToItself;
}
