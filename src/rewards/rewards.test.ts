/**
 * Reward functions that hang, crash or return wrong values, in processes as in a run: no sample is lost, the program
 * never hangs, and no failure becomes a score of 0.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { mirrorTo } from "../util/log.ts";
import type { RewardFile } from "./custom.ts";
import type { RewardInput } from "./reward.ts";
import { openRewards, type Rewards, type RewardsOptions } from "./rewards.ts";

const folder = mkdtempSync(join(tmpdir(), "rewards-"));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function write(code: string, name = `reward-${files++}.ts`): string {
  const path = join(folder, name);
  writeFileSync(path, code);
  return path;
}

/** A sample; its response says what the reward function does. */
const sample = (response: string, row = 1): RewardInput => ({
  dataSource: "toy",
  prompt: "p",
  response,
  groundTruth: "7",
  extraInfo: { big: 2n ** 60n },
  row,
  responseLength: 3,
});
const samples = (...responses: readonly string[]) => responses.map((response, i) => sample(response, i + 1));

type Using = Omit<RewardsOptions, "scorer"> & Pick<RewardFile, "name" | "kwargs" | "isBatch">;

/** Open rewards for the code of a file, use them, close them. */
async function using<T>(code: string, use: (rewards: Rewards) => Promise<T>, options: Using = {}): Promise<T> {
  const { name = "compute_score", kwargs = {}, isBatch = false, ...others } = options;
  const scorer = { kind: "file", path: write(code), name, kwargs, isBatch } as const;
  const rewards = await openRewards({ scorer, errorBudget: 1, workers: 2, ...others });
  try {
    return await use(rewards);
  } finally {
    await rewards.close();
  }
}

/** The lines that were logged meanwhile. */
async function listening<T>(work: () => Promise<T>): Promise<{ result: T; lines: string[] }> {
  const lines: string[] = [];
  const stop = mirrorTo((line) => lines.push(line));
  const { stderr } = process;
  const write = stderr.write;
  stderr.write = () => true;
  try {
    return { result: await work(), lines };
  } finally {
    stderr.write = write;
    stop();
  }
}

/** Does what the response says. */
const obedient = `
const keep: unknown[] = [];
export async function later({ response }: { response: string }) {
  await null;
  return compute_score({ response });
}
export function compute_score({ response }: { response: string }): unknown {
  switch (response) {
    case "throw": throw new TypeError("the answer is missing");
    case "throw text": throw "just text";
    case "loop": for (;;) keep.length = 0;
    case "never": return new Promise(() => {});
    case "reject": return Promise.reject(new RangeError("later"));
    case "microtasks": return (async () => { for (;;) await null; })();
    case "exit": return process.exit(3);
    case "abort": return process.abort();
    case "kill": return process.kill(process.pid, "SIGKILL");
    case "map": { const map = new Map(); for (let i = 0; ; i++) map.set(i, i); }
    case "spread": { let list = [1]; for (;;) list = [...list, ...list]; }
    case "objects": for (;;) keep.push({ length: keep.length });
    case "buffers": for (;;) keep.push(Buffer.alloc(2 ** 22, 1));
    case "NaN": return NaN;
    case "Infinity": return Infinity;
    case "text": return "1";
    case "nothing": return undefined;
    case "short list": return [1, 2];
    case "function": return { score: 1, log: () => 1 };
    case "late NaN": return Promise.resolve(NaN);
    case "stray": Promise.reject(new Error("nobody waits for me")); return 1;
    case "timer": return new Promise(() => void setTimeout(() => { throw new Error("in a timer"); }, 1));
    case "slow": return new Promise((done) => setTimeout(done, 800, 1));
    case "wait then loop": return new Promise(() => void setTimeout(() => { for (;;) keep.length = 0; }, 20));
    default: return Number(response);
  }
}`;

