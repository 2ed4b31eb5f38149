/**
 * YAML config files in Hydra's style: a `defaults` list that pulls in other files, then the keys of the file itself.
 *
 * Values are read as OmegaConf reads them, which is YAML 1.1 (`yes` is true, `1_000` a number) without dates and `y`/`n`.
 * A default that has no file beside the config but is one of verl's own (`optim: fsdp`, `ppo_trainer`) stands for verl's
 * defaults, which the schema holds. Interpolations and `???` are left as they are for `resolve.ts`.
 */
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { isMap, isPair, isScalar, LineCounter, type Node, type Pair, parseDocument, type Tags } from "yaml";
import { messageOf, nearest, UserError } from "../util/errors.ts";
import { entriesOf, type Loaded, readConfig } from "./entries.ts";
import { isDict } from "./interpolate.ts";
import type { Entry } from "./overrides.ts";
import { type AnySchema, own } from "./schema.ts";

/** Read a YAML file with everything its `defaults` list names. */
export async function loadYaml(file: string, schema: AnySchema): Promise<Loaded> {
  return compose({ file, prefix: "", schema, above: [], overrides: new Map(), seen: new Set() });
}

/** One file to read: its keys go below `prefix`; `above` are the files that led here. */
type Part = {
  readonly file: string;
  readonly prefix: string;
  readonly schema: AnySchema;
  readonly above: readonly string[];
  /** Options that files above put in the place of those of a default, by where they go; one that was used is gone. */
  readonly overrides: Map<string, Wanted>;
  /** What was read already: a file is not read twice into one place. */
  readonly seen: Set<string>;
};

async function compose(part: Part): Promise<Loaded> {
  const { file, above, overrides, seen } = part;
  if (above.includes(file))
    throw new UserError(`The defaults lists lead in a circle: ${[...above, file].join(" -> ")}.`);
  if (seen.has(`${part.prefix}:${file}`)) return { entries: [] };
  seen.add(`${part.prefix}:${file}`);
  const source = await readConfig(file);
  const { root, whereOf } = parse(source, file);
  const { defaults = [], ...own } = root;
  const prefix = packageOf(source) ?? part.prefix;
  const self: Loaded = { entries: entriesOf(own, (path) => whereOf(path)).map((entry) => under(prefix, entry)) };
  if (!Array.isArray(defaults))
    throw new UserError(`\`defaults\` ${whereOf("defaults")} is not a list. Write it as "- name" lines.`);

  const items: unknown[] = defaults.includes("_self_") ? defaults : [...defaults, "_self_"];
  const read = items.map((item) => (item === "_self_" ? [] : readDefault(item, whereOf("defaults"))));
  for (const wanted of read.flat()) {
    const place = placeOf(wanted, prefix);
    if (wanted.isOverride && !overrides.has(place)) overrides.set(place, wanted);
  }
  const parts: Loaded[] = [];
  for (const [index, item] of items.entries()) {
    if (item === "_self_") parts.push(self);
    for (const wanted of read[index] ?? []) {
      const place = placeOf(wanted, prefix);
      const instead = overrides.get(place);
      overrides.delete(place);
      // An override that found nothing to override yet is one of a default of verl's own, and stands where it is.
      if (wanted.isOverride && instead === undefined) continue;
      parts.push(await include(instead ?? wanted, { ...part, prefix: place, above: [...above, file] }));
    }
  }
  return {
    entries: parts.flatMap(({ entries }) => entries),
    configName: parts.findLast(({ configName }) => configName !== undefined)?.configName,
  };
}

/** An item of a defaults list: the option of a group, or a whole config when the group is empty. */
type Wanted = {
  readonly group: string;
  readonly package?: string;
  readonly option: string;
  readonly isOptional: boolean;
  readonly isOverride: boolean;
};

