/** The scorers that compare texts, beyond what the golden cases hold them to. */
import { describe, expect, test } from "vitest";
import { closingBrace, lastBoxed } from "./boxed.ts";
import { extractGsm8k, scoreGsm8k } from "./gsm8k.ts";
import { normalizeHendrycks } from "./hendrycks.ts";
import { scoreMathDapo } from "./math-dapo.ts";
import { scoreMathReward } from "./math-reward.ts";
import { lastCharacters, parseFloatStrictly, strip, words } from "./python-text.ts";
import { normalizeSearchAnswer, scoreSearchQa } from "./search-qa.ts";

describe("texts are counted and cut as Python does", () => {
  test("by code point, not by half a pair", () => {
    expect(lastCharacters("a🙂b🙂", 3)).toBe("🙂b🙂");
    expect(lastCharacters("🙂", 5)).toBe("🙂");
    expect(extractGsm8k(`#### 42${"🙂".repeat(293)}`)).toBe("42");
    expect(extractGsm8k(`#### 42${"🙂".repeat(294)}`)).toBeNull();
  });

  test("with Python's white space", () => {
    expect(strip("\x1c\u00a0\u3000 x\ufeff \x85")).toBe("x\ufeff");
    expect(words(" a\x1fb\n\n c ")).toEqual(["a", "b", "c"]);
  });

  test.each([
    ["12", 12],
    [" -1.5e3 ", -1500],
    [".5", 0.5],
    ["5.", 5],
    ["-inf", Number.NEGATIVE_INFINITY],
    ["1_000", null],
    ["1,000", null],
    ["0x10", null],
    ["", null],
  ])("the number of %j is %d", (text, value) => {
    expect(parseFloatStrictly(text)).toBe(value);
  });
});

test.each([
  ["#### 72", "72", 1, 1],
  ["#### 1,234", "1234", 1, 0],
  ["#### $5", "5", 0, 1],
  ["#### -3.0", "-3", 0, 0],
  ["the answer is 72", "72", 0, 1],
  ["#### 5 #### 7", "7", 1, 1],
  ["#### 5 #### 7", "5", 0, 0],
  ["#### 72.", "72", 0, 0],
  ["#### 72%", "72", 1, 1],
  [`#### 72${" x".repeat(200)}`, "72", 0, 0],
])("gsm8k gives %j for %j strictly %i, flexibly %i", (response, truth, strict, flexible) => {
  expect(scoreGsm8k(response, truth)).toBe(strict);
  expect(scoreGsm8k(response, truth, { method: "flexible" })).toBe(flexible);
});

describe("a box", () => {
  test("closes where its brace does", () => {
    expect(lastBoxed("\\boxed{1} and \\boxed{a{b}c} d}")).toBe("a{b}c");
    expect(lastBoxed("\\boxed{1} and \\boxed{2")).toBeNull();
    expect(closingBrace("}{", 0)).toBe(-1);
  });

  test("is compared as it is where its normalisation fails", () => {
    for (const answer of ["\\frac", "\\sqrt", "1\\text{ a}\\text{ b}"]) {
      expect(normalizeHendrycks(answer)).toBeNull();
      expect(scoreMathReward(`\\boxed{${answer}}`, answer)).toBe(1);
    }
  });
});

test("normalising twice is normalising once", () => {
  for (const answer of ["\\tfrac12", "x = 1/2", "3\\text{ cm}", "\\sqrt2\\frac ab", "\\left(.5, 1\\right)", "10\\%"]) {
    const once = normalizeHendrycks(answer);
    expect(once).not.toBeNull();
    expect(normalizeHendrycks(once ?? "")).toBe(once);
  }
});

describe("math_dapo", () => {
  test("looks into the box only where there is no answer in words", () => {
    expect(scoreMathDapo("so \\boxed{42}", "42")).toEqual({ score: 1, acc: true, pred: "42" });
    expect(scoreMathDapo("so \\boxed{42}", "42", { boxedFallback: false }).pred).toBe("[INVALID]");
    expect(scoreMathDapo("Answer: 41\n\\boxed{42}", "42").acc).toBe(false);
  });
});

describe("a search answer", () => {
  test("is compared without articles, and letters with accents are letters", () => {
    expect(normalizeSearchAnswer("The Theatre, a café à la carte")).toBe("theatre café à la carte");
  });

  test("pays a quarter once there are more than ten tags", () => {
    const answers = (count: number) => scoreSearchQa("<answer>x</answer>".repeat(count), ["X"]);
    expect([answers(10), answers(11)]).toEqual([1, 0.25]);
  });
});
