/**
 * Hydra's command-line overrides: `a.b=c` sets, `+a.b=c` and `++a.b=c` add or set, `~a.b` deletes; `--a.b c` is `a.b=c`.
 *
 * An override becomes an `Entry`, the unit every source of configuration is made of. Whether the key exists is not
 * decided here. `+` is taken as `++`: which keys "already exist" differs between verl's versions, and a key that is
 * known to none is refused later anyway.
 */
import { UserError } from "../util/errors.ts";
import { parseValue } from "./value.ts";

/** One statement about one key. */
export type Entry = {
  readonly path: string;
  readonly op: "set" | "delete";
  readonly value: unknown;
  /** The value as it was typed, for keys that hold text: `experiment_name=1.0` is not `1`. */
  readonly text?: string;
  /** Where it was written, to end a sentence with: `on the command line`, `in run.yaml:3`. */
  readonly where: string;
};

const onTheCommandLine = "on the command line";

/** Read `a.b=c`, `+a.b=c`, `++a.b=c`, `~a.b` or `~a.b=c`. */
export function parseOverride(argument: string): Entry {
  const isDelete = argument.startsWith("~");
  const body = isDelete ? argument.slice(1) : argument.replace(/^\+\+?/, "");
  const equals = body.indexOf("=");
  if (equals === -1 && !isDelete) {
    throw new UserError(
      `\`${argument}\` is not an override. Write key=value (as in trainer.total_epochs=2), ~key to delete a key, ` +
        "or the path of a .yaml, .json or .ts config file.",
    );
  }
  const path = checkPath(equals === -1 ? body : body.slice(0, equals), argument);
  const text = equals === -1 ? undefined : body.slice(equals + 1);
  const value = text === undefined ? undefined : readValue(path, text);
  if (isDelete) return { path, op: "delete", value, where: onTheCommandLine };
  return { path, op: "set", value, text: text?.trim() ?? "", where: onTheCommandLine };
}

function checkPath(text: string, argument: string): string {
  const path = text.trim();
  if (path !== "" && path.split(".").every((part) => /^[^\s=+~][^\s=]*$/.test(part))) return path;
  throw new UserError(
    `\`${argument}\` has ${path === "" ? "no key" : `the key \`${path}\``} before \`=\`. ` +
      "A key is names joined by dots, as in trainer.total_epochs=2.",
  );
}

function readValue(path: string, text: string): unknown {
  try {
    return parseValue(text);
  } catch (error) {
    if (error instanceof UserError) throw new UserError(`\`${path}\`: ${error.message}`, { cause: error });
    throw error;
  }
}
