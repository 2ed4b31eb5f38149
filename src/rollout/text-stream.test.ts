/** Streams of real tokenizers with stop texts: what is returned, what is held back, and where it ends. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { streamDecoder } from "../text/stream.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { textStream } from "./text-stream.ts";

const fixtures = join(import.meta.dirname, "../../test/fixtures/text");
const texts: string[] = JSON.parse(readFileSync(join(fixtures, "texts.json"), "utf8"));
const kinds = readdirSync(fixtures).filter((name) => existsSync(join(fixtures, name, "expected.json")));

/** The stop text whose last character comes first, the longest of those; character by character. */
function cutBefore(text: string, stops: readonly string[]): { text: string; stop: string | null } {
  for (let end = 1; end <= text.length; end++) {
    const met = stops.filter((stop) => text.slice(0, end).endsWith(stop)).sort((a, b) => b.length - a.length)[0];
    if (met !== undefined) return { text: text.slice(0, end - met.length), stop: met };
  }
  return { text, stop: null };
}

function listen(tokenizer: Tokenizer, ids: readonly number[], stops: readonly string[]) {
  const stream = textStream(tokenizer, stops);
  let text = "";
  for (const id of ids) {
    const pushed = stream.push(id);
    text += pushed.text;
    if (pushed.stop !== null) return { text, stop: pushed.stop };
  }
  const last = stream.end();
  return { text: text + last.text, stop: last.stop };
}

/** Tokens of a text, or any tokens; and stop texts that are parts of the decoded text, or similar to them. */
function cases(tokenizer: Tokenizer): fc.Arbitrary<{ ids: number[]; stops: string[] }> {
  const written = fc.constantFrom(...texts).map((text) => [...tokenizer.encode(text)]);
  const any = fc.array(fc.nat(tokenizer.vocabSize + 2), { maxLength: 16 });
  return fc.oneof(written, any).chain((ids) => {
    const whole = tokenizer.decode(ids, { skipSpecialTokens: true });
    const piece = fc
      .tuple(fc.nat(Math.max(0, whole.length - 1)), fc.integer({ min: 1, max: 6 }), fc.constantFrom("", "", "z", "é"))
      .map(([at, length, more]) => (whole.slice(at, at + length) + more).toWellFormed());
    const stops = fc.array(piece, { maxLength: 4 }).map((list) => list.filter((stop) => stop !== ""));
    return fc.record({ ids: fc.constant(ids), stops });
  });
}

describe.each(kinds)("with a tokenizer like %s", async (kind) => {
  const tokenizer = await loadTokenizer(join(fixtures, kind));

  test("pushes and end, joined, are the text before the stop that is complete first", () => {
    fc.assert(
      fc.property(cases(tokenizer), ({ ids, stops }) => {
        const whole = tokenizer.decode(ids, { skipSpecialTokens: true });
        expect(listen(tokenizer, ids, stops)).toEqual(cutBefore(whole, stops));
      }),
      { numRuns: 60 },
    );
  });

  test("only the longest end that may begin a stop text is held back", () => {
    fc.assert(
      fc.property(cases(tokenizer), ({ ids, stops }) => {
        const stream = textStream(tokenizer, stops);
        const decoder = streamDecoder(tokenizer, { skipSpecialTokens: true });
        let [given, decoded] = ["", ""];
        for (const id of ids) {
          const { text, stop } = stream.push(id);
          given += text;
          decoded += decoder.push(id);
          if (stop !== null) return;
          const held = decoded.slice(given.length);
          expect(decoded).toBe(given + held);
          for (let length = held.length + 1; length <= decoded.length; length++) {
            const end = decoded.slice(decoded.length - length);
            expect(stops.some((other) => other.length > length && other.startsWith(end))).toBe(false);
          }
          expect(held === "" || stops.some((other) => other.startsWith(held))).toBe(true);
          expect(text.isWellFormed()).toBe(true);
        }
      }),
      { numRuns: 60 },
    );
  });

  test("a stop text that may not end the sample yet is normal text", () => {
    fc.assert(
      fc.property(cases(tokenizer), fc.nat(20), ({ ids, stops }, minTokens) => {
        const stream = textStream(tokenizer, stops);
        const decoder = streamDecoder(tokenizer, { skipSpecialTokens: true });
        const early = ids.slice(0, minTokens).map((id) => decoder.push(id));
        const before = early.join("").length;
        let given = "";
        for (const [i, id] of ids.entries()) {
          const { text, stop } = stream.push(id, i >= minTokens);
          given += text;
          if (stop === null) continue;
          expect(i).toBeGreaterThanOrEqual(minTokens);
          expect(given.length + stop.length).toBeGreaterThan(before); // it ends behind what could not stop
          return;
        }
        const last = stream.end(ids.length >= minTokens);
        if (last.stop === null) expect(given + last.text).toBe(tokenizer.decode(ids, { skipSpecialTokens: true }));
      }),
      { numRuns: 60 },
    );
  });
});

describe("stop texts that overlap", async () => {
  const tokenizer = await loadTokenizer(join(fixtures, "gpt2"));
  const byCharacter = (text: string) => [...text].flatMap((c) => [...tokenizer.encode(c, { addSpecialTokens: false })]);
  test.each<[text: string, stops: string[], before: string, stop: string]>([
    ["abcd", ["bcd", "c"], "ab", "c"],
    ["abcd", ["cd", "bcd"], "a", "bcd"],
    ["aab", ["ab"], "a", "ab"],
    ["ababc", ["abc", "abd"], "ab", "abc"],
    ["a stop", ["stop", "st"], "a ", "st"],
    ["x\n\nUser: hi", ["\nUser:", "\n\nUser:"], "x", "\n\nUser:"],
  ])("%j with %j ends after %j, however it is split into tokens", (text, stops, before, stop) => {
    const tokenizations = [byCharacter(text), [...tokenizer.encode(text, { addSpecialTokens: false })]];
    for (const ids of tokenizations) {
      expect(listen(tokenizer, ids, stops)).toEqual({ text: before, stop });
      expect(listen(tokenizer, ids, [...stops].reverse())).toEqual({ text: before, stop });
    }
  });
});
