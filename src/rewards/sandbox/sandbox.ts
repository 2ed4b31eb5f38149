/**
 * Runs programs that a model wrote, in Python, JavaScript or TypeScript: isolated, and one at a time per process.
 *
 * Processes are started when they are needed and reused; a program leaves no trace for the next. A program has no
 * network, no files, no processes and no environment, and its memory, time and output are limited. It ends with one of a
 * few statuses; whatever it does, `run` gives an outcome and nothing else happens.
 * docs/code-rewards.md says how.
 */
import { randomUUID } from "node:crypto";
import { availableParallelism } from "node:os";
import { UserError, unknownName } from "../../util/errors.ts";
import { type Confined, CPU_SECONDS, confine } from "./confinement.ts";
import { InterpreterProcess } from "./interpreter.ts";
import { type Call, type Interpreter, type Language, languages, type Outcome, type Request } from "./protocol.ts";

export type { Call, Language, Outcome, Status } from "./protocol.ts";

type SandboxOptions = {
  /** Programs that may run at once, in each language; one per core if absent. */
  readonly threads?: number;
  /** The memory limit of programs that state none, and the highest limit that one may state. */
  readonly memoryMb?: number;
  /** A program that prints more than this is ended. */
  readonly outputBytes?: number;
};

/** A program to run. Its pieces (`setup`, `code`, `check`) run one after the other in one scope. */
export type Program = {
  readonly language: Language;
  readonly code: string;
  /** Before the code, such as imports that every program may rely on. */
  readonly setup?: string;
  /** After the code, such as assertions about what it defines. */
  readonly check?: string;
  /** A function to call at the end; `result` is what it returned. */
  readonly call?: Call;
  readonly stdin?: string;
  readonly timeoutMs: number;
  readonly memoryMb?: number;
};

/** An interpreter takes a good part of this for itself. */
const LEAST_MEMORY_MB = 64;
/** The limit of 32-bit WebAssembly. */
const MOST_MEMORY_MB = 4000;
/** After this much work a process is replaced, before the system's limit would end it during a program. */
const MOST_BUSY_MS = (CPU_SECONDS * 1000) / 2;

/** Make a sandbox. Nothing runs until it is given a program. */
export async function openSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const { threads = availableParallelism(), memoryMb = 1024, outputBytes = 4 * 2 ** 20 } = options;
  if (!Number.isInteger(threads) || threads < 1)
    throw new UserError(`The code sandbox has \`threads\` ${threads}. Give a whole number from 1.`);
  if (!Number.isInteger(outputBytes) || outputBytes < 1)
    throw new UserError(`The code sandbox has \`outputBytes\` ${outputBytes}. Give a whole number from 1.`);
  checkMemory(memoryMb, MOST_MEMORY_MB);
  return new Sandbox({ threads, memoryMb, outputBytes });
}

export class Sandbox {
  readonly #options: Required<SandboxOptions>;
  readonly #lanes: Record<Interpreter, Lane>;
  #isClosed = false;

  constructor(options: Required<SandboxOptions>) {
    this.#options = options;
    this.#lanes = { python: new Lane("python", options), javascript: new Lane("javascript", options) };
  }

