/**
 * The main thread's end of the engine: compile programs, run them, update parameters, all in a thread of its own.
 *
 * Calls are queued and answered in order. If the thread dies, every waiting call fails with the reason.
 */
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { Bindings } from "../graph/shape.ts";
import type { Program } from "../onnx/emit.ts";
import { messageOf, UserError } from "../util/errors.ts";
import { siblingModule } from "../util/sibling-module.ts";
import type { Device } from "./devices.ts";
import { onnxruntimeFolder } from "./onnxruntime.ts";
import type { AdamW } from "./optimizer.ts";
import type { Arrays, BoundGroup, Calls, Reply, Request, ThreadSettings } from "./thread.ts";
import type { Vectors } from "./vectors.ts";
import type { CopyMode } from "./zero-copy.ts";

export type RuntimeOptions = {
  readonly device?: Device;
  /** Threads inside one operation; 0 or absent means one per core. */
  readonly threads?: number;
  readonly copyMode?: CopyMode;
};

/** A program that is ready to run. */
export type Executable = { readonly id: number; readonly program: Program };
/** Arrays that the engine thread knows by name; they are not sent again with every run. */
export type Group = { readonly id: number };
export type RunOptions = {
  readonly bindings?: Bindings;
  readonly arrays?: Arrays;
  /** Bound arrays; with `firstRow` a tensor is a range of rows of the longer array, beginning at that row. */
  readonly groups?: readonly BoundGroup[];
};

type Pending = { resolve(value: unknown): void; reject(error: Error): void };

export class Runtime {
  readonly device: Device;
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  #next = 0;
  #groups = 0;
  #failure: Error | null = null;
  readonly #isClosing = new Int32Array(new SharedArrayBuffer(4));

  constructor(options: RuntimeOptions = {}) {
    this.device = options.device ?? "cpu";
    onnxruntimeFolder(); // here and not in the thread, so that an install is reported and its error is a `UserError`
    const settings: ThreadSettings = {
      device: this.device,
      threads: options.threads || availableParallelism(),
      copyMode: options.copyMode ?? "zero-copy",
      isClosing: this.#isClosing,
    };
    this.#worker = new Worker(siblingModule("thread", import.meta.url), { workerData: settings });
    this.#worker.on("message", (reply: Reply) => this.#settle(reply));
    this.#worker.on("error", (error) =>
      this.#fail(new Error(`the engine thread died: ${messageOf(error)}`, { cause: error })),
    );
    this.#worker.on("exit", (code) => this.#fail(new Error(`the engine thread ended (exit code ${code})`)));
    this.#worker.unref();
  }

  /** Make a program ready to run; the same program is compiled once. */
  async load(program: Program): Promise<Executable> {
    return { id: await this.#call("load", program), program };
  }

  /** Run a program. Inputs are read from, and outputs written to, the arrays given by name here or in groups. */
  async run(executable: Executable, options: RunOptions = {}): Promise<void> {
    const { bindings = {}, arrays = {}, groups = [] } = options;
    await this.#call("run", { session: executable.id, bindings, arrays, groups });
  }

  /** Bind arrays that many runs share. */
  async bind(arrays: Arrays): Promise<Group> {
    const id = this.#groups++;
    await this.#call("bind", id, arrays);
    return { id };
  }

  async unbind(group: Group): Promise<void> {
    await this.#call("unbind", group.id);
  }

  async adamw(vectors: Vectors, options: AdamW): Promise<void> {
    await this.#call("adamw", vectors.arenas, options);
  }

  async gradientNorm(vectors: Vectors): Promise<number> {
    return this.#call("gradientNorm", vectors.arenas);
  }

  async scatterAdd(into: Float32Array, ids: Int32Array, rows: Float32Array, width: number): Promise<void> {
    await this.#call("scatterAdd", into, ids, rows, width);
  }

  /**
   * Stop the thread; sessions and bound arrays end with it. Waiting calls are refused, and a call that is running is
   * waited for: onnxruntime crashes the whole process if its thread ends during a call.
   */
  async close(): Promise<void> {
    if (this.#failure === null) {
      Atomics.store(this.#isClosing, 0, 1);
      const waiting = [...this.#pending.values()];
      this.#pending.clear();
      const stopped = this.#call("stop");
      this.#failure = new Error("the engine was closed");
      for (const { reject } of waiting) reject(this.#failure);
      await stopped.catch(() => undefined); // a thread that died has stopped as well
    }
    await this.#worker.terminate();
  }

  #call<K extends keyof Calls>(call: K, ...args: Parameters<Calls[K]>): ReturnType<Calls[K]> {
    const answer = new Promise<unknown>((resolve, reject) => {
      if (this.#failure !== null) return reject(this.#failure);
      const id = this.#next++;
      this.#pending.set(id, { resolve, reject });
      this.#worker.ref(); // keeps the process alive while a call waits
      this.#worker.postMessage({ id, call, args } satisfies Request);
    });
    return answer as ReturnType<Calls[K]>; // the thread answers `call` with the type `Calls` gives it
  }

  #settle(reply: Reply): void {
    const pending = this.#pending.get(reply.id);
    this.#pending.delete(reply.id);
    if (this.#pending.size === 0) this.#worker.unref();
    if ("value" in reply) pending?.resolve(reply.value);
    else pending?.reject(reply.isUser ? new UserError(reply.error) : new Error(reply.error));
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    this.#pending.clear();
  }
}
