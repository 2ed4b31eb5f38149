/** Metrics and balancing compute what verl computed, and the checks of their golden files see differences. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { GoldenCase } from "../scripts/goldens/compare.ts";
import { checkMetrics } from "../scripts/goldens/metrics.ts";
import { checkSeqlenBalancing } from "../scripts/goldens/seqlen-balancing.ts";

const casesOf = (file: string) => {
  const text = readFileSync(new URL(`fixtures/goldens/${file}.json`, import.meta.url), "utf8");
  return GoldenCase.array().parse(JSON.parse(text).cases);
};

describe.each([
  ["metrics", checkMetrics],
  ["seqlen_balancing", checkSeqlenBalancing],
  ["seqlen_balancing_v091", checkSeqlenBalancing],
])("golden file %s", (file, checkCase) => {
  const cases = casesOf(file);

  test.each(cases.map((golden) => [golden.name, golden] as const))("%s", async (_, golden) => {
    expect(await checkCase(golden)).toEqual([]);
  });

  test("every case notices when its numbers are others", async () => {
    const move = (_: string, value: unknown) => (typeof value === "number" ? value + 1 + Math.abs(value) : value);
    for (const golden of cases) {
      const outputs = JSON.parse(JSON.stringify(golden.outputs), move);
      expect(await checkCase({ ...golden, outputs }), golden.name).not.toEqual([]);
    }
  });

  test("a function that nobody checks is a miss", async () => {
    const misses = await checkCase({ name: "rain", function: "tomorrow", inputs: {}, outputs: {} });
    expect(misses).toEqual(["rain: there is no check for `tomorrow`"]);
  });
});

test("a metric that verl does not have is a miss", async () => {
  const golden = casesOf("metrics").find(({ name }) => name.startsWith("throughput/"))!;
  const { "perf/throughput": _, ...fewer } = Object(golden.outputs);
  expect(await checkMetrics({ ...golden, outputs: fewer })).toHaveLength(1);
});

describe("parts", () => {
  const golden = {
    name: "two parts",
    function: "greedy_partition",
    inputs: { seqlen_list: [1, 2, 3, 4], k_partitions: 2, equal_size: false }, // ours: 1 + 3 and 2 + 4
  };
  const said = (partitions: number[][], sums: number[]) => ({
    ...golden,
    outputs: { partitions, partition_sums: sums, sorted_sums: sums.toSorted((a, b) => a - b) },
  });

  test("may be others of the same sums", async () => {
    expect(
      await checkSeqlenBalancing(
        said(
          [
            [1, 3],
            [0, 2],
          ],
          [6, 4],
        ),
      ),
    ).toEqual([]);
  });

  test("may be better than verl's", async () => {
    expect(await checkSeqlenBalancing(said([[0], [1, 2, 3]], [1, 9]))).toEqual([]);
  });

  test("may not be worse than verl's", async () => {
    expect(
      await checkSeqlenBalancing(
        said(
          [
            [0, 3],
            [1, 2],
          ],
          [5, 5],
        ),
      ),
    ).not.toEqual([]);
  });

  test("may not pass where verl refuses", async () => {
    expect(await checkSeqlenBalancing({ ...golden, outputs: { error: "AssertionError" } })).toHaveLength(1);
  });
});
