/**
 * Functions that have nothing to do with rewards, in the processes of a pool: one that returns an object, and ones that
 * hang, crash, use up the memory, or return what cannot be sent. Each is a named failure, and the calls beside it have
 * their outputs. `rewards/rewards.test.ts` tries many more ways to fail.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { mirrorTo } from "../util/log.ts";
import { nodeLane } from "./node-lane.ts";
import { Pool } from "./pool.ts";
import { pythonLane } from "./python-lane.ts";

const folder = mkdtempSync(join(tmpdir(), "workers-"));
afterAll(() => rmSync(folder, { recursive: true }));
const python = process.env.TRAINYARD_TEST_PYTHON ?? "";

function write(name: string, code: string): string {
  const path = join(folder, name);
  writeFileSync(path, code);
  return path;
}

/** A tool call: the name of a tool and its arguments. */
type ToolCall = { readonly tool: string; readonly args: Readonly<Record<string, unknown>> };

/** A handler module as a room would write it: several functions, found by the name in the input. */
const tools = `
const keep: unknown[] = [];
const tools: Record<string, (args: Record<string, unknown>, city: string) => unknown> = {
  weather: ({ day }, city) => ({ city, day, at: new Date(0), degrees: [20, 31n], words: new Map([["sunny", true]]) }),
  later: async ({ value }) => { await null; return { value }; },
  fail: () => { throw new RangeError("no such day"); },
  hang: () => { for (;;) keep.length = 0; },
  never: () => new Promise(() => {}),
  crash: () => process.exit(7),
  memory: () => { for (;;) keep.push(Buffer.alloc(2 ** 22, 1)); },
  unsendable: () => ({ run: () => 1 }),
  print: () => { console.log("hello"); return null; },
};
export async function load({ city, isBroken }: { city: string; isBroken?: boolean }) {
  if (isBroken) throw new Error("the city is closed");
  return { file: import.meta.filename, run: ({ tool, args }: { tool: string; args: Record<string, unknown> }) => tools[tool]!(args, city) };
}`;

const limits = { timeoutMs: 500, memoryMb: 150 };
const name = { what: "the tool", logPrefix: "tool" };
const call = (tool: string, args: ToolCall["args"] = {}): ToolCall => ({ tool, args });

function openTools(
  settings: object = { city: "Bonn" },
  timeoutMs = limits.timeoutMs,
): Promise<Pool<ToolCall, unknown>> {
  const module = pathToFileURL(write("tools.ts", tools));
  const lane = nodeLane<ToolCall, unknown>({ module, settings, ...limits, ...name, timeoutMs });
  return Pool.open(lane, { what: name.what, lanes: 2, timeoutMs, loadTimeoutMs: 10_000 });
}

describe("functions of a module in the processes of a pool", () => {
  let pool: Pool<ToolCall, unknown>;
  beforeAll(async () => {
    pool = await openTools();
  });
  afterAll(() => pool.stop(new Error("over")));

  test("return data of any form, made with the settings of the module", async () => {
    const output = { city: "Bonn", day: 3, at: new Date(0), degrees: [20, 31n], words: new Map([["sunny", true]]) };
    expect(await pool.run(call("weather", { day: 3 }))).toEqual({ output });
    expect(await pool.run(call("print"))).toEqual({ output: null });
  });

  const cases: readonly [tool: string, reason: string, message: RegExp][] = [
    ["fail", "threw", /^threw RangeError: no such day \(tools\.ts:\d+:\d+\)$/],
    ["hang", "deadline", /^gave no answer within its deadline of 0\.5 s$/],
    ["never", "deadline", /^gave no answer within its deadline of 0\.5 s$/],
    ["crash", "crashed", /^ended its process with exit code 7$/],
    ["unsendable", "threw", /^returned a value that cannot be sent: .*could not be cloned/],
  ];
  for (const [tool, reason, message] of cases) {
    test(`${tool}: the failure is named, and the calls beside it have their outputs`, async () => {
      const values = [1, 2, 3, 4].map((value) => pool.run(call("later", { value })));
      const { failure } = await pool.run(call(tool));
      expect(failure).toEqual({ reason, message: expect.stringMatching(message) });
      expect(await Promise.all(values)).toEqual([1, 2, 3, 4].map((value) => ({ output: { value } })));
    });
  }

  test("an input that cannot be sent fails its own call only", async () => {
    const results = await Promise.all([
      pool.run(call("later", { value: 1 })),
      pool.run(call("later", { value: () => 1 })),
      pool.run(call("later", { value: 2 })),
    ]);
    expect(results).toEqual([
      { output: { value: 1 } },
      { failure: { reason: "threw", message: expect.stringMatching(/^cannot be given its input: .*be cloned/) } },
      { output: { value: 2 } },
    ]);
  });

  test("an aborted call is rejected at once", async () => {
    const abort = new AbortController();
    const waiting = pool.run(call("never"), abort.signal);
    abort.abort(new Error("enough"));
    await expect(waiting).rejects.toThrow("enough");
  });
});

test("a function that uses up its memory ends its process only", async () => {
  const pool = await openTools(undefined, 20_000);
  const results = await Promise.all([pool.run(call("memory")), pool.run(call("weather", { day: 1 }))]);
  expect(results[0]?.failure).toEqual({
    reason: "crashed",
    message: expect.stringMatching(/most likely because it needed more than 150 MB of memory$/),
  });
  expect(results[1]?.output).toMatchObject({ day: 1 });
  expect(pool.restarts).toBeGreaterThanOrEqual(1);
  await pool.stop(new Error("over"));
});

test("what a function prints is a line of the log with its own prefix", async () => {
  const lines: string[] = [];
  const stop = mirrorTo((line) => lines.push(line));
  const pool = await openTools();
  await pool.run(call("print"));
  await pool.stop(new Error("over"));
  stop();
  expect(lines).toEqual(["tool: hello"]);
});

test("a module that cannot be loaded is one message", async () => {
  await expect(openTools({ city: "Bonn", isBroken: true })).rejects.toThrow("internal: the city is closed");
});

describe.skipIf(python === "")("with Python (skipped unless TRAINYARD_TEST_PYTHON names one)", () => {
  const code = "def add(a, b):\n    return {'sum': a + b, 'pair': (a, float('inf'))}\n";
  const open = (functionName: string) => {
    const lane = pythonLane<{ a: number; b: number }, unknown>({
      ...limits,
      ...name,
      python,
      path: write("tool.py", code),
      function: functionName,
      module: "tool",
      encode: (input) => input,
      decode: (value) => value,
      noPython: (error) => `no Python: ${error.message}`,
      noFunction: (names) => `there is only ${names.join()}`,
    });
    return Pool.open(lane, { what: name.what, lanes: 1, timeoutMs: 10_000, loadTimeoutMs: 10_000 });
  };

  test("a plain Python function is called with the keys of its input", async () => {
    const pool = await open("add");
    expect(await pool.run({ a: 2, b: 3 })).toEqual({ output: { sum: 5, pair: [2, Number.POSITIVE_INFINITY] } });
    await pool.stop(new Error("over"));
  });

  test("a name that the file does not have is refused with the caller's message", async () => {
    const error = await open("subtract").catch((it: unknown) => it);
    expect(error).toEqual(new UserError("there is only add"));
  });
});
