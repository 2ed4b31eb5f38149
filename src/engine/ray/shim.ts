/**
 * The shim process, seen from the controller: started, asked, and never left behind.
 *
 * `call` sends a verb to every worker and gives their answers in the order of their ranks. What the user can put right
 * is a `UserError`; anything else that happens to one worker has stopped the others in the middle of common work, so
 * it ends the group: all calls that wait, and all later ones, are rejected with `EngineLost`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import * as z from "zod";
import { codeOf, invariant, UserError } from "../../util/errors.ts";
import { debug } from "../../util/log.ts";
import { EngineLost } from "../lost.ts";
import { FrameReader, framed, pack, unpack } from "./wire.ts";

/** The folder that holds the package `trainyard_worker`. */
export const pythonFolder: string = fileURLToPath(new URL("../../../python", import.meta.url));

/** What a group of workers is made of. */
export type GroupSpec = {
  readonly nodes: number;
  readonly perNode: number;
  readonly device: "cpu" | "cuda";
  /** What each worker takes of a node, in Ray's names: CPU, GPU, … */
  readonly bundle: Readonly<Record<string, number>>;
  /** A cluster to join; null starts one here. */
  readonly address: string | null;
  /** Further arguments of `ray.init`; those of `local` only where it starts a cluster. */
  readonly init: Readonly<Record<string, unknown>>;
  readonly local: Readonly<Record<string, unknown>>;
  readonly env: Readonly<Record<string, string>>;
  /** Its workers take the place of others, whose node may have been lost: a cluster that is too small is waited for. */
  readonly isReplacing: boolean;
  readonly startMs: number;
  /** How long workers wait for each other. */
  readonly collectiveMs: number;
  /** How long a worker may be silent before it counts as lost. */
  readonly silenceMs: number;
};

/** Where a worker runs. */
export type WorkerPlace = { readonly pid: number; readonly host: string; readonly node: string };

type Pending = { resolve(value: unknown): void; reject(error: Error): void; readonly timer: NodeJS.Timeout };

type Request = { readonly op: string } & Readonly<Record<string, unknown>>;

/** What came of a verb, by those who did it and by those who refused. */
type Answers = { readonly done: Readonly<Record<string, unknown>>[]; readonly refused: readonly string[] };

const place = z.object({ pid: z.number(), host: z.string(), node: z.string() });
/** A worker or a server, as it is named. */
const one = place.extend({ kind: z.string(), rank: z.number() });
const failure = z.object({ type: z.string(), message: z.string(), trace: z.string(), whose: one.nullable() });
const frame = z.union([
  one.extend({ event: z.literal("lost"), why: z.string() }),
  z.object({ id: z.number(), error: failure }),
  z.object({ id: z.number(), ok: z.unknown() }),
]);
const started = z.object({ workers: z.array(place), address: z.string() });
const served = z.object({ servers: z.array(place).nullable() });
const answer = z.union([z.object({ refused: z.string() }), z.object({ ok: z.record(z.string(), z.unknown()) })]);

export class Shim {
  readonly #child: ChildProcess;
  readonly #pending = new Map<number, Pending>();
  readonly #ended: Promise<void>;
  readonly #collectiveMs: number;
  #workers: readonly WorkerPlace[] = [];
  #servers: readonly WorkerPlace[] = [];
  #address = "";
  #queue: Promise<unknown> = Promise.resolve();
  #next = 0;
  #lost: EngineLost | null = null;
  readonly #losing = new AbortController();
  #isClosing = false;
  #printed = "";

