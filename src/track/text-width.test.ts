import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fitEnd, printable, textWidth, wrap } from "./text-width.ts";

const anyText = fc.string({ unit: "grapheme", maxLength: 80 }).map(printable);

const controlOrLetter = fc.integer({ min: 0, max: 0x2100 }).map((code) => String.fromCodePoint(code));

describe("texts in a terminal", () => {
  test.each([
    ["abc", 3],
    ["你好", 4],
    ["e\u0301", 1],
    ["👍🏽", 2],
    ["▁█", 2],
  ])("%s takes %d columns", (text, width) => {
    expect(textWidth(text)).toBe(width);
  });

  test("no control characters are left in them", () => {
    fc.assert(
      fc.property(fc.string({ unit: controlOrLetter }), (text) => {
        expect(printable(text)).not.toMatch(/[\p{Cc}\p{Zl}\p{Zp}\u202e]/u);
      }),
    );
    expect(printable("\x1b[31mred\x07\r\n\x9b2J")).toBe("␛[31mred␇␍␊\ufffd2J");
  });

  test("a fitted text takes exactly its columns and keeps its end", () => {
    fc.assert(
      fc.property(anyText, fc.integer({ min: 1, max: 40 }), (text, width) => {
        expect(textWidth(fitEnd(text, width))).toBe(width);
      }),
    );
    expect(fitEnd("openai/gsm8k/acc/mean@8", 16)).toBe("…sm8k/acc/mean@8");
  });

  test("wrapped lines fit and lose nothing but spaces", () => {
    fc.assert(
      fc.property(anyText, fc.integer({ min: 2, max: 40 }), (text, width) => {
        const lines = wrap(text, width);
        for (const line of lines) expect(textWidth(line)).toBeLessThanOrEqual(width);
        expect(lines.join("").replaceAll(" ", "")).toBe(text.replaceAll(" ", ""));
      }),
    );
    expect(wrap("one two three\nfour", 8)).toEqual(["one two", "three", "four"]);
  });
});
