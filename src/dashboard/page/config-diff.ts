/** Configs of several runs side by side: one row per key, in order, and whether the runs differ in it. Pure. */

type ConfigRow = { readonly key: string; readonly values: readonly unknown[]; readonly differs: boolean };

/** Every leaf of the configs; undefined where a run does not have the key. */
export function configRows(configs: readonly unknown[]): ConfigRow[] {
  const flat = configs.map((config) => new Map(leaves(config, "")));
  const keys = [...new Set(flat.flatMap((it) => [...it.keys()]))].sort();
  return keys.map((key) => {
    const values = flat.map((it) => it.get(key));
    const differs = values.some((value) => JSON.stringify(value) !== JSON.stringify(values[0]));
    return { key, values, differs };
  });
}

/** Whether a leaf is one of the keys that were set, or inside of one. */
export const isSetIn = (set: readonly string[], key: string): boolean =>
  set.some((it) => key === it || key.startsWith(`${it}.`));

/** Paths and values of a tree; lists are values, and so is an empty object. */
function leaves(value: unknown, path: string): [string, unknown][] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [[path, value]];
  const entries = Object.entries(value);
  if (entries.length === 0) return path === "" ? [] : [[path, value]];
  return entries.flatMap(([name, child]) => leaves(child, path === "" ? name : `${path}.${name}`));
}
