/**
 * The main loop of an interpreter's process: read a program, run it, write its outcome, and so on.
 *
 * The sandbox starts it under Node's permission model, without an environment, without code from strings. The rest of
 * Node is removed here before the first program: the network, which the permission model does not cover, and signals to
 * other processes. Nothing is asynchronous after that; the process ends when its pipe is closed.
 */
import { Buffer } from "node:buffer"; // by import, because the global one is removed
import { readSync, writeSync } from "node:fs";
import { type Boot, header, type Interpreter, jsonFrame, type Outcome, type Reply, type Request } from "./protocol.ts";

/** Runs one program at a time. */
type Host = {
  readonly snapshot: Uint8Array | null;
  readonly isSpent: boolean;
  run(request: Request, outputBytes: number): Outcome;
};

const PIPE = 3;

/** What stays of the global object: the language itself, and what the interpreters' own code uses. */
const kept: ReadonlySet<string> = new Set([
  "Object",
  "Function",
  "Array",
  "Number",
  "Boolean",
  "String",
  "Symbol",
  "BigInt",
  "Math",
  "JSON",
  "Date",
  "RegExp",
  "Promise",
  "Proxy",
  "Reflect",
  "Map",
  "Set",
  "WeakMap",
  "WeakSet",
  "WeakRef",
  "Iterator",
  "FinalizationRegistry",
  "Error",
  "AggregateError",
  "EvalError",
  "RangeError",
  "ReferenceError",
  "SyntaxError",
  "TypeError",
  "URIError",
  "ArrayBuffer",
  "SharedArrayBuffer",
  "DataView",
  "Atomics",
  "Int8Array",
  "Uint8Array",
  "Uint8ClampedArray",
  "Int16Array",
  "Uint16Array",
  "Int32Array",
  "Uint32Array",
  "BigInt64Array",
  "BigUint64Array",
  "Float16Array",
  "Float32Array",
  "Float64Array",
  "parseInt",
  "parseFloat",
  "isNaN",
  "isFinite",
  "undefined",
  "NaN",
  "Infinity",
  "globalThis",
  "WebAssembly",
  "TextEncoder",
  "TextDecoder",
  "performance",
]);

const boot = JSON.parse(text(readFrame())) as Boot; // from the sandbox, which is trusted
const snapshot = readFrame();
const host: Host = await load(boot.interpreter, snapshot.length === 0 ? null : snapshot);
for (const name of Reflect.ownKeys(globalThis))
  if (typeof name === "string" && !kept.has(name)) Reflect.deleteProperty(globalThis, name);
write(jsonFrame({ isReady: true }));
write(header(host.snapshot?.length ?? 0));
write(host.snapshot ?? new Uint8Array());

while (!host.isSpent) {
  const bytes = readFrame();
  if (bytes.length === 0) break; // the sandbox is gone
  const request = JSON.parse(text(bytes)) as Request; // from the sandbox, which is trusted
  const outcome = host.run(request, boot.outputBytes);
  write(jsonFrame({ ...outcome, id: request.id, isSpent: host.isSpent } satisfies Reply));
}

async function load(interpreter: Interpreter, snapshot: Uint8Array | null): Promise<Host> {
  if (interpreter === "python") return (await import("./python.ts")).loadPython(boot.module, snapshot);
  return (await import("./javascript.ts")).loadJavaScript(boot.module);
}

/** The next frame; empty if there will be no more. */
function readFrame(): Uint8Array {
  const length = readBytes(4);
  return length.length < 4 ? Buffer.alloc(0) : readBytes(length.readUInt32LE());
}

function readBytes(count: number): Buffer {
  const bytes = Buffer.alloc(count);
  let at = 0;
  while (at < count) {
    const read = readSync(PIPE, bytes, at, count - at, null);
    if (read === 0) break;
    at += read;
  }
  return bytes.subarray(0, at);
}

function write(bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(PIPE, bytes, at, bytes.length - at);
}

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
}
