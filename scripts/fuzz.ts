/**
 * Compares our functions with those of verl itself on random inputs: `npm run fuzz:verl -- --seed 1 --cases 10000`.
 *
 * A case is a golden case whose outputs are computed now, by verl 0.7.0 or 0.9.1 in a Python process
 * (`fuzz/verl_answers.py`), and which the checkers of `npm run goldens` then hold against ours. So whatever those
 * checkers know as a departure is one here too, and every other difference is a miss. Scorers that ask sympy in verl
 * may differ in a share of cases (`mayDiffer`). Case N of a seed is always the same; `--case N` prints it whole. `--topic`
 * and `--function` take one part. The exit code is 1 on a miss.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Runtime } from "../src/runtime/runtime.ts";
import { messageOf, UserError } from "../src/util/errors.ts";
import { Random } from "../src/util/random.ts";
import { metricGenerators } from "./fuzz/metrics.ts";
import { type Generator, numberGenerators } from "./fuzz/numbers.ts";
import { textGenerators } from "./fuzz/texts.ts";
import type { GoldenCase } from "./goldens/compare.ts";
import { checkCase } from "./goldens.ts";
import { ensureVenv, ensureVerl, type VerlRelease, verlReleases } from "./venv.ts";

export type FuzzCase = GoldenCase & {
  readonly topic: string;
  readonly function: string;
  readonly version: VerlRelease;
};

export type FuzzOptions = {
  readonly seed: number;
  readonly cases: number;
  /** Only this topic, or this function of verl. */
  readonly topic?: string;
  readonly function?: string;
  /** Only the case with this number. */
  readonly only?: number;
};

/** The share of cases in which a scorer may decide otherwise; docs/rewards.md says in which kinds of answers it does. */
const mayDiffer: Readonly<Record<string, number>> = {
  "math_verify.compute_score": 0.1,
  "prime_math.compute_score": 0.02,
  "geo3k.compute_score": 0.01,
};

/** Cases and misses of one function. */
export type Tally = { cases: number; failed: number; timeouts: number };
export type FuzzReport = {
  /** All differences, a line each. */
  readonly misses: readonly string[];
  /** How many of them are too many. */
  readonly failed: number;
  readonly tallies: ReadonlyMap<string, Tally>;
  readonly answered: readonly FuzzCase[];
};

const generators: readonly Generator[] = [...numberGenerators, ...metricGenerators, ...textGenerators];

/** The cases of a seed, without outputs. Every function gets its share, in turn. */
export function casesOf({ seed, cases, topic, function: name, only }: FuzzOptions): FuzzCase[] {
  const turns = generators
    .filter((it) => (topic === undefined || it.topic === topic) && (name === undefined || it.function === name))
    .flatMap((generator) => Array.from({ length: generator.share ?? 1 }, () => generator));
  if (turns.length === 0) throw new UserError(`No function is called ${name ?? topic}.`);
  const numbers = only === undefined ? Array.from({ length: cases }, (_, i) => i) : [only];
  return numbers.map((i) => {
    const generator = turns[i % turns.length]!;
    const random = new Random(seed, generator.function, i);
    const version = generator.only ?? verlReleases[random.int(verlReleases.length)]!;
    return {
      name: `${generator.function}/${version}/${i}`,
      topic: generator.topic,
      function: generator.function,
      version,
      inputs: generator.inputs(random, version),
      outputs: null,
    };
  });
}

/** The same cases with what verl answers. */
export async function answeredByVerl(cases: readonly FuzzCase[], python: string): Promise<FuzzCase[]> {
  const paths = ensureVerl(python);
  const answered = new Map<FuzzCase, FuzzCase>();
  await Promise.all(
    verlReleases.map(async (version) => {
      const own = cases.filter((it) => it.version === version);
      const outputs = own.length === 0 ? [] : await ask(own, python, paths[version]);
      for (const [i, it] of own.entries()) answered.set(it, { ...it, outputs: outputs[i] });
    }),
  );
  return cases.map((it) => answered.get(it)!);
}

