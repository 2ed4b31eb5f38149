/**
 * The test cases as verl's data has them, the program in a response, and the interface that runs a program on a case.
 *
 * A ground truth is an object, or its JSON text: `inputs` and `outputs` side by side, with `fn_name` where a function
 * is called with the inputs; or `assert_case`, sources that raise when the program is wrong. Ours: `language`.
 */
import { describe } from "../data/row.ts";
import { UserError, unknownName } from "../util/errors.ts";
import { parseExactly } from "./code-compare.ts";
import type { RewardInput } from "./reward.ts";
import { type Language, languages, type Status } from "./sandbox/protocol.ts";
import { strip } from "./scorers/python-text.ts";

/** One test: the input of the program, and the expected answer. */
export type CodeCase =
  | { readonly kind: "stdin"; readonly stdin: string; readonly expected: string }
  | {
      readonly kind: "call";
      readonly name: string;
      /** One JSON text per argument. */
      readonly args: readonly string[];
      readonly expected: unknown;
      /** As the data has it. */
      readonly expectedText: string;
    }
  | { readonly kind: "assert"; readonly source: string; readonly stdin: string; readonly expected: string | null };

type CodeTests = { readonly language: Language; readonly cases: readonly CodeCase[] };

/** The tests of a sample, from its ground truth. */
export function parseTests(input: RewardInput): CodeTests {
  const refuse = (problem: string) => {
    const row = input.row === undefined ? "" : ` of row ${input.row}`;
    return new UserError(
      `\`reward_model.ground_truth\`${row} (data source "${input.dataSource}") ${problem}. Give an object, or its JSON ` +
        "text, with the lists `inputs` and `outputs` (and `fn_name` to call a function), or with the list `assert_case`.",
    );
  };
  const truth = parseTruth(input.groundTruth, refuse);
  const { inputs, outputs, fn_name: name, assert_case: asserts, language = "python" } = truth;
  if (!isLanguage(language)) throw unknownName("`reward_model.ground_truth.language`", String(language), languages);
  const count = listLength(asserts ?? inputs);
  if (count === 0) throw refuse("has no test cases");
  for (const [key, list] of Object.entries({ inputs, outputs, assert_case: asserts })) {
    if (list === undefined ? asserts === undefined && key !== "assert_case" : listLength(list) !== count)
      throw refuse(`has ${listLength(list)} entries in \`${key}\` for ${count} test cases`);
  }
  if (name !== undefined && name !== null && typeof name !== "string")
    throw refuse("has a `fn_name` that is not a text");
  const at = (list: unknown, i: number): unknown => (Array.isArray(list) ? list[i] : undefined);
  const cases = Array.from({ length: count }, (_, i): CodeCase => {
    if (asserts !== undefined) {
      const output = at(outputs, i) ?? null;
      const expected = output === null ? null : joined(output);
      return { kind: "assert", source: joined(at(asserts, i)), stdin: joined(at(inputs, i) ?? ""), expected };
    }
    if (typeof name === "string") {
      const output = at(outputs, i);
      const args = argumentsOf(at(inputs, i));
      return { kind: "call", name, args, expected: valueIn(output), expectedText: joined(output) };
    }
    return { kind: "stdin", stdin: joined(at(inputs, i)), expected: joined(at(outputs, i)) };
  });
  return { language, cases };
}

type Truth = Readonly<Partial<Record<"inputs" | "outputs" | "fn_name" | "assert_case" | "language", unknown>>>;

function parseTruth(groundTruth: unknown, refuse: (problem: string) => UserError): Truth {
  let truth = groundTruth;
  if (typeof truth === "string") {
    try {
      truth = JSON.parse(truth);
    } catch {
      throw refuse(`is ${describe(groundTruth)}, which is not JSON`);
    }
  }
  if (typeof truth === "object" && truth !== null && !Array.isArray(truth)) return truth;
  throw refuse(`is ${describe(truth ?? null)}`);
}

function isLanguage(value: unknown): value is Language {
  return languages.some((language) => language === value);
}

function listLength(value: unknown): number {
  return Array.isArray(value) ? value.length : 0;
}

/** A text, or lines to join; anything else as JSON. */
function joined(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((line) => joined(line)).join("\n");
  return JSON.stringify(value) ?? "";
}

/** One JSON text per argument: the lines of a text, or the entries of a list. */
function argumentsOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.map((argument) => JSON.stringify(argument));
  const text = joined(value);
  return strip(text) === "" ? [] : text.split("\n");
}

/** The value of a text that is JSON, or else the text itself. */
function valueIn(value: unknown): unknown {
  return typeof value === "string" ? (parseExactly(value) ?? value) : value;
}

/** A program, and how to run it. */
export type Solution = {
  readonly language: Language;
  readonly code: string;
  readonly timeoutMs: number;
  readonly memoryMb?: number;
};

/** The result of a case: passed, a wrong answer, or the reason why there is no answer. */
export type Verdict = "passed" | "wrong" | "compile" | Exclude<Status, "ok">;

/** Runs a program on a test case; throws only if it cannot be run at all. */
export type CaseRunner = {
  run(solution: Solution, test: CodeCase): Promise<Verdict>;
  /** Cases of one program that are run at once. */
  readonly width: number;
};

/** What a Python program may use without importing it, in verl's order: later names win. */
const starred = [
  "string",
  "re",
  "datetime",
  "collections",
  "heapq",
  "bisect",
  "copy",
  "math",
  "random",
  "statistics",
  "itertools",
  "functools",
  "operator",
  "io",
  "sys",
  "json",
  "builtins",
  "typing",
];
/** Deep enough for a search through 100,000 nodes; at verl's 600,000 the interpreter's own stack is full. */
const RECURSION_LIMIT = 200_000;
const PYTHON_SETUP = [
  ...starred.map((module) => `from ${module} import *`),
  `import ${starred.filter((module) => module !== "builtins" && module !== "typing").join(", ")}`,
  `sys.setrecursionlimit(${RECURSION_LIMIT})`,
  "",
].join("\n");

/** What runs before a program; of a function that is going to be called, the program has to bring its own. */
export function setupOf(language: Language, test: CodeCase): string {
  if (language !== "python") return "";
  return test.kind === "call" ? `${PYTHON_SETUP}globals().pop(${JSON.stringify(test.name)}, None)\n` : PYTHON_SETUP;
}

const fences: Record<Language, RegExp> = {
  python: /```(?:python3?|py)(?![\w+#-])/gi,
  javascript: /```(?:javascript|js|node)(?![\w+#-])/gi,
  typescript: /```(?:typescript|ts)(?![\w+#-])/gi,
};

/** The program in a response: its last block of that language, else its first block, else all of it. */
export function extractCode(response: string, language: Language): string {
  const last = [...response.matchAll(fences[language])].at(-1);
  if (last !== undefined) return response.slice(last.index + last[0].length).split("```")[0] ?? "";
  const block = response.split("```")[1];
  if (block === undefined) return response;
  const [firstLine = "", ...rest] = block.split("\n");
  return rest.length > 0 && /^\s*\p{L}+\s*$/u.test(firstLine) ? rest.join("\n") : block;
}
