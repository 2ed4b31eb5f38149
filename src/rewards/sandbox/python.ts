/**
 * CPython, compiled to WebAssembly by the Pyodide project, for one program after the other.
 *
 * Nothing of Pyodide's bridge to JavaScript is used to run a program: sources are compiled and evaluated by CPython's
 * own functions, so that the bridge can be closed (`python-gate.ts`). After each program the whole memory is
 * overwritten with the copy from before the first program, so no trace of it is left for the next.
 */
import { Buffer } from "node:buffer";
import { constants } from "node:fs";
import type { Outcome, Request } from "./protocol.ts";
import { type Emscripten, PythonGate } from "./python-gate.ts";
import { callSource, FINISH, PRELOAD, SETTLE } from "./python-source.ts";
import { RunState, Stop } from "./run-state.ts";
import { wasm } from "./webassembly.ts";

/** The parts of Pyodide and of its WebAssembly that are used. */
type Pyodide = {
  readonly _module: Emscripten & Readonly<Record<string, unknown>>;
  runPython(source: string, options: { globals: unknown }): unknown;
  toPy(value: object): unknown;
  makeMemorySnapshot(): Uint8Array;
};
type PyodidePackage = { loadPyodide(options: object): Promise<Pyodide> };
type Instance = { readonly exports: { readonly __stack_pointer: { value: unknown } } };

/** CPython's `Py_file_input`: the source is a whole program. */
const FILE_INPUT = 257;
/** Memory that has grown past this is not worth clearing: the process is replaced. */
const LARGE_BYTES = 256 * 2 ** 20;

/** How an evaluation ended that did not raise. */
const ENDED = "ended";

/** Load the interpreter: from the snapshot of another one, or without one, which takes a few seconds. */
export async function loadPython(module: string, snapshot: Uint8Array | null): Promise<Python> {
  const gate = new PythonGate();
  const instances: Instance[] = [];
  const { instantiate } = wasm;
  wasm.instantiate = async (source, imports) => {
    if (imports?.wasi_snapshot_preview1 === undefined) return instantiate(source, imports);
    const compiled = await wasm.compile(source as Uint8Array); // Pyodide passes the bytes that it has read
    const instance = (await instantiate(compiled, gate.guard(compiled, imports))) as Instance;
    instances.push(instance);
    return { module: compiled, instance };
  };
  // Emscripten asks Node's internals for the flags of open(2), which the permission model refuses.
  Reflect.set(process, "binding", () => ({ fs: constants }));
  const { loadPyodide } = (await import(module)) as PyodidePackage; // its types need those of a browser
  const pyodide = await loadPyodide({
    jsglobals: Object.create(null),
    env: { PYTHONHASHSEED: "0", HOME: "/home" },
    _sysExecutable: "/bin/python3", // otherwise it would be the path of one of our files
    ...(snapshot === null ? { _makeSnapshot: true } : { _loadSnapshot: snapshot }),
  });
  wasm.instantiate = instantiate;
  const [instance] = instances;
  if (instance === undefined) throw new Error("Pyodide was loaded in a way that goes around the gate");
  if (snapshot !== null) return new Python(pyodide, gate, instance);
  pyodide.runPython(PRELOAD, { globals: pyodide.toPy({}) });
  const ownSnapshot = pyodide.makeMemorySnapshot();
  return new Python(pyodide, gate, instance, ownSnapshot);
}

