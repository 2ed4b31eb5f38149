import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { truncate } from "./truncate.ts";

const ids = Int32Array.from([11, 12, 13, 14, 15, 16, 17]);

describe("truncation keeps the tokens its mode names", () => {
  test.each([
    ["left", 5, [13, 14, 15, 16, 17]],
    ["right", 5, [11, 12, 13, 14, 15]],
    ["middle", 5, [11, 12, 15, 16, 17]],
    ["middle", 4, [11, 12, 16, 17]],
    ["error", 7, [...ids]],
  ] as const)("%s to %i", (mode, max, expected) => {
    expect([...truncate(ids, max, mode)]).toEqual(expected);
  });

  test("error refuses an overlong sequence with both lengths", () => {
    expect(() => truncate(ids, 5, "error")).toThrow(UserError);
    expect(() => truncate(ids, 5, "error")).toThrow("has 7 tokens, and at most 5");
  });
});
