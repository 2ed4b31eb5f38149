/**
 * QuickJS, compiled to WebAssembly, for one program after the other; each has its own runtime, which is then dropped.
 *
 * A program sees the language, and what `javascript-source.ts` puts into its context; the host gives it two functions,
 * to print and to exit. Stack and time are limited by QuickJS itself, whose interrupt cannot be caught; memory by the
 * host.
 */
import { Buffer } from "node:buffer";
import { stripTypeScriptTypes } from "node:module";
import type { QuickJSContext, QuickJSHandle, QuickJSRuntime, QuickJSWASMModule, Scope } from "quickjs-emscripten";
import { functionSource, PRELUDE } from "./javascript-source.ts";
import type { Outcome, Request } from "./protocol.ts";
import { RunState, Stop } from "./run-state.ts";
import { type Memory, PAGE, wasm } from "./webassembly.ts";

type Package = typeof import("quickjs-emscripten");

/** Of the 5 MB that the build has; calls in JavaScript take a few hundred bytes each. */
const STACK_BYTES = 2 * 2 ** 20;
const START_BYTES = 16 * 2 ** 20;
/** What the build can have. */
const MOST_BYTES = 2048 * 2 ** 20;
/** Memory that has grown past this is not given back: the process is replaced. */
const LARGE_BYTES = 64 * 2 ** 20;

export async function loadJavaScript(module: string): Promise<JavaScript> {
  const { newQuickJSWASMModuleFromVariant, newVariant, RELEASE_SYNC, Scope } = (await import(module)) as Package;
  stripTypes("let warm: number = 1;"); // loads the parser, which needs functions that are removed afterwards
  const memory = new wasm.Memory({ initial: START_BYTES / PAGE, maximum: MOST_BYTES / PAGE });
  const wasmMemory = memory as never; // the type is one of the browser's
  const quickjs = await newQuickJSWASMModuleFromVariant(newVariant(RELEASE_SYNC, { wasmMemory }));
  return new JavaScript(quickjs, Scope, memory);
}

class JavaScript {
  readonly snapshot = null;
  readonly #quickjs: QuickJSWASMModule;
  readonly #scopes: Package["Scope"];
  readonly #memory: Memory;
  #mostBytes = MOST_BYTES;
  #isSpent = false;

  constructor(quickjs: QuickJSWASMModule, scopes: Package["Scope"], memory: Memory) {
    this.#quickjs = quickjs;
    this.#scopes = scopes;
    this.#memory = memory;
    // QuickJS's own limit does not hold in WebAssembly, where it does not know the size of a block.
    memory.grow = (pages) => {
      if (memory.buffer.byteLength + pages * PAGE > this.#mostBytes) throw new RangeError("out of memory");
      return wasm.Memory.prototype.grow.call(memory, pages);
    };
  }

  /** This interpreter should not be given another program. */
  get isSpent(): boolean {
    return this.#isSpent;
  }

  run(request: Request, outputBytes: number): Outcome {
    const state = new RunState(request, outputBytes);
    this.#mostBytes = state.memoryBytes;
    let outcome: Outcome | null = null;
    try {
      this.#scopes.withScope((scope) => {
        outcome = new Run(scope, this.#quickjs, state).outcome();
      });
    } catch (error) {
      // A runtime that was interrupted cannot always be freed cleanly; this interpreter is not used again.
      this.#isSpent = true;
      outcome ??= state.outcome(error instanceof Stop ? error : new Stop("crash", String(error)));
    }
    this.#isSpent ||= this.#memory.buffer.byteLength > LARGE_BYTES;
    return outcome ?? state.outcome(new Stop("crash"));
  }
}

/** One program in a runtime of its own. */
class Run {
  readonly #scope: Scope;
  readonly #state: RunState;
  readonly #runtime: QuickJSRuntime;
  readonly #context: QuickJSContext;
  /** Describes what was thrown, in the program's own context. */
  #describe: QuickJSHandle | null = null;
  #stop: Stop | null = null;

