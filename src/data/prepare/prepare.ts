/**
 * From the raw rows of a dataset to verl's parquet files: find the files, read them, make the columns, write.
 *
 * Everything is made before the first file is written, and every file appears complete or not at all. So a row that
 * does not fit, an interrupt or a full disk leaves the earlier files as they were.
 */
import { stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { pathsIn, resolveDataset } from "../../models/hub-dataset.ts";
import { UserError } from "../../util/errors.ts";
import { writeFileAtomic } from "../../util/files.ts";
import { formatBytes, formatCount } from "../../util/format.ts";
import { clearStatus, status } from "../../util/log.ts";
import { expandHome, readRows } from "../files.ts";
import { placeOf, type Row } from "../row.ts";
import { type ColumnType, isPicture, typeOfValues } from "./column-type.ts";
import type { Dataset, Made, Output } from "./dataset.ts";
import { isParquet, parquetHead } from "./parquet-head.ts";
import { hasAllShards, splitFiles } from "./splits.ts";
import { type Column, verlParquet } from "./verl-parquet.ts";

/** What to prepare, from where and to where. */
type PrepareRequest = {
  readonly dataset: Dataset;
  /** A raw file, or a folder with such files; null for the hub. */
  readonly localPath: string | null;
  /** Another repository on the hub than the dataset's own. */
  readonly repo: string | null;
  readonly saveDir: string;
  /** Only these of the dataset's files; null for all. */
  readonly part: string | null;
};

type PrepareContext = {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
};

/** What was written, and the names of files that the source has no rows for. */
type Prepared = {
  readonly files: readonly { readonly path: string; readonly rows: number }[];
  readonly missing: readonly string[];
};

/** Prepare a dataset. */
export async function prepare(request: PrepareRequest, context: PrepareContext): Promise<Prepared> {
  const saveDir = expandHome(request.saveDir);
  const outputs = request.dataset.outputs.filter(({ part }) => request.part === null || part === request.part);
  try {
    const sources = await locate({ ...request, saveDir }, outputs, context);
    const made: MadeFile[] = [];
    for (const split of new Set(outputs.map((output) => output.split))) {
      const files = sources.get(split);
      if (files === undefined) continue;
      const ofSplit = outputs.filter((output) => output.split === split);
      made.push(...(await makeSplit({ dataset: request.dataset, split, files }, ofSplit, context.signal)));
    }
    const names = new Set(made.map(({ name }) => name));
    const missing = outputs.map(({ file }) => file).filter((file) => !names.has(file));
    if (missing.length === outputs.length) {
      const read = [...sources.values()].flat().join(", ");
      throw new UserError(`${read} has no row to make ${missing.join(" or ")} of. Give files with more rows.`);
    }
    await new Promise(setImmediate); // lets Ctrl-C through while rows are encoded
    context.signal.throwIfAborted();
    for (const { name, bytes } of made) {
      status(`writing ${name}`);
      await writeFileAtomic(join(saveDir, name), bytes);
    }
    const files = made.flatMap(({ name, rowCount }) =>
      rowCount === null ? [] : [{ path: join(saveDir, name), rows: rowCount }],
    );
    return { files, missing };
  } finally {
    clearStatus();
  }
}

/** A file to be written; `rowCount` is null for a file without rows. */
type MadeFile = { readonly name: string; readonly bytes: Uint8Array | string; readonly rowCount: number | null };

type Sources = ReadonlyMap<string, readonly string[]>;

/** The raw files by split. */
async function locate(
  { dataset, localPath, repo, saveDir }: PrepareRequest,
  outputs: readonly Output[],
  { env, signal }: PrepareContext,
): Promise<Sources> {
  const { source } = dataset;
  if (source === null) return new Map(outputs.map(({ split }) => [split, []]));
  const wanted = new Set(outputs.map(({ split }) => split));
  if (localPath !== null) {
    const sources = await locateHere(localPath, { config: source.config, wanted, saveDir });
    checkApart(sources, saveDir, dataset.outputs);
    return sources;
  }
  const choose = (paths: readonly string[]): string[] | null => {
    const splits = splitFiles(paths, source.config);
    const files = [...wanted].flatMap((split) => splits.get(split) ?? []);
    const isWhole = [...wanted].every((split) => splits.has(split)) && hasAllShards(files);
    return isWhole ? files : null;
  };
  const name = repo ?? source.repo;
  status(`looking for ${name}`);
  const folder = await resolveDataset(name, choose, {
    env,
    signal,
    onProgress: ({ file, doneBytes, totalBytes }) =>
      status(`downloading ${name} · ${file} · ${formatBytes(doneBytes)} of ${formatBytes(totalBytes)}`),
  });
  clearStatus();
  return within(folder, splitFiles(await pathsIn(folder), source.config));
}

type Looked = { readonly config: string | null; readonly wanted: ReadonlySet<string>; readonly saveDir: string };

async function locateHere(given: string, { config, wanted, saveDir }: Looked): Promise<Sources> {
  const path = resolve(expandHome(given));
  const found = await stat(path).catch(() => null);
  if (found === null)
    throw new UserError(
      `${given} does not exist. Give a raw file, or a folder with such files (--local_dataset_path).`,
    );
  const sources = found.isDirectory()
    ? within(path, splitFiles(await rawPathsIn(path, saveDir), config))
    : within(dirname(path), splitFiles([basename(path)], config));
  if (sources.size === 0)
    throw new UserError(
      `${given} ${found.isDirectory() ? "has no data file" : "is not a data file"}: those end in .parquet, .jsonl, .ndjson ` +
        "or .json (the last three also as .gz). Give another path (--local_dataset_path).",
    );
  if (![...sources.keys()].some((split) => wanted.has(split)))
    throw new UserError(
      `${given} has the split ${[...sources.keys()].join(" and ")}, and ${[...wanted].join(" or ")} is looked for. ` +
        "A file's name says its split; rename it, or give another path (--local_dataset_path).",
    );
  return sources;
}

/** The files below a folder, without those of an earlier run that were saved below it. */
async function rawPathsIn(folder: string, saveDir: string): Promise<string[]> {
  const saved = relative(folder, resolve(saveDir));
  const paths = await pathsIn(folder);
  if (saved === "" || saved.startsWith("..") || isAbsolute(saved)) return paths;
  return paths.filter((path) => !path.startsWith(`${saved}/`));
}

/** Raw files are never overwritten. */
function checkApart(sources: Sources, saveDir: string, outputs: readonly Output[]): void {
  const written = new Set(outputs.map(({ file }) => resolve(saveDir, file)));
  const both = [...sources.values()].flat().find((file) => written.has(resolve(file)));
  if (both === undefined) return;
  throw new UserError(`${both} would be read and overwritten. Choose another folder to save to (--local_save_dir).`);
}

function within(folder: string, splits: Sources): Sources {
  return new Map([...splits].map(([split, files]) => [split, files.map((file) => join(folder, file))]));
}

type Split = { readonly dataset: Dataset; readonly split: string; readonly files: readonly string[] };

/** The files that are made of one split. */
async function makeSplit({ dataset, split, files }: Split, outputs: readonly Output[], signal: AbortSignal) {
  const rows = await readSplit(dataset, split, files);
  const types = await typesIn(files);
  const made: MadeFile[] = [];
  for (const output of outputs) {
    const places = output.choose?.(rows.length) ?? rows.keys();
    const used = Array.from(places, (place) => rows[place]!);
    const columns = await makeColumns(output, used, types, signal);
    const rowCount = columns[0]?.values.length ?? 0;
    if (rowCount === 0) continue;
    status(`encoding ${output.file} · ${formatCount(rowCount)} rows`);
    made.push({ name: output.file, bytes: verlParquet(columns), rowCount });
    if (dataset.hasExamples === true) {
      made.push({
        name: output.file.replace(/\.parquet$/, "_example.json"),
        bytes: exampleOf(columns),
        rowCount: null,
      });
    }
  }
  return made;
}

async function readSplit(dataset: Dataset, split: string, files: readonly string[]): Promise<readonly Row[]> {
  if (dataset.source === null) return [{ values: {}, file: dataset.name, row: 1 }];
  status(`reading ${split} · ${counted(files)}`);
  const { rows } = await readRows(files);
  const { read } = dataset;
  return read === undefined ? rows : rows.flatMap((row) => read(row) ?? []);
}

const counted = (files: readonly string[]): string => (files.length === 1 ? files[0]! : `${files.length} files`);

const yieldEvery = 2000;

/** The columns of a file: those kept from the source, then the new ones. A new one replaces the old one of its name. */
async function makeColumns(
  { file, split, takes, make }: Output,
  rows: readonly Row[],
  types: ReadonlyMap<string, ColumnType>,
  signal: AbortSignal,
): Promise<Column[]> {
  const made: Made[] = [];
  const from: Row[] = []; // the source row of each new row
  for (const [index, row] of rows.entries()) {
    if (index % yieldEvery === 0) {
      signal.throwIfAborted();
      status(`making ${file} · ${index}/${rows.length}`);
      await new Promise(setImmediate); // lets Ctrl-C through
    }
    for (const columns of [make(row, { split, index })].flat()) {
      made.push(columns);
      from.push(row);
    }
  }
  const kept = takes === "all" ? [] : namesIn(rows.map(({ values }) => values)).filter((name) => !takes.includes(name));
  const added = new Set(namesIn(made));
  return [...new Set([...kept, ...added])].map((name) => {
    if (added.has(name))
      return inferred(
        name,
        made.map((columns) => columns[name]),
        from,
      );
    const values = from.map((row) => row.values[name]);
    const type = types.get(name);
    return type === undefined ? inferred(name, values, from) : { name, type, values: values.map(pictureOf(type)) };
  });
}

function inferred(name: string, values: readonly unknown[], from: readonly Row[]): Column {
  return { name, type: typeOfValues(values, (index) => `${placeOf(from[index]!)}, column \`${name}\``), values };
}

/** All names that occur, in order of appearance. */
function namesIn(records: readonly Made[]): string[] {
  return [...new Set(records.flatMap((record) => Object.keys(record)))];
}

/** A picture whose bytes are there needs no path, and verl's scripts leave none. */
function pictureOf(type: ColumnType): (value: unknown) => unknown {
  const isPictures = type.kind === "list" && isPicture(type.element);
  if (!isPictures) return (value) => value;
  const withoutPath = (value: unknown) =>
    typeof value === "object" && value !== null && "bytes" in value && value.bytes !== null
      ? { ...value, path: null }
      : value;
  return (value) => (Array.isArray(value) ? value.map(withoutPath) : value);
}

/** The types of the columns of parquet files, if the files agree on one that is known here. */
async function typesIn(files: readonly string[]): Promise<ReadonlyMap<string, ColumnType>> {
  if (!files.every(isParquet)) return new Map();
  const seen = new Map<string, (ColumnType | null)[]>();
  for (const file of files)
    for (const [name, type] of (await parquetHead(file)).columns) seen.set(name, [...(seen.get(name) ?? []), type]);
  const agreed = [...seen].flatMap(([name, [first, ...others]]) =>
    first && others.every((type) => isDeepStrictEqual(type, first)) ? [[name, first] as const] : [],
  );
  return new Map(agreed);
}

/** The first row as Python's `json.dump(row, file, indent=2)` writes it. */
function exampleOf(columns: readonly Column[]): string {
  const row = Object.fromEntries(columns.map(({ name, type, values }) => [name, ordered(values[0], type)]));
  return JSON.stringify(row, null, 2).replace(
    /[\x7f-\uffff]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** The value with its keys in the order of its type. */
function ordered(value: unknown, type: ColumnType): unknown {
  if (value === null || value === undefined) return null;
  if (type.kind === "list" && Array.isArray(value)) return value.map((item: unknown) => ordered(item, type.element));
  if (type.kind !== "struct" || typeof value !== "object") return value;
  return Object.fromEntries(type.fields.map(([name, inner]) => [name, ordered(Reflect.get(value, name), inner)]));
}
