import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { type Entry, parseOverride } from "./overrides.ts";
import { formatValue } from "./value.ts";

const where = "on the command line";

describe("an override is read as in Hydra", () => {
  const cases: readonly [string, Partial<Entry>][] = [
    ["a.b=1", { path: "a.b", op: "set", value: 1, text: "1" }],
    ["+a.b=[answer]", { path: "a.b", op: "set", value: ["answer"] }],
    ["++a.b=c=d", { path: "a.b", op: "set", value: "c=d" }],
    ["a.b=", { path: "a.b", op: "set", value: "" }],
    ["a.b=1.0", { value: 1, text: "1.0" }],
    ["~a.b", { path: "a.b", op: "delete", value: undefined }],
    ["~a.b=3", { path: "a.b", op: "delete", value: 3 }],
  ];
  for (const [argument, entry] of cases)
    test(argument, () => expect(parseOverride(argument)).toMatchObject({ ...entry, where }));
});

describe("what is not an override says what one looks like", () => {
  for (const argument of ["lr", "=3", "a..b=1", ".a=1", "~", "a b=1", "+=2"])
    test(argument, () => expect(() => parseOverride(argument)).toThrow(/trainer\.total_epochs=2/));
});

test("a value that cannot be read names its key", () => {
  expect(() => parseOverride("data.train_files=a,b")).toThrow(/^`data\.train_files`: a,b has a comma/);
});

test("any argument is an override or a UserError, and an override survives being printed", () => {
  const parts = fc.constantFrom("a", ".", "=", "~", "+", "[", "]", "{", "}", ":", ",", "'", '"', "\\", " ", "1", "$");
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: "binary" }), fc.string({ unit: parts })), (argument) => {
      try {
        const { text: _, ...entry } = parseOverride(argument);
        const value = entry.value === undefined ? "" : `=${formatValue(entry.value)}`;
        const { text: __, ...again } = parseOverride(`${entry.op === "delete" ? "~" : ""}${entry.path}${value}`);
        expect(again).toStrictEqual(entry);
      } catch (error) {
        if (!(error instanceof UserError)) throw error;
      }
    }),
    { numRuns: 1000 },
  );
});
