/**
 * A verb is one value and one line of the table: here a verb is added to the program, and help, completion, keys, dry
 * run, the check of data and the work are all there.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { Schema } from "../config/schema.ts";
import { readRows } from "../data/files.ts";
import { columnOf } from "../data/row.ts";
import { field, int, mandatory, path } from "../util/field.ts";
import { info } from "../util/log.ts";
import { configVerb } from "./config-verb.ts";
import { main } from "./main.ts";
import { configOf, eachRow } from "./row-check.ts";
import type { Verbs } from "./verb.ts";
import { verbs } from "./verbs.ts";

/** `trainyard count`: how many rows of a file have a text of at least some length. */
const fields = {
  data: {
    path: field(path, mandatory, "File with the rows."),
    min_length: field(int(1), 3, "Shortest text that counts."),
  },
};

const schema: Schema<typeof fields> = {
  verb: "count",
  fields,
  aliases: {},
  inert: {},
  refused: {},
  groups: {},
  configs: { count: {} },
  preset: () => ({ defaults: {} }),
  finish: (config) => ({ config, notices: [] }),
};

const count = configVerb({
  schema,
  examples: ["trainyard count data.path=rows.jsonl"],
  switches: { loud: "say the count too" },
  rows: {
    fits: (has) => has("poem"),
    async check(task, findings) {
      const { config } = configOf(task, schema, { modelKey: "data.path", keys: {} });
      await eachRow(task.rows, task.signal, async (row) => {
        const text = await findings.attempt(row, () => String(columnOf(row, "poem", "data.path")));
        if (text !== null && text.length < config.data.min_length) findings.add("error", row, "the poem is too short.");
      });
      return task.rows.length;
    },
  },
  plan: async ({ data }) => info(`Poems of at least ${data.min_length} characters would be counted.`),
  async run({ data }, { switches }) {
    const { rows } = await readRows(data.path);
    const found = rows.filter(({ values }) => String(values.poem).length >= data.min_length).length;
    await writeFile(`${data.path}.count`, `${found}\n`);
    if (switches.has("loud")) info(`${found} poems.`);
  },
});

const table: Verbs = {
  ...verbs,
  count: { summary: "count poems", load: async () => ({ verb: count }) },
};

const folder = mkdtempSync(join(tmpdir(), "trainyard-add-verb-"));
afterAll(() => rmSync(folder, { recursive: true }));
const file = join(folder, "rows.jsonl");
writeFileSync(file, ["ode", "a", "sonnet"].map((poem) => `${JSON.stringify({ poem })}\n`).join(""));

/** Run the program with the added verb; gives the exit code and what was written to stdout and stderr. */
async function trainyard(...args: readonly string[]) {
  const streams = { out: process.stdout, err: process.stderr };
  const writes = { out: streams.out.write, err: streams.err.write };
  const texts = { out: "", err: "" };
  for (const name of ["out", "err"] as const)
    streams[name].write = (chunk: string | Uint8Array) => {
      texts[name] += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
      return true;
    };
  try {
    return { code: await main(args, {}, table), ...texts };
  } finally {
    for (const name of ["out", "err"] as const) streams[name].write = writes[name];
  }
}

describe("a verb that was added by one line", () => {
  test("is listed by the help, and has a help of its own", async () => {
    expect((await trainyard("--help")).out).toMatch(/^ {2}count {7}count poems$/m);
    const { code, out } = await trainyard("count", "--help");
    expect(out).toMatch(/^trainyard count: count poems\n/);
    expect(out).toContain("  --loud                say the count too\n");
    expect(out).toContain("  data.min_length=3\n      Shortest text that counts.\n");
    expect(code).toBe(0);
  });

  test("is completed, and guessed where it is misspelt", async () => {
    const { out } = await trainyard("completion", "bash");
    expect(out).toMatch(/^ +count\) words="data\.path= data\.min_length= .*--loud --help" ;;$/m);
    expect((await trainyard("cuont")).err).toMatch(/Did you mean count\?/);
  });

  test("refuses a wrong key, with the nearest", async () => {
    const { code, err } = await trainyard("count", `data.path=${file}`, "data.min_lenght=2");
    expect(err).toMatch(/`data\.min_lenght` .* is not a key of `count`.*`data\.min_length`/);
    expect(code).toBe(2);
  });

  test("says with --dry-run what it would do, and does not do it", async () => {
    const { code, out, err } = await trainyard("count", `data.path=${file}`, "data.min_length=5", "--dry-run");
    expect(out).toBe(`data:\n  path: ${file}\n  min_length: 5\n`);
    expect(err).toBe("Poems of at least 5 characters would be counted.\n");
    expect(code).toBe(0);
    expect(() => readFileSync(`${file}.count`)).toThrow(/ENOENT/);
  });

  test("checks rows in `data validate`, named or found by the columns", async () => {
    for (const choice of [[], ["--for", "count"]]) {
      const { code, out } = await trainyard("data", "validate", file, ...choice);
      expect(out).toMatch(/3 rows, checked for `trainyard count`/);
      expect(out).toMatch(/^error: 1 of 3 rows \(2\): the poem is too short\.$/m);
      expect(code).toBe(2);
    }
    expect(await trainyard("data", "validate", file, "data.min_length=1")).toMatchObject({ code: 0 });
    expect((await trainyard("data", "validate", "--help")).out).toMatch(
      /--for auto\|ppo\|sft\|reward\|generate\|count /,
    );
  });

  test("does its work", async () => {
    expect(await trainyard("count", `data.path=${file}`, "--loud")).toEqual({ code: 0, out: "", err: "2 poems.\n" });
    expect(readFileSync(`${file}.count`, "utf8")).toBe("2\n");
  });
});

test("a schema has the name that its verb has in the table", async () => {
  for (const [name, { load }] of Object.entries(table)) {
    const { verb } = await load();
    if (verb.schema !== null) expect(verb.schema.verb).toBe(name);
  }
});