  private constructor(python: string, spec: GroupSpec) {
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
    stdin.on("error", () => {}); // then it is gone, which `exit` tells
    const reader = new FrameReader();
    stdout.on("data", (bytes: Buffer) => {
      for (const message of reader.push(bytes)) {
        const { data, error } = frame.safeParse(message);
        if (data !== undefined) this.#hear(data);
        else this.#lose(`internal: the shim said what it should not: ${error.message}`);
      }
    });
    stderr.on("data", (bytes: Buffer) => {
      this.#printed = (this.#printed + bytes).slice(-4000);
      debug(`ray: ${String(bytes).trimEnd()}`);
    });
    this.#ended = new Promise((resolve) => {
      this.#child.once("error", (error) => {
        this.#lose(`The Ray shim could not be started with ${python} (${codeOf(error) || error.message}).`);
        resolve();
      });
      const end = (how: string) => {
        const last = this.#printed.trim().split("\n").at(-1);
        this.#lose(`The Ray shim (process ${this.#child.pid}) ended: ${how}.${last ? ` It last said: ${last}` : ""}`);
        resolve();
      };
      this.#child.once("exit", (code, signal) => {
        const how = signal === null ? `exit code ${code}` : signal;
        this.#child.once("close", () => end(how)); // what it has said has arrived
        setTimeout(() => end(how), LAST_WORDS_MS).unref();
      });
    });
  }

  /** Start a shim and its workers; `signal` breaks that off. */
  static async start(python: string, spec: GroupSpec, signal: AbortSignal): Promise<Shim> {
    signal.throwIfAborted();
    const shim = new Shim(python, spec);
    const abort = () => {
      shim.#lose("The engine was closed.");
      shim.#child.kill("SIGKILL"); // it may be waiting for a cluster; what it has started ends with it
    };
    signal.addEventListener("abort", abort, { once: true });
    try {
      const { startMs, collectiveMs, silenceMs, ...rest } = spec;
      const times = { timeout: startMs / 1000, collectiveTimeout: collectiveMs / 1000, silence: silenceMs / 1000 };
      // Ray's own deadline comes first, and says more.
      const reply = await shim.#ask({ op: "start", ...rest, ...times }, "start", startMs + 30_000);
      const { workers, address } = started.parse(reply);
      shim.#workers = workers;
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

  /** The workers, by rank. */
  get workers(): readonly WorkerPlace[] {
    return this.#workers;
  }

  /** The cluster's address, for others to join it. */
  get address(): string {
    return this.#address;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /**
   * Send a verb to every worker, with a message for each. One call at a time, so that workers that wait for each other
   * are always at the same one.
   */
  call(verb: string, messages: readonly object[]): Promise<Readonly<Record<string, unknown>>[]> {
    const result = this.#queue.then(() => this.#callNow(verb, messages));
    this.#queue = result.catch(() => undefined);
    return result;
  }

  /** Find places for servers beside the workers; how many, or null where the program that they need is not there. */
  async serve(request: object, limitMs: number): Promise<number | null> {
    const reply = await this.#ask({ op: "serve", ...request, timeout: limitMs / 1000 }, "serve", limitMs + 30_000);
    const { servers } = served.parse(reply);
    this.#servers = servers ?? [];
    return servers?.length ?? null;
  }

  /** Send a verb to every server, with a message for each. */
  async callServers(
    verb: string,
    message: (index: number) => object,
    limitMs: number,
  ): Promise<readonly Readonly<Record<string, unknown>>[]> {
    const args = this.#servers.map((_, index) => pack(message(index)));
    const { done, refused } = await this.#relay({ op: "call_servers", verb, args }, verb, limitMs);
    if (refused.length > 0) throw new UserError(refused[0]);
    return done;
  }

  /** Aborted, with an `EngineLost`, when the group is lost. */
  get lost(): AbortSignal {
    return this.#losing.signal;
  }

  async #callNow(verb: string, messages: readonly object[]): Promise<Readonly<Record<string, unknown>>[]> {
    invariant(messages.length === this.#workers.length, "every worker gets every verb");
    // Workers that wait for each other say so first; this is for those that wait for nothing.
    const limitMs = 2 * this.#collectiveMs + 30_000;
    const { done, refused } = await this.#relay({ op: "call", verb, args: messages.map(pack) }, verb, limitMs);
    if (refused.length === 0) return done;
    // Workers that did it and workers that did not have different weights now, unless they only read.
    if (done.length > 0 && !changesNothing.has(verb)) this.#lose(refused[0]!);
    throw this.#lost ?? new UserError(refused[0]);
  }

  /** What the others did, and what was refused. */
  async #relay(request: Request, verb: string, limitMs: number): Promise<Answers> {
    const reply = await this.#ask(request, verb, limitMs);
    const answers = z
      .array(z.instanceof(Uint8Array))
      .parse(reply)
      .map((data) => answer.parse(unpack(data)));
    const done = answers.flatMap((one) => ("ok" in one ? [one.ok] : []));
    const refused = answers.flatMap((one) => ("refused" in one ? [one.refused] : []));
    return { done, refused };
  }

  /** End the workers and the shim; settles when they are gone. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#child.stdin?.end();
    const kill = setTimeout(() => this.#child.kill("SIGKILL"), CLOSE_MS);
    await this.#ended;
    clearTimeout(kill);
  }

  #ask(request: Request, verb: string, limitMs: number): Promise<unknown> {
    if (this.#lost !== null) return Promise.reject(this.#lost);
    const id = this.#next++;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const timer = setTimeout(() => {
      const who = request.op === "call_servers" ? "The vLLM servers" : "The workers";
      this.#lose(`${who} have not answered \`${verb}\` within ${Math.round(limitMs / 1000)} s.`);
    }, limitMs);
    this.#pending.set(id, { resolve, reject, timer });
    this.#child.stdin?.write(framed({ id, ...request }));
    return promise;
  }

  #hear(message: z.infer<typeof frame>): void {
    if ("event" in message) {
      const why = firstLine(message.why);
      this.#lose(`${nameOf(message)} was lost: ${why}${adviceOn(why)}`);
      return;
    }
    const pending = this.#pending.get(message.id);
    if (pending === undefined) return; // its group was lost meanwhile
    if ("error" in message) {
      const { type, whose, trace } = message.error;
      debug(trace);
      if (type === "Refusal") this.#settle(message.id).reject(new UserError(message.error.message));
      else {
        const told = describe(message.error, whose === null ? "The Ray shim" : nameOf(whose));
        // Where one of them dies the others break off, and may be heard first.
        if (this.#workers.length + this.#servers.length > 1) setTimeout(() => this.#lose(told), LAST_WORDS_MS).unref();
        else this.#lose(told);
      }
      return;
    }
    this.#settle(message.id).resolve(message.ok);
  }

  #settle(id: number): Pending {
    const pending = this.#pending.get(id);
    invariant(pending !== undefined, "an answer is waited for");
    this.#pending.delete(id);
    clearTimeout(pending.timer);
    return pending;
  }

  #lose(message: string): void {
    if (this.#lost !== null) return;
    this.#lost = new EngineLost(this.#isClosing ? "The engine was closed." : message);
    for (const id of [...this.#pending.keys()]) this.#settle(id).reject(this.#lost);
    this.#losing.abort(this.#lost);
    this.#child.stdin?.end(); // the others are of no use alone
  }
}

/** Verbs that may be refused by some workers: the models of all are as they were. */
const changesNothing: ReadonlySet<string> = new Set(["describe", "load", "see"]);

/** Longer than the shim itself takes when Ray does not answer. */
const CLOSE_MS = 20_000;

/** How long after an error of one worker the death of another may be heard, and what a shim said after its own. */
const LAST_WORDS_MS = 1000;

function describe({ type, message }: z.infer<typeof failure>, where: string): string {
  const first = firstLine(message);
  if (/gloo|nccl/i.test(message)) return `${where} has lost its connection to another process: ${first}`;
  if (/running low on memory/.test(first)) return `Ray ended a worker to save its machine: ${first}${LESS}`;
  if (STORE_IS_FULL.test(type)) return `Ray's object store is full: ${first}${MORE_STORE}`;
  return `${where} stopped with ${type}: ${first}${adviceOn(`${type} ${first}`)}`;
}

const STORE_IS_FULL = /^(ObjectStoreFullError|OutOfDiskError)$/;
const MORE_STORE =
  " Give it more (`ray_kwargs.ray_init.object_store_memory`, bytes), free the disk under Ray's temporary folder, or lower " +
  "the tokens of a micro-batch.";

const LESS = " Lower the tokens of a micro-batch, use more workers, or turn gradient checkpointing on.";

/** What can be done about memory that was not enough, on a GPU or in the machine. */
function adviceOn(why: string): string {
  return /OutOfMemory|out of memory|can't allocate memory|not enough memory|low on memory/i.test(why) ? LESS : "";
}

function nameOf({ kind, rank, pid, host }: z.infer<typeof one>): string {
  return `${kind} ${rank} (process ${pid} on ${host})`;
}

/**
 * What a message begins with, as a sentence: Ray's go on with tables and advice of its own, and PyTorch's begin with a
 * place in its source.
 */
function firstLine(text: string): string {
  const [line = ""] = text
    .trim()
    .replace(/^\[[^\]]*\] */, "")
    .split("\n");
  const said = line.trimEnd().slice(0, 400);
  return /[.!?]$/.test(said) ? said : `${said}.`;
}
