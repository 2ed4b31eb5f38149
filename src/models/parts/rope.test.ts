import { readdirSync, readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseConfig, positionRegime, positionsOf } from "../config.ts";
import { type Rope, rope } from "./rope.ts";

type Expected = {
  config: Record<string, unknown>;
  tables: { length: number; positions: number[]; pairs: number[]; cos: number[][]; sin: number[][] }[];
};
const folder = new URL("../../../test/fixtures/rope/", import.meta.url);

describe("the tables are those of transformers to 1e-6", () => {
  for (const file of readdirSync(folder)) {
    const { config, tables }: Expected = JSON.parse(readFileSync(new URL(file, folder), "utf8"));
    const [scheme] = positionsOf(parseConfig(config, file));
    const half = scheme!.size / 2;
    for (const { length, positions, pairs, ...expected } of tables) {
      test(`${file.replace(".json", "")} at length ${length}`, () => {
        const actual = rope.tables(scheme!, length, length);
        for (const kind of ["cos", "sin"] as const) {
          const picked = positions.flatMap((position) => pairs.map((pair) => actual[kind][position * half + pair]!));
          const errors = expected[kind].flat().map((value, i) => Math.abs(value - picked[i]!));
          expect(Math.max(...errors)).toBeLessThan(1e-6);
        }
      });
    }
  }
});

const ropes: Rope[] = [
  { kind: "rope", size: 4, theta: 1e4, scaling: { type: "default" } },
  { kind: "rope", size: 4, theta: 1e4, scaling: { type: "dynamic", factor: 2, maxPositions: 16 } },
  {
    kind: "rope",
    size: 4,
    theta: 1e4,
    scaling: {
      type: "longrope",
      shortFactor: [1, 1],
      longFactor: [2, 3],
      originalPositions: 16,
      attentionFactor: 1,
    },
  },
];

/** Whether the shorter of two tables is the beginning of the longer one. */
function isPrefix(schemes: readonly Rope[], short: number, long: number): boolean {
  return schemes.every((scheme) => {
    const expected = rope.tables(scheme, short, short).sin;
    return rope
      .tables(scheme, long, long)
      .sin.slice(0, expected.length)
      .every((value, i) => value === expected[i]);
  });
}

describe("tables of one regime are prefixes of each other, and of two regimes are not", () => {
  const length = fc.integer({ min: 1, max: 40 });
  test.each(
    [...ropes.map((scheme) => [scheme]), ropes].map(
      (schemes) => [schemes.map(({ scaling }) => scaling.type), schemes] as const,
    ),
  )("%s", (_, schemes) => {
    fc.assert(
      fc.property(length, length, (a, b) => {
        const [short, long] = [Math.min(a, b), Math.max(a, b)];
        const isSame = positionRegime(schemes, short) === positionRegime(schemes, long);
        // At position 0 nothing is rotated, so a table of one row fits every regime.
        if (short > 1) expect(isPrefix(schemes, short, long)).toBe(isSame);
      }),
    );
  });
});
