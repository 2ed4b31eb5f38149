/** What all kinds of config files have in common: they are read as text and become one entry per leaf. */
import { readFile } from "node:fs/promises";
import { isHook } from "../data/hooks.ts";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { isDict } from "./interpolate.ts";
import type { Entry } from "./overrides.ts";

/** A config file as entries. */
export type Loaded = {
  readonly entries: readonly Entry[];
  /** The config of verl that it builds on, if any. */
  readonly configName?: string | undefined;
  /** The verb that it says it is for; null where it does not say. */
  readonly verb?: string | null;
};

/** Read a config file as text; a `UserError` says why it cannot be read. */
export async function readConfig(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    const reason = codeOf(error) === "ENOENT" ? "there is no such file" : messageOf(error);
    throw new UserError(`The config file ${file} cannot be read: ${reason}.`, { cause: error });
  }
}

/** The entries of a dict, one per leaf; `whereOf` says where a path was written. A hook is the key `value` of its branch. */
export function entriesOf(
  value: Readonly<Record<string, unknown>>,
  whereOf: (path: string) => string,
  prefix = "",
): Entry[] {
  return Object.entries(value).flatMap(([name, item]): Entry[] => {
    const path = prefix === "" ? name : `${prefix}.${name}`;
    if (isHook(item)) return [{ path: `${path}.value`, op: "set", value: item, where: whereOf(path) }];
    if (isDict(item) && Object.keys(item).length > 0) return entriesOf(item, whereOf, path);
    return [{ path, op: "set", value: item, where: whereOf(path) }];
  });
}
