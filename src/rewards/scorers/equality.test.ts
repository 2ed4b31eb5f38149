import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { areEqualFormulas } from "./equality.ts";
import { LONGEST_FORMULA, parseExpression } from "./expression.ts";

describe("formulas of the same value are equal", () => {
  test.each([
    ["\\frac{2}{4}", "\\frac12"],
    ["\\tfrac34", "3/4"],
    ["2\\frac{1}{2}", "5/2"],
    ["-2\\frac{1}{2}", "-\\frac52"],
    ["\\sqrt{8}", "2\\sqrt2"],
    ["\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"],
    ["\\sqrt{5+2\\sqrt{6}}", "\\sqrt2+\\sqrt3"],
    ["\\sqrt[3]{-27}", "-3"],
    ["(x+1)^2", "x^2+2x+1"],
    ["\\frac{x^2-1}{x-1}", "x+1"],
    ["a(b+c)", "ab+ac"],
    ["x_1+x_{12}", "x_{12}+x_1"],
    ["\\sin^2 x+\\cos^2 x", "1"],
    ["\\sin 2x", "2\\sin x\\cos x"],
    ["\\sin^{-1} 1", "\\frac{\\pi}{2}"],
    ["\\log_2 8", "3"],
    ["\\ln(e^3)", "3"],
    ["e^{i\\pi}", "-1"],
    ["5!", "120"],
    ["\\binom{5}{2}", "10"],
    ["3\\cdot 10^{5}", "300000"],
    ["2**10", "1024"],
    ["|{-3}|", "3"],
    ["\\lfloor 3.7\\rfloor", "3"],
    ["0.1+0.2", "0.3"],
    ["2^{-1}", "50\\%"],
    ["2π", "\\pi*2"],
    ["90^\\circ", "90"],
    ["\\left(\\frac{1}{2}\\right)^3", "\\frac18"],
  ])("%s and %s", (a, b) => {
    expect(areEqualFormulas(a, b)).toBe(true);
    expect(areEqualFormulas(b, a)).toBe(true);
  });
});

describe("formulas of other values are not", () => {
  test.each([
    ["\\sqrt{x^2}", "x"],
    ["\\ln(x^2)", "2\\ln x"],
    ["\\sqrt{xy}", "\\sqrt{x}\\sqrt{y}"],
    ["10^{20}", "10^{20}+1"],
    ["\\frac13", "0.333333"],
    ["(x+1)^2", "x^2+2x+2"],
    ["-x^2", "x^2"],
    ["x", "y"],
    ["x_1", "x_2"],
    ["2^{3^2}", "64"],
    ["x^{5000}", "x^{5001}"],
    ["1/0", "2/0"],
    ["n!", "(n+1)!"],
  ])("%s and %s", (a, b) => {
    expect(areEqualFormulas(a, b)).toBe(false);
    expect(areEqualFormulas(b, a)).toBe(false);
  });
});

const leaf = fc.oneof(fc.constantFrom("x", "y", "a"), fc.integer({ min: 1, max: 20 }).map(String));
const { formula } = fc.letrec<{ formula: string }>((tie) => ({
  formula: fc.oneof(
    { maxDepth: 3, depthSize: "small" },
    leaf,
    fc
      .tuple(tie("formula"), fc.constantFrom("+", "-", "*"), tie("formula"))
      .map(([a, sign, b]) => `(${a})${sign}(${b})`),
    fc.tuple(tie("formula"), tie("formula")).map(([a, b]) => `\\frac{${a}}{(${b})^2+1}`),
    tie("formula").map((a) => `\\sqrt{(${a})^2+1}`),
  ),
}));

describe("whatever the formula", () => {
  test("it equals itself written otherwise, and not itself plus one", () => {
    fc.assert(
      fc.property(formula, (a) => {
        expect(areEqualFormulas(a, `{${a}}`)).toBe(true);
        expect(areEqualFormulas(a, `2(${a}) - ${a.includes("(") ? `(${a})` : a}`)).toBe(true);
        expect(areEqualFormulas(a, `(${a})+1`)).toBe(false);
      }),
      { numRuns: 200, seed: 1 },
    );
  });

  test("sums and products do not mind the order", () => {
    fc.assert(
      fc.property(formula, formula, formula, (a, b, c) => {
        expect(areEqualFormulas(`(${a})((${b})+(${c}))`, `(${c})(${a})+(${a})(${b})`)).toBe(true);
      }),
      { numRuns: 200, seed: 1 },
    );
  });
});

describe("what cannot be read is no formula, and nothing throws", () => {
  test.each(["", "+", "1+", "(1", "1)", "\\frac{1}", "\\sqrt", "x_", "x_{1", "1,2", "a=b", "&", "\\sin", "|x", "2^"])(
    "%j",
    (text) => expect(parseExpression(text)).toBeNull(),
  );

  test("too long or too deep", () => {
    expect(parseExpression(`1${"+1".repeat(LONGEST_FORMULA)}`)).toBeNull();
    expect(parseExpression(`${"(".repeat(400)}1${")".repeat(400)}`)).toBeNull();
  });

  test("any text", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom(..."\\{}()[]|^_/*+-=<>!%,.'0123456789xyefracsqrt πé🙂\n") }),
        (text) => {
          expect(typeof areEqualFormulas(text, `${text}+0`)).toBe("boolean");
        },
      ),
      { numRuns: 2000, seed: 1 },
    );
  });

  test("numbers beyond all bounds", () => {
    for (const text of [
      "9^{9^{9^{9}}}",
      "99999!",
      "(9^{999})".repeat(50),
      "((((9^9)^9)^9)^9)^9",
      "\\binom{1000000}{500000}",
    ]) {
      const start = performance.now();
      areEqualFormulas(text, `${text}+1`);
      expect(performance.now() - start, text).toBeLessThan(50);
    }
  });
});
