/**
 * The controller's side of the shim process: it starts the shim, calls it, and never leaves it behind.
 *
 * A call of a group of workers returns their answers in the order of their ranks. An error that the user can fix is a
 * `UserError`. Any other error of one worker has stopped the others in the middle of a collective call, so it ends all
 * groups: all pending calls, and all later ones, are rejected with `EngineLost`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import * as z from "zod";
import { codeOf, invariant, UserError } from "../../util/errors.ts";
import { debug } from "../../util/log.ts";
import { EngineLost } from "../lost.ts";
import { FrameReader, framed, pack, unpack } from "./wire.ts";
import { type WorkerAnswer, WorkerGroup, type WorkerPlace } from "./worker-group.ts";

/** The folder that holds the package `trainyard_worker`. */
export const pythonFolder: string = fileURLToPath(new URL("../../../python", import.meta.url));

/** Workers that hold models together, beside those of other pools; null is the pool of the models that are trained. */
export type PoolSpec = { readonly pool: string | null; readonly nodes: number; readonly perNode: number };

/** The workers of an engine and the cluster they run in. */
export type ShimSpec = {
  /** The first one trains. */
  readonly pools: readonly PoolSpec[];
  readonly device: "cpu" | "cuda";
  /** The resources of each worker, by Ray's names: CPU, GPU, … */
  readonly bundle: Readonly<Record<string, number>>;
  /** A cluster to join; null starts one here. */
  readonly address: string | null;
  /** Further arguments of `ray.init`; those of `local` are used only if it starts a cluster. */
  readonly init: Readonly<Record<string, unknown>>;
  readonly local: Readonly<Record<string, unknown>>;
  /** Environment variables of the workers; those of the shell and of `init.runtime_env` override them. */
  readonly env: Readonly<Record<string, string>>;
  /** Its workers replace others, whose node may be lost: wait until the cluster is large enough. */
  readonly isReplacing: boolean;
  readonly startMs: number;
  /** How long workers wait for each other. */
  readonly collectiveMs: number;
  /** How long a worker may not answer before it counts as lost. */
  readonly silenceMs: number;
};

type Pending = { resolve(value: unknown): void; reject(error: Error): void; readonly timer: NodeJS.Timeout };

type Request = { readonly op: string } & Readonly<Record<string, unknown>>;

/** The results of a method, and the errors of those that could not do it. */
type Answers = { readonly results: WorkerAnswer[]; readonly errors: readonly string[] };

const place = z.object({ pid: z.number(), host: z.string(), node: z.string() });
/** A worker or a server, as messages name it. */
const member = place.extend({ kind: z.string(), rank: z.number() });
const failure = z.object({ type: z.string(), message: z.string(), trace: z.string(), source: member.nullable() });
const frame = z.union([
  member.extend({ event: z.literal("lost"), reason: z.string() }),
  z.object({ id: z.number(), error: failure }),
  z.object({ id: z.number(), ok: z.unknown() }),
]);
const started = z.object({ pools: z.array(z.array(place)), address: z.string() });
const served = z.object({ servers: z.array(place).nullable() });
const answer = z.union([z.object({ error: z.string() }), z.object({ ok: z.record(z.string(), z.unknown()) })]);

export class Shim {
  readonly #child: ChildProcess;
  readonly #pending = new Map<number, Pending>();
  readonly #ended: Promise<void>;
  readonly #collectiveMs: number;
  #groups: readonly (readonly [pool: string | null, group: WorkerGroup])[] = [];
  #servers: readonly WorkerPlace[] = [];
  #address = "";
  #next = 0;
  #lost: EngineLost | null = null;
  readonly #losing = new AbortController();
  #isClosing = false;
  #stderr = "";

