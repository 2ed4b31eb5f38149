/** A config file in TypeScript with a mistake: the errors of the compiler where there is one, and never a stack. */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { typeErrors } from "./type-check.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-types-test-"));
const [plain, typed] = [join(folder, "plain"), join(folder, "typed")];
afterAll(() => rmSync(folder, { recursive: true }));

/** A project without a compiler, and one with this clone's. */
beforeAll(() => {
  mkdirSync(plain);
  mkdirSync(join(typed, "node_modules"), { recursive: true });
  for (const name of ["typescript", "@typescript"])
    symlinkSync(join(root, "node_modules", name), join(typed, "node_modules", name), "junction");
});

function trainyard(cwd: string, text: string, ...args: readonly string[]) {
  writeFileSync(join(cwd, "trainyard.config.ts"), text);
  const options = { encoding: "utf8", cwd } as const;
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(root, "bin/trainyard.js"), "sft", ...args],
    options,
  );
  return { code: status, stdout, stderr };
}

const wrongValue = `const size: number = "eight";
export default { model: { path: "m" }, data: { train_batch_size: size } };\n`;
const wrongSyntax = `export default { model: { path: "m" }\n  data: {} };\n`;
const wrongUnseen = `const answer: number = "42";
export default { model: { path: "m" }, trainer: { project_name: String(answer) } };\n`;

describe("with a compiler in the project", () => {
  test("a wrong value gives the compiler's error, then the key and what it takes", () => {
    const { code, stdout, stderr } = trainyard(typed, wrongValue);
    expect(stderr.split("\n")).toEqual([
      "trainyard.config.ts(1,7): TS2322: Type 'string' is not assignable to type 'number'.",
      expect.stringMatching(/^`data\.train_batch_size` is "eight" in .*trainyard\.config\.ts; it takes a whole number/),
      "",
    ]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });

  test("a syntax error has its line and column", () => {
    const { code, stderr } = trainyard(typed, wrongSyntax);
    expect(stderr).toMatch(/^trainyard\.config\.ts\(2,3\): TS1005: ',' expected\.\n/);
    expect(stderr).not.toMatch(/\n\s+at /);
    expect(code).toBe(2);
  });

  test("a type error in code that gives no wrong value is found by a dry run", () => {
    const { code, stderr } = trainyard(typed, wrongUnseen, "--dry-run");
    expect(stderr).toMatch(
      /^trainyard\.config\.ts\(1,7\): TS2322: Type 'string' is not assignable to type 'number'\.$/m,
    );
    expect(code).toBe(2);
    expect(trainyard(typed, wrongUnseen, "--cfg", "job")).toMatchObject({ code: 0 });
  });

  test("a correct file has no errors, even if the compiler does not find a module", async () => {
    const file = join(typed, "right.ts");
    writeFileSync(file, 'import { x } from "no-types-here";\nexport default { model: { path: `m${x}` } };\n');
    expect(await typeErrors(file)).toEqual([]);
  });
});

describe("without one", () => {
  test.each([
    [
      "a wrong value",
      wrongValue,
      /^`data\.train_batch_size` is "eight" in .*; it takes a whole number of at least 1\.\n$/,
    ],
    ["a slip of syntax", wrongSyntax, /trainyard\.config\.ts:2 cannot be loaded: /],
  ])("%s is still one message without a stack", (_, text, message) => {
    const { code, stdout, stderr } = trainyard(plain, text);
    expect(stderr).toMatch(message);
    expect(stderr).not.toMatch(/\n\s+at /);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });
});
