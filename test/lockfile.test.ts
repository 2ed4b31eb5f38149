/** package-lock.json is complete: `npm ci` takes it on every system, and nothing in it depends on where it was made. */
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import * as z from "zod";

const lockSchema = z.object({
  packages: z.record(
    z.string(),
    z.object({
      resolved: z.string().optional(),
      integrity: z.string().optional(),
      optionalDependencies: z.record(z.string(), z.string()).default({}),
    }),
  ),
});

const text = await readFile(new URL("../package-lock.json", import.meta.url), "utf8");
const { packages } = lockSchema.parse(JSON.parse(text));
const entries = Object.entries(packages);

test("every package has a checksum, and no address", () => {
  const installed = entries.filter(([path]) => path !== "");
  expect(installed.filter(([, { integrity }]) => !/^sha512-/.test(integrity ?? "")).map(([path]) => path)).toEqual([]);
  expect(installed.filter(([, { resolved }]) => resolved !== undefined).map(([path]) => path)).toEqual([]);
  expect(text).not.toMatch(/https?:\/\/[^"]*(registry|\.tgz)/);
});

test("the optional packages of every system are in it, without which npm 11 and newer refuse it", () => {
  const missing = entries.flatMap(([path, { optionalDependencies }]) =>
    Object.keys(optionalDependencies).filter(
      (name) => !(`${path}/node_modules/${name}` in packages) && !(`node_modules/${name}` in packages),
    ),
  );
  expect(missing).toEqual([]);
});
