/** Reward functions in Python, in verl's signature; TRAINYARD_TEST_PYTHON names the interpreter. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { mirrorTo } from "../util/log.ts";
import type { RewardInput } from "./reward.ts";
import { openRewards, type Rewards } from "./rewards.ts";

const python = process.env.TRAINYARD_TEST_PYTHON ?? "";
const folder = mkdtempSync(join(tmpdir(), "python-rewards-"));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function write(code: string): string {
  const path = join(folder, `reward_${files++}.py`);
  writeFileSync(path, code);
  return path;
}

const sample = (response: string, row = 1): RewardInput => ({
  dataSource: "toy",
  prompt: "p",
  response,
  groundTruth: "7",
  extraInfo: { index: 3, big: 2n ** 60n },
  row,
  responseLength: 3,
});
const samples = (...responses: readonly string[]) => responses.map((response, i) => sample(response, i + 1));

const obedient = `
import asyncio, os, sys, time

def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    if solution_str == "raise": raise ValueError("the answer is missing")
    if solution_str == "exit": sys.exit(3)
    if solution_str == "hard exit": os._exit(3)
    if solution_str == "loop":
        while True: pass
    if solution_str == "sleep": time.sleep(60)
    if solution_str == "never": return asyncio.sleep(60)
    if solution_str == "its own timeout": return own_timeout()
    if solution_str == "memory":
        keep = []
        while True: keep.append(b"x" * 2**22)
    if solution_str == "nan": return float("nan")
    if solution_str == "inf": return -float("inf")
    if solution_str == "text": return "1"
    if solution_str == "none": return None
    if solution_str == "set": return {1, 2}
    if solution_str == "short list": return [1, 2]
    if solution_str == "print":
        print("hello")
        print('{"kind": "ready"}')
    return float(solution_str) if solution_str[0].isdigit() else 1.0

async def own_timeout():
    raise asyncio.TimeoutError("the judge is slow")

async def later(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(0.2)
    return float(solution_str)

def echo(data_source, solution_str, ground_truth, extra_info, bonus=0):
    return {"score": True, "seen": [data_source, solution_str, ground_truth, extra_info, bonus]}

def tokens(**kwargs):
    return [0.5, 0, 1]

def pair(**kwargs):
    return (0.25, "ignored")

def batch(data_sources, solution_strs, ground_truths, extra_infos, plus):
    assert len(data_sources) == len(ground_truths) == len(extra_infos)
    return [{"score": plus + i, "of": len(solution_strs)} for i, _ in enumerate(solution_strs)]
`;

async function using<T>(
  { name = "compute_score", kwargs = {}, isBatch = false }: { name?: string; kwargs?: object; isBatch?: boolean },
  use: (rewards: Rewards) => Promise<T>,
): Promise<T> {
  const scorer = { kind: "file", path: write(obedient), name, kwargs: { ...kwargs }, isBatch } as const;
  const rewards = await openRewards({ scorer, python, errorBudget: 1, workers: 2 });
  try {
    return await use(rewards);
  } finally {
    await rewards.close();
  }
}

test("without Python, a Python file is one message that says what it needs", async () => {
  const attempt = openRewards({ scorer: { kind: "file", path: write(obedient) }, python: "no-such-python" });
  await expect(attempt).rejects.toThrow(
    /which needs Python, and `no-such-python` cannot be started .*ENOENT.* Install Python 3\.9 or newer, or write/,
  );
});

describe.skipIf(python === "")("with Python (skipped unless TRAINYARD_TEST_PYTHON names one)", () => {
  describe("a reward function that misbehaves is a named failure, and the samples beside it are scored", () => {
    let rewards: Rewards;
    beforeAll(async () => {
      const scorer = { kind: "file", path: write(obedient) } as const;
      rewards = await openRewards({ scorer, python, errorBudget: 1, workers: 2, timeoutMs: 500 });
    });
    afterAll(() => rewards.close());

    const cases: readonly [what: string, reason: string, message: RegExp][] = [
      ["raise", "threw", /^raised ValueError: the answer is missing \(reward_\d+\.py:5\)$/],
      ["its own timeout", "threw", /^raised TimeoutError: the judge is slow \(reward_\d+\.py:\d+\)$/],
      ["exit", "threw", /^raised SystemExit: sys\.exit\(3\)$/],
      ["hard exit", "crashed", /^ended its process with exit code 3$/],
      ["loop", "deadline", /^gave no answer within its deadline of 0\.5 s$/],
      ["sleep", "deadline", /^gave no answer within its deadline of 0\.5 s$/],
      ["never", "deadline", /^gave no answer within its deadline of 0\.5 s$/],
      ["nan", "value", /^returned NaN; /],
      ["inf", "value", /^returned -Infinity; /],
      ["text", "value", /^returned the text "1"; /],
      ["none", "value", /^returned null; /],
      ["set", "threw", /^raised TypeError: a value of the type set is not a number, a text, a list or a dict$/],
      ["short list", "value", /^returned a list of 2 rewards for a response of 3 tokens$/],
    ];
    for (const [what, reason, message] of cases) {
      test(what, async () => {
        const outcomes = await rewards.scoreBatch(samples("1", "2", what, "3", "4"));
        expect(outcomes.map(({ score }) => score?.score)).toEqual([1, 2, undefined, 3, 4]);
        expect(outcomes[2]?.failure).toMatchObject({ row: 3, dataSource: "toy", reason });
        expect(outcomes[2]?.failure?.message).toMatch(message);
      });
    }
  });

  test.skipIf(process.platform !== "linux")("one that takes too much memory is ended (only on Linux)", async () => {
    const scorer = { kind: "file", path: write(obedient) } as const;
    const rewards = await openRewards({ scorer, python, errorBudget: 1, memoryMb: 200 });
    const outcomes = await rewards.scoreBatch(samples("1", "memory", "2"));
    await rewards.close();
    expect(outcomes.map(({ score }) => score?.score)).toEqual([1, undefined, 2]);
    expect(outcomes[1]?.failure?.message).toMatch(/SIGKILL, most likely because it needed more than 200 MB of memory$/);
  });

  test("the arguments are verl's, with reward_kwargs as keywords", async () => {
    const outcome = await using({ name: "echo", kwargs: { bonus: 2 } }, (rewards) =>
      rewards.score(sample("ünï\u2028\n")),
    );
    const seen = ["toy", "ünï\u2028\n", "7", { index: 3, big: String(2n ** 60n) }, 2];
    expect(outcome).toEqual({ score: { score: 1, extra: { seen } } });
  });

  test.each([
    ["one reward per token", "tokens", { score: 1.5, tokens: [0.5, 0, 1], extra: {} }],
    ["the first of a tuple", "pair", { score: 0.25, extra: {} }],
  ])("%s is the reward", async (_what, name, score) => {
    expect(await using({ name }, (rewards) => rewards.score(sample("x")))).toEqual({ score });
  });

  test("lists go to a function that takes batches, in one call", async () => {
    const outcomes = await using({ name: "batch", isBatch: true, kwargs: { plus: 10 } }, (rewards) =>
      rewards.scoreBatch(samples("a", "b")),
    );
    expect(outcomes).toEqual([10, 11].map((score) => ({ score: { score, extra: { of: 2 } } })));
  });

  test("coroutines run side by side", async () => {
    await using({ name: "later" }, async (rewards) => {
      const start = performance.now();
      const outcomes = await rewards.scoreBatch(samples(...Array.from({ length: 40 }, (_, i) => `${i}`)));
      expect(outcomes.map(({ score }) => score?.score)).toEqual(Array.from({ length: 40 }, (_, i) => i));
      expect(performance.now() - start).toBeLessThan(40 * 200 * 0.5);
    });
  });

  test("what is printed goes to the log, and is never taken for an answer", async () => {
    const lines: string[] = [];
    const stop = mirrorTo((line) => lines.push(line));
    const outcome = await using({}, (rewards) => rewards.score(sample("print")));
    stop();
    expect(outcome.score?.score).toBe(1);
    expect(lines).toEqual(["reward: hello", 'reward: {"kind": "ready"}']);
  });

  test.each([
    ["another name", "def compute_scor(): pass", /has no export `compute_score`.*Did you mean `compute_scor`\?/],
    ["broken code", "\ndef f(:\n  pass", /reward_\d+\.py, line 2 does not compile: /],
    ["an error at import", "x = 1\nx.y", /cannot be loaded: it raised AttributeError: .* \(reward_\d+\.py:2\)\.$/],
    ["a missing module", "import not_there", /cannot be loaded: it raised ModuleNotFoundError: .*not_there/],
    ["an exit at import", "import os; os._exit(2)", /cannot be loaded: it ended its process with exit code 2\.$/],
    ["a hang at import", "while True: pass", /cannot be loaded: it gave no answer within its deadline of 1 s\.$/],
  ])("a file with %s is one message", async (_what, code, message) => {
    const attempt = openRewards({ scorer: { kind: "file", path: write(code) }, python, loadTimeoutMs: 1000 });
    const error = await attempt.catch((it: unknown) => it);
    expect(error).toBeInstanceOf(UserError);
    expect(String(error)).toMatch(message);
  });
});
