/**
 * A lane that is a Python interpreter with one function of a Python file, sync or async. `python-driver.ts` is the
 * program that runs in it.
 *
 * Inputs and values cross as JSON: numbers of numpy and torch become plain ones, NaN and infinity are kept.
 */
import { spawn } from "node:child_process";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { ownGroup, watch } from "./child-process.ts";
import type { Call, FunctionName, LaneEvent, OpenLane } from "./lane.ts";
import { pythonDriver } from "./python-driver.ts";
import { type CallResult, failedCall, lateCall, thrownCall } from "./result.ts";

type PythonLaneOptions<Input, Output> = FunctionName & {
  /** The command of the interpreter. */
  readonly python: string;
  readonly path: string;
  /** The function of the file, and the name under which Python imports the file. */
  readonly function: string;
  readonly module: string;
  /** Python that may define `call(function, input)` and `output(value)` with `options`; see `python-driver.ts`. */
  readonly adapter?: { readonly source: string; readonly options: unknown };
  readonly timeoutMs: number;
  readonly memoryMb: number;
  /** What Python gets for an input, as JSON. */
  encode(input: Input): unknown;
  /** The output for a value that Python returned. */
  decode(value: unknown, input: Input): Output;
  /** The message for an interpreter that cannot be started. */
  noPython(error: Error): string;
  /** The message for a file without the function; `names` are the functions that it has. */
  noFunction(names: readonly string[]): string;
};

/** What the driver reports, besides what a lane reports. */
type DriverEvent =
  | Extract<LaneEvent<unknown>, { kind: "ready" | "received" | "pending" }>
  | { readonly kind: "value"; readonly id: number; readonly value: unknown }
  | { readonly kind: "threw"; readonly id: number; readonly message: string }
  | { readonly kind: "late"; readonly id: number }
  | { readonly kind: "missing"; readonly names: readonly string[] }
  | { readonly kind: "syntax"; readonly line: number | null; readonly message: string }
  | { readonly kind: "unloadable"; readonly message: string };

export function pythonLane<Input, Output>(options: PythonLaneOptions<Input, Output>): OpenLane<Input, Output> {
  const { python, path, module, adapter = { source: "", options: null }, timeoutMs, memoryMb, logPrefix } = options;
  return (report) => {
    const child = spawn(python, ["-c", pythonDriver], { ...ownGroup, stdio: "pipe" });
    child.once("error", (error) => report({ kind: "refused", message: options.noPython(error) }));
    child.stdin.on("error", () => {}); // then the process is gone, which `watch` reports
    const { stop } = watch({
      child,
      printed: [child.stderr],
      logPrefix,
      memoryMb,
      onGone: (message) => report({ kind: "gone", message }),
    });
    const calls = new Map<number, Call<Input>>();
    const write = (value: unknown) => void child.stdin.write(`${JSON.stringify(value, exactIntegers)}\n`);
    const lines = createInterface(child.stdout);
    lines.on("line", (line) => {
      const event = laneEvent(JSON.parse(line, allNumbers), calls, options); // only the driver writes here
      if (event.kind === "answer") calls.delete(event.id);
      report(event);
    });
    const { source, options: adapterOptions } = adapter;
    write({
      path: resolve(path),
      function: options.function,
      module,
      adapter: source,
      adapterOptions,
      timeoutMs,
      memoryMb,
    });
    return {
      send(sent) {
        for (const call of sent) calls.set(call.id, call);
        write(sent.map(({ id, input }) => ({ id, input: options.encode(input) })));
      },
      stop() {
        lines.removeAllListeners("line");
        return stop();
      },
    };
  };
}

function laneEvent<Input, Output>(
  event: DriverEvent,
  calls: ReadonlyMap<number, Call<Input>>,
  options: PythonLaneOptions<Input, Output>,
): LaneEvent<Output> {
  const { path } = options;
  switch (event.kind) {
    case "value": {
      const { id, value } = event;
      return { kind: "answer", id, result: decoded(value, calls.get(id), options) };
    }
    case "threw":
      return { kind: "answer", id: event.id, result: failedCall("threw", `raised ${event.message}`) };
    case "late":
      return { kind: "answer", id: event.id, result: lateCall(options.timeoutMs) };
    case "missing":
      return { kind: "refused", message: options.noFunction(event.names) };
    case "syntax": {
      const place = event.line === null ? path : `${path}, line ${event.line}`;
      return { kind: "refused", message: `${place} does not compile: ${event.message}.` };
    }
    case "unloadable":
      return { kind: "refused", message: `${path} cannot be loaded: it raised ${event.message}.` };
    default:
      return event;
  }
}

function decoded<Input, Output>(
  value: unknown,
  call: Call<Input> | undefined,
  { decode, path }: PythonLaneOptions<Input, Output>,
): CallResult<Output> {
  if (call === undefined) return failedCall("threw", "answered a call that was not sent");
  try {
    return { output: decode(value, call.input) };
  } catch (error) {
    return thrownCall(error, path);
  }
}

/** JSON has no big integers. One that a number can hold exactly becomes a number, any other a text. */
function exactIntegers(_key: string, value: unknown): unknown {
  if (typeof value !== "bigint") return value;
  return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
}

/** `{"$number": "NaN"}` is how the driver writes the numbers that JSON cannot write. */
function allNumbers(_key: string, value: unknown): unknown {
  return typeof value === "object" && value !== null && "$number" in value ? Number(value.$number) : value;
}
