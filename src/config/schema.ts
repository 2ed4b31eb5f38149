/**
 * Everything one verb's config knows about keys: fields that are honoured, other spellings of them, verl's keys that have
 * no effect here, and keys whose meaning is not supported, each with its message.
 *
 * Every key a user can write falls into exactly one of these or is unknown; `find` decides which, `resolve.ts` acts.
 */
import { invariant, nearest } from "../util/errors.ts";
import { type Field, isField, joinTrees, type Resolved, type Tree } from "../util/field.ts";
import { isDict } from "./interpolate.ts";
import type { Entry } from "./overrides.ts";

/** The key that chooses the engine, where there is a choice. */
export const engineKey = "trainer.engine";

/** A verl key without meaning here. */
export type Inert = {
  /** What happens instead: a full clause. */
  readonly instead: string;
  /** Values that ask for what happens anyway, so that there is no notice. */
  readonly same: readonly unknown[];
};

/** A key that only takes the values that switch it off. */
export type Refused = {
  /** Why, and the way out: full sentences. */
  readonly because: string;
  readonly allowed: readonly unknown[];
};

/** A choice of a Hydra config group, such as `engine=megatron`: other defaults, or a notice. */
export type GroupChoice = { readonly defaults?: Readonly<Record<string, unknown>>; readonly instead?: string };

/** Defaults that depend on which keys are given, or on the named config. */
export type Preset = { readonly defaults: Readonly<Record<string, unknown>>; readonly notice?: string };

/** What is different on another engine: keys that only it has, and its messages about others. */
export type Variant = Pick<Schema<Tree>, "fields" | "aliases" | "inert" | "refused" | "groups">;

/** Keys that a program adds: those of the algorithms that it registers, below a branch of the tree. */
export type RegisteredKeys = {
  readonly branch: string;
  /** What adds keys there. */
  readonly doc: string;
  /** The fields that are there now, below the names of what brought them. */
  fields(): Tree;
};

/** Keys below names that a config chooses itself: `reward.models.NAME.KEY`. */
export type NamedKeys = {
  readonly branch: string;
  /** What the names stand for. */
  readonly doc: string;
  /** The keys below each name. */
  readonly fields: Tree;
};

/** The keys of one verb. */
export type Schema<T extends Tree, Config = Resolved<T>> = {
  readonly verb: string;
  readonly fields: T;
  /** Other spellings -> the key they stand for. */
  readonly aliases: Readonly<Record<string, string>>;
  /** A key here covers all keys below it. */
  readonly inert: Readonly<Record<string, Inert>>;
  readonly refused: Readonly<Record<string, Refused>>;
  readonly groups: Readonly<Record<string, Readonly<Record<string, GroupChoice>>>>;
  /** verl's configs that `--config-name` knows without a file, with the defaults that differ; the first is the default. */
  readonly configs: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** By the values of `engineKey` that are not its default. */
  readonly engines?: Readonly<Record<string, Variant>>;
  readonly registered?: readonly RegisteredKeys[];
  readonly named?: readonly NamedKeys[];
  preset(given: ReadonlySet<string>, configName: string | undefined): Preset;
  /** Rules between keys: throws a `UserError`, or returns the config to use and the notices. */
  finish(
    config: Resolved<T>,
    given: ReadonlySet<string>,
  ): { readonly config: Config; readonly notices: readonly string[] };
};

/** A schema of whatever tree. */
export type AnySchema = Omit<Schema<Tree>, "finish">;

/** What a key is. `below` is the rest of the path inside an open dict. */
export type Found =
  | { readonly kind: "field"; readonly key: string; readonly below: string; readonly field: Field<unknown, unknown> }
  | { readonly kind: "inert"; readonly key: string; readonly inert: Inert }
  | { readonly kind: "refused"; readonly key: string; readonly refused: Refused }
  | { readonly kind: "branch"; readonly key: string }
  | { readonly kind: "unknown"; readonly key: string };

/** A schema with the keys that registered algorithms bring. */
export function withRegistered(schema: AnySchema): AnySchema {
  const trees = (schema.registered ?? []).flatMap(({ branch, fields }) => {
    const own = fields();
    if (Object.keys(own).length === 0) return [];
    return [branch.split(".").reduceRight<Tree>((inner, part) => ({ [part]: inner }), own)];
  });
  return trees.length === 0 ? schema : { ...schema, fields: trees.reduce(joinTrees, schema.fields) };
}

/** A schema with the keys below the names that some entries choose. */
export function withNamed(schema: AnySchema, entries: readonly Pick<Entry, "path" | "value">[]): AnySchema {
  const trees = (schema.named ?? []).flatMap(({ branch, fields }) => {
    const names = new Set(entries.flatMap((entry) => namesIn(entry, branch)));
    if (names.size === 0) return [];
    const all: Tree = Object.fromEntries([...names].map((name) => [name, fields]));
    return [branch.split(".").reduceRight<Tree>((inner, part) => ({ [part]: inner }), all)];
  });
  return trees.length === 0 ? schema : { ...schema, fields: trees.reduce(joinTrees, schema.fields) };
}

/** The names below a branch that an entry sets something of, by its path or inside its value. */
function namesIn({ path, value }: Pick<Entry, "path" | "value">, branch: string): string[] {
  if (path.startsWith(`${branch}.`)) return [path.slice(branch.length + 1).split(".")[0]!];
  if (path !== branch && !branch.startsWith(`${path}.`)) return [];
  const rest = path === branch ? [] : branch.slice(path.length + 1).split(".");
  const inner = rest.reduce<unknown>((dict, part) => (isDict(dict) ? own(dict, part) : undefined), value);
  return isDict(inner) ? Object.keys(inner) : [];
}

