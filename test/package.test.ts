/**
 * The package as a user gets it: packed, installed into an empty folder, and used there as README.md and
 * docs/first-reward.md say. Where the npm registry does not answer, the tests are skipped.
 *
 * Here with the Node and the npm that run the tests; test/long/stranger.long.ts tries others.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  checkTypes,
  followFirstReward,
  followReadme,
  install,
  installTool,
  isRegistryThere,
  moveIn,
  type Place,
  pack,
  succeed,
  type,
} from "./stranger.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-package-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const isThere = await isRegistryThere();
const reason = isThere ? "" : " (skipped: the npm registry does not answer)";

describe.skipIf(!isThere)(`the package, installed into an empty folder${reason}`, { timeout: 300_000 }, () => {
  let oldNode = "";
  let report = "";
  let place: Place = { folder: "", env: {} };
  beforeAll(async () => {
    const [packed, node20] = await Promise.all([pack(folder), installTool(folder, "node@20")]);
    oldNode = node20;
    report = packed.report;
    place = await moveIn(folder, []);
    await install("README.md", packed.file, place);
  }, 300_000);

  test("is small, and holds no test and no source", () => {
    const [{ size, unpackedSize, files }] = JSON.parse(report);
    expect(size).toBeLessThan(2e6);
    expect(unpackedSize).toBeLessThan(8e6);
    const names: string[] = files.map(({ path }: { path: string }) => path);
    expect(names).toContain("dist/index.d.ts");
    expect(names.filter((name) => /\.test\.|(?<!\.d)\.ts$|(^|\/)test\//.test(name))).toEqual([]);
  });

  test("answers npx with help and version", async () => {
    expect(await succeed("npx trainyard --help", place)).toMatch(/Verbs\n {2}ppo /);
    const { version }: { version: string } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    expect((await type("npx trainyard --version", place)).stdout).toBe(`${version}\n`);
  });

  test("finds the machine well, with onnxruntime-node from npm or installed by itself", async () => {
    const said = await succeed("npx trainyard doctor", place);
    expect(said).toMatch(/^ok +node +\d.*\nok +cpu +runs programs \(onnxruntime-node 1\./m);
    const again = await type("npx trainyard doctor --device cpu", place);
    expect(again).toMatchObject({ code: 0, stderr: "" }); // a second install would say so
  });

  test("does what docs/first-reward.md says", () => followFirstReward(place));

  test("does what README.md says, and exports the model", async () => {
    await followReadme(place);
    expect(await type("npx trainyard export run --to exported", place)).toMatchObject({ code: 0, stderr: "" });
  });

  test("holds a program to its types, under the settings of `tsc --init`", async () => {
    await checkTypes(place, join(root, "node_modules"));
    const program = (size: string) => `import { defineConfig, trainRl } from "trainyard";
      import { defineReward } from "trainyard/reward";
      export const score = defineReward(({ response }) => response.length);
      export const config = defineConfig({ data: { train_batch_size: ${size} } });
      export const train: (...args: Parameters<typeof trainRl>) => Promise<void> = trainRl;\n`;
    await writeFile(join(place.folder, "program.ts"), program("8"));
    await checkTypes(place, join(root, "node_modules"));
    await writeFile(join(place.folder, "program.ts"), program('"eight"'));
    const tsc = `node ${JSON.stringify(join(root, "node_modules/typescript/bin/tsc"))} --noEmit`;
    expect((await type(tsc, place)).stdout).toMatch(/^program\.ts\(4,\d+\): error TS2322: Type '"eight"' is not/m);
  });

  test("says in one line what to do on Node 20", async () => {
    const launcher = join(place.folder, "node_modules/trainyard/bin/trainyard.js");
    const { code, stdout, stderr } = await type(`"${join(oldNode, "node")}" "${launcher}" --help`, place);
    expect(stderr).toMatch(/^trainyard needs Node 22\.21 or newer, and this is 20\.[\d.]+\. .*npm install node@24\n$/);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });
});
