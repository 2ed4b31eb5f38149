/** Overrides and YAML are read as Hydra reads them; test/python/hydra_overrides.py asked Hydra itself. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { UserError } from "../util/errors.ts";
import { type Field, field, type Type } from "../util/field.ts";
import { loadConfig } from "./file.ts";
import { parseOverride } from "./overrides.ts";
import { resolve } from "./resolve.ts";
import type { Schema } from "./schema.ts";

type Answer = { readonly refused?: string; readonly op?: string; readonly key?: string; readonly value?: unknown };
type Answers = Readonly<Record<string, Answer>>;

const file = new URL("../../test/fixtures/hydra-overrides.json", import.meta.url);
type Texts = Readonly<Record<string, string>>;
type Fixture = Record<"overrides" | "yaml" | "composed", Answers> & Record<"environment" | "files", Texts>;
const hydra: Fixture = JSON.parse(readFileSync(file, "utf8"), (_, value: unknown) => {
  const named = typeof value === "object" && value !== null && "$number" in value ? value.$number : undefined;
  return named === undefined ? value : { inf: Infinity, "-inf": -Infinity, nan: Number.NaN }[String(named)];
});

/** Refusals are values too, so that they can be compared. */
async function attempt<T>(work: () => T | Promise<T>): Promise<T | "refused"> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof UserError) return "refused";
    throw error;
  }
}

describe("every override that Hydra takes means the same here", () => {
  /** Departures: `None` is null, Hydra's functions are not there, 0.5_2 is no number, a key is never empty. */
  const departures = [/^k=None$/, /^k=1_0\.0_1$/, /^k=(sort|int|float|str|bool)\(/, /^\+?=1$/, /^~$/];
  const taken = Object.entries(hydra.overrides).filter(([, { refused }]) => refused === undefined);
  test.each(taken.filter(([text]) => !departures.some((it) => it.test(text))))("%s", (text, { op, key, value }) => {
    const entry = parseOverride(text);
    expect({ op: entry.op, key: entry.path, value: entry.value }).toStrictEqual({ op, key, value });
  });

  test("the departures are few", () => {
    const other = taken.filter(([text]) => departures.some((it) => it.test(text)));
    expect([other.length, taken.length > 290]).toEqual([14, true]);
  });
});

test("what Hydra takes for several runs is refused", async () => {
  const sweeps = Object.keys(hydra.overrides).filter((text) => hydra.overrides[text]?.refused === "sweep");
  expect(sweeps.length).toBeGreaterThan(10);
  for (const text of sweeps) expect([text, await attempt(() => parseOverride(text))]).toEqual([text, "refused"]);
});

test("of what Hydra cannot read, only what could mean nothing else is taken", async () => {
  const texts = Object.keys(hydra.overrides).filter((text) => hydra.overrides[text]?.refused === "syntax");
  const unclear = [
    "k=[1",
    "k=[1,,2]",
    "k=[,]",
    "k={a:}",
    "k={:1}",
    "k={a}",
    "k={a:1",
    "k='open",
    "k='a'b",
    "k=${a",
    "a",
  ];
  for (const text of unclear) expect(texts).toContain(text);
  for (const text of unclear) expect([text, await attempt(() => parseOverride(text))]).toEqual([text, "refused"]);
});

/** A schema with the keys that a text begins lines with, each of which holds anything. */
function schemaOf(text: string): Schema<Record<string, Field<unknown, unknown>>> {
  const anything: Type<unknown> = { schema: z.unknown(), expects: "anything", isOpen: true };
  const keys = [...text.matchAll(/^\W*(\w+)/gm)].map(([, key = ""]) => key);
  return {
    fields: Object.fromEntries(keys.map((key) => [key, field(anything, "", "A key.")])),
    verb: "test",
    aliases: {},
    inert: {},
    refused: {},
    groups: {},
    configs: {},
    preset: () => ({ defaults: {} }),
    finish: (config) => ({ config, notices: [] }),
  };
}

const folder = mkdtempSync(join(tmpdir(), "trainyard-yaml-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** What a YAML file says, with the keys that it may set. */
async function read(text: string, keys = text): Promise<Readonly<Record<string, unknown>>> {
  const schema = schemaOf(keys);
  writeFileSync(join(folder, "run.yaml"), text);
  const { entries } = await loadConfig({ file: "run.yaml", folder }, schema);
  const { config } = resolve(schema, [entries], { home: "/", env: hydra.environment });
  const given = new Set(entries.map(({ path }) => path.split(".")[0] ?? ""));
  return Object.fromEntries(Object.entries(config).filter(([key]) => given.has(key)));
}

describe("every YAML text that OmegaConf takes means the same here", () => {
  /** Departures, each with what is read here; `???` and null in a text are asked for, a config is no list. */
  const departures: Readonly<Record<string, unknown>> = {
    "a: ${oc.env:NOT_SET,1}": { a: 1 },
    "a: x${b}\nb: null": "refused",
    "a: x${b}\nb: 1.0": { a: "x1", b: 1 },
    "a: ???": "refused",
    "a: ${oc.select:b,1}\nb: ???": "refused",
    "- a": "refused",
    "a.b: 1": { a: { b: 1 } },
    "a: =": { a: "=" },
    "a: <<": { a: "<<" },
  };
  test.each(Object.entries(hydra.yaml))("%s", async (text, { refused, value }) => {
    const expected = refused === undefined ? value : "refused";
    expect(await attempt(() => read(text))).toStrictEqual(
      Object.hasOwn(departures, text) ? departures[text] : expected,
    );
  });
});

describe("every defaults list is composed as by Hydra", () => {
  beforeAll(() => {
    for (const [name, text] of Object.entries(hydra.files)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), text);
    }
  });

  const departures: Readonly<Record<string, unknown>> = {
    "defaults: [base]\na: [1]\n": { a: [1] }, // a list takes the place of a dict
  };
  const keys = ["a", "b", "c", "g", "k", "q", "x"].join("\n");
  test.each(Object.entries(hydra.composed))("%s", async (text, { refused, value }) => {
    const expected = refused === undefined ? value : "refused";
    const composed = await attempt(() => read(text, keys));
    expect(composed).toStrictEqual(Object.hasOwn(departures, text) ? departures[text] : expected);
  });
});
