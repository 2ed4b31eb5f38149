/**
 * Spreads calls of a function over lanes, and keeps going whatever the function does. `Input` and `Output` are the
 * caller's; the pool knows nothing about them.
 *
 * A lane that reports nothing for as long as a call may take is ended and replaced, and so is one that ended by itself.
 * The call that was running then has failed. If none was running and several promises were pending, any of them may be
 * the cause: each is called again with a lane to itself. All other calls of the lane are sent again, so none is lost.
 * Lanes are opened when there is work for them.
 */
import { UserError } from "../util/errors.ts";
import { warn } from "../util/log.ts";
import type { Call, Lane, LaneEvent, OpenLane } from "./lane.ts";
import { type CallFailureReason, type CallResult, describeLate, describeUnloadable, failedCall } from "./result.ts";

type PoolOptions = {
  /** What messages call the function: "the reward function". */
  readonly what: string;
  /** The largest number of lanes. */
  readonly lanes: number;
  /** How long a call may take. */
  readonly timeoutMs: number;
  /** How long it may take to load the function. */
  readonly loadTimeoutMs: number;
};

type Job<Input, Output> = Call<Input> & {
  readonly done: PromiseWithResolvers<CallResult<Output>>;
  /** To be called again with a lane to itself. */
  isAlone: boolean;
  /** How many lanes ended while this call waited in them. */
  lostLanes: number;
  /** Nobody waits for it any more. */
  isDropped: boolean;
};

type Slot<Input, Output> = {
  readonly lane: Lane<Input>;
  isReady: boolean;
  /** Sent, and neither answered nor pending, in their order. */
  readonly sent: Job<Input, Output>[];
  /** Whether the lane has started with `sent`. */
  isReceived: boolean;
  readonly pending: Map<number, Job<Input, Output>>;
  sentAt: number;
  /** When the lane last reported anything. */
  reportedAt: number;
};

const POLL_MS = 50;
/** The deadlines of promises are kept inside the lane; it must have reported a late one this much later. */
const GRACE_MS = 1000;
/** A call is given up after this many lanes ended before they started it. */
const MAX_LOST_LANES = 3;
const MAX_PENDING = 64;
/** Calls are sent in chunks that take about 10 ms, so that messages cost little and no call waits long behind others. */
const MAX_CHUNK = 64;
const SHORT_CHUNK_MS = 5;
const LONG_CHUNK_MS = 20;

/** Opens lanes, gives them calls, and replaces those that hang or crash, until it is stopped. */
export class Pool<Input, Output> {
  /** How many lanes had to be replaced. */
  restarts = 0;
  readonly #openLane: OpenLane<Input, Output>;
  readonly #options: PoolOptions;
  readonly #slots = new Set<Slot<Input, Output>>();
  readonly #opened = Promise.withResolvers<void>();
  #queue: Job<Input, Output>[] = [];
  #nextId = 0;
  #chunk = 1;
  #isDispatching = false;
  #poll: NodeJS.Timeout | null = null;
  #polledAt = 0;
  #end: Error | null = null;
  readonly #warned = new Set<string>();

  private constructor(openLane: OpenLane<Input, Output>, options: PoolOptions) {
    this.#openLane = openLane;
    this.#options = options;
  }

  /** Opens the first lane and waits until its function is loaded. */
  static async open<Input, Output>(
    openLane: OpenLane<Input, Output>,
    options: PoolOptions,
  ): Promise<Pool<Input, Output>> {
    const pool = new Pool(openLane, options);
    pool.#addLane();
    await pool.#opened.promise;
    return pool;
  }

