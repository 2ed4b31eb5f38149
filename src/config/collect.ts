/**
 * What the sources set each key to, before any default: spellings are followed, dicts spread over the keys below,
 * deletions carried out, config groups chosen; keys without effect and problems are gathered on the way.
 */
import { isDeepStrictEqual } from "node:util";
import { invariant, nearest } from "../util/errors.ts";
import type { Field } from "../util/field.ts";
import { isDict } from "./interpolate.ts";
import type { Entry } from "./overrides.ts";
import { type AnySchema, defaultOf, type Found, fieldsOf, find, namesBelow, nearestKeys, own } from "./schema.ts";
import { formatValue } from "./value.ts";

/** What a field was last set to. */
export type Assigned = {
  readonly value: unknown;
  readonly where: string;
  /** The key as the user wrote it. */
  readonly spelt: string;
  readonly source: number;
};

/** Everything the sources set. */
export type Collected = {
  readonly assigned: Map<string, Assigned>;
  readonly noEffect: Map<string, { value: unknown; instead: string }>;
  /** What keys without effect were last set to: others may refer to them. */
  readonly unused: Map<string, unknown>;
  readonly groupDefaults: Record<string, unknown>;
  /** Keys that were set, under the spelling used and under their own. */
  readonly given: Set<string>;
  readonly problems: string[];
};

type Reading = Collected & { readonly schema: AnySchema; readonly source: number };

/** Read all entries of all sources in order. */
export function collect(schema: AnySchema, sources: readonly (readonly Entry[])[]): Collected {
  const refusals = new Map<string, string>();
  const collected: Collected = {
    assigned: new Map(),
    noEffect: new Map(),
    unused: new Map(),
    groupDefaults: {},
    given: new Set(),
    problems: [],
  };
  sources.forEach((entries, source) => {
    for (const entry of entries) read({ ...collected, schema, source }, placed(entry, schema), refusals);
  });
  collected.problems.push(...refusals.values());
  return collected;
}

/**
 * Hydra's `group/sub=option` and `group@a.b=option` choose an option for the keys below `group.sub` and `a.b`. Inside a
 * dict with keys of the user's own a slash is a part of the key.
 */
function placed(entry: Entry, schema: AnySchema): Entry {
  if (find(schema, entry.path).kind === "field") return entry;
  const path = entry.path.slice(entry.path.indexOf("@") + 1).replaceAll("/", ".");
  return path === entry.path ? entry : { ...entry, path };
}

function read(reading: Reading, entry: Entry, refusals: Map<string, string>): void {
  const { schema, noEffect, problems } = reading;
  const found = find(schema, entry.path);
  switch (found.kind) {
    case "field":
      if (entry.op === "delete") deleteField(reading, entry, found);
      else setField(reading, entry, found);
      return;
    case "inert":
      setUnused(reading, entry);
      if (entry.op === "delete" || isOneOf(entry.value, found.inert.same)) noEffect.delete(found.key);
      else noEffect.set(found.key, { value: entry.value, instead: found.inert.instead });
      return;
    case "refused": {
      setUnused(reading, entry);
      const { because, allowed } = found.refused;
      if (entry.op === "delete" || isOneOf(entry.value, allowed)) refusals.delete(found.key);
      else refusals.set(found.key, `\`${found.key}\` is ${formatValue(entry.value)} ${entry.where}. ${because}`);
      return;
    }
    case "branch":
      readBranch(reading, entry, refusals);
      return;
    case "unknown":
      problems.push(`\`${found.key}\` ${entry.where} is not a key of \`${schema.verb}\`. ${hint(schema, found.key)}`);
      return;
    default:
      found satisfies never;
  }
}

function setUnused({ unused }: Reading, { path, op, value }: Entry): void {
  if (op === "delete") unused.delete(path);
  else unused.set(path, value);
}

/** What to write instead of an unknown key. */
function hint(schema: AnySchema, path: string): string {
  const close = nearestKeys(schema, path).map((key) => `\`${key}\``);
  if (close.length > 0) return `Nearest: ${close.join(", ")}.`;
  const { branch, names } = namesBelow(schema, path);
  return branch === ""
    ? `Keys begin with ${names.join(", ")}; trainyard ${schema.verb} --help lists them.`
    : `Below \`${branch}\` there are ${names.join(", ")}.`;
}

function setField(reading: Reading, entry: Entry, found: Found & { kind: "field" }): void {
  const { assigned, given, problems, source } = reading;
  const { key, below, field } = found;
  const isAlias = !`${entry.path}.`.startsWith(`${key}.`);
  // verl's files carry old spellings as `null`, which means "not used".
  if (isAlias && entry.value === null && !field.type.schema.safeParse(null).success) return;
  const before = assigned.get(key);
  const spelt = below === "" ? entry.path : entry.path.slice(0, -below.length - 1);
  const next = { where: entry.where, spelt, source };
  if (field.type.isOpen === true && (below !== "" || isDict(entry.value))) {
    const change =
      below === "" ? entry.value : below.split(".").reduceRight((inner, part) => ({ [part]: inner }), entry.value);
    assigned.set(key, { ...next, value: merge(before?.value, change) });
  } else {
    if (before?.source === source && before.spelt !== spelt && !isDeepStrictEqual(before.value, entry.value)) {
      problems.push(
        `\`${before.spelt}\` is ${formatValue(before.value)} and \`${entry.path}\` is ${formatValue(entry.value)} ` +
          `${entry.where}, but they are two spellings of one key. Keep one of them.`,
      );
    }
    assigned.set(key, { ...next, value: asTyped(entry, field) });
  }
  given.add(entry.path).add(key);
}

