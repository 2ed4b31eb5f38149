import { describe, expect, test } from "vitest";
import { notJson } from "./plain-json.ts";

describe("a value that JSON cannot hold is named", () => {
  const loop: Record<string, unknown> = {};
  loop.again = { loop };
  const cases: readonly [value: unknown, found: string | null][] = [
    [{ a: [1, "b", null, true, { c: [] }], d: {} }, null],
    [{ a: { b: [1, Number.NaN] } }, "state.a.b[1] is NaN"],
    [{ a: undefined }, "state.a is undefined"],
    [{ seen: new Set() }, "state.seen is a Set"],
    [{ ids: new Int32Array(2) }, "state.ids is a Int32Array"],
    [{ when: new Date(0) }, "state.when is a Date"],
    [{ next() {} }, "state.next is a function"],
    [{ big: 1n }, "state.big is a bigint"],
    [new Array(1), "state[0] is undefined"],
    [loop, "state.again.loop holds itself"],
  ];
  test.each(cases)("%o: %s", (value, found) => expect(notJson(value, "state")).toBe(found));
});

test("one object at two places is not a circle", () => {
  const shared = { a: 1 };
  expect(notJson({ x: shared, y: [shared] }, "state")).toBeNull();
});
