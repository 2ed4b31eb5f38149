import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { evalSchema } from "../../config/eval/schema.ts";
import { parseOverride } from "../../config/overrides.ts";
import { resolve } from "../../config/resolve.ts";
import type { Row } from "../../data/row.ts";
import { UserError } from "../../util/errors.ts";
import { evaluate, type ScoredRow, samplesOf, summarise } from "./evaluate.ts";

const folder = mkdtempSync(join(tmpdir(), "trainyard-eval-"));
afterAll(() => rmSync(folder, { recursive: true }));

const configOf = (...overrides: readonly string[]) =>
  resolve(evalSchema, [overrides.map(parseOverride)], { home: "/home/me", env: {} }).config;

const scored = (dataSource: string, scores: readonly (number | null)[], group: string | null = null): ScoredRow => ({
  file: "a.jsonl",
  row: 1,
  dataSource,
  group,
  scores: scores.map((score) => (score === null ? null : { score, extra: {} })),
});

describe("the figures", () => {
  test("are verl's: the mean over rows of the mean over their responses, by data source", () => {
    const rows = [scored("a", [1, 0]), scored("b", [0.5]), scored("a", [1, 1, 1, 1])];
    expect(summarise(rows, 1).metrics).toMatchObject({ "test_score/a": 0.75, "test_score/b": 0.5 });
  });

  test("of pass@k have no bias, over the rows that have k responses", () => {
    const { metrics } = summarise([scored("a", [1, 0, 0, 0]), scored("a", [0, 1])], 1);
    expect(metrics["test_pass@1/a"]).toBeCloseTo((1 / 4 + 1 / 2) / 2);
    expect(metrics["test_pass@2/a"]).toBeCloseTo((1 / 2 + 1) / 2);
    expect(metrics["test_pass@4/a"]).toBe(1);
    expect(metrics).not.toHaveProperty("test_pass@3/a");
  });

  test("of pass@k grow with k, from the share of responses that pass to the share of rows with one that passes", () => {
    const rows = fc.array(fc.array(fc.constantFrom(0, 1), { minLength: 8, maxLength: 8 }), {
      minLength: 1,
      maxLength: 9,
    });
    fc.assert(
      fc.property(rows, (all) => {
        const { pass } = summarise(
          all.map((scores) => scored("a", scores)),
          1,
        ).figures[0]!;
        const values = [1, 2, 4, 8].map((k) => pass[k]!);
        expect(values.toSorted((a, b) => a - b)).toEqual(values);
        expect(pass[1]).toBeCloseTo(all.flat().filter((score) => score === 1).length / (8 * all.length));
        expect(pass[8]).toBeCloseTo(all.filter((scores) => scores.includes(1)).length / all.length);
      }),
    );
  });

  test("leave out responses without a score, and count them", () => {
    const { figures } = summarise([scored("a", [1, null]), scored("a", [null])], 1);
    expect(figures[0]).toMatchObject({ rows: 2, responses: 3, failed: 2, testScore: 1, pass: { 1: 1 } });
    expect(summarise([scored("a", [null])], 1)).toMatchObject({
      metrics: {},
      figures: [{ testScore: null, pass: {} }],
    });
  });

  test("of a group come after those of its data source, which has all rows", () => {
    const { figures, metrics } = summarise([scored("a", [1], "easy"), scored("a", [0], "hard"), scored("a", [0])], 1);
    expect(figures.map(({ group, rows }) => [group, rows])).toEqual([
      [null, 3],
      ["easy", 1],
      ["hard", 1],
    ]);
    expect(metrics).toMatchObject({ "test_score/a": 1 / 3, "test_score/a/easy": 1, "test_score/a/hard": 0 });
  });

  test("use `acc` to decide what passes where a reward gives it", () => {
    const row = {
      ...scored("a", []),
      scores: [
        { score: -1, extra: { acc: true } },
        { score: 1, extra: { acc: false } },
      ],
    };
    expect(summarise([row], 1).figures[0]?.pass[1]).toBe(0.5);
  });
});

