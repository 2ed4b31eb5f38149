/**
 * The engine thread: it owns the sessions and does the work that would block the main thread.
 *
 * Requests are answered in order, one at a time. Arrays arrive as views of shared memory, so nothing is copied on the
 * way. `Calls` is the whole protocol; `runtime.ts` is the other end.
 */
import { createHash } from "node:crypto";
import { parentPort, workerData } from "node:worker_threads";
import type { InferenceSession, Tensor } from "onnxruntime-node";
import { type Bindings, evaluate, evaluateShape } from "../graph/shape.ts";
import type { Program } from "../onnx/emit.ts";
import type { Port } from "../onnx/writer.ts";
import { invariant, messageOf, UserError } from "../util/errors.ts";
import { explainDevice, type SessionSettings, sessionOptions } from "./devices.ts";
import { loadOnnxruntime } from "./onnxruntime.ts";
import { type AdamW, scatterAdd } from "./optimizer.ts";
import { OptimizerPool } from "./optimizer-pool.ts";
import type { Arena } from "./vectors.ts";
import { type CopyMode, runInto } from "./zero-copy.ts";

type Numbers = Float32Array | Int32Array;
export type Arrays = Readonly<Record<string, Numbers>>;
type RunRequest = {
  readonly session: number;
  readonly bindings: Bindings;
  /** Arrays by the name of their input or output; those of `groups` are not sent again. */
  readonly arrays: Arrays;
  readonly groups: readonly BoundGroup[];
};
/**
 * A bound group; with `firstRow`, its arrays are longer than the tensors, which begin at that row of the first axis.
 */
export type BoundGroup = { readonly id: number; readonly firstRow?: number };

/** What the main thread may call, with the results. */
export type Calls = {
  load(program: Program): Promise<number>;
  run(request: RunRequest): Promise<void>;
  bind(group: number, arrays: Arrays): Promise<void>;
  unbind(group: number): Promise<void>;
  adamw(arenas: readonly Arena[], options: AdamW): Promise<void>;
  gradientNorm(arenas: readonly Arena[]): Promise<number>;
  scatterAdd(into: Float32Array, ids: Int32Array, rows: Float32Array, width: number): Promise<void>;
  /** Answered when all earlier calls are done. */
  stop(): Promise<void>;
};

export type ThreadSettings = SessionSettings & {
  readonly copyMode: CopyMode;
  /** In shared memory: not 0 once the engine is being closed; calls that still wait are then refused. */
  readonly isClosing: Int32Array;
};

type Loaded = { readonly session: InferenceSession; readonly program: Program };

const onnxruntime = loadOnnxruntime();
onnxruntime.env.logLevel = "fatal"; // errors are thrown, and whoever catches them prints them once

/** The engine behind the protocol; a value of its own so that it can be tested without a thread. */
function makeEngine(settings: Omit<ThreadSettings, "isClosing">): Calls {
  const sessions: Loaded[] = [];
  const byHash = new Map<string, number>();
  const groups = new Map<number, Arrays>();
  const optimizer = new OptimizerPool(settings.threads);

  const find = (request: RunRequest, port: Port, shape: readonly number[]): Numbers => {
    const given = request.arrays[port.name];
    if (given !== undefined) return given;
    for (const { id, firstRow } of request.groups) {
      const array = groups.get(id)?.[port.name];
      if (array === undefined) continue;
      if (firstRow === undefined) return array;
      const size = shape.reduce((a, b) => a * b, 1);
      const start = firstRow * (size / shape[0]!);
      return array.subarray(start, start + size);
    }
    throw new Error(`internal: no array was given for ${port.name}`);
  };
  const tensors = (request: RunRequest, ports: readonly Port[]): Record<string, Tensor> =>
    Object.fromEntries(
      ports.map((port) => {
        const shape = evaluateShape(port.shape, request.bindings);
        return [port.name, tensor(port, shape, find(request, port, shape))];
      }),
    );

  return {
    async load(program) {
      const hash = createHash("sha256").update(program.bytes).digest("hex");
      const known = byHash.get(hash);
      if (known !== undefined) return known;
      const session = await createSession(program, settings);
      byHash.set(hash, sessions.length);
      return sessions.push({ session, program }) - 1;
    },
    async run(request) {
      const { session, program } = sessions[request.session]!;
      const feeds = tensors(request, program.inputs);
      for (const symbol of program.symbols) {
        feeds[`dim.${symbol}`] = new onnxruntime.Tensor(
          "int64",
          BigInt64Array.of(BigInt(evaluate(symbol, request.bindings))),
          [1],
        );
      }
      const fetches = tensors(request, program.outputs);
      for (const [name, { data }] of Object.entries(fetches)) {
        invariant(
          (data as Numbers).buffer instanceof SharedArrayBuffer, // both kinds of tensor hold one of `Numbers`
          `the array for ${name} is not in shared memory, so the main thread would not see what is written to it`,
        );
      }
      await runInto(session, feeds, fetches, settings.copyMode);
    },
    async bind(group, arrays) {
      groups.set(group, { ...groups.get(group), ...arrays });
    },
    async unbind(group) {
      groups.delete(group);
    },
    adamw: (arenas, options) => optimizer.adamw(arenas, options),
    gradientNorm: (arenas) => optimizer.gradientNorm(arenas),
    async scatterAdd(into, ids, rows, width) {
      scatterAdd(into, ids, rows, width);
    },
    async stop() {},
  };
}

async function createSession(program: Program, settings: SessionSettings): Promise<InferenceSession> {
  try {
    return await onnxruntime.InferenceSession.create(program.bytes, sessionOptions(settings));
  } catch (error) {
    throw explainDevice(settings.device, error);
  }
}

function tensor(port: Port, shape: number[], data: Numbers): Tensor {
  const size = shape.reduce((a, b) => a * b, 1);
  const kind = data instanceof Float32Array ? "f32" : "i32";
  invariant(
    data.length === size && kind === port.dtype,
    `${port.name} is ${port.dtype}[${shape}], but the array holds ${data.length} ${kind}`,
  );
  return kind === "f32"
    ? new onnxruntime.Tensor("float32", data as Float32Array, shape)
    : new onnxruntime.Tensor("int32", data as Int32Array, shape);
}

export type Request = { readonly id: number; readonly call: keyof Calls; readonly args: readonly unknown[] };
export type Reply = { readonly id: number } & (
  | { readonly value: unknown }
  | { readonly error: string; readonly isUser: boolean }
);

/** Serve requests from the main thread. */
function serve(engine: Calls, isClosing: Int32Array): void {
  const port = parentPort;
  if (port === null) return;
  let queue = Promise.resolve();
  port.on("message", ({ id, call, args }: Request) => {
    queue = queue.then(async () => {
      try {
        invariant(call === "stop" || Atomics.load(isClosing, 0) === 0, "the engine was closed");
        const method = engine[call] as (...args: readonly unknown[]) => Promise<unknown>; // `Request` pairs the two
        port.postMessage({ id, value: await method(...args) } satisfies Reply);
      } catch (error) {
        port.postMessage({ id, error: messageOf(error), isUser: error instanceof UserError } satisfies Reply);
      }
    });
  });
}

if (parentPort !== null && workerData !== null) {
  const settings = workerData as ThreadSettings; // set by `runtime.ts`
  serve(makeEngine(settings), settings.isClosing);
}
