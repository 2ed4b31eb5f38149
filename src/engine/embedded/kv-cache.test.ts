/**
 * The cache against lists of numbers: each token is a number, and every float of its keys and values follows from it.
 */
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readConfig } from "../../models/config.ts";
import { layerCache } from "../../models/layers.ts";
import { pastName, presentName } from "./decode-program.ts";
import { cacheBytesPerToken, KvCache } from "./kv-cache.ts";

const fixtures = join(import.meta.dirname, "../../../test/fixtures/logits-more");
const TOKENS = 64;

/** Two key heads of size 6, which take 16 in the cache; and one of 16. */
describe.each(["llama_biases", "gemma_mqa"])("a cache for %s", async (name) => {
  const config = await readConfig(join(fixtures, name));
  const [layers, tensors] = [config.layers.length, layerCache(config.layers[0]!)];
  const { heads, size } = tensors[0]!;
  const bytes = TOKENS * cacheBytesPerToken(config);

  /** The floats of one token in a slot, in every array and head. */
  function places(cache: KvCache, slot: number, at: number): { array: Float32Array; from: number; mark: number }[] {
    const bindings = cache.bindings();
    return Array.from({ length: layers }, (_, layer) => layer).flatMap((layer) =>
      tensors.flatMap(({ name: tensor }, index) =>
        Array.from({ length: heads }, (_, head) => ({
          array: bindings[presentName(layer, tensor)]!,
          from: ((slot * heads + head) * cache.capacity + at) * size,
          mark: (layer * tensors.length + index) * heads + head,
        })),
      ),
    );
  }
  const floatOf = (token: number, mark: number, i: number) => token * 1000 + mark * 20 + i;
  function write(cache: KvCache, slot: number, at: number, token: number): void {
    for (const { array, from, mark } of places(cache, slot, at)) {
      for (let i = 0; i < size; i++) array[from + i] = floatOf(token, mark, i);
    }
  }
  function expectHeld(cache: KvCache, slots: readonly (readonly number[])[]): void {
    slots.forEach((tokens, slot) => {
      tokens.forEach((token, at) => {
        for (const { array, from, mark } of places(cache, slot, at)) {
          for (let i = 0; i < size; i++) {
            if (array[from + i] !== floatOf(token, mark, i)) expect.fail(`slot ${slot}, token ${at} is not ${token}`);
          }
        }
      });
    });
  }

  test("holds as many tokens as its bytes say, in memory that is read and written under both names", () => {
    const cache = new KvCache(config, bytes + cacheBytesPerToken(config) - 1);
    expect(cache.tokens).toBe(TOKENS);
    const bindings = cache.bindings();
    for (const { name: tensor } of tensors)
      expect(bindings[pastName(0, tensor)]).toBe(bindings[presentName(0, tensor)]);
    const floats = Object.values(bindings).reduce((sum, array) => sum + array.length, 0) / 2;
    expect(floats * 4).toBe(bytes);
  });

  test("keeps what it is told to keep, through any layouts, copies and swaps", () => {
    const pick = fc.nat(1000);
    const operation = fc.record({
      what: fc.constantFrom("layOut", "write", "write", "write", "copy", "swap"),
      a: pick,
      b: pick,
      c: pick,
      token: fc.integer({ min: 1, max: 9999 }),
    });
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 40 }), (operations) => {
        const cache = new KvCache(config, bytes);
        cache.layOut(
          8,
          Array.from({ length: 8 }, () => 0),
        );
        let slots: number[][] = Array.from({ length: 8 }, () => []);
        for (const { what, a, b, c, token } of operations) {
          const [left, right] = [a % slots.length, b % slots.length];
          if (what === "layOut") {
            const capacity = 1 + (a % 20);
            const most = Math.floor(TOKENS / capacity);
            const count = b % 3 === 0 ? 1 + (c % most) : most;
            // Some are kept whole if they fit, some in part, some not.
            slots = Array.from({ length: count }, (_, slot) => {
              const fits = Math.min(capacity, slots[slot]?.length ?? 0);
              return (slots[slot] ?? []).slice(0, (c >> slot) % 4 === 0 ? fits >> 1 : fits);
            });
            const lengths = slots.map(({ length }) => length);
            cache.layOut(capacity, lengths);
            expect(cache.capacity).toBe(capacity);
          } else if (what === "write") {
            for (let more = c % 12; more > 0 && slots[left]!.length < cache.capacity; more--) {
              write(cache, left, slots[left]!.length, token + more);
              slots[left]!.push(token + more);
            }
          } else if (what === "copy") {
            const length = c % (slots[left]!.length + 1);
            cache.copy(left, right, length);
            // A slot's own tokens beyond what was copied stay.
            slots[right] = [...slots[left]!.slice(0, length), ...slots[right]!.slice(length)];
          } else {
            cache.swap(left, right, Math.max(slots[left]!.length, slots[right]!.length));
            [slots[left], slots[right]] = [slots[right]!, slots[left]!];
          }
          expectHeld(cache, slots);
        }
      }),
      { numRuns: 100 },
    );
  });

  test("more slots than there is memory for are refused", () => {
    const cache = new KvCache(config, bytes);
    expect(() => cache.layOut(10, [0, 0, 0, 0, 0, 0, 0])).toThrow("7 slots of 10 are more than there is");
  });
});
