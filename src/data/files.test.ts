import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { expandHome, readRows, writeRows } from "./files.ts";
import { placeOf } from "./row.ts";

const fixtures = join(import.meta.dirname, "../../test/fixtures/data");
let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "trainyard-data-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

async function put(name: string, content: string | Uint8Array): Promise<string> {
  const path = join(dir, name);
  await writeFile(path, content);
  return path;
}

const valuesOf = async (paths: string | string[], options = {}) =>
  (await readRows(paths, options)).rows.map(({ values }) => values);

/** Whole numbers past 2^53 stand as text in the jsonl that the parquet files are compared with. */
const withoutBigInts = (rows: unknown): unknown =>
  JSON.parse(JSON.stringify(rows, (_key, value) => (typeof value === "bigint" ? String(value) : value)));

describe("parquet files", () => {
  test.each(["snappy", "zstd", "gzip", "brotli", "lz4", "none", "delta"])(
    "written by Arrow with %s compression or encoding hold the rows of the jsonl file",
    async (kind) => {
      const rows = await valuesOf(join(fixtures, `rows-${kind}.parquet`));
      expect(withoutBigInts(rows)).toEqual(await valuesOf(join(fixtures, "rows.jsonl")));
    },
  );

  test("integers are numbers if they fit, else big integers", async () => {
    const [row] = await valuesOf(join(fixtures, "rows-snappy.parquet"));
    expect(row?.extra_info).toMatchObject({ index: 0 });
    expect(row?.big).toBe(2n ** 60n);
  });

  test("are read only up to the requested row, across row groups", async () => {
    for (const maxRows of [1, 5, 6, 23, 100]) {
      const { rows } = await readRows(join(fixtures, "rows-zstd.parquet"), { maxRows });
      expect(rows.map(({ row }) => row)).toEqual(Array.from({ length: Math.min(maxRows, 23) }, (_, i) => i + 1));
    }
  });
});

describe("several files", () => {
  test("are read one after the other, and each row knows its file and number", async () => {
    const one = await put("one.jsonl", '{"a": 1}\n\n{"a": 2}\n');
    const two = await put("two.json", '[{"a": 3, "b": 1}]');
    const { rows, columns } = await readRows([one, two]);
    expect(rows.map(({ values }) => values.a)).toEqual([1, 2, 3]);
    expect(rows.map(placeOf)).toEqual([`${one}, line 1`, `${one}, line 3`, `${two}, row 1`]);
    expect(columns).toEqual(["a", "b"]);
    expect(await valuesOf([one, two], { maxRows: 2 })).toEqual([{ a: 1 }, { a: 2 }]);
  });
});

describe("the ways to write JSON rows", () => {
  const rows = [{ a: "é" }, { a: "数" }];
  const lines = rows.map((row) => JSON.stringify(row)).join("\r\n");
  test.each<[string, string | Uint8Array]>([
    ["list.json", JSON.stringify(rows)],
    ["data.json", JSON.stringify({ data: rows })],
    ["lines.json", lines],
    ["bom.jsonl", `\uFEFF${lines}`],
    ["zipped.jsonl.gz", gzipSync(lines)],
    ["zipped.json.gz", gzipSync(JSON.stringify(rows))],
    ["UPPER.JSONL", lines],
  ])("%s", async (name, content) => {
    expect(await valuesOf(await put(name, content))).toEqual(rows);
  });

  test("a character that is split across two reads stays complete", async () => {
    const text = `x${"数".repeat(50_000)}`;
    expect(await valuesOf(await put("long.jsonl", JSON.stringify({ text })))).toEqual([{ text }]);
  });
});

describe("files that cannot be read give one message that names the file and the place", () => {
  test.each<[string, string | Uint8Array, string]>([
    ["broken.jsonl", '{"a": 1}\n{"a": 1, b}\n', "broken.jsonl, line 2, column 10: not JSON: unexpected `b}`"],
    ["token.jsonl", '{"a": trux}', "token.jsonl, line 1, column 10"],
    ["cut.jsonl", '{"a": "x', "cut.jsonl, line 1, column 9: not JSON: the text ends before the value does"],
    ["scalar.jsonl", '{"a": 1}\n3\n', "scalar.jsonl, line 2 is the number 3, not an object"],
    ["broken.json", '[{"a": 1},\n {"a" 2}]', "broken.json, line 2, column 7"],
    ["scalar.json", '"text"', 'scalar.json holds the text "text", not a list'],
    ["nolist.json", '{"data": 3}', "nolist.json holds the number 3, not a list"],
    ["items.json", "[{}, 3]", "items.json, row 2 is the number 3, not an object"],
    ["empty.jsonl", "", "empty.jsonl is empty"],
    ["blank.jsonl", "\n \n", "blank.jsonl has no rows"],
    ["latin.jsonl", Uint8Array.of(0x7b, 0xff, 0x7d), "latin.jsonl is not UTF-8 text"],
    ["plain.jsonl.gz", '{"a": 1}', "plain.jsonl.gz is not a complete gzip file"],
    ["half.jsonl.gz", gzipSync('{"a": 1}').subarray(0, 12), "half.jsonl.gz is not a complete gzip file"],
    ["short.parquet", "PAR1", "short.parquet cannot be read as parquet: it has only 4 bytes"],
    ["other.parquet", '{"a": 1, "b": 2}', "does not end in PAR1"],
    ["table.csv", "a,b\n1,2\n", "Data files end in .parquet"],
  ])("%s", async (name, content, message) => {
    const error = await readRows(await put(name, content)).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(UserError);
    expect(String(error)).toContain(message);
  });

  test("a missing file and a folder", async () => {
    await expect(readRows(join(dir, "missing.parquet"))).rejects.toThrow("missing.parquet does not exist");
    await expect(readRows(join(dir, "missing.jsonl"))).rejects.toThrow(UserError);
    await expect(readRows(fixtures)).rejects.toThrow("data is a folder. Name the data files in it");
  });

  test("a parquet file that was cut short", async () => {
    const whole = await readFile(join(fixtures, "rows-snappy.parquet"));
    await expect(readRows(await put("cut.parquet", whole.subarray(0, 9000)))).rejects.toThrow(UserError);
  });
});

