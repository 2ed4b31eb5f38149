/**
 * README.md and docs/first-reward.md, followed in an empty folder with each Node and each npm that the package is made
 * for, and checked by two versions of TypeScript. It takes minutes; test/package.test.ts does it once.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  checkTypes,
  followFirstReward,
  followReadme,
  install,
  installTool,
  isRegistryThere,
  moveIn,
  pack,
  succeed,
} from "../stranger.ts";

const folder = mkdtempSync(join(tmpdir(), "trainyard-stranger-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const nodes = [22, 24, 26];
const npms = [10, 11, 12];
const typescripts = ["5.9", "7"];
const isThere = await isRegistryThere();

describe.skipIf(!isThere)("a stranger follows README.md and docs/first-reward.md", () => {
  const tools = new Map<string, string>();
  let packed = "";
  beforeAll(async () => {
    packed = (await pack(folder)).file;
    const names = [
      ...nodes.map((it) => `node@${it}`),
      ...npms.map((it) => `npm@${it}`),
      ...typescripts.map((it) => `typescript@${it}`),
    ];
    for (const name of names) tools.set(name, await installTool(folder, name));
  }, 600_000);

  const pairs = nodes.flatMap((node) => npms.map((npm) => ({ node, npm })));
  test.each(pairs)("with Node $node and npm $npm", async ({ node, npm }) => {
    const home = join(folder, `node ${node} npm ${npm}`);
    await mkdir(home);
    const place = await moveIn(home, [tools.get(`npm@${npm}`) ?? "", tools.get(`node@${node}`) ?? ""]);
    expect(await succeed("node --version", place)).toMatch(new RegExp(`^v${node}\\.`));
    expect(await succeed("npm --version", place)).toMatch(new RegExp(`^${npm}\\.`));
    await install("docs/first-reward.md", packed, place);
    await followFirstReward(place);
    await followReadme(place);
    for (const version of typescripts) await checkTypes(place, join(tools.get(`typescript@${version}`) ?? "", ".."));
  });
});