class Python {
  /** From which another process starts in a fraction of the time; null if this one was started from one. */
  readonly snapshot: Uint8Array | null;
  readonly #gate: PythonGate;
  readonly #module: Pyodide["_module"];
  readonly #stack: { value: unknown };
  readonly #before: {
    readonly memory: Uint8Array;
    readonly stack: unknown;
    readonly streams: Emscripten["FS"]["streams"];
  };
  #isSpent = false;

  constructor(pyodide: Pyodide, gate: PythonGate, instance: Instance, snapshot: Uint8Array | null = null) {
    this.snapshot = snapshot;
    this.#gate = gate;
    this.#module = pyodide._module;
    this.#stack = instance.exports.__stack_pointer;
    pyodide.runPython(SETTLE, { globals: pyodide.toPy({ __name__: "settle" }) });
    const { HEAPU8, FS } = this.#module;
    HEAPU8[this.#address("Py_EMSCRIPTEN_SIGNAL_HANDLING")] = 1; // CPython now checks for signals, where we check the time
    gate.close(this.#module);
    this.#before = { memory: HEAPU8.slice(), stack: this.#stack.value, streams: [...FS.streams] };
  }

  /** This interpreter should not be given another program. */
  get isSpent(): boolean {
    return this.#isSpent;
  }

  run(request: Request, outputBytes: number): Outcome {
    const run = new RunState(request, outputBytes);
    this.#gate.begin(run);
    let outcome: Outcome;
    try {
      outcome = this.#evaluateAll(run);
    } catch (error) {
      outcome = run.outcome(error instanceof Stop ? error : explain(error, run));
    }
    this.#isSpent = outcome.status === "crash" || this.#module.HEAPU8.length > LARGE_BYTES;
    if (!this.#isSpent) this.#restore();
    return outcome;
  }

  #evaluateAll(run: RunState): Outcome {
    const { setup, code, check, call } = run.request;
    const main = this.#call("PyModule_GetDict", this.#call("PyImport_AddModule", this.#text("__main__")));
    const around = this.#call("PyDict_New");
    const pieces: [string, string, number][] = [
      [setup, "<setup>", main],
      [code, "<program>", main],
      [check, "<check>", main],
      [call === null ? "" : callSource(call.name, call.args), "<call>", around],
    ];
    let end: Stop | typeof ENDED = ENDED;
    for (const [source, name, scope] of pieces) {
      if (source === "" || end !== ENDED) continue;
      // A trace function of the program could skip the lines of the check.
      this.#call("PyEval_SetTrace", 0, 0);
      this.#call("PyEval_SetProfile", 0, 0);
      end = this.#evaluate(source, name, scope);
    }
    this.#evaluate(FINISH, "<finish>", this.#call("PyDict_New"));
    if (end !== ENDED) return run.outcome(end);
    const answer = call === null ? 0 : this.#call("PyDict_GetItemString", around, this.#text("answer"));
    return run.outcome({ isComplete: true, result: answer === 0 ? null : this.#string(answer) });
  }

  /** Compile and run a source in a scope. What it raises is printed, as Python does. */
  #evaluate(source: string, name: string, scope: number): Stop | typeof ENDED {
    if (source.includes("\0")) return new Stop("error", "SyntaxError: source code cannot contain null bytes", 1);
    this.#call("PyDict_SetItemString", scope, this.#text("__builtins__"), this.#call("PyEval_GetBuiltins"));
    const code = this.#call("Py_CompileStringExFlags", this.#text(source), this.#text(name), FILE_INPUT, 0, -1);
    if (code !== 0 && this.#call("PyEval_EvalCode", code, scope, scope) !== 0) return ENDED;
    if (this.#isRaised("SystemExit")) return this.#exit();
    const isMemory = this.#isRaised("MemoryError");
    this.#call("PyErr_Print");
    return new Stop(isMemory ? "memory" : "error", "", 1);
  }

  /** The exit code of the `SystemExit` that was raised. */
  #exit(): Stop {
    const raised = this.#call("PyErr_GetRaisedException");
    const code = this.#call("PyObject_GetAttrString", raised, this.#text("code"));
    if (code === 0 || code === this.#address("_Py_NoneStruct")) return new Stop("ok", "", 0);
    const value = this.#call("PyLong_AsLong", code);
    if (this.#call("PyErr_Occurred") === 0) return new Stop(value === 0 ? "ok" : "error", "", value);
    this.#call("PyErr_Clear");
    const words = this.#call("PyObject_Str", code);
    return new Stop("error", words === 0 ? "" : this.#string(words), 1);
  }

  #isRaised(exception: "SystemExit" | "MemoryError"): boolean {
    const type = this.#module.HEAPU32[this.#address(`PyExc_${exception}`) >>> 2]!;
    return this.#call("PyErr_ExceptionMatches", type) === 1;
  }

  /** Restore everything as it was before the program. */
  #restore(): void {
    const { memory, stack, streams } = this.#before;
    const { HEAPU8, FS } = this.#module;
    HEAPU8.set(memory);
    HEAPU8.fill(0, memory.length);
    this.#stack.value = stack;
    FS.streams.splice(0, FS.streams.length, ...streams);
  }

  /** Call a function of CPython. */
  #call(name: string, ...args: number[]): number {
    const run = this.#module[`_${name}`] as (...args: number[]) => number; // as CPython's headers say
    return run(...args) >>> 0;
  }

  /** The address of a variable of CPython. */
  #address(name: string): number {
    return Number(this.#module[`_${name}`]);
  }

  /** A text as CPython's functions take it. It is not freed, because the whole memory is restored later. */
  #text(text: string): number {
    const bytes = Buffer.from(`${text}\0`);
    const at = this.#call("malloc", bytes.length);
    if (at === 0) throw new Stop("memory", "the source does not fit into the memory");
    this.#module.HEAPU8.set(bytes, at);
    return at;
  }

  /** The text that a Python string holds. */
  #string(object: number): string {
    const at = this.#call("PyUnicode_AsUTF8", object);
    if (at === 0) return "";
    const heap = this.#module.HEAPU8;
    return Buffer.from(heap.subarray(at, heap.indexOf(0, at))).toString("utf8");
  }
}

/** A JavaScript exception that was thrown through WebAssembly. */
function explain(error: unknown, run: RunState): Stop {
  if (run.isOverdue()) return new Stop("timeout");
  if (error instanceof RangeError) return new Stop("error", "RecursionError: the interpreter's stack is full", 1);
  return new Stop("crash", String(error));
}
