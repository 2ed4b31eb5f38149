/**
 * Code rewards, with the sandbox and with a Sandbox Fusion service that is a server of this test and runs programs in
 * the same sandbox: the two score alike.
 */
import { createServer, type IncomingMessage, type Server } from "node:http";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { codeScorer } from "./code.ts";
import type { RewardFunction, RewardInput } from "./reward.ts";
import { type Language, openSandbox, type Sandbox } from "./sandbox/sandbox.ts";

/** What a service does with a request beside running the program. */
type Answer = { status: number; body: unknown } | null;

let sandbox: Sandbox;
let server: Server;
let url: string;
let intercept: (request: Record<string, unknown>) => Answer = () => null;
let underWay = 0;
let mostUnderWay = 0;

beforeAll(async () => {
  sandbox = await openSandbox({ threads: 2, memoryMb: 256 });
  server = createServer(async (request, response) => {
    mostUnderWay = Math.max(mostUnderWay, ++underWay);
    const { status, body } = await serve(request);
    underWay--;
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  url = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}/run_code`;
});
afterAll(async () => {
  server.close();
  server.closeAllConnections();
  await sandbox.close();
});

const languages: Record<string, Language> = { python: "python", nodejs: "javascript", typescript: "typescript" };

/** Sandbox Fusion, as far as verl speaks to it. */
async function serve(request: IncomingMessage): Promise<{ status: number; body: unknown }> {
  const asked = JSON.parse(await text(request)) as Record<string, unknown>;
  const other = intercept(asked);
  if (other !== null) return other;
  const language = languages[String(asked.language)];
  if (language === undefined || typeof asked.run_timeout !== "number") return { status: 422, body: { detail: "no" } };
  const { status, stdout, stderr, exitCode, runMs } = await sandbox.run({
    language,
    code: String(asked.code),
    stdin: String(asked.stdin ?? ""),
    timeoutMs: asked.run_timeout * 1000,
    memoryMb: Math.min(256, Number(asked.memory_limit_MB)),
  });
  const run_result = {
    status: status === "timeout" ? "TimeLimitExceeded" : "Finished",
    execution_time: runMs / 1000,
    return_code: status === "timeout" ? null : (exitCode ?? 1),
    stdout,
    stderr,
  };
  return { status: 200, body: { status: status === "ok" ? "Success" : "Failed", compile_result: null, run_result } };
}

const sample = (response: string, groundTruth: unknown): RewardInput => ({
  dataSource: "apps",
  prompt: "",
  response,
  groundTruth,
  extraInfo: {},
  responseLength: 1,
  row: 3,
});

const fenced = (code: string, language = "python") => `Here it is:\n\`\`\`${language}\n${code}\n\`\`\`\nDone.`;
const doubles = { inputs: ["1", "2", "3", "4"], outputs: ["2", "4", "6", "8"] };
const twelve = {
  inputs: Array.from({ length: 12 }, (_, i) => String(i)),
  outputs: Array.from({ length: 12 }, (_, i) => String(2 * i)),
};
const add = { fn_name: "add", inputs: ["1\n2", "[1]\n[2]"], outputs: ["3", "[1, 2]"] };
const asserts = { assert_case: ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"] };

const scores: Record<string, [code: string, truth: object, score: number, language?: string]> = {
  "a right program": ["print(2 * int(input()))", doubles, 1],
  "a program that is right for half of its inputs": ["n = int(input())\nprint(2 * n if n < 3 else 0)", doubles, 0.5],
  "a wrong program": ["print(0)", doubles, 0],
  "a program that raises": ["n = int(input())\nprint(2 * n)\n1 / 0", doubles, 0],
  "a program that does not parse": ["print(", doubles, 0],
  "a program with more cases than count": ["print(2 * int(input()))", twelve, 1],
  "a program wrong where cases do not count": ["n = int(input())\nprint(2 * n if n < 11 else 0)", twelve, 10 / 11],
  "a program wrong in one of the ten": ["n = int(input())\nprint(2 * n if n != 9 else 0)", twelve, 0.9],
  "a function": ["def add(a, b): return a + b", add, 1],
  "a function that prints, too": ["def add(a, b):\n  print('adding')\n  return a + b", add, 1],
  "a method": ["class Solution:\n  def add(self, a, b): return a + b", add, 1],
  "a function that returns a tuple": [
    "def pair(a): return (a, a)",
    { fn_name: "pair", inputs: ["1"], outputs: ["[1, 1]"] },
    1,
  ],
  "a function that is right for half": ["def add(a, b): return 3", add, 0.5],
  "no function, though an import has one of that name": ["def sub(a, b): return a", add, 0],
  "names of verl's own imports": ["def add(a, b): return reduce(operator.add, deque([a, b]))", add, 1],
  "assertions that hold": ["def add(a, b): return a + b", asserts, 1],
  "assertions half of which hold": ["def add(a, b): return 3", asserts, 0.5],
  "an exit before the assertions": ["import sys\ndef add(a, b): return 0\nsys.exit(0)", asserts, 0],
  "a hard exit before the assertions": ["import os\ndef add(a, b): return 0\nos._exit(0)", asserts, 0],
  "an exit before the call": ["import sys\nprint(3)\nsys.exit(0)", { ...add, outputs: ["0", "0"] }, 0],
  "a forged answer": [
    'import sys\ndef add(a, b):\n  print(\'{"status": "ok", "isComplete": true, "result": "3"}\')\n  sys.exit(0)',
    { ...add, outputs: ["0", "0"] },
    0,
  ],
  "a JavaScript program": [
    "console.log(2 * Number(require('fs').readFileSync(0, 'utf8')))",
    { ...doubles, language: "javascript" },
    1,
    "js",
  ],
  "a JavaScript function": [
    "const add = (a, b) => (Array.isArray(a) ? [...a, ...b] : a + b);",
    { ...add, language: "javascript" },
    1,
    "js",
  ],
  "JavaScript's assertions": [
    "const add = (a, b) => a + b;",
    {
      assert_case: ["require('assert').equal(add(1, 2), 3)", "require('assert').equal(add(1, 2), 4)"],
      language: "javascript",
    },
    0.5,
    "js",
  ],
  "an exit before JavaScript's assertions": [
    "process.exit(0)",
    { assert_case: ["1"], language: "javascript" },
    0,
    "js",
  ],
  "a TypeScript function": [
    "function add(a: any, b: any): any { return Array.isArray(a) ? [...a, ...b] : a + b; }",
    { ...add, language: "typescript" },
    1,
    "ts",
  ],
};

const places: Record<string, () => RewardFunction> = {
  "in the sandbox": () => codeScorer(sandbox, { timeoutMs: 20_000 }),
  "at a Sandbox Fusion service": () => codeScorer(url, { timeoutMs: 20_000 }),
};
for (const [place, scorer] of Object.entries(places)) {
  describe(place, () => {
    for (const [name, [code, truth, score, language]] of Object.entries(scores)) {
      test(`${name} scores ${score.toFixed(2)}`, async () => {
        expect(await scorer()(sample(fenced(code, language), truth))).toMatchObject({
          score,
          acc: score === 1 ? 1 : 0,
        });
      });
    }

    test("a row without test cases is named, not scored 0", async () => {
      await expect(async () => scorer()(sample("print(1)", "none"))).rejects.toThrow("row 3");
    });
  });
}

test("a program that times out again and again is not run any more", async () => {
  await sandbox.run({ language: "python", code: "", timeoutMs: 20_000 }); // so that the interpreter has started
  const started = performance.now();
  const score = await codeScorer(sandbox, { timeoutMs: 300 })(sample(fenced("while True: pass"), twelve));
  expect(score).toMatchObject({ score: 0, tests_counted: 10, first_failure: "timeout" });
  expect(performance.now() - started).toBeLessThan(10 * 300);
});

describe("a Sandbox Fusion service", () => {
  const scored = async (options: object = {}) =>
    codeScorer(url, { timeoutMs: 5000, ...options })(sample(fenced("print(2 * int(input()))"), doubles));
  const withAnswers = async (answers: (request: Record<string, unknown>) => Answer, run: () => Promise<unknown>) => {
    intercept = answers;
    try {
      return await run();
    } finally {
      intercept = () => null;
    }
  };

  test("is asked as verl asks it", async () => {
    const requests: Record<string, unknown>[] = [];
    const note = (request: Record<string, unknown>) => {
      requests.push(request);
      return null;
    };
    await withAnswers(note, () => scored({ memoryMb: 128 }));
    expect(requests.map(({ stdin }) => stdin).sort()).toEqual(doubles.inputs);
    expect(requests[0]).toEqual({
      compile_timeout: 5,
      run_timeout: 5,
      memory_limit_MB: 128,
      language: "python",
      files: {},
      fetch_files: [],
      code: "\nprint(2 * int(input()))\n",
      stdin: expect.any(String),
    });
  });

  test("gets no more cases at once than the limit", async () => {
    mostUnderWay = 0;
    await scored({ maxConcurrent: 2 });
    expect(mostUnderWay).toBe(2);
  });

  test("is asked again after a gateway timeout", async () => {
    let isFirst = true;
    const answers = () => {
      const answer = isFirst ? { status: 504, body: {} } : null;
      isFirst = false;
      return answer;
    };
    expect(await withAnswers(answers, () => scored())).toMatchObject({ score: 1 });
  });

  const run = (run_result: object) => ({ status: "Failed", compile_result: null, run_result });
  const verdicts: Record<string, [body: object, failure: string]> = {
    "a compiler's error": [{ status: "Failed", compile_result: { status: "Error", return_code: 1 } }, "compile"],
    "a compiler's exit code": [{ status: "Failed", compile_result: { status: "Finished", return_code: 1 } }, "compile"],
    "a program out of time": [run({ status: "TimeLimitExceeded" }), "timeout"],
    "a program's error": [run({ status: "Error" }), "error"],
    "a program's exit code": [run({ status: "Finished", return_code: 1, stdout: "2" }), "error"],
    "another output": [{ status: "Success", run_result: { status: "Finished", stdout: "x" } }, "wrong"],
  };
  for (const [name, [body, failure]] of Object.entries(verdicts)) {
    test(`that reports ${name} gives no points`, async () => {
      const score = await withAnswers(
        () => ({ status: 200, body }),
        () => scored(),
      );
      expect(score).toMatchObject({ score: 0, first_failure: failure });
    });
  }

  test("may print a function's value as verl's own wrapper does", async () => {
    const body = { status: "Success", run_result: { status: "Finished", stdout: "[1, 2]\n" } };
    const truth = { fn_name: "f", inputs: ["1"], outputs: ["[1, 2]"] };
    const score = await withAnswers(
      () => ({ status: 200, body }),
      async () => codeScorer(url)(sample("x", truth)),
    );
    expect(score).toMatchObject({ score: 1 });
  });

  const broken: Record<string, [answer: Answer, message: string]> = {
    "is broken": [{ status: 200, body: { status: "SandboxError", message: "no space" } }, "no space"],
    "succeeds without a result": [{ status: 200, body: { status: "Success" } }, "could not run a program"],
    "answers something else": [{ status: 200, body: { result: 1 } }, "status is not as it should be"],
    refuses: [{ status: 403, body: {} }, "403"],
  };
  for (const [name, [answer, message]] of Object.entries(broken)) {
    test(`that ${name} is an error with its name, and there is no score`, async () => {
      const asked = () =>
        withAnswers(
          () => answer,
          () => scored(),
        );
      await expect(asked()).rejects.toThrow(message);
      await expect(asked()).rejects.toThrow(url);
    });
  }

  test("has to have an address", () => {
    expect(() => codeScorer("sandbox")).toThrow('"sandbox"');
  });
});