  private constructor(python: string, spec: ShimSpec) {
    this.#collectiveMs = spec.collectiveMs;
    // A session of its own: an interrupt in the terminal is the controller's to handle.
    this.#child = spawn(python, ["-m", "trainyard_worker.shim"], {
      cwd: pythonFolder,
      detached: true,
      windowsHide: true,
      stdio: ["pipe", "pipe", "pipe"],
    });
    const { stdin, stdout, stderr } = this.#child;
    invariant(stdin && stdout && stderr, "the shim has three pipes");
    stdin.on("error", () => {}); // then it is gone, and `exit` reports that
    const reader = new FrameReader();
    stdout.on("data", (bytes: Buffer) => {
      for (const message of reader.push(bytes)) {
        const { data, error } = frame.safeParse(message);
        if (data !== undefined) this.#handle(data);
        else this.#lose(`internal: the shim sent an unknown message: ${error.message}`);
      }
    });
    stderr.on("data", (bytes: Buffer) => {
      this.#stderr = (this.#stderr + bytes).slice(-4000);
      debug(`ray: ${String(bytes).trimEnd()}`);
    });
    this.#ended = new Promise((resolve) => {
      this.#child.once("error", (error) => {
        this.#lose(`The Ray shim could not be started with ${python} (${codeOf(error) || error.message}).`);
        resolve();
      });
      const end = (how: string) => {
        const last = this.#stderr.trim().split("\n").at(-1);
        this.#lose(
          `The Ray shim (process ${this.#child.pid}) ended: ${how}.${last ? ` Its last message was: ${last}` : ""}`,
        );
        resolve();
      };
      this.#child.once("exit", (code, signal) => {
        const how = signal === null ? `exit code ${code}` : signal;
        this.#child.once("close", () => end(how)); // all of its output has arrived
        setTimeout(() => end(how), LAST_OUTPUT_MS).unref();
      });
    });
  }

  /** Start a shim and its workers; `signal` cancels that. */
  static async start(python: string, spec: ShimSpec, signal: AbortSignal): Promise<Shim> {
    signal.throwIfAborted();
    const shim = new Shim(python, spec);
    const abort = () => {
      shim.#lose("The engine was closed.");
      shim.#child.kill("SIGKILL"); // it may be waiting for a cluster; the processes that it started end with it
    };
    signal.addEventListener("abort", abort, { once: true });
    try {
      const { startMs, collectiveMs, silenceMs, ...rest } = spec;
      const times = { timeout: startMs / 1000, collectiveTimeout: collectiveMs / 1000, silence: silenceMs / 1000 };
      // Ray's own deadline comes first: its message says more.
      const reply = await shim.#ask({ op: "start", ...rest, ...times }, "start", startMs + 30_000);
      const { pools, address } = started.parse(reply);
      shim.#groups = spec.pools.map(({ pool }, at) => {
        return [pool, new WorkerGroup(pools[at]!, (method, args) => shim.#callWorkers(at, method, args))];
      });
      shim.#address = address;
      return shim;
    } catch (error) {
      await shim.close();
      signal.throwIfAborted();
      throw error;
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  /** The workers of a pool; of the models that are trained by default. */
  group(pool: string | null = null): WorkerGroup {
    const found = this.#groups.find(([name]) => name === pool);
    invariant(found !== undefined, `no workers were started for the ${pool}`);
    return found[1];
  }

  /** The address of the cluster, for other drivers. */
  get address(): string {
    return this.#address;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Create actors for servers beside the workers; their number, or null if their program is not installed. */
  async serve(request: object, limitMs: number): Promise<number | null> {
    const reply = await this.#ask({ op: "serve", ...request, timeout: limitMs / 1000 }, "serve", limitMs + 30_000);
    const { servers } = served.parse(reply);
    this.#servers = servers ?? [];
    return servers?.length ?? null;
  }

  /** Call a method of every server, with a message for each. */
  async callServers(
    method: string,
    message: (index: number) => object,
    limitMs: number,
  ): Promise<readonly WorkerAnswer[]> {
    const args = this.#servers.map((_, index) => pack(message(index)));
    const { results, errors } = await this.#callAll({ op: "call_servers", method, args }, method, limitMs);
    if (errors.length > 0) throw new UserError(errors[0]);
    return results;
  }

  /** Write Ray's timeline: when each worker computed what. */
  async writeTimeline(file: string): Promise<void> {
    await this.#ask({ op: "timeline", file }, "timeline", TIMELINE_MS);
  }

  /** Aborted, with an `EngineLost`, when a worker or a server is lost. */
  get lost(): AbortSignal {
    return this.#losing.signal;
  }

  async #callWorkers(pool: number, method: string, args: readonly Uint8Array[]): Promise<WorkerAnswer[]> {
    // Workers that wait for each other time out first; this is for those that hang otherwise.
    const limitMs = 2 * this.#collectiveMs + 30_000;
    const { results, errors } = await this.#callAll({ op: "call", pool, method, args }, method, limitMs);
    if (errors.length === 0) return results;
    // Workers with a result and workers with an error have different weights now, unless the method only reads.
    if (results.length > 0 && !readOnlyMethods.has(method)) this.#lose(errors[0]!);
    throw this.#lost ?? new UserError(errors[0]);
  }

  async #callAll(request: Request, method: string, limitMs: number): Promise<Answers> {
    const reply = await this.#ask(request, method, limitMs);
    const answers = z
      .array(z.instanceof(Uint8Array))
      .parse(reply)
      .map((data) => answer.parse(unpack(data)));
    const results = answers.flatMap((one) => ("ok" in one ? [one.ok] : []));
    const errors = answers.flatMap((one) => ("error" in one ? [one.error] : []));
    return { results, errors };
  }

  /** End the workers and the shim; settles when they are gone. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#child.stdin?.end();
    const kill = setTimeout(() => this.#child.kill("SIGKILL"), CLOSE_MS);
    await this.#ended;
    clearTimeout(kill);
  }

  #ask(request: Request, method: string, limitMs: number): Promise<unknown> {
    if (this.#lost !== null) return Promise.reject(this.#lost);
    const id = this.#next++;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const timer = setTimeout(() => {
      const who = request.op === "call_servers" ? "The vLLM servers" : "The workers";
      this.#lose(`${who} have not answered \`${method}\` within ${Math.round(limitMs / 1000)} s.`);
    }, limitMs);
    this.#pending.set(id, { resolve, reject, timer });
    this.#child.stdin?.write(framed({ id, ...request }));
    return promise;
  }

  #handle(message: z.infer<typeof frame>): void {
    if ("event" in message) {
      const reason = firstLine(message.reason);
      this.#lose(`${nameOf(message)} was lost: ${reason}${memoryAdvice(reason)}`);
      return;
    }
    const pending = this.#pending.get(message.id);
    if (pending === undefined) return; // its group was lost in the meantime
    if ("error" in message) {
      const { type, source, trace } = message.error;
      debug(trace);
      if (type === "UserError") this.#settle(message.id).reject(new UserError(message.error.message));
      else {
        const text = describe(message.error, source === null ? "The Ray shim" : nameOf(source));
        // When one of them dies, the others fail too, and their errors may arrive first.
        if (this.#memberCount > 1) setTimeout(() => this.#lose(text), LAST_OUTPUT_MS).unref();
        else this.#lose(text);
      }
      return;
    }
    this.#settle(message.id).resolve(message.ok);
  }

  get #memberCount(): number {
    return this.#groups.reduce((sum, [, group]) => sum + group.workers.length, this.#servers.length);
  }

  #settle(id: number): Pending {
    const pending = this.#pending.get(id);
    invariant(pending !== undefined, "an answer belongs to a pending request");
    this.#pending.delete(id);
    clearTimeout(pending.timer);
    return pending;
  }

  #lose(message: string): void {
    if (this.#lost !== null) return;
    this.#lost = new EngineLost(this.#isClosing ? "The engine was closed." : message);
    for (const id of [...this.#pending.keys()]) this.#settle(id).reject(this.#lost);
    this.#losing.abort(this.#lost);
    this.#child.stdin?.end(); // all are lost together
  }
}

/** Methods that may fail on some workers: the existing models of all are unchanged. */
const readOnlyMethods: ReadonlySet<string> = new Set(["describe", "load", "check_folder"]);

const TIMELINE_MS = 60_000;

/** Longer than the shim itself waits when Ray does not answer. */
const CLOSE_MS = 20_000;

/** How long to wait after an error of one worker for the death of another, and after the exit of a shim for its output. */
const LAST_OUTPUT_MS = 1000;

function describe({ type, message }: z.infer<typeof failure>, where: string): string {
  const first = firstLine(message);
  if (/gloo|nccl/i.test(message)) return `${where} has lost its connection to another process: ${first}`;
  if (/running low on memory/.test(first))
    return `Ray ended a worker because its machine ran out of memory: ${first}${LESS}`;
  if (STORE_IS_FULL.test(type)) return `Ray's object store is full: ${first}${MORE_STORE}`;
  return `${where} stopped with ${type}: ${first}${memoryAdvice(`${type} ${first}`)}`;
}

const STORE_IS_FULL = /^(ObjectStoreFullError|OutOfDiskError)$/;
const MORE_STORE =
  " Give it more (`ray_kwargs.ray_init.object_store_memory`, bytes), free the disk under Ray's temporary folder, or lower " +
  "the tokens of a micro-batch.";

const LESS = " Lower the tokens of a micro-batch, use more workers, or turn gradient checkpointing on.";

/** What to do when a GPU or a machine is out of memory. */
function memoryAdvice(reason: string): string {
  return /OutOfMemory|out of memory|can't allocate memory|not enough memory|low on memory/i.test(reason) ? LESS : "";
}

function nameOf({ kind, rank, pid, host }: z.infer<typeof member>): string {
  return `${kind} ${rank} (process ${pid} on ${host})`;
}

/**
 * The first line of a message, as a sentence: Ray's messages continue with tables and advice, and PyTorch's begin with
 * a position in its source.
 */
function firstLine(text: string): string {
  const [line = ""] = text
    .trim()
    .replace(/^\[[^\]]*\] */, "")
    .split("\n");
  const said = line.trimEnd().slice(0, 400);
  return /[.!?]$/.test(said) ? said : `${said}.`;
}