  /** Run a program to its end, or to one of its limits. */
  async run(program: Program): Promise<Outcome> {
    if (this.#isClosed) throw new Error("internal: the code sandbox was closed");
    const { language, code, setup = "", check = "", call = null, stdin = "", timeoutMs } = program;
    const { memoryMb = this.#options.memoryMb } = program;
    if (!languages.includes(language)) throw unknownName("The language of a program", language, languages);
    if (!(timeoutMs > 0 && timeoutMs <= MOST_BUSY_MS))
      throw new UserError(`A program has \`timeoutMs\` ${timeoutMs}. Give a time above 0 and up to ${MOST_BUSY_MS}.`);
    checkMemory(memoryMb, this.#options.memoryMb);
    const request = { id: randomUUID(), language, setup, code, check, call, stdin, timeoutMs, memoryMb };
    return this.#lanes[language === "python" ? "python" : "javascript"].run(request);
  }

  /** End all programs and their processes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(Object.values(this.#lanes).map((lane) => lane.close()));
  }
}

type Job = {
  readonly request: Request;
  /** It has crashed an interpreter once. */
  readonly hasCrashed: boolean;
  resolve(outcome: Outcome): void;
  reject(error: unknown): void;
};

/** The processes of one interpreter, and the programs that wait for one. */
class Lane {
  readonly #interpreter: Interpreter;
  readonly #options: Required<SandboxOptions>;
  readonly #jobs: Job[] = [];
  readonly #all = new Set<InterpreterProcess>();
  readonly #idle: InterpreterProcess[] = [];
  #confined: Confined | null = null;
  #starting = 0;
  #isClosed = false;
  #snapshot: Uint8Array | null = null;

  constructor(interpreter: Interpreter, options: Required<SandboxOptions>) {
    this.#interpreter = interpreter;
    this.#options = options;
  }

  run(request: Request): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#jobs.push({ request, hasCrashed: false, resolve, reject });
      this.#pump();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const job of this.#jobs.splice(0)) job.reject(new Error("internal: the code sandbox was closed"));
    await Promise.all([...this.#all].map((process) => process.end()));
  }

  /** Give waiting programs to idle processes, and start processes for the others. */
  #pump(): void {
    for (let process = this.#idle.pop(); process !== undefined; process = this.#idle.pop()) {
      if (!this.#isFit(process)) {
        this.#drop(process);
        continue;
      }
      const job = this.#jobs.shift();
      if (job === undefined) {
        this.#idle.push(process);
        break;
      }
      void this.#give(job, process);
    }
    const free = this.#options.threads - this.#all.size;
    const wanted = Math.min(this.#jobs.length - this.#starting, free);
    // The first Python takes seconds; later ones start from its snapshot, so they wait for it.
    const isFirst = this.#interpreter === "python" && this.#snapshot === null;
    const count = isFirst ? Math.min(wanted, 1 - this.#starting) : wanted;
    for (let i = 0; i < count; i++) void this.#start();
  }

  async #give(job: Job, process: InterpreterProcess): Promise<void> {
    const outcome = await process.run(job.request);
    // A crash may come from what an earlier program left behind, so it counts only if a new process crashes too.
    if (outcome.status === "crash" && !job.hasCrashed && !this.#isClosed)
      this.#jobs.unshift({ ...job, hasCrashed: true });
    else job.resolve(outcome);
    if (outcome.status === "crash") this.#drop(process);
    else if (this.#isFit(process)) this.#idle.push(process);
    else this.#drop(process);
    this.#pump();
  }

  #isFit(process: InterpreterProcess): boolean {
    return process.isUsable && process.busyMs < MOST_BUSY_MS;
  }

  #drop(process: InterpreterProcess): void {
    this.#all.delete(process);
    void process.end();
  }

  async #start(): Promise<void> {
    this.#starting++;
    let process: InterpreterProcess | null = null;
    try {
      this.#confined ??= confine(this.#interpreter, this.#options.memoryMb);
      process = new InterpreterProcess({
        interpreter: this.#interpreter,
        confined: this.#confined,
        outputBytes: this.#options.outputBytes,
        snapshot: this.#snapshot,
      });
      this.#all.add(process);
      await process.boot();
      this.#snapshot ??= process.snapshot;
      process.snapshot = null;
      this.#idle.push(process);
    } catch (error) {
      if (process !== null) this.#drop(process);
      for (const job of this.#jobs.splice(0)) job.reject(error);
    } finally {
      this.#starting--;
      this.#pump();
    }
  }
}

function checkMemory(memoryMb: number, most: number): void {
  if (Number.isInteger(memoryMb) && memoryMb >= LEAST_MEMORY_MB && memoryMb <= most) return;
  throw new UserError(
    `A program is to have ${memoryMb} MB of memory. Give a whole number from ${LEAST_MEMORY_MB} to ${most}.`,
  );
}
