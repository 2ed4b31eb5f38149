import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FrameReader, framed, pack, unpack } from "./wire.ts";

describe("messages", () => {
  test("arrays keep their type and every bit, wherever they are in memory", () => {
    const floats = Float32Array.of(1.5, -0, Number.NaN, Infinity, 1e-45);
    const ints = new Int32Array(new SharedArrayBuffer(12)).fill(-7);
    const odd = new Float64Array([9, 8, 7]).subarray(1);
    expect(unpack(pack({ floats, ints, odd, none: null, list: [1, "a", true] }))).toEqual({
      floats,
      ints: Int32Array.of(-7, -7, -7),
      odd: Float64Array.of(8, 7),
      none: null,
      list: [1, "a", true],
    });
  });

  test("an array of another type is refused, where Python would read it as bytes", () => {
    expect(() => pack({ counts: Uint32Array.of(1) })).toThrow("internal: a message cannot hold a Uint32Array");
  });

  test("are read from a stream as they were written, however its bytes arrive", () => {
    const message = fc.record({
      id: fc.nat(),
      bytes: fc.uint8Array({ maxLength: 300 }),
      text: fc.string(),
    });
    fc.assert(
      fc.property(fc.array(message, { maxLength: 8 }), fc.array(fc.integer({ min: 1, max: 97 })), (messages, sizes) => {
        const stream = Buffer.concat(messages.map(framed));
        const reader = new FrameReader();
        const received: unknown[] = [];
        let at = 0;
        for (let i = 0; at < stream.length; i++) {
          const size = sizes[i % Math.max(1, sizes.length)] ?? 64;
          received.push(...reader.push(stream.subarray(at, at + size)));
          at += size;
        }
        expect(received).toEqual(messages);
      }),
    );
  });
});