/** A schema as it is on an engine; `name` is what was written for `engineKey`. */
export function onEngine(schema: AnySchema, name: unknown): AnySchema {
  const variant = typeof name === "string" ? own(schema.engines ?? {}, name) : undefined;
  if (variant === undefined) return schema;
  const known = onEngines.get(schema) ?? new Map<Variant, AnySchema>();
  const made: AnySchema = known.get(variant) ?? {
    ...schema,
    fields: joinTrees(schema.fields, variant.fields),
    aliases: { ...schema.aliases, ...variant.aliases },
    inert: { ...schema.inert, ...variant.inert },
    refused: { ...schema.refused, ...variant.refused },
    groups: { ...schema.groups, ...variant.groups },
  };
  onEngines.set(schema, known.set(variant, made));
  return made;
}

const onEngines = new WeakMap<AnySchema, Map<Variant, AnySchema>>(); // schemas are constants

/** Every field of a tree with its dotted key, in order. */
export function fieldsOf(tree: Tree, prefix = ""): Map<string, Field<unknown, unknown>> {
  const found = new Map<string, Field<unknown, unknown>>();
  for (const [part, node] of Object.entries(tree)) {
    const key = prefix === "" ? part : `${prefix}.${part}`;
    if (isField(node)) found.set(key, node);
    else for (const [inner, leaf] of fieldsOf(node, key)) found.set(inner, leaf);
  }
  return found;
}

/** What is looked up in a schema again and again. */
type Index = {
  readonly fields: ReadonlyMap<string, Field<unknown, unknown>>;
  /** Every key the schema knows, honoured ones first. */
  readonly keys: readonly string[];
  /** Every path that has keys below it. */
  readonly branches: ReadonlySet<string>;
};

const indexes = new WeakMap<AnySchema, Index>(); // schemas are constants

function indexOf(schema: AnySchema): Index {
  const known = indexes.get(schema);
  if (known !== undefined) return known;
  const fields = fieldsOf(schema.fields);
  const tables = [schema.aliases, schema.inert, schema.refused];
  const keys = [...fields.keys(), ...tables.flatMap((table) => Object.keys(table))];
  const branches = new Set<string>();
  for (const key of keys)
    for (let dot = key.indexOf("."); dot !== -1; dot = key.indexOf(".", dot + 1)) branches.add(key.slice(0, dot));
  const index = { fields, keys, branches };
  indexes.set(schema, index);
  return index;
}

/** Look a key up under any of its spellings. */
export function find(schema: AnySchema, path: string): Found {
  const { fields, branches } = indexOf(schema);
  const parts = path.split(".");
  if (parts.at(-1) === "_target_") return { kind: "inert", key: path, inert: pythonClass };
  for (let length = parts.length; length > 0; length--) {
    const prefix = parts.slice(0, length).join(".");
    const below = parts.slice(length).join(".");
    const key = own(schema.aliases, prefix) ?? prefix;
    const field = fields.get(key);
    if (field !== undefined && (below === "" || field.type.isOpen)) return { kind: "field", key, below, field };
    const refused = own(schema.refused, key);
    if (refused !== undefined) return { kind: "refused", key: path, refused };
    const inert = own(schema.inert, key);
    if (inert !== undefined && (below !== "" || !branches.has(path))) return { kind: "inert", key: path, inert };
  }
  return branches.has(path) ? { kind: "branch", key: path } : { kind: "unknown", key: path };
}

/** The keys of one kind closest to a misspelt one: by the whole key, then by its last part wherever it stands. */
export function nearestKeys(schema: AnySchema, path: string): string[] {
  const { keys } = indexOf(schema);
  const last = lastPart(path);
  const sameName = keys.filter((key) => lastPart(key) === last);
  const close = new Set(nearest(last, keys.map(lastPart)));
  const closeName = keys.filter((key) => close.has(lastPart(key)));
  return [...new Set([...nearest(path, keys), ...sameName, ...closeName])].slice(0, 3);
}

/** The names below the longest part of a path that exists, for when nothing is close to it. */
export function namesBelow(
  schema: AnySchema,
  path: string,
): { readonly branch: string; readonly names: readonly string[] } {
  const keys = [...indexOf(schema).fields.keys()];
  const parts = path.split(".");
  for (let length = parts.length - 1; ; length--) {
    const branch = parts.slice(0, length).join(".");
    const prefix = branch === "" ? "" : `${branch}.`;
    const below = keys
      .filter((key) => key.startsWith(prefix))
      .map((key) => key.slice(prefix.length).split(".")[0] ?? key);
    if (below.length > 0 || length === 0) return { branch, names: [...new Set(below)] };
  }
}

/** Every key the schema knows, honoured ones first. */
export function allKeys(schema: AnySchema): readonly string[] {
  return indexOf(schema).keys;
}

/** The default of a field, as it is written in the tree. */
export function defaultOf(schema: AnySchema, key: string): unknown {
  const field = indexOf(schema).fields.get(key);
  invariant(field !== undefined, `no field ${key}`);
  return field.default;
}

/** The value under a key of a table that may not have it. */
export function own<T>(table: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(table, key) ? table[key] : undefined;
}

const pythonClass: Inert = { instead: "classes of verl's Python are not loaded", same: [] };

function lastPart(key: string): string {
  return key.slice(key.lastIndexOf(".") + 1);
}
