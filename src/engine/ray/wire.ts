/**
 * Messages between the controller and its shim: MessagePack. The length of each message comes before it, in four bytes,
 * least significant first. A typed array is an extension: a code for its type, then its memory.
 * `python/trainyard_worker/frames.py` is the other end.
 */
import { Decoder, Encoder, ExtensionCodec } from "@msgpack/msgpack";
import { invariant } from "../../util/errors.ts";

type Numbers = Int32Array | Float32Array | Float64Array;

const TYPED_ARRAY = 0x74;
const int32 = 5;
const float32 = 7;
const float64 = 8;

const extensionCodec = new ExtensionCodec();
extensionCodec.register({ type: TYPED_ARRAY, encode: encodeArray, decode: decodeArray });

/** A message as bytes; its arrays are of int32, float32 or float64, or are bytes. */
export function pack(message: unknown): Buffer {
  // One encoder per message: the message is the encoder's own buffer, not a copy.
  const { buffer, byteOffset, byteLength } = new Encoder({ extensionCodec }).encodeSharedRef(message);
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** The message of some bytes. Bytes inside it are a view of them; arrays are copies. */
export function unpack({ buffer, byteOffset, byteLength }: Uint8Array): unknown {
  const bytes = new Uint8Array(buffer, byteOffset, byteLength); // not a Buffer, whose `slice` does not copy
  return new Decoder({ extensionCodec }).decode(bytes);
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

function encodeArray(value: unknown): Uint8Array<ArrayBuffer> | null {
  if (!ArrayBuffer.isView(value) || value instanceof Uint8Array) return null; // not an extension
  const data = new Uint8Array(1 + value.byteLength);
  data[0] = codeOf(value);
  data.set(new Uint8Array(value.buffer, value.byteOffset, value.byteLength), 1);
  return data;
}

function codeOf(value: ArrayBufferView): number {
  if (value instanceof Int32Array) return int32;
  if (value instanceof Float32Array) return float32;
  invariant(value instanceof Float64Array, `a message cannot hold a ${value.constructor.name}`);
  return float64;
}

/** Its memory is copied: that of the message may begin anywhere, and the message may be let go. */
function decodeArray(data: Uint8Array): Numbers {
  const { buffer } = data.slice(1);
  if (data[0] === int32) return new Int32Array(buffer);
  if (data[0] === float32) return new Float32Array(buffer);
  invariant(data[0] === float64, `a message holds an array of the unknown type ${data[0]}`);
  return new Float64Array(buffer);
}
