/** The scorers that compare what an answer means. */
import { describe, expect, test } from "vitest";
import { scoreGeo3k } from "./geo3k.ts";
import { latexToText } from "./latex-text.ts";
import { extractMathAnswer, scoreMathVerify } from "./math-verify.ts";
import { extractPrimeAnswer, scorePrimeMath } from "./prime-math.ts";
import { isEquivalent, withoutThousands } from "./prm800k.ts";

describe("LaTeX as plain text", () => {
  test.each([
    ["\\frac{1}{2}", " 1/2"],
    ["2\\frac12", "2 1/2"],
    ["\\frac{1+x}{2}", " (1+x)/2"],
    ["x^{n+1}", "x^(n+1)"],
    ["x^{12}", "x^12"],
    ["\\sqrt{2}\\pi", "sqrt(2)pi"],
    ["\\sqrt[3]{x}", "(x)^(1/3)"],
    ["\\text{no solution}", "no solution"],
    ["\\left[1,\\infty\\right)", "[1,inf)"],
    ["\\{1,2\\}", "{1,2}"],
    ["\\frac", null],
    ["{".repeat(60), null],
  ])("%s is %j", (latex, text) => {
    expect(latexToText(latex)).toBe(text);
  });
});

describe("by PRM800K", () => {
  const both = (answer: string, truth: string) =>
    [true, false].map((isCompact) => isEquivalent(answer, truth, { isCompact }));

  test.each([
    ["\\text{Yes}", "yes"],
    ["5 feet^2", "5"],
    ["10\\%", "10"],
    ["\\$1,234,567,890", "1234567890"],
    ["\\frac{x+1}{2}", "(x+1)/2"],
    ["-2 1/2", "-2.5"],
    ["(\\frac{1}{2}, 2x)", "(0.5, x+x)"],
    ["x^{12}+1", "1+x^{12}"],
    ["90^{\\circ}", "90"],
    ["٤٢", "４२"],
    ["𝟜𝟚", "42"],
    ["42\\\\", "42"],
  ])("%s is %s", (answer, truth) => {
    expect(both(answer, truth)).toEqual([true, true]);
  });

  test.each([
    ["10/5", "2"],
    ["2/4", "1/2"],
    ["(1,2)", "[1,2]"],
    ["(1,2)", "(2,1)"],
    ["(1,2)", "(1,2,3)"],
    ["abc", "cab"],
    ["", "1"],
    ["-2 1/2", "-1.5"],
  ])("%s is not %s", (answer, truth) => {
    expect(both(answer, truth)).toEqual([false, false]);
  });

  test("commas between thousands go, others stay", () => {
    expect(withoutThousands("1,234,567 and (1,2) and 12,34 and 1,2345")).toBe("1234567 and (1,2) and 12,34 and 1,2345");
  });
});

describe("prime_math", () => {
  test.each([
    ["The answer is 42. Good.", "42"],
    ["So we get 7", "7"],
    ["5 is the answer", "5"],
    ["x = \\boxed{y = 3}", "3"],
    ["\\fbox{7}", "7"],
  ])("finds in %j the answer %j", (response, answer) => {
    expect(extractPrimeAnswer(response)).toBe(answer);
  });

  test.each([
    ["0.5", "50", 1],
    ["3.1416", "\\pi", 1],
    ["6.28", "2\\pi", 1],
    ["6.3", "2\\pi", 0],
    ["1.00005", "1", 1],
    ["1.001", "1", 0],
    ["[1,2]", "1,2", 1],
    ["(1, 2.00001)", "(1,2)", 1],
    ["[1,2]", "(1,2)", 0],
    ["1,2", "12", 0],
    ["1011_2", "1011", 1],
  ])("takes %s for %s: %i", (answer, truth, score) => {
    expect(scorePrimeMath(`\\boxed{${answer}}`, truth)).toBe(score);
  });
});