describe("a reward function that misbehaves is a named failure, and the samples beside it are scored", () => {
  const cases: readonly [what: string, reason: string, message: RegExp, memoryMb?: number][] = [
    ["throw", "threw", /^threw TypeError: the answer is missing \(reward-\d+\.ts:9:\d+\)$/],
    ["throw text", "threw", /^threw just text$/],
    ["reject", "threw", /^threw RangeError: later \(reward-\d+\.ts:13:\d+\)$/],
    ["loop", "deadline", /^gave no answer within its deadline of 0.5 s$/],
    ["never", "deadline", /^gave no answer within its deadline of 0.5 s$/],
    ["microtasks", "deadline", /^gave no answer within its deadline of 0.5 s$/],
    ["wait then loop", "deadline", /^gave no answer within its deadline of 0.5 s$/],
    ["slow", "deadline", /^gave no answer within its deadline of 0.5 s$/],
    ["exit", "crashed", /^ended its process with exit code 3$/],
    ["abort", "crashed", /^had its process ended by SIGABRT/],
    ["kill", "crashed", /^had its process ended by SIGKILL/],
    ["map", "crashed", /most likely because it needed more than 150 MB of memory$/, 150],
    ["spread", "crashed", /most likely because it needed more than 150 MB of memory$/, 150],
    ["objects", "crashed", /most likely because it needed more than 150 MB of memory$/, 150],
    ["buffers", "crashed", /most likely because it needed more than 150 MB of memory$/, 150],
    ["NaN", "value", /^returned NaN; /],
    ["late NaN", "value", /^returned NaN; /],
    ["Infinity", "value", /^returned Infinity; /],
    ["text", "value", /^returned the text "1"; /],
    ["nothing", "value", /^returned nothing; /],
    ["short list", "value", /^returned a list of 2 rewards for a response of 3 tokens$/],
    ["function", "value", /^returned a column `log` that cannot be logged/],
    ["timer", "threw", /^threw Error: in a timer \(reward-\d+\.ts:/],
  ];
  /** All cases of one limit use the same rewards, one after the other: what one does must not reach the next. */
  const opened = new Map<number | undefined, Rewards>();
  beforeAll(async () => {
    const options = { scorer: { kind: "file", path: write(obedient) }, errorBudget: 1, workers: 2 } as const;
    opened.set(undefined, await openRewards({ ...options, timeoutMs: 500 }));
    opened.set(150, await openRewards({ ...options, timeoutMs: 20_000, memoryMb: 150 }));
  });
  afterAll(() => Promise.all([...opened.values()].map((rewards) => rewards.close())));

  for (const [what, reason, message, memoryMb] of cases) {
    test(what, async () => {
      const outcomes = (await opened.get(memoryMb)?.scoreBatch(samples("1", "2", what, "3", "4"))) ?? [];
      expect(outcomes.map(({ score }) => score?.score)).toEqual([1, 2, undefined, 3, 4]);
      expect(outcomes[2]?.failure).toMatchObject({ row: 3, dataSource: "toy", reason });
      expect(outcomes[2]?.failure?.message).toMatch(message);
    });
  }
});

describe("many samples, some of which hang and crash", () => {
  const responses = Array.from({ length: 200 }, (_, i) => (i === 50 ? "loop" : i % 100 === 70 ? "exit" : `${i}`));
  const expected = responses.map((response) => (Number.isNaN(Number(response)) ? undefined : Number(response)));

  for (const name of ["compute_score", "later"]) {
    test(`each have the same outcome as alone, with ${name}`, async () => {
      const counts = await using(
        obedient,
        async (rewards) => {
          const outcomes = await rewards.scoreBatch(samples(...responses));
          expect(outcomes.map(({ score }) => score?.score)).toEqual(expected);
          expect(outcomes[50]?.failure?.reason).toBe("deadline");
          expect(outcomes[170]?.failure?.reason).toBe("crashed");
          return rewards.counts;
        },
        { name, timeoutMs: 500 },
      );
      expect(counts).toMatchObject({ scored: 197, failed: 3 });
      expect(counts.restarts).toBeGreaterThanOrEqual(3);
    });
  }
});

test("promises are awaited concurrently", async () => {
  await using(obedient, async (rewards) => {
    const start = performance.now();
    const outcomes = await rewards.scoreBatch(samples(...new Array<string>(60).fill("slow")));
    expect(outcomes.every(({ score }) => score?.score === 1)).toBe(true);
    expect(performance.now() - start).toBeLessThan(60 * 800 * 0.25);
  });
});

test("an error that no call waits for is a warning, and the score is kept", async () => {
  const { result, lines } = await listening(() =>
    using(obedient, async (rewards) => {
      const outcomes = await rewards.scoreBatch(samples("stray", "stray", "5"));
      await sleep(100);
      return outcomes.map(({ score }) => score?.score);
    }),
  );
  expect(result).toEqual([1, 1, 5]);
  expect(lines).toEqual([
    expect.stringMatching(/^warning: the reward function threw Error: nobody waits for me \(rew/),
  ]);
});

describe("a reward function is called with", () => {
  test("the whole sample, big integers included, and reward_kwargs", async () => {
    const code = `export const check = (input, kwargs) => ({
      score: input.groundTruth === "7" && input.extraInfo.big === 2n ** 60n && input.row === 4 && kwargs.bonus,
      keys: Object.keys(input).sort().join(),
    });`;
    const outcome = await using(
      code.replace("(input, kwargs)", "(input: any, kwargs: any)"),
      (r) => r.score(sample("x", 4)),
      {
        name: "check",
        kwargs: { bonus: 0.5 },
      },
    );
    const keys = "dataSource,extraInfo,groundTruth,prompt,response,responseLength,row";
    expect(outcome).toEqual({ score: { score: 0.5, extra: { keys } } });
  });

  test("a list of samples where it takes batches, in one call for all of them", async () => {
    const code = `let calls = 0;
      export const compute_score = (inputs: any[], { plus }: any) =>
        (calls++, inputs.map((input, i) => ({ score: i + plus, calls, of: inputs.length })));`;
    const scores = await using(
      code,
      async (rewards) => [...(await rewards.scoreBatch(samples("a", "b", "c"))), await rewards.score(sample("d"))],
      { isBatch: true, kwargs: { plus: 10 } },
    );
    const row = (score: number, calls: number, of: number) => ({ score: { score, extra: { calls, of } } });
    expect(scores).toEqual([row(10, 1, 3), row(11, 1, 3), row(12, 1, 3), row(10, 2, 1)]);
  });

  test("the default export where there is no compute_score", async () => {
    expect(await using("export default () => 1;", (rewards) => rewards.score(sample("x")))).toMatchObject({
      score: { score: 1 },
    });
  });
});

describe("a file without a reward function is one message before anything is scored", () => {
  const cases: readonly [what: string, code: string, message: RegExp, name?: string, file?: string][] = [
    [
      ...(["another name", "export const compute_scores = () => 1; export const other = 1;"] as const),
      /has no export `compute_score` \(`custom_reward_function.name`\)\. Did you mean `compute_scores`\? It exports `compute_scores`, `other`\.$/,
    ],
    [
      "a name that is near nothing",
      "export const a = 1;",
      /no export `reward_me` .*`\)\. It exports `a`\.$/,
      "reward_me",
    ],
    ["no exports", "const a = 1;", /It exports nothing\.$/],
    [
      "an export that is no function",
      "export const compute_score = 1;",
      /the export `compute_score` is a number, not a/,
    ],
    [
      "broken TypeScript",
      "\n\nexport function f( { return 1 }",
      /reward-\d+\.ts, line 3 does not compile: Expected ','/,
    ],
    ["an enum", "export enum A { b }", /line 1 does not compile: TypeScript enum is not supported in strip-only mode/],
    [
      "broken JavaScript",
      "\nconst b = ;",
      /broken\.mjs, line 2 does not compile: Unexpected token ';'\.$/,
      "f",
      "broken.mjs",
    ],
    ["an error at import", "\nnull.x;", /cannot be loaded: it threw TypeError: .*'x'\) \(reward-\d+\.ts:2:\d+\)\.$/],
    ["a missing package", 'import "not-there";', /cannot be loaded: it threw Error: Cannot find package 'not-there'/],
    ["an exit at import", "process.exit(4);", /cannot be loaded: it ended its process with exit code 4\.$/],
    ["a hang at import", "for (;;);", /cannot be loaded: it gave no answer within its deadline of 1 s\.$/],
    ["a top-level await without end", "await new Promise(() => {});", /cannot be loaded: it gave no answer within its/],
    [
      "an error behind the import",
      "Promise.reject(new Error('too late')); await new Promise(() => {});",
      /^UserError: The reward function cannot be loaded: it threw Error: too late\.$/,
    ],
  ];
  for (const [what, code, message, name = "compute_score", file] of cases) {
    test(what, async () => {
      const scorer = { kind: "file", path: write(code, file), name } as const;
      const attempt = openRewards({ scorer, loadTimeoutMs: 1000 }).then(
        () => null,
        (error: unknown) => error,
      );
      const error = await attempt;
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toMatch(message);
      expect(String(error)).not.toMatch(/\n|internal:|undefined/);
    });
  }

  test.each([
    ["nothing there", "none.ts", /`custom_reward_function\.path` is .*none\.ts, and there is no such file/],
    ["a folder", "", /which is a folder\. Name the file in it\.$/],
    ["another kind of file", "reward.txt", /A reward file is TypeScript, JavaScript or Python: its name ends in/],
  ])("%s", async (_what, name, message) => {
    writeFileSync(join(folder, "reward.txt"), "1");
    await expect(openRewards({ scorer: { kind: "file", path: join(folder, name) } })).rejects.toThrow(message);
  });
});

describe("a config file whose reward function is a value", () => {
  const open = (code: string) => openRewards({ scorer: { kind: "config", path: write(code) } });

  test("gives it to the processes, so that a hang there is killed as well", async () => {
    const code = `export default { custom_reward_function: ({ response }: { response: string }) => {
      if (response === "loop") for (;;);
      return response.length;
    } };`;
    const scorer = { kind: "config", path: write(code) } as const;
    const rewards = await openRewards({ scorer, timeoutMs: 500, errorBudget: 1 });
    const outcomes = await rewards.scoreBatch(samples("loop", "four"));
    await rewards.close();
    expect(outcomes).toMatchObject([{ failure: { reason: "deadline" } }, { score: { score: 4 } }]);
  });

  test("that has none is refused", async () => {
    await expect(open("export default { custom_reward_function: 1 };")).rejects.toThrow(/is not a function\.$/);
  });
});

describe("a function that is given as a value runs on the main thread", () => {
  test("with a deadline for its promises", async () => {
    const run = ({ response }: RewardInput) =>
      response === "never" ? new Promise<number>(() => {}) : response === "x";
    const rewards = await openRewards({ scorer: { kind: "function", run }, timeoutMs: 50, errorBudget: 1 });
    const outcomes = await rewards.scoreBatch(samples("x", "never", "y"));
    await rewards.close();
    expect(outcomes).toMatchObject([
      { score: { score: 1 } },
      { failure: { reason: "deadline" } },
      { score: { score: 0 } },
    ]);
  });
});

describe("the built-in scorers", () => {
  test("score in processes too; a row without ground truth or with an unknown data source is a named failure", async () => {
    const gsm8k = { ...sample("#### 7"), dataSource: "openai/gsm8k" };
    const rewards = await openRewards({ scorer: { kind: "builtin" }, errorBudget: 1 });
    const outcomes = await rewards.scoreBatch([
      gsm8k,
      { ...gsm8k, response: "#### 8", row: 2 },
      { ...gsm8k, groundTruth: undefined, row: 3 },
      { ...gsm8k, dataSource: "openai/gsm9k", row: 4 },
    ]);
    await rewards.close();
    expect(outcomes.map(({ score }) => score?.score)).toEqual([1, 0, undefined, undefined]);
    expect(outcomes[2]?.failure).toMatchObject({
      row: 3,
      message: expect.stringMatching(/^said: `reward_model.ground_tr/),
    });
    expect(outcomes[3]?.failure).toMatchObject({
      row: 4,
      message: expect.stringMatching(/^said: There is no built-in/),
    });
  });

  test("run the programs of code data sources in the sandbox, beside the others", async () => {
    const rewards = await openRewards({ scorer: { kind: "builtin" } });
    const groundTruth = { inputs: ["2 3"], outputs: ["5"] };
    const program = (code: string) => ({ ...sample(code), dataSource: "apps", groundTruth });
    const right = program("```python\nprint(sum(map(int, input().split())))\n```");
    const wrong = program("```python\nprint(6)\n```");
    const text = { ...sample("#### 7"), dataSource: "openai/gsm8k" };
    const outcomes = await rewards.scoreBatch([right, wrong, text]);
    await rewards.close();
    expect(outcomes.map(({ score }) => score?.score)).toEqual([1, 0, 1]);
  });
});

