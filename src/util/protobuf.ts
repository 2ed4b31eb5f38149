/**
 * As much of the protobuf wire format as ONNX models and tracker files need: varints, and length-delimited fields.
 * https://protobuf.dev/programming-guides/encoding
 */

/** A message under construction. Fields are written in the order of the calls. */
export class Message {
  readonly #parts: Uint8Array[] = [];
  #size = 0;

  /** A whole number field (int32, int64, enum). */
  int(field: number, value: number): this {
    return this.#raw([varint(field * 8), varint(value)]);
  }

  float(field: number, value: number): this {
    return this.#raw([varint(field * 8 + 5), new Uint8Array(Float32Array.of(value).buffer)]);
  }

  string(field: number, value: string): this {
    return this.bytes(field, new TextEncoder().encode(value));
  }

  bytes(field: number, value: Uint8Array): this {
    return this.#raw([varint(field * 8 + 2), varint(value.length), value]);
  }

  message(field: number, value: Message): this {
    this.#raw([varint(field * 8 + 2), varint(value.#size)]);
    return this.#raw(value.#parts);
  }

  /** The bytes of the whole message. */
  finish(): Uint8Array {
    const result = new Uint8Array(this.#size);
    let at = 0;
    for (const part of this.#parts) {
      result.set(part, at);
      at += part.length;
    }
    return result;
  }

  #raw(parts: readonly Uint8Array[]): this {
    for (const part of parts) {
      this.#parts.push(part);
      this.#size += part.length;
    }
    return this;
  }
}

/** Little-endian groups of seven bits; a negative number is its 64-bit two's complement. */
function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    bytes.push(rest === 0n ? low : low | 0x80);
  } while (rest !== 0n);
  return Uint8Array.from(bytes);
}