test("geo3k weighs the answer at 0.9 and the form at 0.1", () => {
  expect(scoreGeo3k("<think>a</think>\\boxed{2\\sqrt{2}}", "\\sqrt{8}")).toEqual({ score: 1, acc: 1, format: 1 });
  expect(scoreGeo3k(" <think>a</think>\\boxed{3}", "3")).toEqual({ score: 0.9, acc: 1, format: 0 });
  expect(scoreGeo3k("<think>\\boxed{3}</think>", "3")).toEqual({ score: 0.9, acc: 1, format: 0 });
});

describe("math_verify", () => {
  test.each([
    ["1,2", "2,1"],
    ["(1,2)", "1,2"],
    ["\\{2,1\\}", "1,2"],
    ["\\pm 3", "-3, 3"],
    ["7 \\text{ and } 8", "7,8"],
    ["x=2, x=3", "2,3"],
    ["5", "x=5"],
    ["y=2x+1", "2x-y+1=0"],
    ["3<x", "x>3"],
    ["-2x<-6", "x>3"],
    ["(3,\\infty)", "x>3"],
    ["(1,2]", "1<x\\le 2"],
    ["x\\in(1,2)", "(1,2)"],
    ["(2,\\infty)\\cup(-\\infty,1)", "(-\\infty, 1) \\cup (2, \\infty)"],
    ["\\begin{pmatrix}1&1/2\\end{pmatrix}", "\\begin{bmatrix}1 & 0.5\\end{bmatrix}"],
    ["\\text{(A)}", "A"],
    ["10\\text{ cm}^2", "10"],
    ["10\\%", "0.1"],
    ["0.333333", "\\frac13"],
    ["3:4", "\\frac34"],
    ["1{,}000", "1000"],
    ["f(x)=x+1", "1+x"],
  ])("%s means %s", (answer, truth) => {
    expect(scoreMathVerify(`so \\boxed{${answer}}`, truth)).toBe(1);
  });

  test.each([
    ["(2,1)", "(1,2)"],
    ["[1,2]", "(1,2)"],
    ["1,2,2", "1,2,3"],
    ["y=5", "x=5"],
    ["x\\ge 3", "x>3"],
    ["-2x<-6", "x<3"],
    ["x>3", "(3,\\infty)"], // the truth sets the form
    ["0.3333", "\\frac13"],
    ["50\\%", "50"],
    ["\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}2\\\\1\\end{pmatrix}"],
    ["\\text{Yes}", "\\text{No}"],
    ["", ""],
  ])("%s does not mean %s", (answer, truth) => {
    expect(scoreMathVerify(`so \\boxed{${answer}}`, truth)).toBe(0);
  });

  test.each([
    ["first \\boxed{5}. And after a while \\boxed{6}", "6"],
    ["\\boxed{5} or \\boxed{6}", "5,6"],
    ["\\boxed{6}. The final answer is $7$", "7"],
    ["The final answer is 8. And \\boxed{9}", "9"],
    ["answer is 12 because 13", "12"],
    ["first 5 then 7 and $6$", "6"],
    ["it is $x=2$ or $x=3$", "x=2,x=3"],
    ["we get 3/4.", "3/4"],
    ["it costs $1,234.50", "1,234.50"],
    ["nothing", null],
  ])("finds in %j the answer %j", (response, answer) => {
    expect(extractMathAnswer(response)).toBe(answer);
  });
});

describe("the answer of a response, as Math-Verify finds it", () => {
  test.each([
    ["\\boxed{7\\pi \\text{ cm}}", "7\\pi"],
    ["\\boxed{[0,\\infty) \\text{ cm}}", "[0,\\infty)"],
    ["\\boxed{2367\\mbox{ inches}^2 \\text{ cm}}", "2367"],
    ["\\boxed{3,363,592 \\text{ cm}}", "3363592"],
    ["Answer: -\\frac{4}{6}", "-2/3"],
    ["boxed{-\\frac{9}{2}}", "-4.5"],
    ["It is 1 031 and so on", "1031"],
    ["\\boxed{-7 3/4}", "-7.75"],
    ["\\boxed{x = \\text{even}}", "\\text{even}"],
  ])("%s is %s", (response, truth) => {
    expect(scoreMathVerify(response, truth)).toBe(1);
  });

  test("a mixed number is no product", () => {
    expect(scoreMathVerify("\\boxed{1}", "7 1/7")).toBe(0);
  });
});