test("a rate limit delays calls", async () => {
  let [underway, most] = [0, 0];
  const run = async () => {
    most = Math.max(most, ++underway);
    await sleep(5);
    return underway--;
  };
  const scorer = { kind: "function", run } as const;
  const rewards = await openRewards({ scorer, rateLimit: { maxConcurrent: 2 } });
  await rewards.scoreBatch(samples("1", "2", "3", "4", "5"));
  await rewards.close();
  expect(most).toBe(2);
});

describe("the error budget", () => {
  test("past it, every call is rejected with the same error", async () => {
    await using(
      obedient,
      async (rewards) => {
        const attempts = samples(...new Array<string>(20).fill("throw")).map((input) => rewards.score(input));
        const errors = await Promise.all(attempts.map((attempt) => attempt.catch((error: unknown) => error)));
        const [error] = errors;
        expect(error).toBeInstanceOf(UserError);
        expect(String(error)).toMatch(
          /1 of the last 1 rewards .*row \d+ \(data source "toy"\): the reward function threw Ty/,
        );
        expect(new Set(errors).size).toBe(1);
        await expect(rewards.score(sample("1"))).rejects.toBe(error);
      },
      { errorBudget: 0.01 },
    );
  });

  test("within it, failures are counted and the scores go on", async () => {
    await using(
      obedient,
      async (rewards) => {
        await rewards.scoreBatch(samples("1", "2", "3"));
        expect((await rewards.score(sample("throw", 4))).failure?.row).toBe(4);
        expect((await rewards.score(sample("5"))).score?.score).toBe(5);
        expect(rewards.counts).toEqual({ scored: 4, failed: 1, restarts: 0 });
        expect(rewards.failures).toMatchObject([{ row: 4, reason: "threw" }]);
      },
      { errorBudget: 0.25 },
    );
  });
});

