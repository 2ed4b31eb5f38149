/** Files as users have them, in packages of either kind, imported by a fresh Node. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";

/** What `value` of a file is, in a package with this package.json. */
function valueIn(packageJson: object, files: Readonly<Record<string, string>>): string {
  const dir = mkdtempSync(join(tmpdir(), "import-file-"));
  for (const [name, text] of Object.entries({ "package.json": JSON.stringify(packageJson), ...files })) {
    mkdirSync(dirname(join(dir, name)), { recursive: true });
    writeFileSync(join(dir, name), text);
  }
  const file = JSON.stringify(join(dir, Object.keys(files)[0]!));
  const own = JSON.stringify(join(import.meta.dirname, "import-file.ts"));
  const script = `const { importFile } = await import(${own}); console.log(String((await importFile(${file})).value));`;
  return execFileSync(process.execPath, ["--input-type=module", "-e", script], {
    encoding: "utf8",
    stdio: "pipe",
  }).trim();
}

const packages = [{}, { type: "commonjs" }, { type: "module" }];

test.each(packages)("a TypeScript file with import and export is a module in a package %j", (packageJson) => {
  const files = {
    "reward.ts": 'import { two } from "./two.ts";\nexport const value: number = two + 1;\n',
    "two.ts": "export const two = 2;\n",
  };
  expect(valueIn(packageJson, files)).toBe("3");
});

test.each(packages)("so is a JavaScript file in a package %j", (packageJson) => {
  expect(valueIn(packageJson, { "reward.js": "export function value() { return 1; }\n" })).toContain("return 1");
});

test("a CommonJS file is loaded as CommonJS", () => {
  const text = 'const { join } = require("node:path");\nexports.value = typeof join;\n';
  expect(valueIn({ type: "commonjs" }, { "reward.js": text })).toBe("function");
});

test("a package in node_modules is loaded as its package.json says", () => {
  const files = {
    "reward.ts": 'import { value } from "dep";\nexport { value };\n',
    "node_modules/dep/package.json": JSON.stringify({ name: "dep", main: "index.js" }),
    "node_modules/dep/index.js": "exports.value = 7;\n",
  };
  expect(valueIn({ type: "commonjs" }, files)).toBe("7");
});

test("what a file imports as `trainyard` is the program that imports it", () => {
  const text = 'import { UserError } from "trainyard";\nexport const value = UserError;\n';
  const own = JSON.stringify(join(import.meta.dirname, "errors.ts"));
  const isSame = `import { UserError as own } from ${own};\n${text.replace("= UserError", "= UserError === own")}`;
  expect(valueIn({ type: "module" }, { "config.ts": isSame })).toBe("true");
});