  /** Call the function. An aborted call is rejected at once; what it does in its lane is ignored. */
  run(input: Input, signal?: AbortSignal): Promise<CallResult<Output>> {
    const done = Promise.withResolvers<CallResult<Output>>();
    const job = { id: this.#nextId++, input, done, isAlone: false, lostLanes: 0, isDropped: false };
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

  /** Calls that are made together are dispatched together. */
  #dispatchSoon(): void {
    if (this.#isDispatching) return;
    this.#isDispatching = true;
    queueMicrotask(() => {
      this.#isDispatching = false;
      this.#dispatch();
    });
  }

  #dispatch(): void {
    for (const slot of this.#slots) if (this.#queue.length > 0 && canTakeMore(slot)) this.#sendTo(slot);
    const opening = [...this.#slots].filter(({ isReady }) => !isReady).length;
    if (this.#queue.length > opening && this.#slots.size < this.#options.lanes && this.#end === null) this.#addLane();
  }

  #sendTo(slot: Slot<Input, Output>): void {
    const jobs = this.#nextJobs(slot);
    if (jobs.length === 0) return;
    slot.sent.push(...jobs);
    slot.isReceived = false;
    slot.sentAt = slot.reportedAt = performance.now();
    slot.lane.send(jobs.map(({ id, input }) => ({ id, input })));
    this.#startClock();
  }

  /** A chunk of the queue for a lane; a call that has to be alone is a chunk of its own. */
  #nextJobs(slot: Slot<Input, Output>): Job<Input, Output>[] {
    const fair = Math.ceil(this.#queue.length / this.#options.lanes);
    const most = Math.min(this.#chunk, fair, MAX_PENDING - slot.pending.size);
    const jobs: Job<Input, Output>[] = [];
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
    const slot: Slot<Input, Output> = {
      lane: this.#openLane((event) => this.#onEvent(slot, event)),
      isReady: false,
      sent: [],
      isReceived: false,
      pending: new Map(),
      sentAt: now,
      reportedAt: now,
    };
    this.#slots.add(slot);
    this.#startClock();
  }

  #onEvent(slot: Slot<Input, Output>, event: LaneEvent<Output>): void {
    if (!this.#slots.has(slot)) return;
    slot.reportedAt = performance.now();
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
        this.#take(slot, event.id)?.done.resolve(event.result);
        break;
      case "uncaught":
        this.#warnOnce(event.message);
        break;
      case "gone":
        this.#replace(slot, "crashed", event.message);
        break;
      default:
        event satisfies never;
    }
    this.#dispatchSoon();
  }

  /** Take a call off the lane's list. After the last one of a chunk, the time it took sets the size of the next. */
  #take(slot: Slot<Input, Output>, id: number): Job<Input, Output> | undefined {
    const pending = slot.pending.get(id);
    if (slot.pending.delete(id)) return pending;
    const index = slot.sent.findIndex((job) => job.id === id);
    const [job] = index < 0 ? [] : slot.sent.splice(index, 1);
    if (job !== undefined && slot.sent.length === 0) {
      const tookMs = slot.reportedAt - slot.sentAt;
      if (tookMs < SHORT_CHUNK_MS) this.#chunk = Math.min(this.#chunk * 2, MAX_CHUNK);
      if (tookMs > LONG_CHUNK_MS) this.#chunk = Math.max(Math.floor(this.#chunk / 2), 1);
    }
    return job;
  }

  /** A lane is gone: find the call that caused it, and send the others again. */
  #replace(slot: Slot<Input, Output>, reason: CallFailureReason, message: string): void {
    this.#slots.delete(slot);
    if (!slot.isReady) return void this.stop(new UserError(describeUnloadable(this.#options.what, message)));
    this.restarts++;
    const [running] = slot.isReceived ? slot.sent : [];
    const suspects = running === undefined ? [...slot.pending.values()] : [running];
    const [cause, ...others] = suspects;
    for (const job of suspects) job.isAlone = true;
    const waiting = [...slot.pending.values(), ...slot.sent];
    if (cause === undefined) for (const job of waiting) job.lostLanes++;
    const isFailed = (job: Job<Input, Output>) =>
      job.lostLanes >= MAX_LOST_LANES || (job === cause && others.length === 0);
    for (const job of waiting.filter(isFailed)) job.done.resolve(failedCall(reason, message));
    this.#queue.unshift(...waiting.filter((job) => !isFailed(job)));
    this.#dispatchSoon();
  }

  #warnOnce(message: string): void {
    if (this.#warned.has(message) || this.#warned.size >= MAX_PENDING) return;
    this.#warned.add(message);
    warn(`${this.#options.what} threw ${message}, outside of any call. The results are not affected.`);
  }

  /** Check the deadlines from time to time while there is anything to wait for. */
  #startClock(): void {
    if (this.#poll !== null) return;
    this.#polledAt = performance.now();
    this.#poll = setInterval(() => this.#checkDeadlines(), POLL_MS);
  }

  #checkDeadlines(): void {
    const now = performance.now();
    // While this thread was busy with something else it received no reports, and no lane is to blame for that.
    const late = now - this.#polledAt - POLL_MS;
    this.#polledAt = now;
    if (late > POLL_MS) for (const slot of this.#slots) slot.reportedAt += late;
    let isWaiting = this.#queue.length > 0;
    for (const slot of this.#slots) {
      const isBusy = !slot.isReady || slot.sent.length > 0 || slot.pending.size > 0;
      isWaiting ||= isBusy;
      if (isBusy && now - slot.reportedAt > this.#longestSilence(slot)) this.#giveUp(slot);
    }
    if (isWaiting || this.#poll === null) return;
    clearInterval(this.#poll);
    this.#poll = null;
  }

  #longestSilence(slot: Slot<Input, Output>): number {
    if (!slot.isReady) return this.#options.loadTimeoutMs;
    const isRunning = slot.isReceived && slot.sent.length > 0;
    return this.#options.timeoutMs + (isRunning ? 0 : GRACE_MS);
  }

  #giveUp(slot: Slot<Input, Output>): void {
    const limitMs = slot.isReady ? this.#options.timeoutMs : this.#options.loadTimeoutMs;
    this.#replace(slot, "deadline", describeLate(limitMs));
    void slot.lane.stop();
  }
}

async function abortable<Input, Output>(job: Job<Input, Output>, signal: AbortSignal): Promise<CallResult<Output>> {
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

/** Whether a lane can be sent more: it has started all it was sent, and does not wait for too many promises. */
function canTakeMore<Input, Output>(slot: Slot<Input, Output>): boolean {
  const isReserved = [...slot.pending.values()].some(({ isAlone }) => isAlone);
  return slot.isReady && slot.sent.length === 0 && slot.pending.size < MAX_PENDING && !isReserved;
}
