// count.mjs REPORT EXIT_CODE: reads vitest's JSON report and prints `PASSED FAILED`. Failed are tests that failed, files
// that did not load, tests that skipped for want of something CI has, and a run without any test.
import { readFileSync } from "node:fs";

const [path, exitCode] = process.argv.slice(2);
const mustRun = /python|torch|transformers|browser|chromium/i;
const maySkip = /\.\.\/shared|vLLM/;

const report = read();
const files = report.testResults ?? [];
const tests = files.flatMap((file) => file.assertionResults);
const passed = tests.filter((test) => test.status === "passed");
const failed = tests.filter((test) => test.status === "failed");
const skipped = tests.filter((test) => test.status !== "passed" && test.status !== "failed");
const wronglySkipped = skipped.filter((test) => mustRun.test(test.fullName) && !maySkip.test(test.fullName));
const broken = files.filter(
  (file) => file.status === "failed" && !file.assertionResults.some((test) => test.status === "failed"),
);

for (const test of wronglySkipped) console.error(`not ok, skipped in CI: ${test.fullName}`);
for (const file of broken) console.error(`not ok, did not run: ${file.name}`);
if (tests.length === 0) console.error("not ok: no test ran");
if (skipped.length > 0) console.error(`${skipped.length} tests skipped`);

const misses = failed.length + wronglySkipped.length + broken.length;
// A run that ended badly without naming a test (an error outside of any, a crash) is one miss.
const nameless = misses === 0 && (tests.length === 0 || exitCode !== "0") ? 1 : 0;
console.log(`${passed.length} ${misses + nameless}`);

function read() {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return {}; // vitest did not get as far as a report
  }
}
