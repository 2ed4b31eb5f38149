/** Advantage estimators compute what verl computed, and the check of their golden files sees every difference. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { checkAdvantages } from "../scripts/goldens/advantages.ts";
import { GoldenCase } from "../scripts/goldens/compare.ts";

const casesOf = (file: string) => {
  const text = readFileSync(new URL(`fixtures/goldens/${file}.json`, import.meta.url), "utf8");
  return GoldenCase.array().parse(JSON.parse(text).cases);
};
const Rows = z.array(z.array(z.number()));
const Outputs = z.object({ advantages: Rows, returns: Rows });

describe.each(["advantages", "advantages_v091"])("golden file %s", (file) => {
  const cases = casesOf(file);

  test.each(cases.map((golden) => [golden.name, golden] as const))("%s", async (_, golden) => {
    expect(await checkAdvantages(golden)).toEqual([]);
  });

  test("every number at an unmasked position is looked at, and none elsewhere", async () => {
    for (const golden of cases) {
      const { response_mask: mask } = z.object({ response_mask: Rows }).parse(golden.inputs);
      const outputs = Outputs.safeParse(golden.outputs);
      if (!outputs.success) continue;
      for (const name of ["advantages", "returns"] as const) {
        const moved = outputs.data[name].map((row) => row.map((value) => value + 1 + Math.abs(value)));
        const misses = await checkAdvantages({ ...golden, outputs: { ...outputs.data, [name]: moved } });
        expect(misses, `${golden.name}, ${name}`).toHaveLength(mask.flat().filter((counts) => counts === 1).length);
      }
    }
  });
});

describe("what is not a number of verl's", () => {
  const golden = casesOf("advantages").find(({ name }) => name.startsWith("reinforce_plus_plus/len1"))!;
  const error = { ...golden, outputs: { error: "ValueError" } };

  test("an answer where verl refuses is a miss", async () => {
    expect(await checkAdvantages(error)).toHaveLength(1);
  });

  test("a single token need not be refused, though verl cannot whiten it", async () => {
    const inputs = { token_level_rewards: [[0, 3]], response_mask: [[0, 1]], config: { gamma: 1 } };
    expect(await checkAdvantages({ ...error, inputs })).toEqual([]);
  });

  test("an estimator that nobody knows is a miss", async () => {
    const misses = await checkAdvantages({ ...error, function: "tomorrow" });
    expect(misses).toEqual([`${golden.name}: there is no check for this case`]);
  });
});
