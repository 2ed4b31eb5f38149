/** Rollout correction computes what verl computed, and the check of its golden files sees every difference. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { GoldenCase } from "../scripts/goldens/compare.ts";
import { checkRolloutCorrection } from "../scripts/goldens/rollout-correction.ts";

const casesOf = (file: string) => {
  const text = readFileSync(new URL(`fixtures/goldens/${file}.json`, import.meta.url), "utf8");
  return GoldenCase.array().parse(JSON.parse(text).cases);
};
type Rows = number[][];
type Outputs = { modified_response_mask: Rows; rollout_is_weights?: Rows; metrics: Record<string, number> };

describe.each(["rollout_correction", "rollout_correction_v091"])("golden file %s", (file) => {
  const cases = casesOf(file);

  test.each(cases.map((golden) => [golden.name, golden] as const))("%s", async (_, golden) => {
    expect(await checkRolloutCorrection(golden)).toEqual([]);
  });

  test("every number of every case is looked at", async () => {
    for (const golden of cases) {
      for (let at = 0; at < numbersIn(golden.outputs); at++) {
        const changed = { ...golden, outputs: withOtherNumber(golden.outputs, at) };
        expect(await checkRolloutCorrection(changed), `${golden.name}, number ${at}`).toHaveLength(1);
      }
    }
  });
});

describe("what ours does otherwise on purpose", () => {
  const golden = casesOf("rollout_correction_v091").find(({ name }) => name.includes("rollout_is=sequence"))!;
  const inputs = golden.inputs as Record<string, Rows | string>; // a case of the fixtures
  const outputs = golden.outputs as Outputs;
  const time = outputs.modified_response_mask[0]!.length;
  const row = Array<number>(time).fill(0);

  test("a row without a token that counts changes no metric over tokens, and metrics over rows are not compared", async () => {
    const metrics = Object.entries(outputs.metrics).map(([name, value]) => [name, name.includes("_seq_") ? 99 : value]);
    const [withRow, withOther] = [Object.fromEntries(metrics), Object.fromEntries(metrics)];
    withOther["rollout_corr/kl"] += 1;
    const caseOf = (metrics: unknown) => ({
      ...golden,
      inputs: {
        ...inputs,
        ...Object.fromEntries(
          ["old_log_prob", "rollout_log_prob", "response_mask"].map((key) => [key, [...inputs[key]!, row]]),
        ),
      },
      outputs: {
        modified_response_mask: [...outputs.modified_response_mask, row],
        rollout_is_weights: [...outputs.rollout_is_weights!, row],
        metrics,
      },
    });
    expect(await checkRolloutCorrection(caseOf(withRow))).toEqual([]);
    expect(await checkRolloutCorrection(caseOf(withOther))).toHaveLength(1);
  });

  test("where verl divides by zero, the sample size must be 0", async () => {
    const error = { ...golden, outputs: { error: "ZeroDivisionError" } };
    const without = { ...inputs, rollout_is_threshold: "1e-9_2e-9" };
    expect(await checkRolloutCorrection({ ...error, inputs: without })).toEqual([]);
    expect(await checkRolloutCorrection(error)).toHaveLength(1);
  });

  test("what verl refuses is refused, and not anything else", async () => {
    const refused = { ...golden, outputs: { error: "TypeError" } };
    expect(await checkRolloutCorrection({ ...refused, inputs: { ...inputs, rollout_is_threshold: true } })).toEqual([]);
    expect(await checkRolloutCorrection(refused)).toHaveLength(1);
  });

  test("a metric that verl does not have is a miss", async () => {
    const { "rollout_corr/kl": _kl, ...metrics } = outputs.metrics;
    const misses = await checkRolloutCorrection({ ...golden, outputs: { ...outputs, metrics } });
    expect(misses).toEqual([`${golden.name}: verl has no metric rollout_corr/kl`]);
  });

  test("a function that nothing checks is a miss", async () => {
    const misses = await checkRolloutCorrection({ ...golden, function: "tomorrow" });
    expect(misses).toEqual([`${golden.name}: there is no check for this case`]);
  });
});

function numbersIn(outputs: unknown): number {
  let count = 0;
  JSON.stringify(outputs, (_key, value: unknown) => {
    if (typeof value === "number") count++;
    return value;
  });
  return count;
}

/** The same outputs with one number moved far. */
function withOtherNumber(outputs: unknown, at: number): unknown {
  let next = 0;
  return JSON.parse(JSON.stringify(outputs), (_key, value: unknown) =>
    typeof value === "number" && next++ === at ? value + 1 + Math.abs(value) : value,
  );
}
