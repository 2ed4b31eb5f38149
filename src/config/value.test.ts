import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { formatValue, parseValue, type Value } from "./value.ts";

describe("a value reads as in Hydra", () => {
  const cases: readonly [string, Value][] = [
    ["", ""],
    ["1", 1],
    ["-1", -1],
    ["1_000", 1000],
    ["1e-5", 1e-5],
    ["1.", 1],
    [".5", 0.5],
    ["007", "007"],
    ["inf", Infinity],
    ["true", true],
    ["True", true],
    ["FALSE", false],
    ["null", null],
    ["None", null],
    ["'null'", "null"],
    ['"1"', "1"],
    ["a b", "a b"],
    ["~/data/train.parquet", "~/data/train.parquet"],
    ["Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"],
    ["a=b", "a=b"],
    ["a:b", "a:b"],
    ["[]", []],
    ["[1,2]", [1, 2]],
    ["['console','wandb']", ["console", "wandb"]],
    ['["console","wandb"]', ["console", "wandb"]],
    ["[console, wandb]", ["console", "wandb"]],
    ["[[1, a], {b: 2}]", [[1, "a"], { b: 2 }]],
    ["{}", {}],
    ["{a:1}", { a: 1 }],
    ["{a: {b: [1, null]}, 'c d': x:y}", { a: { b: [1, null] }, "c d": "x:y" }],
    ["a\\,b", "a,b"],
    ["[a\\,b]", ["a,b"]],
    ["C:\\dir", "C:\\dir"],
    ["'it\\'s'", "it's"],
    ["'end\\\\'", "end\\"],
    ["'a\\nb'", "a\\nb"],
    ["${a.b}", "${a.b}"],
    ["[${oc.select:a,b},c]", ["${oc.select:a,b}", "c"]],
    ["x/${oc.env:HOME,{}}/y", "x/${oc.env:HOME,{}}/y"],
  ];
  for (const [text, value] of cases) test(text || "(nothing)", () => expect(parseValue(text)).toStrictEqual(value));
});

describe("a value that cannot be read says why", () => {
  const cases: readonly [string, RegExp][] = [
    ["a.parquet,b.parquet", /\[a\.parquet,b\.parquet\]/],
    ["[1,2", /no closing ]/],
    ["[1,", /no closing ]/],
    ["{a 1}", /no : after a 1/],
    ["{a:1", /no closing }/],
    ["'open", /no closing '/],
    ["'a'b", /more text after the end/],
    ["['a' 'b']", /comma is missing/],
    ["${a", /no closing }/],
    ["[".repeat(10_000), /nested more than 64/],
  ];
  for (const [text, message] of cases) test(text.slice(0, 20), () => expect(() => parseValue(text)).toThrow(message));
});

const plain = fc.letrec<{ value: Value }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constant(null),
    fc.boolean(),
    fc.double(),
    fc.integer(),
    fc.string({ unit: "binary" }),
    fc.constantFrom("null", "True", "1e5", "a,b", "'", '"', "\\", "\\'", "${a", " x ", "[", "}"),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(fc.string(), tie("value"), { maxKeys: 4, noNullPrototype: true }),
  ),
})).value;

test("every printed value reads back as itself", () => {
  fc.assert(
    fc.property(plain, (value) => {
      expect(parseValue(formatValue(value))).toStrictEqual(value);
    }),
  );
});

test("any text is a value or a UserError", () => {
  const syntax = fc.string({ unit: fc.constantFrom(..."[]{}'\",:\\$= a1.~") });
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: "binary" }), syntax), (text) => {
      try {
        parseValue(text);
      } catch (error) {
        expect(error).toBeInstanceOf(UserError);
      }
    }),
    { numRuns: 500 },
  );
});
