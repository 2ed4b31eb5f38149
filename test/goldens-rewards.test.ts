/** Scorers and managers give what verl gave, and the checks of their golden files see differences. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { GoldenCase } from "../scripts/goldens/compare.ts";
import { checkRewardManagers } from "../scripts/goldens/reward-managers.ts";
import { checkRewardScores } from "../scripts/goldens/reward-scores.ts";

const casesOf = (file: string) => {
  const text = readFileSync(new URL(`fixtures/goldens/${file}.json`, import.meta.url), "utf8");
  return GoldenCase.array().parse(JSON.parse(text).cases);
};

/** Numbers moved, claims turned round, texts changed; a refusal becomes an answer. */
function otherwise(outputs: unknown): unknown {
  if (Object.hasOwn(Object(outputs), "error")) return { score: 1 };
  return JSON.parse(JSON.stringify(outputs), (_key, value: unknown) => {
    if (typeof value === "number") return value + 1 + Math.abs(value);
    if (typeof value === "boolean") return !value;
    return typeof value === "string" ? `${value}?` : value;
  });
}

describe.each([
  ["reward_scores", checkRewardScores],
  ["reward_scores_v091", checkRewardScores],
  ["reward_managers", checkRewardManagers],
])("golden file %s", (file, checkCase) => {
  const cases = casesOf(file);

  test.each(cases.map((golden) => [golden.name, golden] as const))("%s", async (_, golden) => {
    expect(await checkCase(golden)).toEqual([]);
  });

  test("every case that we follow notices when its outputs are others", async () => {
    for (const golden of cases.filter(({ name }) => !name.startsWith("prime/with_dict_scorer"))) {
      expect(await checkCase({ ...golden, outputs: otherwise(golden.outputs) }), golden.name).not.toEqual([]);
    }
  });

  test("a function that nobody checks is a miss", async () => {
    const misses = await checkCase({ name: "rain", function: "tomorrow", inputs: {}, outputs: {} });
    expect(misses).toEqual(["rain: there is no check for `tomorrow`"]);
  });
});
