import { appendFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { MetricColumns } from "./columns.ts";

let dir: string;
let path: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "trainyard-columns-"));
  path = join(dir, "metrics.jsonl");
});
afterEach(() => rm(dir, { recursive: true }));

const line = (step: number, data: Readonly<Record<string, number | null>>) => `${JSON.stringify({ step, data })}\n`;

async function opened(): Promise<MetricColumns> {
  const columns = new MetricColumns(dir);
  await columns.refresh();
  return columns;
}

test("columns have the values of the lines and NaN elsewhere, however often the file is read meanwhile", async () => {
  const data = fc.dictionary(
    fc.constantFrom("a", "b", "c", "__proto__"),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
  );
  const rows = fc.array(data, { maxLength: 150 });
  const property = fc.asyncProperty(rows, fc.nat(150), async (all, cut) => {
    const lines = all.map((it, i) => line(i + 1, it));
    await writeFile(path, lines.slice(0, cut).join(""));
    const columns = await opened();
    await appendFile(path, lines.slice(cut).join(""));
    await columns.refresh();
    expect([...columns.steps]).toEqual(all.map((_, i) => i + 1));
    expect(columns.names.sort()).toEqual([...new Set(all.flatMap((it) => Object.keys(it)))].sort());
    for (const name of columns.names)
      expect([...columns.column(name)!]).toEqual(
        all.map((it) => (Object.hasOwn(it, name) ? it[name]! + 0 : Number.NaN)),
      );
    expect(columns.version).toBe(0);
  });
  await fc.assert(property, { numRuns: 40 });
});

test("a resumed run replaces the steps that it repeats", async () => {
  await writeFile(path, [1, 2, 3, 4].map((step) => line(step, { a: step, old: 1 })).join(""));
  const columns = await opened();
  await writeFile(path, line(1, { a: 1, old: 1 }) + line(2, { a: 20 }) + line(3, { a: null }));
  await columns.refresh();
  expect([...columns.steps]).toEqual([1, 2, 3]);
  expect([...columns.column("a")!]).toEqual([1, 20, Number.NaN]);
  expect(columns.version).toBe(1);
});

test("a step that appears again in one file replaces its earlier line and those after it", async () => {
  await writeFile(path, [1, 2, 3, 2].map((step, i) => line(step, i === 3 ? { b: 9 } : { a: i, b: null })).join(""));
  const columns = await opened();
  expect([...columns.steps]).toEqual([1, 2]);
  expect([columns.column("a"), columns.column("b")].map((it) => [...it!])).toEqual([
    [0, Number.NaN],
    [Number.NaN, 9],
  ]);
  expect([columns.notFiniteSince(1), columns.notFiniteSince(2)]).toEqual([["b"], []]);
});

test("lines that cannot be read are left out and counted", async () => {
  await writeFile(path, `${line(1, { a: 1 })}nothing\n[]\nnull\n{"step":"2","data":{}}\n${line(2, { a: 2 })}{"st`);
  const columns = await opened();
  expect([...columns.column("a")!]).toEqual([1, 2]);
  expect(columns.unreadable).toBe(4);
  expect(columns.column("b")).toBeNull();
});