/** `name`, `group/name`, `group: name`, `group@package: name`, `group: [a, b]`, with `optional` or `override` before it. */
function readDefault(item: unknown, where: string): Wanted[] {
  if (typeof item === "string") {
    const [name = "", at] = item.split("@");
    const slash = name.lastIndexOf("/");
    const group = slash === -1 ? "" : name.slice(0, slash).replace(/^\//, "");
    const option = name.slice(slash + 1);
    return [{ group, option, isOptional: false, isOverride: false, ...(at === undefined ? {} : { package: at }) }];
  }
  const pairs = isDict(item) ? Object.entries(item) : [];
  const [key, value] = pairs[0] ?? ["", undefined];
  const options: unknown[] = Array.isArray(value) ? value : value === null ? [] : [value];
  if (pairs.length !== 1 || !options.every((option) => typeof option === "string")) {
    throw new UserError(
      `An item of \`defaults\` ${where} is ${JSON.stringify(item)}. Write "- name" or "- group: name".`,
    );
  }
  const isOptional = /^optional\s/.test(key);
  const isOverride = /^override\s/.test(key);
  const [group = "", at] = key
    .replace(/^(optional|override)\s+/, "")
    .replace(/^\//, "")
    .split("@");
  return options.map((option) => ({
    group,
    option,
    isOptional,
    isOverride,
    ...(at === undefined ? {} : { package: at }),
  }));
}

/** Where the keys of a default go. */
function placeOf({ group, package: at }: Wanted, prefix: string): string {
  const placed = (at ?? group.replaceAll("/", ".")).replace(/^_(global|here)_\.?/, "");
  return at?.startsWith("_global_") === true ? placed : joined(prefix, placed);
}

/** Read what a default of `part.file` stands for into `part.prefix`. */
async function include(wanted: Wanted, part: Part): Promise<Loaded> {
  const { schema, above, prefix } = part;
  const option = wanted.option.replace(/\.ya?ml$/, "");
  // Groups are looked up from the folder of the first file, as Hydra's search path does, then beside this one.
  const folders = [dirname(above[0] ?? part.file), dirname(part.file)];
  const file = folders.map((folder) => join(folder, wanted.group, `${option}.yaml`)).find((path) => existsSync(path));
  if (file !== undefined) return compose({ ...part, file });

  if (wanted.group === "" && Object.hasOwn(schema.configs, option)) return { entries: [], configName: option };
  const where = `in the defaults list of ${part.file}`;
  if (own(own(schema.groups, prefix) ?? {}, option) !== undefined)
    return { entries: [{ path: prefix, op: "set", value: option, where }] };
  if (Object.hasOwn(schema.inert, prefix) || wanted.isOptional) return { entries: [] };
  const known = wanted.group === "" ? Object.keys(schema.configs) : Object.keys(own(schema.groups, prefix) ?? {});
  const close = nearest(option, known, 1);
  throw new UserError(
    `\`${wanted.group === "" ? option : `${wanted.group}: ${option}`}\` ${where} has no file ${join(folders[1] ?? "", wanted.group, `${option}.yaml`)}` +
      `${known.length === 0 ? "" : ` and is none of verl's (${known.join(", ")})`}.${close.length === 0 ? "" : ` Did you mean ${close[0]}?`}`,
  );
}

function under(prefix: string, entry: Entry): Entry {
  return prefix === "" ? entry : { ...entry, path: `${prefix}.${entry.path}` };
}

function joined(prefix: string, name: string): string {
  return [prefix, name].filter((part) => part !== "").join(".");
}

/** `# @package _global_` or `# @package a.b` in the first lines moves the keys of a file. */
function packageOf(source: string): string | undefined {
  const named = /^#\s*@package\s+(\S+)/m.exec(source)?.[1];
  return named === "_global_" ? "" : named?.replace(/^_global_\./, "");
}

/** The parser's messages, in plain words. */
const explained: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: "a second document begins here, and a config is one. Remove the line ---",
};

type Parsed = { readonly root: Readonly<Record<string, unknown>>; whereOf(path: string): string };

function parse(source: string, file: string): Parsed {
  const counter = new LineCounter();
  const document = parseDocument(source, { lineCounter: counter, prettyErrors: false, version: "1.1", customTags });
  const [error] = [...document.errors, ...document.warnings]; // a warning is a tag that nobody knows
  if (error !== undefined) {
    const { line, col } = counter.linePos(error.pos[0]);
    const message = own(explained, error.code) ?? error.message.replace(/\.?\s*$/, "");
    throw new UserError(`${file}:${line}:${col} is not YAML: ${message}.`, { cause: error });
  }
  const root = toPlain(() => document.toJS(), file);
  if (!isDict(root))
    throw new UserError(
      `${file} holds ${Array.isArray(root) ? "a list" : "a single value"}; a config file holds "key: value" lines.`,
    );
  const lines = new Map<string, number>();
  locate(document.contents, "", (path, offset) => lines.set(path, counter.linePos(offset).line));
  return {
    root,
    whereOf: (path) => {
      const line = lines.get(path);
      return `in ${file}${line === undefined ? "" : `:${line}`}`;
    },
  };
}

const yes = /^(?:[Yy]es|YES|[Tt]rue|TRUE|[Oo]n|ON)$/;
const no = /^(?:[Nn]o|NO|[Ff]alse|FALSE|[Oo]ff|OFF)$/;

/** YAML 1.1 as OmegaConf has it. */
function customTags(tags: Tags): Tags {
  return tags.flatMap((tag): Tags => {
    if (typeof tag === "string" || tag.collection !== undefined) return [tag];
    if (tag.tag === "tag:yaml.org,2002:timestamp") return [];
    return tag.tag === "tag:yaml.org,2002:bool" ? [{ ...tag, test: tag.identify?.(true) === true ? yes : no }] : [tag];
  });
}

function toPlain(read: () => unknown, file: string): unknown {
  try {
    return read() ?? {};
  } catch (error) {
    throw new UserError(`${file} cannot be read: ${messageOf(error)}.`, { cause: error });
  }
}

/** Tell `note` where each key of a document stands. */
function locate(node: Node | null, prefix: string, note: (path: string, offset: number) => void): void {
  if (!isMap(node)) return;
  for (const item of node.items) {
    const { key, value }: Pair<unknown, unknown> = item;
    if (!isPair(item) || !isScalar(key)) continue;
    const path = joined(prefix, String(key.value));
    if (key.range) note(path, key.range[0]);
    if (isMap(value)) locate(value, path, note);
  }
}