/** Any bytes give rows or a `UserError`, soon. */
async function expectRowsOrError(name: string, content: Uint8Array): Promise<void> {
  const path = await put(name, content);
  const start = performance.now();
  const result = await readRows(path).catch((thrown: unknown) => thrown);
  if (result instanceof Error) expect(result).toBeInstanceOf(UserError);
  expect(performance.now() - start).toBeLessThan(2000);
}

describe("damaged files end in rows or in an error, never in a crash", () => {
  const bytes = fc.uint8Array({ maxLength: 300 });

  test.each(["jsonl", "json", "jsonl.gz", "parquet"])("random bytes as .%s", async (extension) => {
    await fc.assert(fc.asyncProperty(bytes, (content) => expectRowsOrError(`random.${extension}`, content)));
  });

  test("random texts of JSON's own characters", async () => {
    const text = fc.string({ unit: fc.constantFrom(...'{}[]",:\\tfn0123456789.eE+- \n\uD800'), maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(text, async (content) => {
        await expectRowsOrError("signs.jsonl", Buffer.from(content));
        await expectRowsOrError("signs.json", Buffer.from(content));
      }),
    );
  });

  test("random footers between parquet's magic words", async () => {
    await fc.assert(
      fc.asyncProperty(bytes, async (footer) => {
        const length = Buffer.alloc(4);
        length.writeUInt32LE(footer.length);
        await expectRowsOrError(
          "footer.parquet",
          Buffer.concat(["PAR1", footer, length, "PAR1"].map((x) => Buffer.from(x))),
        );
      }),
    );
  });

  test.each(["snappy", "zstd", "gzip", "lz4", "none", "delta"])(
    "a %s parquet with some bytes changed",
    async (kind) => {
      const whole = await readFile(join(fixtures, `rows-${kind}.parquet`));
      const change = fc.tuple(fc.nat(whole.length - 1), fc.oneof(fc.nat(255), fc.constantFrom(0x7f, 0x80, 0xff)));
      await fc.assert(
        fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 4 }), async (changes) => {
          const damaged = Buffer.from(whole);
          for (const [at, value] of changes) damaged[at] = value;
          await expectRowsOrError("damaged.parquet", damaged);
        }),
        { numRuns: 200 },
      );
      expect(process.memoryUsage().rss).toBeLessThan(1.5e9);
    },
  );
});

describe("what is written is read back", () => {
  const text = fc.string({ unit: "grapheme", maxLength: 12 });
  const message = fc.record({ role: text, content: fc.option(text) });
  const row = fc.record({
    prompt: fc.array(message, { maxLength: 3 }),
    label: fc.option(fc.integer()),
    score: fc.double({ noNaN: true }),
    isGood: fc.option(fc.boolean()),
    tags: fc.option(fc.array(fc.array(text, { maxLength: 2 }), { maxLength: 3 })),
    info: fc.option(fc.record({ index: fc.maxSafeInteger(), deep: fc.record({ more: fc.option(text) }) })),
  });
  const rows = fc.array(row, { minLength: 1, maxLength: 8 });

  test("parquet, with lists of structs and nulls at every level", async () => {
    const path = join(dir, "written.parquet");
    await fc.assert(
      fc.asyncProperty(rows, async (written) => {
        await writeRows(path, written);
        expect(await valuesOf(path)).toEqual(written);
      }),
    );
  });

  test("jsonl", async () => {
    const path = join(dir, "written.jsonl");
    const finite = rows.filter((some) => some.every(({ score }) => Number.isFinite(score) && !Object.is(score, -0)));
    await fc.assert(
      fc.asyncProperty(finite, async (written) => {
        await writeRows(path, written);
        expect(await valuesOf(path)).toEqual(written);
      }),
    );
  });

  test("parquet of many row groups, with keys that some rows lack and objects without keys", async () => {
    const path = join(dir, "many.parquet");
    const many = Array.from({ length: 25_001 }, (_, i) => (i % 2 ? { a: i, none: {} } : { a: i, b: `${i}`, none: {} }));
    await writeRows(path, many);
    const back = await valuesOf(path);
    expect(back).toHaveLength(25_001);
    expect(back[0]).toEqual({ a: 0, none: {}, b: "0" });
    expect(back[25_000]).toEqual({ a: 25_000, none: {}, b: "25000" });
    expect(back[24_999]).toEqual({ a: 24_999, none: {}, b: null });
  });

  test("a parquet column of two types is refused with its row, and leaves nothing behind", async () => {
    const before = await readdir(dir);
    const mixed = [{ a: { b: 1 } }, { a: { b: "x" } }];
    await expect(writeRows(join(dir, "mixed.parquet"), mixed)).rejects.toThrow(/row 2, column `a`.b is the text "x"/);
    expect(await readdir(dir)).toEqual(before);
  });

  test("an unknown extension is refused", async () => {
    await expect(writeRows(join(dir, "rows.csv"), [{ a: 1 }])).rejects.toThrow("must be .parquet or .jsonl");
  });
});

test("~ is the home folder", () => {
  expect(expandHome("~/data/x.parquet")).toBe(join(homedir(), "data/x.parquet"));
  expect(expandHome("a/~/b")).toBe("a/~/b");
});
