/**
 * From sources to one typed config: defaults, then each source in order, later wins.
 *
 * Promise: every key is honoured, or named in a notice as having no effect, or refused with the nearest key; none is
 * ignored. All problems are collected, so that one run of the command shows them all.
 */
import { UserError } from "../util/errors.ts";
import { type Field, isField, mandatory, type Resolved, type Tree } from "../util/field.ts";
import { type Assigned, collect } from "./collect.ts";
import { hasInterpolation, interpolate, isDict, type Scope } from "./interpolate.ts";
import type { Entry } from "./overrides.ts";
import { runNames } from "./run-name.ts";
import {
  type AnySchema,
  engineKey,
  fieldsOf,
  find,
  nearestKeys,
  onEngine,
  own,
  type Schema,
  withNamed,
  withRegistered,
} from "./schema.ts";
import { formatValue } from "./value.ts";

/** What resolving needs to know about the outside. */
export type Surroundings = {
  /** A config that verl ships under this name: picks its defaults. */
  readonly configName?: string | undefined;
  /** The config file that was read: it names the run where neither of the names is set. */
  readonly file?: string | undefined;
  /** What `~` stands for in paths. */
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
};

/** Resolve the entries of all sources, weakest source first, to the config that a verb runs with; `set` are its keys that a source sets. */
export function resolve<T extends Tree, Config>(
  schema: Schema<T, Config>,
  sources: readonly (readonly Entry[])[],
  surroundings: Surroundings,
): { config: Config; notices: string[]; set: string[] } {
  const whole = withNamed(withRegistered(schema), sources.flat());
  const plain = read(whole, sources, surroundings);
  const used = whole.engines === undefined ? whole : onEngine(whole, plain.scope.get(engineKey));
  const { preset, scope, collected } = used === whole ? plain : read(used, sources, surroundings);
  const { assigned, noEffect, given, problems } = collected;
  const values = new Map<string, unknown>();
  for (const [key, field] of fieldsOf(used.fields)) {
    try {
      values.set(
        key,
        check({ schema: used, key, field, assigned: assigned.get(key), home: surroundings.home }, scope.get(key)),
      );
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      problems.push(error.message);
    }
  }
  if (problems.length > 0) throw new UserError([...new Set(problems)].join("\n"));

  const { config, notices } = schema.finish(nest<T>(used.fields, values), given);
  const presetNotice = preset.notice === undefined ? [] : [preset.notice];
  const set = [...assigned.keys()].sort();
  return { config, notices: [...presetNotice, ...describeNoEffect(noEffect), ...notices], set };
}

/** What the sources set, and the values that follow. */
function read(schema: AnySchema, sources: readonly (readonly Entry[])[], { configName, file, env }: Surroundings) {
  const collected = collect(schema, sources);
  const { assigned, unused, groupDefaults, given } = collected;
  const preset = schema.preset(given, configName);
  const defaults = { ...preset.defaults, ...groupDefaults, ...(file !== undefined && runNames(file, given)) };
  const raw = (key: string, field: Field<unknown, unknown>): unknown =>
    assigned.has(key) ? assigned.get(key)?.value : Object.hasOwn(defaults, key) ? defaults[key] : field.default;
  return { collected, preset, scope: makeScope({ schema, raw, unused, env }) };
}

type Checked = {
  readonly schema: AnySchema;
  readonly key: string;
  readonly field: Field<unknown, unknown>;
  readonly assigned: Assigned | undefined;
  readonly home: string;
};

/** The value a field takes from what was written. */
function check({ schema, key, field, assigned, home }: Checked, written: unknown): unknown {
  if (written === mandatory) throw new UserError(missing(schema, key, field));
  const value = field.type.isPath === true ? expandHome(written, home) : written;
  const parsed = field.type.schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const where = assigned === undefined ? "" : ` ${assigned.where}`;
  throw new UserError(`\`${assigned?.spelt ?? key}\` is ${quoted(written)}${where}; it takes ${field.type.expects}.`);
}

/** A value as an error shows it: text in quotes, so that "1" and 1 look different. */
function quoted(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : formatValue(value);
}

function missing(schema: AnySchema, key: string, field: Field<unknown, unknown>): string {
  const spellings = Object.keys(schema.aliases).filter((alias) => schema.aliases[alias] === key);
  const also = spellings.length === 0 ? "" : ` (also spelt ${spellings.map((alias) => `\`${alias}\``).join(", ")})`;
  return `\`${key}\`${also} is missing. ${field.doc} Add ${key}=… to the command, or set it in the config file.`;
}