describe("a row", () => {
  const whole = {
    prompt: [{ role: "user", content: "1+1" }],
    data_source: "s",
    reward_model: { style: "rule", ground_truth: "2" },
    extra_info: { level: 3 },
    responses: ["2", "3"],
  };
  const rowOf = (changes: object): Row => ({ values: { ...whole, ...changes }, file: "a.jsonl", row: 7 });

  test("gives a reward function all that it holds", () => {
    const config = configOf("data.path=a.jsonl", "data.group_key=extra_info.level");
    const { inputs, ...row } = samplesOf(rowOf({}), config);
    expect(row).toEqual({ file: "a.jsonl", row: 7, dataSource: "s", group: "3" });
    const common = {
      dataSource: "s",
      prompt: "1+1",
      groundTruth: "2",
      extraInfo: { level: 3 },
      responseLength: 0,
      row: 7,
    };
    expect(inputs).toEqual(["2", "3"].map((response) => ({ ...common, response })));
  });

  test.each([
    [
      "no responses column",
      { responses: undefined, answers: ["2"] },
      /column `responses`: expected a list of responses/,
    ],
    ["one text for a list", { responses: "2" }, /expected a list of responses \(texts\), found the text "2"/],
    ["an empty list", { responses: [] }, /expected a list of at least one response/],
    [
      "a response that is no text",
      { responses: ["2", 3] },
      /column `responses\[1\]`: expected text, found the number 3/,
    ],
    [
      "no ground truth",
      { reward_model: { style: "rule" } },
      /`reward_model\.ground_truth`: expected a ground truth, found nothing/,
    ],
    ["a ground truth of null", { reward_model: { ground_truth: null } }, /expected a ground truth, found null/],
    ["no reward model", { reward_model: null }, /expected an object with ground_truth, found null/],
    ["a data source that is no text", { data_source: 3 }, /column `data_source`: expected text/],
  ])("with %s is refused by name", (_, changes, message) => {
    const refuse = () => samplesOf(rowOf(changes), configOf("data.path=a.jsonl"));
    expect(refuse).toThrow(UserError);
    expect(refuse).toThrow(/^a\.jsonl, line 7/);
    expect(refuse).toThrow(message);
  });

  test("needs no data source where the reward function is the user's own", () => {
    const { data_source: _, ...values } = whole;
    const row = { values, file: "a.jsonl", row: 1 };
    expect(samplesOf(row, configOf("data.path=a", "custom_reward_function.path=r.ts")).dataSource).toBe("unknown");
    expect(() => samplesOf(row, configOf("data.path=a"))).toThrow(/there is no column `data_source`/);
  });
});

describe("an evaluation", () => {
  const context = { signal: new AbortController().signal, env: {} };
  const file = join(folder, "rows.jsonl");
  const row = (truth: string, responses: readonly string[]) =>
    JSON.stringify({ data_source: "own", prompt: "?", reward_model: { ground_truth: truth }, responses });

  test("scores every response with the user's own function, and names those that it cannot score", async () => {
    const reward = join(folder, "reward.ts");
    writeFileSync(
      reward,
      `export function compute_score({ response, groundTruth }, { bonus }) {
        if (response === "bad") throw new Error("cannot read this");
        return { score: response === groundTruth ? 1 + bonus : 0, pred: response };
      }`,
    );
    writeFileSync(file, [row("a", ["a", "b"]), row("b", ["b", "bad"])].join("\n"));
    const keys = [`data.path=${file}`, `custom_reward_function.path=${reward}`, "reward.error_budget=1"];
    const config = configOf(...keys, "custom_reward_function.reward_kwargs={bonus: 1}");
    const report = await evaluate(config, context);
    expect(report.metrics["test_score/own"]).toBeCloseTo((1 + 2) / 2);
    expect(report.rows.map(({ scores }) => scores.map((score) => score?.score ?? null))).toEqual([
      [2, 0],
      [2, null],
    ]);
    expect(report.failures).toEqual([expect.stringMatching(/^row 2 .*threw Error: cannot read this/)]);
    await expect(evaluate(configOf(...keys.slice(0, 2), "reward.error_budget=0"), context)).rejects.toThrow(
      /`reward\.error_budget`/,
    );
  });
});
