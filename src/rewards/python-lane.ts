/**
 * A lane that is a Python interpreter with verl's kind of reward function:
 * `compute_score(data_source, solution_str, ground_truth, extra_info, **reward_kwargs)`, sync or async, or one that takes
 * lists of these. `python-driver.ts` is what runs in it.
 */
import { spawn } from "node:child_process";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { checkBatch, checkReward } from "./check.ts";
import { DEFAULT_NAME, noExport, type RewardFile } from "./custom.ts";
import { ownGroup, watch } from "./killable.ts";
import type { Call, LaneEvent, OpenLane } from "./lane.ts";
import { failed, overdue } from "./outcome.ts";
import { pythonDriver } from "./python-driver.ts";
import type { RewardInput } from "./reward.ts";

export type PythonSettings = {
  readonly source: RewardFile;
  readonly timeoutMs: number;
  readonly memoryMb: number;
  /** The command of the interpreter. */
  readonly python: string;
};

/** What the driver says, besides what a lane says. */
type DriverEvent =
  | Extract<LaneEvent, { kind: "ready" | "received" | "pending" }>
  | { readonly kind: "value"; readonly id: number; readonly value: unknown }
  | { readonly kind: "threw"; readonly id: number; readonly message: string }
  | { readonly kind: "late"; readonly id: number }
  | { readonly kind: "missing"; readonly names: readonly string[] }
  | { readonly kind: "syntax"; readonly line: number | null; readonly message: string }
  | { readonly kind: "unloadable"; readonly message: string };

export function pythonLane(settings: PythonSettings): OpenLane {
  const { source, timeoutMs, memoryMb, python } = settings;
  const { path, name = DEFAULT_NAME, kwargs = {}, isBatch = false } = source;
  return (say) => {
    const child = spawn(python, ["-c", pythonDriver], { ...ownGroup, stdio: "pipe" });
    child.once("error", (error) => say({ kind: "refused", message: noPython(path, python, error) }));
    child.stdin.on("error", () => {}); // then the process is gone, which `watch` tells
    const { stop } = watch({
      child,
      printed: [child.stderr],
      memoryMb,
      onGone: (message) => say({ kind: "gone", message }),
    });
    const calls = new Map<number, Call>();
    const write = (value: unknown) => void child.stdin.write(`${JSON.stringify(value, exact)}\n`);
    const lines = createInterface(child.stdout);
    lines.on("line", (line) => {
      const event = laneEvent(JSON.parse(line, numbers), calls, settings); // the driver alone writes here
      if (event.kind === "answer") calls.delete(event.id);
      say(event);
    });
    write({ path: resolve(path), name, kwargs, isBatch, timeoutMs, memoryMb });
    return {
      send(sent) {
        for (const call of sent) calls.set(call.id, call);
        write(sent.map(({ id, inputs }) => ({ id, samples: inputs.map(verlSample) })));
      },
      stop() {
        lines.removeAllListeners("line");
        return stop();
      },
    };
  };
}

/** A sample under the names of verl's arguments. */
function verlSample({ dataSource, response, groundTruth, extraInfo }: RewardInput): object {
  return { data_source: dataSource, solution_str: response, ground_truth: groundTruth ?? null, extra_info: extraInfo };
}

function laneEvent(event: DriverEvent, calls: ReadonlyMap<number, Call>, settings: PythonSettings): LaneEvent {
  const { path, name = DEFAULT_NAME, isBatch = false } = settings.source;
  const inputs = "id" in event ? (calls.get(event.id)?.inputs ?? []) : [];
  switch (event.kind) {
    case "value": {
      const { id, value } = event;
      const outcomes = isBatch ? checkBatch(value, inputs) : inputs.map((input) => checkReward(value, input));
      return { kind: "answer", id, outcomes };
    }
    case "threw": {
      const message = `raised ${event.message}`;
      return { kind: "answer", id: event.id, outcomes: inputs.map((input) => failed(input, "threw", message)) };
    }
    case "late": {
      const message = overdue(settings.timeoutMs);
      return { kind: "answer", id: event.id, outcomes: inputs.map((input) => failed(input, "deadline", message)) };
    }
    case "missing":
      return { kind: "refused", message: noExport(path, name, event.names).message };
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

function noPython(path: string, python: string, error: Error): string {
  return (
    `\`custom_reward_function.path\` is ${path}, which needs Python, and \`${python}\` cannot be started ` +
    `(${error.message}). Install Python 3.9 or newer, or write the reward function in TypeScript.`
  );
}

/** JSON has no big integers; those that a number holds exactly become one, others a text. */
function exact(_key: string, value: unknown): unknown {
  if (typeof value !== "bigint") return value;
  return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
}

/** `{"$number": "NaN"}` is how the driver writes what JSON has no word for. */
function numbers(_key: string, value: unknown): unknown {
  return typeof value === "object" && value !== null && "$number" in value ? Number(value.$number) : value;
}
