/**
 * The manager `batch`: the samples of a step, of a validation or of an evaluation go to the function in one call, or in
 * chunks of `reward.batch_size`. The reward file of these tests writes a line for every call.
 */
import { readFile, rm, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Yard } from "./rl-yard.ts";

let yard: Yard;
let file: string;
let log: string;
beforeAll(async () => {
  yard = await Yard.make();
  [file, log] = [yard.path("reward.ts"), yard.path("calls.jsonl")];
  await writeFile(
    file,
    `import { appendFileSync } from "node:fs";
    const score = ({ response }) => response.split("7").length - 1;
    export const one = (input) => ({ score: score(input), row: input.row });
    export async function many(inputs, { jitter = 0, bad = null }) {
      appendFileSync(${JSON.stringify(log)}, JSON.stringify(inputs.map(({ row, response }) => [row, response])) + "\\n");
      if (jitter > 0) await new Promise((resolve) => setTimeout(resolve, Math.random() * jitter));
      const hasBad = inputs.some(({ row }) => row === bad?.row);
      if (hasBad && bad.does === "throw") throw new Error("no score for row " + bad.row);
      if (hasBad && bad.does === "hang") await new Promise(() => {});
      return inputs.map((input) => (hasBad && bad.does === "value" && input.row === bad.row ? "bad" : one(input)));
    }`,
  );
});
beforeEach(() => rm(log, { force: true }));
afterAll(() => yard.remove());

type Call = readonly (readonly [row: number, response: string])[];
const calls = async (): Promise<Call[]> =>
  (await readFile(log, "utf8"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Call);
const sizes = async () => (await calls()).map(({ length }) => length);
const own = (name: string) => [`custom_reward_function.path=${file}`, `custom_reward_function.name=${name}`];
const batch = () => [...own("many"), "reward_manager.name=batch"];
const ppo = (run: string, ...overrides: readonly string[]) => yard.command(...yard.args(run, overrides));

describe("a step", () => {
  const validation = () => [`data.val_files=${yard.validation}`, "trainer.test_freq=2"];

  test("and a validation are one call each, with the samples in the order of their prompts", async () => {
    expect(await ppo("whole", ...batch(), ...validation())).toMatchObject({ code: 0 });
    expect(await sizes()).toEqual([4, 16, 16, 4]);
    for (const samples of await calls())
      for (let i = 0; i < samples.length; i += samples.length / 4)
        expect(new Set(samples.slice(i, i + samples.length / 4).map(([row]) => row)).size).toBe(1);
  });

  test("gives the run that a function of one sample gives, whatever the chunks and their timing", async () => {
    expect(await ppo("single", ...own("one"), ...validation())).toMatchObject({ code: 0 });
    const chunked = [...batch(), "reward.batch_size=5", "+custom_reward_function.reward_kwargs.jitter=50"];
    expect(await ppo("chunks", ...chunked, ...validation())).toMatchObject({ code: 0 });
    expect(await sizes()).toHaveLength(1 + 4 + 4 + 1);
    expect((await sizes()).toSorted((a, b) => b - a)).toEqual([5, 5, 5, 5, 5, 5, 4, 4, 1, 1]);
    const single = await yard.outcome("single");
    for (const run of ["whole", "chunks"]) {
      const { lines, rollouts, files } = await yard.outcome(run);
      expect([run, lines, rollouts, files]).toEqual([run, single.lines, single.rollouts, single.files]);
    }
  });
});

describe("a call of two groups that fails", () => {
  const failing = (does: string) => [
    ...batch(),
    "reward.batch_size=8",
    "reward.timeout=1",
    "data.shuffle=false",
    "data.train_batch_size=4",
    "trainer.total_training_steps=1",
    "trainer.resume_mode=disable",
    `+custom_reward_function.reward_kwargs.bad={row: 2, does: ${does}}`,
  ];
  const ways: readonly (readonly [does: string, lost: readonly number[], message: RegExp])[] = [
    [
      "throw",
      [0, 0, 4, 4],
      /threw Error: no score for row 2.*The same happened to 7 other samples\. They are left out of training/,
    ],
    ["hang", [0, 0, 4, 4], /no answer within its deadline of 1 s.*The same happened to 7 other samples/],
    ["value", [0, 0, 0, 4], /returned the text "bad"/],
  ];
  test.each(ways)(
    "(%s) leaves %j of 4 groups of 4 samples without a score, within the error budget",
    async (does, lost, message) => {
      const { code, said } = await ppo(`bad-${does}`, ...failing(does), "reward.error_budget=1");
      expect({ code, said }).toEqual({ code: 0, said: expect.stringMatching(message) });
      const { rollouts } = await yard.outcome(`bad-${does}`);
      const groups = JSON.parse(rollouts[0]!).groups as { episodes: { score: number | null }[] }[];
      const without = groups.map(({ episodes }) => episodes.filter(({ score }) => score === null).length);
      expect(without.toSorted()).toEqual(lost);
      const beyond = await ppo(`bad-${does}`, ...failing(does), "reward.error_budget=0");
      expect(beyond).toMatchObject({ code: 2, said: expect.stringMatching(/`reward\.error_budget`/) });
    },
  );
});

test("an evaluation is one call, or one for each chunk", async () => {
  const rows = [["7", "1"], ["77"], ["0", "7", "777"]].map((responses) => ({
    data_source: "own",
    prompt: "?",
    reward_model: { ground_truth: "" },
    responses,
  }));
  const path = await yard.writeLines("responses.jsonl", rows);
  const output = yard.path("figures.json");
  const scores = async (...keys: readonly string[]) => {
    await rm(log, { force: true });
    const { code, said } = await yard.command("eval", `data.path=${path}`, `data.output_path=${output}`, ...keys);
    expect({ code, said }).toMatchObject({ code: 0 });
    const { rows: scored } = JSON.parse(await readFile(output, "utf8")) as { rows: { scores: { score: number }[] }[] };
    return scored.map((row) => row.scores.map(({ score }) => score));
  };
  const expected = [[1, 0], [2], [0, 1, 3]];
  expect(await scores(...batch())).toEqual(expected);
  expect(await sizes()).toEqual([6]);
  expect(await scores(...batch(), "reward.batch_size=4", "reward.num_workers=1")).toEqual(expected);
  expect(await sizes()).toEqual([4, 2]);
  expect(await scores(...own("one"))).toEqual(expected);
});

test("a function in the config file takes one sample, so the manager batch is refused with it", async () => {
  const config = yard.path("inline.ts");
  await writeFile(config, "export default { custom_reward_function: () => 1 };");
  const [verb = "", ...keys] = yard.args("inline", ["reward_manager.name=batch"]);
  const { code, said } = await yard.command(verb, config, ...keys);
  expect({ code, said }).toEqual({
    code: 2,
    said: expect.stringMatching(/takes one sample.*custom_reward_function\.path/),
  });
});
