/**
 * The reward for code: the share of its tests that the program in a response passes (verl's prime_code and
 * sandbox_fusion with continuous scores).
 *
 * The first ten cases count. If all of them pass and a later one does not, the score is 10/11, so that a program that is
 * known to be wrong never scores 1 (verl 0.9 does so for a wrong answer at a service; elsewhere verl gives 1). Our
 * departure: after three cases that timed out, the rest of the ten count as timeouts without being run. Answers are
 * compared here, never where the program runs.
 */
import {
  type CaseRunner,
  type CodeCase,
  extractCode,
  parseTests,
  type Solution,
  setupOf,
  type Verdict,
} from "./code-cases.ts";
import { isSameOutput, isSameValue } from "./code-compare.ts";
import type { RewardFunction } from "./reward.ts";
import type { Outcome, Program, Sandbox } from "./sandbox/sandbox.ts";
import { fusionRunner } from "./sandbox-fusion.ts";

export type CodeScorerOptions = {
  /** For each test case. */
  readonly timeoutMs?: number;
  /** All that the sandbox allows if absent; 1024 at a Sandbox Fusion service. */
  readonly memoryMb?: number;
  /** Calls to a Sandbox Fusion service that are under way at once. */
  readonly maxConcurrent?: number;
};

/** The cases that verl scores. */
const SCORED = 10;
/** After this many timeouts a program is not run again. */
const PATIENCE = 3;

/** A reward function that runs the model's code, in our sandbox or at the address of a Sandbox Fusion service. */
export function codeScorer(place: Sandbox | string, options: CodeScorerOptions = {}): RewardFunction {
  const { timeoutMs = 10_000, memoryMb } = options;
  const runner = typeof place === "string" ? fusionRunner(place, { ...options, timeoutMs }) : sandboxRunner(place);
  return async (input) => {
    const { language, cases } = parseTests(input);
    const solution = {
      language,
      code: extractCode(input.response, language),
      timeoutMs,
      ...(memoryMb === undefined ? {} : { memoryMb }),
    };
    const verdicts = await runCases(runner, solution, cases.slice(0, SCORED));
    const passed = verdicts.filter((verdict) => verdict === "passed").length;
    const later = passed === SCORED ? await firstFailure(runner, solution, cases.slice(SCORED)) : null;
    const counted = verdicts.length + (later === null ? 0 : 1);
    return {
      score: passed / counted,
      acc: passed === counted ? 1 : 0,
      tests_passed: passed,
      tests_counted: counted,
      first_failure: later ?? verdicts.find((verdict) => verdict !== "passed") ?? "",
    };
  };
}

async function runCases(runner: CaseRunner, solution: Solution, cases: readonly CodeCase[]): Promise<Verdict[]> {
  const verdicts: Verdict[] = [];
  for (let at = 0; at < cases.length; at += runner.width) {
    const isTooSlow = verdicts.filter((verdict) => verdict === "timeout").length >= PATIENCE;
    // A program that does not compile fails in all cases.
    const known = verdicts.includes("compile") ? "compile" : isTooSlow ? "timeout" : null;
    const some = cases.slice(at, at + runner.width);
    verdicts.push(...(await Promise.all(some.map((test) => known ?? runner.run(solution, test)))));
  }
  return verdicts;
}

/** The first verdict that is not a pass; the cases after it are not run. */
async function firstFailure(
  runner: CaseRunner,
  solution: Solution,
  cases: readonly CodeCase[],
): Promise<Verdict | null> {
  for (let at = 0; at < cases.length; at += runner.width) {
    const verdicts = await runCases(runner, solution, cases.slice(at, at + runner.width));
    const failure = verdicts.find((verdict) => verdict !== "passed");
    if (failure !== undefined) return failure;
  }
  return null;
}

/** Runs cases in our sandbox, each in a fresh interpreter. */
function sandboxRunner(sandbox: Sandbox): CaseRunner {
  return {
    width: 1,
    async run(solution, test) {
      const setup = setupOf(solution.language, test);
      const outcome = await sandbox.run({ ...solution, setup, ...questionOf(test) });
      return outcome.status === "ok" ? judge(outcome, test) : outcome.status;
    },
  };
}

function questionOf(test: CodeCase): Pick<Program, "stdin" | "call" | "check"> {
  if (test.kind === "stdin") return { stdin: test.stdin };
  if (test.kind === "call") return { call: { name: test.name, args: test.args } };
  return { check: test.source, stdin: test.stdin };
}

function judge({ stdout, result, isComplete }: Outcome, test: CodeCase): Verdict {
  if (test.kind === "stdin") return isSameOutput(stdout, test.expected) ? "passed" : "wrong";
  if (!isComplete) return "error"; // it exited before the call, or before the assertions
  if (test.kind === "call") return isSameValue(result ?? "null", test.expected) ? "passed" : "wrong";
  return test.expected === null || isSameOutput(stdout, test.expected) ? "passed" : "wrong";
}
