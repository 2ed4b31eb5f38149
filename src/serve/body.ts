/**
 * The JSON body of a request: it must not be too large, must be UTF-8 and an object, and must not be nested too deeply.
 *
 * Anything else is a 4xx that says what was found. The endpoints check the fields.
 */
import type { IncomingMessage } from "node:http";
import { messageOf } from "../util/errors.ts";
import { formatBytes } from "../util/format.ts";
import { ClientGone, RequestError } from "./request-error.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

/** Deeper values would overflow the stack of recursive code: chat templates, JSON writers. */
const maxDepth = 64;

/** Read and parse the body of a POST. */
export async function readBody(incoming: IncomingMessage, maxBytes: number): Promise<JsonObject> {
  checkType(incoming.headers["content-type"]);
  const value = parseJson(await readBytes(incoming, maxBytes));
  if (!isObject(value)) {
    const found = value === null ? "null" : Array.isArray(value) ? "a list" : `a ${typeof value}`;
    throw new RequestError(400, `The body is ${found}; it should be a JSON object such as {"model": "…"}.`);
  }
  checkDepth(value);
  return value;
}

/** Whether a value is a JSON object. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function checkType(type: string | undefined): void {
  const [essence = ""] = (type ?? "").toLowerCase().split(";");
  if (/^application\/([\w.-]+\+)?json$/.test(essence.trim())) return;
  const found = type === undefined ? "absent" : JSON.stringify(type.slice(0, 80));
  throw new RequestError(415, `The header Content-Type is ${found}; send JSON with Content-Type: application/json.`);
}

async function readBytes(incoming: IncomingMessage, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const take = (chunk: Uint8Array) => {
    size += chunk.length;
    if (size <= maxBytes) chunks.push(chunk);
  };
  const declared = Number(incoming.headers["content-length"] ?? 0);
  if (declared <= maxBytes && (await flow(incoming, take, maxBytes)) === "cut off")
    throw new ClientGone("The connection ended before the end of the body.");
  if (Math.max(declared, size) <= maxBytes) return Buffer.concat(chunks, size);
  throw new RequestError(
    413,
    `The body has ${formatBytes(Math.max(declared, size))}, and this server accepts at most ${formatBytes(maxBytes)} ` +
      "(`--max-body-mb`). Send fewer or shorter prompts per request.",
  );
}

/** How much of an unwanted body is read and discarded; beyond that the connection is closed. */
const maxUnwantedBytes = 64 << 20;
const maxUnwantedMs = 1000;

/**
 * Let a client that got an error finish sending: many read the answer only then, and never see it if the connection is
 * closed before. Returns whether it has finished.
 */
export async function discardBody(incoming: IncomingMessage): Promise<boolean> {
  if (incoming.readableEnded) return true;
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<"late">((resolve) => {
    timer = setTimeout(resolve, maxUnwantedMs, "late");
  });
  const end = await Promise.race([flow(incoming, () => {}, maxUnwantedBytes), timeout]);
  clearTimeout(timer);
  return end === "whole";
}

type BodyEnd = "whole" | "cut off" | "too long";

/** Pass chunks to `take` until the body ends, is cut off or is too long. */
function flow(incoming: IncomingMessage, take: (chunk: Uint8Array) => void, maxBytes: number): Promise<BodyEnd> {
  return new Promise((resolve) => {
    let left = maxBytes;
    const finish = (end: BodyEnd) => {
      incoming.off("data", onData).off("end", onEnd).off("close", onClose);
      resolve(end);
    };
    const onData = (chunk: Uint8Array) => {
      take(chunk);
      left -= chunk.length;
      if (left < 0) finish("too long");
    };
    const onEnd = () => finish("whole");
    const onClose = () => finish("cut off");
    incoming.on("data", onData).on("end", onEnd).on("close", onClose);
    if (incoming.readableEnded) onEnd();
    else if (incoming.destroyed) onClose();
  });
}

function parseJson(bytes: Uint8Array): unknown {
  if (bytes.length === 0) throw new RequestError(400, "The body is empty; it should be a JSON object.");
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    const reason = error instanceof TypeError ? "it is not UTF-8" : messageOf(error);
    throw new RequestError(400, `The body is not JSON: ${reason}.`, { cause: error });
  }
}

function checkDepth(root: JsonObject): void {
  let level: object[] = [root];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxDepth)
      throw new RequestError(400, `The body is nested more than ${maxDepth} levels deep. Flatten it.`);
    const next: object[] = [];
    for (const parent of level) {
      for (const value of Object.values(parent)) if (typeof value === "object" && value !== null) next.push(value);
    }
    level = next;
  }
}