async function ask(cases: readonly FuzzCase[], python: string, path: string): Promise<unknown[]> {
  const env = { ...process.env, PYTHONPATH: path, CUDA_VISIBLE_DEVICES: "", VERL_FORCE_DEVICE: "cpu" };
  const child = spawn(python, [join(import.meta.dirname, "fuzz", "verl_answers.py")], {
    env,
    stdio: ["pipe", "pipe", "pipe"],
  });
  const closed = once(child, "close");
  let printed = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    printed = `${printed}${text}`.slice(-4000);
  });
  child.stdin.on("error", () => {}); // it ended early: the number of its answers says so
  child.stdin.end(cases.map((it) => `${JSON.stringify(it)}\n`).join(""));
  const outputs: unknown[] = [];
  for await (const line of createInterface({ input: child.stdout })) outputs.push(JSON.parse(line));
  await closed;
  if (outputs.length !== cases.length)
    throw new UserError(`verl answered ${outputs.length} of ${cases.length} cases, and ended with:\n${printed}`);
  return outputs;
}

/** Hold answered cases against ours. */
export async function compared(answered: readonly FuzzCase[]): Promise<FuzzReport> {
  const runtime = new Runtime();
  const tallies = new Map<string, Tally>();
  const all: string[] = [];
  try {
    for (const golden of answered) {
      const tally = tallies.get(golden.function) ?? { cases: 0, failed: 0, timeouts: 0 };
      tallies.set(golden.function, tally);
      tally.cases++;
      if (Object.hasOwn(Object(golden.outputs), "timeout")) {
        tally.timeouts++;
        continue;
      }
      const misses = await checkCase(golden.topic, golden, { runtime, tokenizer: "" });
      if (misses.length === 0) continue;
      tally.failed++;
      all.push(misses.length === 1 ? misses[0]! : `${misses[0]} (and ${misses.length - 1} more)`);
    }
  } finally {
    await runtime.close();
  }
  const counts = [...tallies].map(([name, { cases, failed }]) => {
    const allowed = cases * (mayDiffer[name] ?? 0);
    return failed <= allowed + 2 * Math.sqrt(allowed) ? 0 : failed; // of a few cases, chance may make more of them differ
  });
  return { misses: all, failed: counts.reduce((sum, count) => sum + count, 0), tallies, answered };
}

/** The command; the result is the exit code. */
async function main(args: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seed: { type: "string", default: "1" },
      cases: { type: "string", default: "2000" },
      case: { type: "string" },
      topic: { type: "string" },
      function: { type: "string" },
    },
  });
  const options: FuzzOptions = {
    seed: countOf("--seed", values.seed),
    cases: countOf("--cases", values.cases),
    ...(values.topic === undefined ? {} : { topic: values.topic }),
    ...(values.function === undefined ? {} : { function: values.function }),
    ...(values.case === undefined ? {} : { only: countOf("--case", values.case) }),
  };
  const cases = casesOf(options);
  const python = process.env.TRAINYARD_TEST_PYTHON ?? ensureVenv();
  const report = await compared(await answeredByVerl(cases, python));
  if (options.only !== undefined) console.log(JSON.stringify(report.answered[0], null, 1));
  for (const miss of report.misses) console.log(miss);
  for (const [name, { cases, failed, timeouts }] of report.tallies) {
    const allowed = mayDiffer[name] === undefined ? "" : ` (${100 * mayDiffer[name]} in 100 may)`;
    const late = timeouts > 0 ? `, ${timeouts} timed out in verl` : "";
    console.log(`${name}: ${cases} cases, ${failed} differ${allowed}${late}`);
  }
  console.log(`${report.answered.length - report.failed} passed, ${report.failed} failed`);
  return report.failed === 0 ? 0 : 1;
}

function countOf(flag: string, text: string): number {
  if (!/^\d+$/.test(text)) throw new UserError(`\`${flag}\` takes a whole number, not ${text}.`);
  return Number(text);
}

if (import.meta.main) {
  try {
    process.exitCode = await main(process.argv.slice(2));
  } catch (error) {
    const isUsage = error instanceof UserError || (error instanceof TypeError && "code" in error);
    if (!isUsage) throw error;
    console.error(messageOf(error));
    process.exitCode = 2;
  }
}
