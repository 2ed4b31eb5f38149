/**
 * `node examples/e2e/metric.ts RUN NAME is|below|above NUMBER`: checks a metric at every step of a run. Prints its
 * values; the exit code is 1 where one of them is wrong, or where there is none.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";

const tests: Readonly<Record<string, (value: number, bound: number) => boolean>> = {
  is: (value, bound) => Math.abs(value - bound) < 1e-6,
  below: (value, bound) => value < bound,
  above: (value, bound) => value > bound,
};

const [run = "", name = "", test = "", bound = ""] = process.argv.slice(2);
const lines = readFileSync(join(run, "metrics.jsonl"), "utf8").trim().split("\n");
const values = lines.flatMap((line): number[] => JSON.parse(line).data[name] ?? []);
process.stdout.write(`    ${name}: ${values.map((value) => value.toPrecision(4)).join(" ")}\n`);
const holds = tests[test];
if (holds === undefined || values.length === 0 || !values.every((value) => holds(value, Number(bound))))
  process.exitCode = 1;
