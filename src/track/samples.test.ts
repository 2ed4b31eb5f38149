import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { chooseSamples, dumpSamples, type Sample } from "./samples.ts";

const sample = (input: string): Sample => ({ input, output: `answer to ${input}`, score: 1 });
const letters = [..."jihgfedcba"].map(sample);

test("the samples shown are the first ones after a shuffle with numpy's RandomState(42)", () => {
  // rng = np.random.RandomState(42); rows = list("abcdefghij"); rng.shuffle(rows)
  expect(chooseSamples(letters, 10).map(({ input }) => input)).toEqual([..."ibfahcjedg"]);
});

test("they do not depend on the order of the rows", () => {
  expect(chooseSamples([...letters].reverse(), 4)).toEqual(chooseSamples(letters, 4));
});

test("a count above their number shows all, and inputs are ordered by code point", () => {
  const rows = ["\u{1f600}", "\uff5e", "z"].map(sample); // in UTF-16 the emoji would come before the full-width tilde
  // The shuffle leaves three rows as they are.
  expect(chooseSamples(rows, 9).map(({ input }) => input)).toEqual(["z", "\uff5e", "\u{1f600}"]);
});

test("a dump has verl's columns in verl's order, and replaces the one before", async () => {
  const dir = await mkdtemp(join(tmpdir(), "track-samples-"));
  try {
    await dumpSamples(join(dir, "new"), 7, [sample("old")]);
    await dumpSamples(join(dir, "new"), 7, [
      { input: "3+4=?", output: "7\n", gts: "7", score: 1, extra: { acc: true, pred: "7" } },
      { input: "é", output: "", score: Number.NaN },
    ]);
    expect(await readFile(join(dir, "new", "7.jsonl"), "utf8")).toBe(
      '{"input":"3+4=?","output":"7\\n","gts":"7","score":1,"step":7,"acc":true,"pred":"7"}\n' +
        '{"input":"é","output":"","gts":null,"score":null,"step":7}\n',
    );
  } finally {
    await rm(dir, { recursive: true });
  }
});