describe("what a reward function prints", () => {
  test("goes to the log line by line and does not disturb the scores", async () => {
    const code = `export const compute_score = ({ response }: { response: string }) => {
      console.log("scoring", response);
      process.stdout.write("half a ");
      process.stderr.write("line\\n");
      if (response === "2") for (;;);
      return Number(response);
    };`;
    const { result, lines } = await listening(() =>
      using(code, (rewards) => rewards.scoreBatch(samples("1", "2")), { timeoutMs: 500, workers: 1 }),
    );
    expect(result).toMatchObject([{ score: { score: 1 } }, { failure: { reason: "deadline" } }]);
    expect(lines.filter((line) => line.startsWith("reward: scoring"))).toEqual([
      "reward: scoring 1",
      "reward: scoring 2",
    ]);
  });

  test("is cut when there is too much of it", async () => {
    const code = `export const compute_score = () => { for (;;) console.log("x".repeat(100)); };`;
    const { result, lines } = await listening(() =>
      using(code, (rewards) => rewards.score(sample("1")), { timeoutMs: 500 }),
    );
    expect(result.failure?.reason).toBe("deadline");
    expect(lines.some((line) => line.includes("is left out"))).toBe(true);
    expect(lines.join("").length).toBeLessThan(1e6);
  });

  test("does not include what V8 prints about its memory", async () => {
    const { lines } = await listening(() =>
      using(obedient, (rewards) => rewards.score(sample("map")), { memoryMb: 150, timeoutMs: 20_000 }),
    );
    expect(lines).toEqual([]);
  });
});

