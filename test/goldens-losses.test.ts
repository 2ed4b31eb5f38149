/** Losses, their gradients and metrics are verl's: the golden files of policy losses, KL, values and aggregation. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { GoldenCase } from "../scripts/goldens/compare.ts";
import { checkLossesKl } from "../scripts/goldens/losses-kl.ts";
import { checkPolicyLosses } from "../scripts/goldens/policy-losses.ts";

const casesOf = (topic: string): GoldenCase[] => {
  const path = fileURLToPath(new URL(`fixtures/goldens/${topic}.json`, import.meta.url));
  return GoldenCase.array().parse(JSON.parse(readFileSync(path, "utf8")).cases);
};

const topics = [
  ["policy_losses", checkPolicyLosses],
  ["policy_losses_v091", checkPolicyLosses],
  ["losses_kl", checkLossesKl],
  ["losses_kl_v091", checkLossesKl],
] as const;

describe.each(topics)("topic %s", (topic, check) => {
  const cases = casesOf(topic);

  test.each(cases.map((golden) => [golden.name, golden] as const))("%s", async (_, golden) => {
    expect(await check(golden)).toEqual([]);
  });

  test("a number that is another is noticed, wherever in a case it stands", async () => {
    for (const golden of cases) {
      const places = numbersIn(golden.outputs).filter((path) => !/dropped|example_draw/.test(path.join(".")));
      for (const path of places.filter((_, i) => i % Math.ceil(places.length / 6) === 0)) {
        const changed = { ...golden, outputs: structuredClone(golden.outputs) };
        change(changed.outputs, path);
        expect(await check(changed), `${golden.name} ${path.join(".")}`).not.toEqual([]);
      }
    }
  });
});

test("a case that nothing checks is a miss", async () => {
  const golden = { name: "tomorrow", function: "tomorrow", inputs: {}, outputs: {} };
  expect(await checkLossesKl(golden)).toEqual(["tomorrow: there is no check for this case"]);
  expect(await checkPolicyLosses(golden)).toEqual([expect.stringContaining("tomorrow: refused with")]);
});

test.each([
  ["an unknown aggregation mode", "vanilla", { loss_agg_mode: "token-median" }, {}, true],
  ["a dual clip below 1", "vanilla", {}, { clip_ratio_c: 0.5 }, true],
  ["dro without its weight", "dro", {}, {}, true],
  ["what can be computed", "vanilla", {}, {}, false],
])("a refusal is expected of %s", async (_, name, more, config, isRefused) => {
  const rows = { old_log_prob: [[-1]], log_prob: [[-1]], advantages: [[1]], response_mask: [[1]] };
  const inputs = { ...rows, ...more, config };
  const misses = await checkPolicyLosses({ name, function: name, inputs, outputs: { error: "ValueError" } });
  expect(misses.length === 0).toBe(isRefused);
});

type Path = readonly (string | number)[];

function numbersIn(value: unknown, path: Path = []): Path[] {
  if (typeof value === "number") return [path];
  if (Array.isArray(value)) return value.flatMap((item, i) => numbersIn(item, [...path, i]));
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, item]) => numbersIn(item, [...path, key]));
}

/** Move the number at `path` far. */
function change(value: unknown, path: Path): void {
  const parent = path.slice(0, -1).reduce((at, key) => Object(at)[key], value);
  Object(parent)[path.at(-1)!] += 1;
}