  constructor(scope: Scope, quickjs: QuickJSWASMModule, state: RunState) {
    this.#scope = scope;
    this.#state = state;
    this.#runtime = scope.manage(quickjs.newRuntime());
    this.#runtime.setMaxStackSize(STACK_BYTES);
    this.#runtime.setInterruptHandler(() => {
      if (state.isOverdue()) this.#stop ??= new Stop("timeout");
      return this.#stop !== null;
    });
    this.#context = scope.manage(this.#runtime.newContext());
  }

  outcome(): Outcome {
    try {
      const end = this.#runAll();
      return this.#state.outcome(this.#stop ?? end);
    } catch (error) {
      if (!(error instanceof Stop)) throw error;
      return this.#state.outcome(error);
    }
  }

  #runAll(): Pick<Outcome, "isComplete" | "result"> {
    const { setup, code, check, call, language } = this.#state.request;
    const prelude = this.#evaluate(PRELUDE, "sandbox");
    const input = this.#keep(this.#context.newString(this.#state.request.stdin));
    const tools = this.#take(
      this.#context.callFunction(prelude, this.#context.undefined, this.#print(), this.#exit(), input),
    );
    this.#describe = this.#property(tools, "describe");
    const tick = this.#property(tools, "tick");
    for (const [source, name] of [
      [setup, "setup"],
      [code, "program"],
      [check, "check"],
    ] as const) {
      if (source === "") continue;
      const value = this.#evaluate(language === "typescript" ? this.#typed(source) : unexported(source), name);
      this.#settle(value, tick, name === "check");
    }
    if (call === null) return { isComplete: true, result: null };
    const source = functionSource(call.name);
    if (source === null) throw new Stop("error", `SyntaxError: ${JSON.stringify(call.name)} names no function`, 1);
    const target = this.#evaluate(source, "call");
    const args = this.#keep(this.#context.newString(JSON.stringify(call.args)));
    const returned = this.#invoke(this.#property(tools, "call"), target, args);
    const result = this.#invoke(this.#property(tools, "stringify"), this.#settle(returned, tick, true));
    return { isComplete: true, result: this.#context.getString(result) };
  }

  /** JavaScript of TypeScript. Anything but a mistake of the program leaves the parser unusable, and with it the process. */
  #typed(source: string): string {
    try {
      return unexported(stripTypes(source));
    } catch (error) {
      const isOfProgram = error instanceof Error && "code" in error && programErrors.has(String(error.code));
      if (!isOfProgram) throw error;
      throw new Stop("error", String(error), 1);
    }
  }

  /** Run all pending promises and timers; the value of a promise is its result. */
  #settle(value: QuickJSHandle, tick: QuickJSHandle, mustSettle: boolean): QuickJSHandle {
    do {
      const done = this.#runtime.executePendingJobs();
      if (done.error !== undefined) throw this.#raised(this.#keep(done.error));
      if (this.#stop !== null) throw this.#stop; // an interrupt ends a job, not all jobs
    } while (this.#context.dump(this.#invoke(tick)) === true);
    const promise = this.#context.getPromiseState(value);
    if (promise.type === "rejected") throw this.#raised(this.#keep(promise.error));
    if (promise.type === "pending" && mustSettle) throw new Stop("error", "a promise is never settled", 13);
    return promise.type === "fulfilled" && promise.notAPromise !== true ? this.#keep(promise.value) : value;
  }

  #evaluate(source: string, name: string): QuickJSHandle {
    return this.#take(this.#context.evalCode(source, name, { type: "global" }));
  }

  #invoke(target: QuickJSHandle, ...args: QuickJSHandle[]): QuickJSHandle {
    return this.#take(this.#context.callFunction(target, this.#context.undefined, ...args));
  }

  #take(result: ReturnType<QuickJSContext["evalCode"]>): QuickJSHandle {
    if (result.error !== undefined) throw this.#raised(this.#keep(result.error));
    return this.#keep(result.value);
  }

  #property(object: QuickJSHandle, name: string): QuickJSHandle {
    return this.#keep(this.#context.getProp(object, name));
  }

  #keep(handle: QuickJSHandle): QuickJSHandle {
    return this.#scope.manage(handle);
  }

  /** What was thrown, as the end of the program. */
  #raised(error: QuickJSHandle): Stop {
    if (this.#stop !== null) return this.#stop;
    const name = this.#keep(this.#context.getProp(error, "message"));
    const message = this.#context.typeof(name) === "string" ? this.#context.getString(name) : "";
    if (message === "out of memory") return new Stop("memory", "InternalError: out of memory", 1);
    const words =
      this.#describe === null ? null : this.#context.callFunction(this.#describe, this.#context.undefined, error);
    if (words === null || words.error !== undefined) {
      words?.error?.dispose();
      return new Stop("error", message, 1);
    }
    return new Stop("error", this.#context.getString(this.#keep(words.value)), 1);
  }

  #print(): QuickJSHandle {
    const print = this.#context.newFunction("print", (stream, text) => {
      const bytes = Buffer.from(this.#context.getString(text));
      try {
        this.#state.write(this.#context.getNumber(stream) === 2 ? 2 : 1, bytes);
      } catch (error) {
        if (error instanceof Stop) this.#stop ??= error; // the next interrupt ends the program
        throw new Error("stopped");
      }
    });
    return this.#keep(print);
  }

  #exit(): QuickJSHandle {
    const exit = this.#context.newFunction("exit", (code) => {
      const number = Number(this.#context.dump(code));
      const exitCode = Number.isInteger(number) ? number : 1;
      this.#stop ??= new Stop(exitCode === 0 ? "ok" : "error", "", exitCode);
    });
    return this.#keep(exit);
  }
}

/** How Node's parser reports a mistake of the program. */
const programErrors: ReadonlySet<string> = new Set([
  "ERR_INVALID_TYPESCRIPT_SYNTAX",
  "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX",
]);

function stripTypes(source: string): string {
  return stripTypeScriptTypes(source, { mode: "transform" });
}

/** Pieces share one scope, so they are scripts; `export` before a declaration means nothing there. */
function unexported(source: string): string {
  return source.replace(/^export\s+(?:default\s+)?(?=(?:async\s+)?function|class|const|let|var|abstract)/gm, "");
}
