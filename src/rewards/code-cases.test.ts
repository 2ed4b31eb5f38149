import { describe, expect, test } from "vitest";
import { extractCode, parseTests } from "./code-cases.ts";
import type { RewardInput } from "./reward.ts";
import type { Language } from "./sandbox/protocol.ts";

const sample = (groundTruth: unknown): RewardInput => ({
  dataSource: "apps",
  prompt: "",
  response: "",
  groundTruth,
  extraInfo: {},
  responseLength: 1,
  row: 7,
});

describe("the program in a response", () => {
  const cases: Record<string, [response: string, code: string, language?: Language]> = {
    "is the last block of its language": ["```python\na\n```\nor\n```python\nb\n```\n```js\nc\n```", "\nb\n"],
    "may be in a block that is not closed": ["text ```python\na = 1", "\na = 1"],
    "may go by a short name": ["```py\na\n```", "\na\n"],
    "is the first block where none has a language": ["see\n```\na\n```\n```\nb\n```", "\na\n"],
    "is the first block, without the name of another language": [
      "```Python3x\na\n```\n```ruby\nb\n```",
      "Python3x\na\n",
    ],
    "is all where there is no block": ["print(1)", "print(1)"],
    "may be JavaScript": ["```json\n{}\n```\n```javascript\na\n```", "\na\n", "javascript"],
    "may be TypeScript": ["```ts\na\n```\n```tsx\nb\n```", "\na\n", "typescript"],
  };
  for (const [name, [response, code, language = "python"]] of Object.entries(cases)) {
    test(name, () => {
      expect(extractCode(response, language)).toBe(code);
    });
  }
});

describe("test cases", () => {
  const parsed: Record<string, [truth: unknown, cases: object[]]> = {
    "of input and output": [
      { inputs: ["1\n", ["a", "b"]], outputs: ["2", ["c", "d"]] },
      [
        { kind: "stdin", stdin: "1\n", expected: "2" },
        { kind: "stdin", stdin: "a\nb", expected: "c\nd" },
      ],
    ],
    "as a JSON text": ['{"inputs": [""], "outputs": ["x"]}', [{ kind: "stdin", stdin: "", expected: "x" }]],
    "of a function": [
      { fn_name: "f", inputs: ['[1]\n"x"', [[1], "x"], ""], outputs: ["[2]", [2], "word"] },
      [
        { kind: "call", name: "f", args: ["[1]", '"x"'], expected: [2], expectedText: "[2]" },
        { kind: "call", name: "f", args: ["[1]", '"x"'], expected: [2], expectedText: "2" },
        { kind: "call", name: "f", args: [], expected: "word", expectedText: "word" },
      ],
    ],
    "of assertions": [
      { assert_case: ["assert f(1) == 2"], language: "python" },
      [{ kind: "assert", source: "assert f(1) == 2", stdin: "", expected: null }],
    ],
    "of assertions with input and output": [
      { assert_case: ["assert x"], inputs: ["1"], outputs: ["2"] },
      [{ kind: "assert", source: "assert x", stdin: "1", expected: "2" }],
    ],
  };
  for (const [name, [truth, cases]] of Object.entries(parsed)) {
    test(name, () => {
      expect(parseTests(sample(truth)).cases).toEqual(cases);
    });
  }

  const refused: Record<string, [truth: unknown, message: string]> = {
    nothing: [null, "is null"],
    "a text that is no JSON": ["{", "which is not JSON"],
    "a list": ["[1]", "is "],
    "no cases": [{ inputs: [], outputs: [] }, "has no test cases"],
    "no inputs": [{ outputs: ["1"] }, "has no test cases"],
    "no outputs": [{ inputs: ["1"] }, "0 entries in `outputs` for 1 test cases"],
    "lists of different lengths": [{ inputs: ["1", "2"], outputs: ["1"] }, "1 entries in `outputs` for 2 test cases"],
    "a name that is none": [{ inputs: ["1"], outputs: ["1"], fn_name: 3 }, "`fn_name`"],
    "another language": [{ inputs: ["1"], outputs: ["1"], language: "pyhton" }, '"python"'],
  };
  for (const [name, [truth, message]] of Object.entries(refused)) {
    test(`are refused when there is ${name}`, () => {
      expect(() => parseTests(sample(truth))).toThrow(message);
      if (message !== '"python"') expect(() => parseTests(sample(truth))).toThrow("row 7");
    });
  }
});
