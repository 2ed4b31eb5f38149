/**
 * Which files of a folder or repository hold which split, by their names: the rule of Hugging Face's `datasets`.
 *
 * A path belongs to a split when it contains one of the split's words as a separate word (`data/train-00000-of-00001
 * .parquet`, `harmless-base/test.jsonl.gz`). In a folder without such words all files are training rows.
 */

/** The words that name a split, in `datasets`. */
const words: Readonly<Record<string, readonly string[]>> = {
  train: ["train", "training"],
  validation: ["validation", "valid", "dev", "val"],
  test: ["test", "testing", "eval", "evaluation"],
};

const isData = (path: string) => /\.(parquet|(jsonl|ndjson|json)(\.gz)?)$/i.test(path);
/** Descriptions beside the data, and the examples that `data math` writes. */
const isAbout = (path: string) =>
  /(^|\/)[._]|(^|\/)(dataset_infos?|config|package|state)\.json$|_example\.json$/i.test(path);

/** The files of each split that exists, in reading order. */
export function splitFiles(paths: readonly string[], config: string | null): ReadonlyMap<string, readonly string[]> {
  const data = paths.filter((path) => isData(path) && !isAbout(path)).sort();
  const ofConfig = config === null ? [] : data.filter((path) => path.split("/").slice(0, -1).includes(config));
  const chosen = ofConfig.length > 0 ? ofConfig : data;
  const splits = new Map<string, string[]>();
  for (const path of chosen) {
    const split = splitOf(path);
    if (split !== null) splits.set(split, [...(splits.get(split) ?? []), path]);
  }
  if (splits.size === 0 && chosen.length > 0) splits.set("train", chosen);
  return new Map([...splits].map(([split, files]) => [split, inOneForm(files)]));
}

/** The split that a path names; its file's name counts before its folders. */
function splitOf(path: string): string | null {
  for (const part of path.split("/").reverse()) {
    const parts = new Set(part.toLowerCase().split(/[^a-z]+/));
    for (const [split, names] of Object.entries(words)) if (names.some((name) => parts.has(name))) return split;
  }
  return null;
}

/** If the same rows exist as parquet and as JSON, only the parquet files. */
function inOneForm(files: readonly string[]): readonly string[] {
  const parquet = files.filter((file) => file.toLowerCase().endsWith(".parquet"));
  return parquet.length > 0 ? parquet : files;
}

/** Whether no file of a series such as `train-00001-of-00003.parquet` is missing. */
export function hasAllShards(files: readonly string[]): boolean {
  return files.every((file) => {
    const shard = /^(.*)-(\d+)-of-(\d+)(.*)$/.exec(file);
    if (shard === null) return true;
    const [, before, number = "", count] = shard;
    // The end of a name may hold a checksum of its shard, so only what comes before it is compared.
    const others = files.filter((other) => other.startsWith(`${before}-`) && other.includes(`-of-${count}`));
    return others.length === Number(count) && number.length === (count ?? "").length;
  });
}
