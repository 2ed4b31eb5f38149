/**
 * Our functions against those of verl itself, on a few hundred random inputs: `npm run fuzz:verl` with a fixed seed.
 *
 * TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt; verl comes from PyPI into .venv-verl/.
 */
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { answeredByVerl, casesOf, compared, type FuzzCase, type FuzzReport } from "../scripts/fuzz.ts";

const python = process.env.TRAINYARD_TEST_PYTHON ?? "";
const options = { seed: 7, cases: 420 };

describe.skipIf(python === "")("functions of verl, in Python", () => {
  let answered: FuzzCase[] = [];
  let report: FuzzReport;
  const said = vi.spyOn(console, "error").mockImplementation(() => {}); // that .venv-verl is made
  afterAll(() => said.mockRestore());
  beforeAll(async () => {
    answered = await answeredByVerl(casesOf(options), python);
    report = await compared(answered);
  }, 600_000);

  test("give what ours give", () => {
    expect(report.failed, report.misses.join("\n")).toBe(0);
    expect(report.answered).toHaveLength(options.cases);
  });

  test("answer nearly all cases: few are refused, and none takes too long", () => {
    const errors = answered.filter(({ outputs }) => Object.hasOwn(Object(outputs), "error"));
    expect(errors.length).toBeLessThan(options.cases / 5);
    expect([...report.tallies.values()].reduce((sum, { timeouts }) => sum + timeouts, 0)).toBe(0);
  });

  test("are all called, by both releases where both have them", () => {
    const functions = new Set(casesOf({ ...options, cases: 2000 }).map((it) => it.function));
    expect(new Set(report.tallies.keys())).toEqual(functions);
    expect(new Set(answered.map(({ version }) => version))).toEqual(new Set(["0.7.0", "0.9.1"]));
  });

  test("differ from ours where a number of theirs is another", async () => {
    const [first] = answered.filter((it) => it.function === "agg_loss");
    const changed = { ...first!, outputs: { "token-mean": { loss: 12345 } } };
    const { failed, misses } = await compared([changed]);
    expect(failed).toBe(1);
    expect(misses[0]).toContain("agg_loss");
  });
});

describe("cases", () => {
  test("are the same for the same seed, and others for another", () => {
    expect(casesOf(options)).toEqual(casesOf(options));
    expect(casesOf(options)).not.toEqual(casesOf({ ...options, seed: 8 }));
  });

  test("can be taken one by one", () => {
    expect(casesOf({ ...options, only: 17 })).toEqual([casesOf(options)[17]]);
    expect(casesOf({ ...options, cases: 5, function: "gae" }).every((it) => it.function === "gae")).toBe(true);
    expect(() => casesOf({ ...options, function: "weather" })).toThrow("No function is called weather.");
  });
});
