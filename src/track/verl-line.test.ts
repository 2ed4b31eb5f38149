import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { expect, test } from "vitest";
import { pythonFloat, verlLine } from "./verl-line.ts";

test.each([
  [1e-6, "1e-06"],
  [1.25e-5, "1.25e-05"],
  [1e-4, "0.0001"],
  [0.1, "0.1"],
  [-0.5, "-0.5"],
  [3, "3.0"],
  [0, "0.0"],
  [-0, "-0.0"],
  [123456789, "123456789.0"],
  [1e15, "1000000000000000.0"],
  [1e16, "1e+16"],
  [1.5e300, "1.5e+300"],
  [Number.NaN, "nan"],
  [Infinity, "inf"],
  [-Infinity, "-inf"],
])("%d is printed as %s", (value, text) => {
  expect(pythonFloat(value)).toBe(text);
});

test("a step is one line, whole numbers where verl counts", () => {
  const data = { "actor/lr": 1e-6, "training/global_step": 3, "critic/score/max": 1, "perf/total_num_tokens": 2048 };
  expect(verlLine(3, data)).toBe(
    "step:3 - actor/lr:1e-06 - training/global_step:3 - critic/score/max:1.0 - perf/total_num_tokens:2048",
  );
});

const python = process.env.TRAINYARD_TEST_PYTHON;
test.skipIf(!python)("any number is printed as Python prints it (needs Python)", () => {
  const values = fc.sample(fc.double({ noNaN: true, noDefaultInfinity: true }), 500);
  const bytes = Buffer.from(Float64Array.from(values).buffer);
  const code = "import sys, struct\nfor (x,) in struct.iter_unpack('<d', sys.stdin.buffer.read()): print(repr(x))";
  const theirs = execFileSync(python!, ["-c", code], { input: bytes }).toString().trim().split("\n");
  expect(values.map(pythonFloat)).toEqual(theirs);
});
