/**
 * Runs test cases at a Sandbox Fusion service (github.com/bytedance/SandboxFusion), with verl's protocol.
 *
 * A case is one POST; the program's verdict is read from the statuses and the output. The service is trusted, the
 * program is not: where a function is called or assertions are run, the answer follows a random word of this run,
 * so a program that exits early or prints the answer by itself does not count as one that answered. A service that is
 * down or fails is an error with its address, never a score of 0.
 */
import { randomUUID } from "node:crypto";
import { z } from "zod";
import { UserError } from "../util/errors.ts";
import { type CaseRunner, type CodeCase, type Solution, setupOf, type Verdict } from "./code-cases.ts";
import { isSameValue } from "./code-compare.ts";
import { excerpt, type RemoteOptions, remote } from "./remote.ts";
import { functionSource } from "./sandbox/javascript-source.ts";
import type { Language } from "./sandbox/protocol.ts";
import { callSource } from "./sandbox/python-source.ts";

type FusionOptions = {
  readonly timeoutMs: number;
  /** How many cases run at once, of all programs together. */
  readonly maxConcurrent?: number;
  /** Waits before the second try; the third waits twice as long. */
  readonly firstWaitMs?: number;
};

/** Extra time for the service itself, besides compiling and running. */
const EXTRA_MS = 10_000;
const MAX_TRIES = 3;

const names: Record<Language, string> = { python: "python", javascript: "nodejs", typescript: "typescript" };

const Part = z.object({
  status: z.string(),
  return_code: z.number().nullish(),
  stdout: z.string().nullish(),
  stderr: z.string().nullish(),
});
const Answer = z.object({
  status: z.string(),
  message: z.string().nullish(),
  compile_result: Part.nullish(),
  run_result: Part.nullish(),
});
type Part = z.infer<typeof Part>;
type Answer = z.infer<typeof Answer>;

/** A runner of cases at an address such as `http://127.0.0.1:8080/run_code`. */
export function fusionRunner(url: string, options: FusionOptions): CaseRunner {
  const { timeoutMs, maxConcurrent = 64, firstWaitMs = 1000 } = options;
  const perTryMs = 2 * timeoutMs + EXTRA_MS;
  const settings: RemoteOptions = {
    maxConcurrent,
    timeoutMs: perTryMs,
    maxTries: MAX_TRIES,
    firstWaitMs,
    deadlineMs: MAX_TRIES * (perTryMs + 4 * firstWaitMs),
  };
  const post = remote("The Sandbox Fusion service", [url], settings);
  return {
    width: maxConcurrent,
    async run(solution, test) {
      const word = `answer-${randomUUID()}`;
      const answer = Answer.safeParse(await post(requestOf(solution, test, word)));
      if (!answer.success)
        throw broken(
          url,
          `answered what is no answer (${answer.error.issues[0]?.path.join(".")} is not as it should be)`,
        );
      return verdictOf(answer.data, test, { word, url });
    },
  };
}

function requestOf({ language, code, timeoutMs, memoryMb = 1024 }: Solution, test: CodeCase, word: string): object {
  const seconds = timeoutMs / 1000;
  return {
    compile_timeout: seconds,
    run_timeout: seconds,
    code: codeOf(language, code, test, word),
    stdin: test.kind === "call" ? "" : test.stdin,
    memory_limit_MB: memoryMb,
    language: names[language],
    files: {},
    fetch_files: [],
  };
}

/** The program with the code that asks for its answer. */
function codeOf(language: Language, code: string, test: CodeCase, word: string): string {
  if (test.kind === "stdin") return code;
  const isPython = language === "python";
  if (test.kind === "assert") {
    const done = isPython ? `print(${JSON.stringify(`\n${word}`)})` : `console.log(${JSON.stringify(`\n${word}`)});`;
    return [code, test.source, done].join("\n\n");
  }
  const { name, args } = test;
  if (isPython)
    return [setupOf(language, test), code, callSource(name, args), `print("\\n${word}" + answer)`].join("\n");
  const target = functionSource(name) ?? "null";
  return `${code}
Promise.resolve((${target})(...${JSON.stringify(args)}.map((text) => JSON.parse(text)))).then((value) =>
  console.log("\\n${word}" + (JSON.stringify(value) ?? "null")));`;
}

/** A verdict by verl's table: -4 compile, -3 timeout, -2 error; -1, the service's own failure, is thrown. */
function verdictOf(answer: Answer, test: CodeCase, { word, url }: { word: string; url: string }): Verdict {
  const { status, compile_result: compiled, run_result: ran, message } = answer;
  if (status === "Success" && ran?.status === "Finished") return judge(ran.stdout ?? "", test, word);
  if (status === "Failed" && compiled && hasFailed(compiled)) return "compile";
  if (status === "Failed" && ran && hasFailed(ran)) return ran.status === "TimeLimitExceeded" ? "timeout" : "error";
  const detail = `status ${excerpt(status)}, run ${excerpt(ran?.status ?? "none")}: ${excerpt(message ?? "")}`;
  throw broken(url, `could not run a program (${detail})`);
}

function hasFailed(part: Part): boolean {
  return part.status !== "Finished" || (part.return_code ?? 0) !== 0;
}

function judge(stdout: string, test: CodeCase, word: string): Verdict {
  const isPassed = () => {
    if (test.kind === "stdin") return isSameText(stdout, test.expected);
    const at = stdout.lastIndexOf(`\n${word}`);
    if (at < 0) return test.kind === "call" && isSameText(stdout, test.expectedText); // all that verl compares
    if (test.kind === "call") return isSameValue(stdout.slice(at + word.length + 1), test.expected);
    return test.expected === null || isSameText(stdout.slice(0, at), test.expected);
  };
  return isPassed() ? "passed" : "wrong";
}

/** verl's rule for this service: equal, apart from newlines at the end. */
function isSameText(output: string, expected: string): boolean {
  return output.replace(/\n+$/, "") === expected.replace(/\n+$/, "");
}

function broken(url: string, problem: string): UserError {
  return new UserError(`The Sandbox Fusion service at ${url} ${problem}. See its log.`);
}
