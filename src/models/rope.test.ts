import { readdirSync, readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseConfig } from "./config.ts";
import { type RopeConfig, ropeRegime, ropeTables } from "./rope.ts";

type Expected = {
  config: Record<string, unknown>;
  tables: { length: number; positions: number[]; pairs: number[]; cos: number[][]; sin: number[][] }[];
};
const folder = new URL("../../test/fixtures/rope/", import.meta.url);

describe("the tables are those of transformers to 1e-6", () => {
  for (const file of readdirSync(folder)) {
    const { config, tables }: Expected = JSON.parse(readFileSync(new URL(file, folder), "utf8"));
    const { rope, headDim } = parseConfig(config, file);
    for (const { length, positions, pairs, ...expected } of tables) {
      test(`${file.replace(".json", "")} at length ${length}`, () => {
        const actual = ropeTables(rope, headDim, length);
        for (const kind of ["cos", "sin"] as const) {
          const picked = positions.flatMap((position) =>
            pairs.map((pair) => actual[kind][position * (headDim / 2) + pair]!),
          );
          const errors = expected[kind].flat().map((value, i) => Math.abs(value - picked[i]!));
          expect(Math.max(...errors)).toBeLessThan(1e-6);
        }
      });
    }
  }
});

const ropes: RopeConfig[] = [
  { theta: 1e4, scaling: { type: "default" } },
  { theta: 1e4, scaling: { type: "dynamic", factor: 2, maxPositions: 16 } },
  {
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

describe("tables of one regime are prefixes of each other", () => {
  for (const rope of ropes) {
    test(rope.scaling.type, () => {
      const length = fc.integer({ min: 1, max: 40 });
      fc.assert(
        fc.property(length, length, (a, b) => {
          const [short, long] = [Math.min(a, b), Math.max(a, b)];
          const prefix = ropeTables(rope, 4, long).sin.slice(0, short * 2);
          const isPrefix = prefix.every((value, i) => value === ropeTables(rope, 4, short).sin[i]);
          // At position 0 nothing is rotated, so a table of one row fits every regime.
          if (short > 1) expect(isPrefix).toBe(ropeRegime(rope, short) === ropeRegime(rope, long));
        }),
      );
    });
  }
});
