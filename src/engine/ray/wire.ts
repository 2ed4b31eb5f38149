/**
 * Messages between the controller and its shim: MessagePack. The length of each message comes before it, in four bytes,
 * least significant first. A typed array is msgpackr's own extension; `python/trainyard_worker/frames.py` is the other
 * end.
 */
import { Packr } from "msgpackr";

const packr = new Packr({ useRecords: false, moreTypes: true, encodeUndefinedAsNil: true });

export function pack(message: unknown): Buffer {
  return packr.pack(message);
}

export function unpack(data: Uint8Array): unknown {
  return packr.unpack(data);
}

/** A message as it is written to a stream. */
export function framed(message: unknown): Buffer {
  const data = pack(message);
  const head = Buffer.alloc(4);
  head.writeUInt32LE(data.length);
  return Buffer.concat([head, data]);
}

/** Splits a stream into messages, however its bytes arrive. */
export class FrameReader {
  #parts: Buffer[] = [];
  #held = 0;

  /** The messages that are complete with these bytes. */
  push(bytes: Buffer): unknown[] {
    this.#parts.push(bytes);
    this.#held += bytes.length;
    const messages: unknown[] = [];
    for (let size = this.#next(); size !== null; size = this.#next()) {
      const [all] = this.#parts;
      messages.push(unpack(all!.subarray(4, size)));
      this.#parts = [all!.subarray(size)];
      this.#held -= size;
    }
    return messages;
  }

  /** The size of the first frame if all of it has arrived (it is then in one buffer); else null. */
  #next(): number | null {
    if (this.#held < 4) return null;
    if (this.#parts[0]!.length < 4) this.#parts = [Buffer.concat(this.#parts)];
    const size = 4 + this.#parts[0]!.readUInt32LE();
    if (this.#held < size) return null;
    if (this.#parts.length > 1) this.#parts = [Buffer.concat(this.#parts)];
    return size;
  }
}