describe("stopping", () => {
  test("an aborted sample is rejected at once, and the others go on", async () => {
    await using(obedient, async (rewards) => {
      const abort = new AbortController();
      const hanging = rewards.score(sample("never"), abort.signal);
      setTimeout(() => abort.abort(new Error("enough")), 20);
      await expect(hanging).rejects.toThrow("enough");
      await expect(rewards.score(sample("1"), abort.signal)).rejects.toThrow("enough");
      expect((await rewards.score(sample("2"))).score?.score).toBe(2);
    });
  });

  test("closing ends processes that hang, and rejects their calls", async () => {
    const rewards = await openRewards({ scorer: { kind: "file", path: write(obedient) } });
    const hanging = rewards.score(sample("loop"));
    await sleep(50);
    const start = performance.now();
    const [outcome] = await Promise.allSettled([hanging, rewards.close()]);
    expect(outcome).toMatchObject({ status: "rejected", reason: { message: /closed before this sample was scored/ } });
    expect(performance.now() - start).toBeLessThan(2000);
    await expect(rewards.score(sample("1"))).rejects.toThrow(/were closed/);
  });
});

test("a process that hangs does not outlive a program that is killed", async () => {
  const hanging = write("export default () => { console.log(`I am ${process.pid}`); for (;;); };");
  const program = write(
    `import { openRewards } from ${JSON.stringify(new URL("./rewards.ts", import.meta.url).href)};
     const rewards = await openRewards({ scorer: { kind: "file", path: ${JSON.stringify(hanging)} } });
     await rewards.score(${JSON.stringify({ ...sample("x"), extraInfo: {} })});`,
  );
  const child = spawn(process.execPath, [program], { stdio: ["ignore", "ignore", "pipe"] });
  const pid = await new Promise<number>((resolve) => {
    let said = "";
    child.stderr.on("data", (text) => {
      said += text;
      const found = /I am (\d+)\n/.exec(said)?.[1];
      if (found !== undefined) resolve(Number(found));
    });
  });
  expect(isRunning(pid)).toBe(true);
  child.kill("SIGKILL");
  for (let i = 0; i < 100 && isRunning(pid); i++) await sleep(50);
  expect(isRunning(pid)).toBe(false);
});

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe("speed", () => {
  const code = `export const compute_score = ({ response, groundTruth }: { response: string; groundTruth: string }) =>
    [...response.slice(-300).matchAll(/#### (-?[0-9.,]+)/g)].at(-1)?.[1] === groundTruth;`;

  test("a process is ready after 300 ms of processor time, whatever else the machine does", async () => {
    const used =
      "export default () => { const { user, system } = process.cpuUsage(); return (user + system) / 1000; };";
    const { score } = await using(used, (rewards) => rewards.score(sample("x")));
    expect(score?.score).toBeGreaterThan(10);
    expect(score?.score).toBeLessThan(300);
  });

  test("10,000 replies take under 2 s, and no turn of the main thread more than 20 ms of its time", async () => {
    const replies = Array.from({ length: 10_000 }, (_, i) =>
      sample(`${"Some reasoning about the matter. ".repeat(20)}#### ${i % 10}`, i + 1),
    );
    await using(code, async (rewards) => {
      const longest = longestTurn();
      const start = performance.now();
      const outcomes: Promise<{ score?: { score: number } | undefined }>[] = [];
      for (const [i, reply] of replies.entries()) {
        outcomes.push(rewards.score(reply));
        if (i % 100 === 99) await new Promise((resolve) => setImmediate(resolve)); // samples finish bit by bit
      }
      const total = (await Promise.all(outcomes)).reduce((sum, { score }) => sum + (score?.score ?? Number.NaN), 0);
      expect(performance.now() - start).toBeLessThan(2000);
      expect(longest()).toBeLessThan(20);
      expect(total).toBe(1000); // the ground truth is 7
    });
  });
});

/** The most time, in ms of this thread on a processor, that one turn of the event loop has taken since. */
function longestTurn(): () => number {
  const used = () => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1000;
  };
  let [before, longest] = [used(), 0];
  const timer = setInterval(() => {
    const now = used();
    longest = Math.max(longest, now - before);
    before = now;
  }, 1);
  return () => {
    clearInterval(timer);
    return longest;
  };
}
