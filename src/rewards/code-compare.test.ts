import { describe, expect, test } from "vitest";
import { isSameOutput, isSameValue, parseExactly } from "./code-compare.ts";

describe("what a program printed", () => {
  const cases: [output: string, expected: string, isSame: boolean][] = [
    ["3\n", "3", true],
    ["3", "3\n", true],
    ["  3  \n\n", "3", true],
    ["1 \n2 \n", "1\n2", true],
    ["1\r\n2\r\n", "1\n2", true],
    ["1\n\n2\n", "1\n2\n", true],
    ["1\n2\n", "1 \n 2\n", true],
    ["1\n2", "2\n1", false],
    ["1 2", "1\n2", false],
    ["", "", true],
    ["", "0", false],
    ["YES", "yes", false],
    ["0.3333333333", "0.33333333334", true],
    ["1.0\n2.5", "1\n2.50", true],
    ["1.01", "1", false],
    ["1e3\n2", "1000.0\n2", true],
    ["10", "010", false], // whole numbers are not rounded
    ["10000000000000001", "10000000000000002", false],
    ["1.0 2.0", "1 2", false], // numbers have a line each
    ["nan", "nan", true],
    ["nan \n1", "nan\n1.0", false],
  ];
  for (const [output, expected, isSame] of cases) {
    test(`${JSON.stringify(output)} is ${isSame ? "" : "not "}${JSON.stringify(expected)}`, () => {
      expect(isSameOutput(output, expected)).toBe(isSame);
    });
  }
});

describe("what a function returned", () => {
  const cases: [result: string, expected: string, isSame: boolean][] = [
    ["[1, 2]", "[1,2]", true],
    ["1", "1.0", true],
    ["true", "1", true], // as in Python
    ["1", "[1]", true], // verl's data wraps answers
    ["[[1, 2]]", "[[[1, 2]]]", true],
    ["[1]", "1", false],
    ['"1"', "1", false],
    ["null", "null", true],
    ["null", "[]", false],
    ["[]", "[]", true],
    ["[]", "{}", false],
    ['{"a": 1, "b": [2]}', '{"b": [2], "a": 1}', true],
    ['{"a": 1}', '{"a": 1, "b": 2}', false],
    ["9007199254740993", "9007199254740992", false],
    ["100000000000000000000", "1e20", true],
    ["100000000000000000001", "1e20", false],
    ["0.1", "0.10000000001", false],
    ["NaN", "null", false],
    ["[1, 2", "[1, 2]", false],
  ];
  for (const [result, expected, isSame] of cases) {
    test(`${result} is ${isSame ? "" : "not "}${expected}`, () => {
      expect(isSameValue(result, parseExactly(expected))).toBe(isSame);
    });
  }
});
