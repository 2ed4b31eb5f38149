/** What is written can be read back by the rules of the wire format. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { Message } from "./protobuf.ts";

/** One field as the wire has it: its number, its wire type, and its payload. */
type Field = { readonly field: number; readonly type: number; readonly value: bigint | Uint8Array };

function read(bytes: Uint8Array): Field[] {
  const fields: Field[] = [];
  let at = 0;
  const varint = () => {
    let result = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]!;
      result |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return result;
    }
  };
  const take = (length: number) => {
    at += length;
    return bytes.subarray(at - length, at);
  };
  while (at < bytes.length) {
    const key = Number(varint());
    const type = key % 8;
    const value = type === 0 ? varint() : take(type === 5 ? 4 : Number(varint()));
    fields.push({ field: Math.floor(key / 8), type, value });
  }
  return fields;
}

const fieldNumber = fc.integer({ min: 1, max: 2000 });

test("integers of any size and sign are read back", () => {
  fc.assert(
    fc.property(fieldNumber, fc.maxSafeInteger(), (field, value) => {
      const [only] = read(new Message().int(field, value).finish());
      expect(only).toEqual({ field, type: 0, value: BigInt.asUintN(64, BigInt(value)) });
    }),
  );
});

test("single precision numbers are read back", () => {
  fc.assert(
    fc.property(fieldNumber, fc.float({ noNaN: true }), (field, value) => {
      const [only] = read(new Message().float(field, value).finish());
      const bytes = only!.value as Uint8Array; // wire type 5
      expect(only!.type).toBe(5);
      expect(new DataView(bytes.buffer, bytes.byteOffset).getFloat32(0, true)).toBe(value);
    }),
  );
});

test("strings, bytes and nested messages are read back in the order they were written", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme", maxLength: 200 }), fc.uint8Array({ maxLength: 300 }), (text, bytes) => {
      const inner = new Message().string(1, text).bytes(2, bytes);
      const outer = read(new Message().int(7, 1).message(5, inner).message(5, inner).finish());
      expect(outer.map(({ field }) => field)).toEqual([7, 5, 5]);
      const [first, second] = read(outer[2]!.value as Uint8Array); // a length-delimited field
      expect(new TextDecoder().decode(first!.value as Uint8Array)).toBe(text);
      expect(second!.value).toEqual(bytes);
    }),
  );
});

test("an empty message has no bytes, and can be part of another", () => {
  expect(new Message().finish()).toEqual(new Uint8Array());
  expect(read(new Message().message(3, new Message()).finish())).toEqual([
    { field: 3, type: 2, value: new Uint8Array() },
  ]);
});

test("a message may have as many fields as a large model has nodes", () => {
  const inner = new Message();
  for (let i = 0; i < 300_000; i++) inner.int(1, i);
  const [only] = read(new Message().message(2, inner).finish());
  expect(only!.value).toEqual(inner.finish());
});
