import { appendFile, mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { setLevel } from "../util/log.ts";
import { type NewGroup, newestRollouts, RolloutsReader } from "./rollouts.ts";
import { claimRun, type Run } from "./run.ts";

let dir: string;
let path: string;
beforeEach(async () => {
  setLevel("quiet");
  dir = await mkdtemp(join(tmpdir(), "trainyard-rollouts-"));
  path = join(dir, "rollouts.jsonl");
});
afterEach(async () => {
  setLevel("info");
  await rm(dir, { recursive: true });
});

async function inRun(body: (run: Run) => Promise<void>): Promise<void> {
  await using claim = await claimRun(dir);
  await body(await claim.begin({}));
}

const group = (prompt: string): NewGroup => ({
  prompt,
  truth: { answer: 7 },
  source: "sums",
  episodes: [
    {
      response: "7\n",
      tokens: ["7", "\n"],
      score: 1 / 3,
      extra: { acc: true, note: "“ok”" },
      logprobs: Float32Array.of(-0.123456789, -12.3456789),
      advantages: [0.5, Number.NaN],
      entropy: [1e-9, Number.POSITIVE_INFINITY],
    },
    { response: "", tokens: [], logprobs: [], score: null, extra: {} },
  ],
});

const stepsOf = (reader: RolloutsReader) => ({
  train: reader.entries("train").map(({ step }) => step),
  val: reader.entries("val").map(({ step }) => step),
});

async function opened(): Promise<RolloutsReader> {
  const reader = new RolloutsReader(dir);
  await reader.refresh();
  return reader;
}

test("what a run logs is read back: numbers with five digits, and null for one that is not finite", async () => {
  await inRun(async (run) => {
    await run.logRollouts(1, "val", [group("b")]);
    await run.logRollouts(1, "train", [group("a"), { ...group("c"), truth: undefined }]);
  });
  const reader = await opened();
  expect(stepsOf(reader)).toEqual({ train: [1], val: [1] });
  const [first, second] = (await reader.read("train", 1))?.groups ?? [];
  expect(first).toEqual({
    prompt: "a",
    truth: { answer: 7 },
    source: "sums",
    episodes: [
      {
        response: "7\n",
        tokens: ["7", "\n"],
        score: 0.33333,
        extra: { acc: true, note: "“ok”" },
        logprobs: [-0.12346, -12.346],
        advantages: [0.5, null],
        entropy: [1e-9, null],
        turns: [{ role: "assistant", start: 0, end: 2 }],
      },
      {
        response: "",
        tokens: [],
        logprobs: [],
        score: null,
        extra: {},
        turns: [{ role: "assistant", start: 0, end: 0 }],
      },
    ],
  });
  expect(second?.truth).toBeNull();
  expect(await reader.read("train", 2)).toBeNull();
});

describe("an episode of several turns", () => {
  const turns = [
    { role: "assistant", start: 0, end: 2, finish_reason: "tool_calls", reward: 0.5 },
    { role: "tool", start: 2, end: 3 },
    { role: "assistant", start: 3, end: 4, finish_reason: "stop", reward: null },
  ];
  const episode = {
    response: "ab = 7",
    tokens: ["a", "b", " = ", "7"],
    logprobs: [-1, -2, 0, -3],
    score: 1,
    extra: {},
  };
  const logged = async (own: Partial<NewGroup["episodes"][number]>) => {
    await inRun((run) => run.logRollouts(1, "train", [{ ...group("a"), episodes: [{ ...episode, ...own }] }]));
    return (await (await opened()).read("train", 1))?.groups[0]?.episodes[0];
  };

  test("is read back with its turns and with the tokens that the policy drew", async () => {
    expect(await logged({ turns, drawn: Uint8Array.of(1, 1, 0, 1) })).toEqual({
      ...episode,
      turns,
      drawn: [1, 1, 0, 1],
    });
  });

  test("with one turn, all of it drawn, is written as a line without turns", async () => {
    const turn = { role: "assistant", start: 0, end: 4 };
    expect(await logged({ turns: [turn], drawn: [1, 1, 1, 1] })).toEqual({ ...episode, turns: [turn] });
    const withTurns = await readFile(path, "utf8");
    expect(withTurns).not.toMatch(/turns|drawn/);
    await rm(path);
    await logged({});
    expect(await readFile(path, "utf8")).toBe(withTurns);
  });
});

test("a resumed run has no rollouts after the step it resumes from", async () => {
  await inRun(async (run) => {
    for (const step of [1, 2, 3]) {
      await run.logRollouts(step, "train", [group(`${step}`)]);
      await run.logRollouts(step, "val", []);
      if (step === 2) await run.saveCheckpoint(2, async () => {}, {});
    }
  });
  const reader = await opened();
  expect(stepsOf(reader)).toEqual({ train: [1, 2, 3], val: [1, 2, 3] });
  const { version } = reader;
  await inRun((run) => run.logRollouts(3, "train", [group("another 3")]));
  await reader.refresh();
  expect(stepsOf(reader)).toEqual({ train: [1, 2, 3], val: [1, 2] });
  expect((await reader.read("train", 3))?.groups[0]?.prompt).toBe("another 3");
  expect(reader.version).not.toBe(version);
});

test("a run refuses rollouts of a step whose checkpoint is already saved", async () => {
  await inRun(async (run) => {
    await run.saveCheckpoint(1, async () => {}, {});
    await expect(run.logRollouts(1, "train", [])).rejects.toThrow("step 1 is logged after checkpoint 1");
  });
});

describe("the reader", () => {
  const line = (step: number, kind = "train") => `{"step":${step},"kind":"${kind}","groups":[]}\n`;

  test("has nothing if there is no file", async () => {
    expect(stepsOf(await opened())).toEqual({ train: [], val: [] });
    expect(await newestRollouts(dir, 8)).toEqual([]);
  });

  test("shows a line once it is complete, and keeps what it has read", async () => {
    await writeFile(path, `${line(1)}{"step":2,"ki`);
    const reader = await opened();
    expect(stepsOf(reader).train).toEqual([1]);
    await appendFile(path, 'nd":"train","groups":[]}\n');
    await reader.refresh();
    expect(stepsOf(reader).train).toEqual([1, 2]);
    expect([reader.version, reader.unreadable]).toEqual([0, 0]);
  });

  test("leaves out lines that it cannot read, and counts them", async () => {
    await writeFile(
      path,
      `${line(1)}\0\0\n[]\n{"step":2,"kind":"other","groups":[]}\n{"step":3,"kind":"val"\n${line(4)}`,
    );
    const reader = await opened();
    expect(stepsOf(reader)).toEqual({ train: [1, 4], val: [] });
    expect(reader.unreadable).toBe(4);
  });

  test("gives null for a line whose start is right and whose rest cannot be read", async () => {
    await writeFile(path, `{"step":1,"kind":"train","groups":[{"prompt":7}]}\n{"step":2,"kind":"train",}\n${line(3)}`);
    const reader = await opened();
    expect(await Promise.all([1, 2, 3].map((step) => reader.read("train", step)))).toEqual([
      null,
      null,
      { step: 3, kind: "train", groups: [] },
    ]);
  });

  test("gives null, not another line, when the file was cut between the index and the read", async () => {
    await writeFile(path, line(1) + line(2));
    const reader = await opened();
    await truncate(path, line(1).length + 3);
    expect(await reader.read("train", 2)).toBeNull();
  });

  test("takes the last of two lines of one step", async () => {
    await writeFile(path, `${line(1)}${line(2)}{"step":1,"kind":"train","groups":[],"x":1}\n`);
    const reader = await opened();
    expect(stepsOf(reader).train).toEqual([1, 2]);
    const [entry] = reader.entries("train");
    expect(await reader.readTexts([entry!])).toEqual(['{"step":1,"kind":"train","groups":[],"x":1}']);
  });

  test("finds the newest training lines from the end of the file", async () => {
    await writeFile(path, [1, 2, 3, 4].map((step) => line(step) + line(step, "val")).join(""));
    expect((await newestRollouts(dir, 3)).map(({ step, kind }) => [step, kind])).toEqual([
      [2, "train"],
      [3, "train"],
      [4, "train"],
    ]);
    expect((await readFile(path, "utf8")).split("\n")).toHaveLength(9);
  });
});