/** `experiment_name=1.0` reads as a number, but the key holds text: take what was typed. */
function asTyped({ value, text }: Entry, { type }: Field<unknown, unknown>): unknown {
  if (text === undefined || (typeof value !== "number" && typeof value !== "boolean")) return value;
  return !type.schema.safeParse(value).success && type.schema.safeParse(text).success ? text : value;
}

function deleteField(reading: Reading, entry: Entry, found: Found & { kind: "field" }): void {
  const { schema, assigned, given, problems } = reading;
  const { key, below, field } = found;
  const before = assigned.has(key) ? assigned.get(key)?.value : defaultOf(schema, key);
  if (entry.value !== undefined && below === "" && !isDeepStrictEqual(entry.value, before)) {
    problems.push(
      `\`~${entry.path}=${formatValue(entry.value)}\` deletes a value that is not there: \`${key}\` is ${formatValue(before)}. Write ~${entry.path} to delete it whatever it is.`,
    );
    return;
  }
  const after = below !== "" ? without(before, below.split(".")) : field.type.isOpen === true ? {} : null;
  if (field.type.schema.safeParse(after).success) {
    assigned.set(key, { value: after, where: entry.where, spelt: entry.path, source: reading.source });
    given.add(key);
    return;
  }
  problems.push(
    `\`~${entry.path}\` deletes a key that ${schema.verb} needs. Set it instead, for example ${key}=${formatValue(defaultOf(schema, key))}.`,
  );
}

/** A statement about a whole branch: a dict, the choice of a config group, or the deletion of all below. */
function readBranch(reading: Reading, entry: Entry, refusals: Map<string, string>): void {
  const { schema, problems, noEffect, unused, groupDefaults } = reading;
  if (entry.op === "delete") {
    const below = [...fieldsOf(schema.fields).keys()].filter((key) => key.startsWith(`${entry.path}.`));
    for (const key of below) read(reading, { ...entry, path: key, value: undefined }, refusals);
    for (const table of [noEffect, unused, refusals])
      for (const key of [...table.keys()]) if (key.startsWith(`${entry.path}.`)) table.delete(key);
    return;
  }
  if (isDict(entry.value)) {
    for (const [name, value] of Object.entries(entry.value)) {
      read(reading, { path: `${entry.path}.${name}`, op: "set", value, where: entry.where }, refusals);
    }
    return;
  }
  const below = [...fieldsOf(schema.fields)].filter(([key]) => key.startsWith(`${entry.path}.`));
  if (entry.value === null && below.every(([, { type }]) => type.schema.safeParse(null).success)) {
    for (const [key] of below) read(reading, { ...entry, path: key }, refusals); // verl's `data.sampler=null`
    return;
  }
  const group = own(schema.groups, entry.path);
  const chosen = group === undefined || typeof entry.value !== "string" ? undefined : own(group, entry.value);
  if (chosen !== undefined) {
    Object.assign(groupDefaults, chosen.defaults);
    if (chosen.instead !== undefined) noEffect.set(entry.path, { value: entry.value, instead: chosen.instead });
    return;
  }
  const options = Object.keys(group ?? {});
  const close = typeof entry.value === "string" ? nearest(entry.value, options, 1) : [];
  const instead =
    group === undefined
      ? `Set a key below it, such as ${firstBelow(schema, entry.path)}=….`
      : `The choices are ${options.join(", ")}.`;
  const guess = close.length === 0 ? "" : ` Did you mean ${close[0]}?`;
  problems.push(
    `\`${entry.path}\` ${entry.where} holds other keys, so it cannot be ${formatValue(entry.value)}. ${instead}${guess}`,
  );
}

function firstBelow(schema: AnySchema, path: string): string {
  const tables = [schema.aliases, schema.inert, schema.refused].flatMap((table) => Object.keys(table));
  const first = [...fieldsOf(schema.fields).keys(), ...tables].find((key) => key.startsWith(`${path}.`));
  invariant(first !== undefined, `${path} is not a branch`);
  return first;
}

/** Dicts are merged key by key, as Hydra does; anything else is replaced. */
function merge(before: unknown, change: unknown): unknown {
  if (!isDict(before) || !isDict(change)) return change;
  const names = new Set([...Object.keys(before), ...Object.keys(change)]);
  return Object.fromEntries(
    [...names].map((name) => [
      name,
      Object.hasOwn(change, name) ? merge(own(before, name), change[name]) : before[name],
    ]),
  );
}

function without(value: unknown, [first = "", ...rest]: readonly string[]): unknown {
  if (!isDict(value)) return value;
  const kept = Object.entries(value).filter(([name]) => rest.length > 0 || name !== first);
  return Object.fromEntries(kept.map(([name, item]) => [name, name === first ? without(item, rest) : item]));
}

function isOneOf(value: unknown, list: readonly unknown[]): boolean {
  return list.some((item) => isDeepStrictEqual(item, value));
}