function expandHome(value: unknown, home: string): unknown {
  if (Array.isArray(value)) return value.map((item) => expandHome(item, home));
  return typeof value === "string" ? value.replace(/^~(?=\/|$)/, () => home) : value;
}

type Written = {
  readonly schema: AnySchema;
  /** What is written for a field, or its default. */
  raw(key: string, field: Field<unknown, unknown>): unknown;
  /** What is written for keys that are not honoured. */
  readonly unused: ReadonlyMap<string, unknown>;
  readonly env: Surroundings["env"];
};

/** Values by key with their interpolations replaced; a key that leads back to itself is an error. */
function makeScope({ schema, raw, unused, env }: Written): Scope {
  const open: string[] = [];
  /** The value at `below` of what is written for a key. */
  const read = (key: string, written: unknown, below: string): unknown => {
    const part = inside(written, below);
    if (part === undefined && hasInterpolation(written)) return inside(read(key, written, ""), below);
    if (!hasInterpolation(part)) return part;
    const path = below === "" ? key : `${key}.${below}`;
    if (open.includes(path)) throw new UserError(`\`${path}\` refers to itself: ${[...open, path].join(" -> ")}.`);
    open.push(path);
    try {
      return interpolate(part, path, scope);
    } finally {
      open.pop();
    }
  };
  const scope: Scope = {
    env,
    has: (path) => {
      const found = find(schema, path);
      if (found.kind !== "field") return found.kind === "branch" || unused.has(path);
      const written = raw(found.key, found.field);
      return written !== mandatory && (found.below === "" || inside(written, found.below) !== undefined);
    },
    get: (path) => {
      const found = find(schema, path);
      if (found.kind === "branch") return branch(path);
      if (found.kind !== "field") {
        if (unused.has(path)) return read(path, unused.get(path), "");
        throw new UserError(notThere(schema, open.at(-1) ?? path, path));
      }
      const { key, field, below } = found;
      const written = raw(key, field);
      if (written === mandatory && open.length > 0) throw new UserError(missing(schema, key, field));
      const value = read(key, written, below);
      if (value === undefined) throw new UserError(notThere(schema, open.at(-1) ?? path, path));
      return value;
    },
  };
  const branch = (path: string): unknown => {
    const below = [...fieldsOf(schema.fields).keys()].filter((key) => key.startsWith(`${path}.`));
    return Object.fromEntries(below.map((key) => [key.slice(path.length + 1), scope.get(key)]));
  };
  return scope;
}

function notThere(schema: AnySchema, key: string, path: string): string {
  const close = nearestKeys(schema, path).map((name) => `\`${name}\``);
  return `\`${key}\` refers to \${${path}}, which is not there.${close.length === 0 ? "" : ` Nearest: ${close.join(", ")}.`}`;
}

/** The part of a dict or list at a path; undefined where there is none. */
function inside(value: unknown, below: string): unknown {
  let inner = value;
  for (const part of below === "" ? [] : below.split(".")) {
    if (Array.isArray(inner)) inner = inner.at(Number(part));
    else inner = isDict(inner) ? own(inner, part) : undefined;
  }
  return inner;
}

/** Put the checked values back into the shape of the tree. */
function nest<T extends Tree>(tree: Tree, values: ReadonlyMap<string, unknown>): Resolved<T> {
  const build = (node: Tree, prefix: string): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(node).map(([part, child]) => {
        const key = prefix + part;
        return [part, isField(child) ? values.get(key) : build(child, `${key}.`)];
      }),
    );
  // Safe: every leaf was parsed by the schema of the field that stands at the same place of the tree, which is T's own
  // with the keys of an engine and of registered algorithms beside them.
  return build(tree, "") as Resolved<T>;
}

/** One notice for all keys without effect, grouped by what happens instead. */
function describeNoEffect(noEffect: ReadonlyMap<string, { value: unknown; instead: string }>): string[] {
  const groups = new Map<string, string[]>();
  for (const [key, { value, instead }] of noEffect) {
    const group = groups.get(instead) ?? [];
    group.push(`${key}=${formatValue(value)}`);
    groups.set(instead, group);
  }
  if (groups.size === 0) return [];
  const lines = [...groups].map(([instead, keys]) => `  ${keys.join(" ")}: ${instead}`);
  return [`These keys have no effect here:\n${lines.join("\n")}`];
}
