/**
 * Tables of algorithms by name: ours, and those that a program or a config file registers.
 *
 * A value that is registered may bring config keys of its own (`fields`). They stand below `own.NAME` of a branch of the
 * config, so they can never meet a key of verl.
 *
 * Departure from verl: a name cannot be given to a second value, so nobody changes `vanilla` by accident.
 */
import { UserError, unknownName } from "../util/errors.ts";
import type { Tree } from "../util/field.ts";

/** What is looked up. */
type Named = { readonly name: string; readonly fields?: Tree };

export type Registry<Value extends Named> = {
  /** The value of that name. */
  find(name: string): Value;
  has(name: string): boolean;
  isBuiltIn(name: string): boolean;
  /** All names, in order of registration. */
  names(): string[];
  /** Add a value; a name that another value has is refused. */
  register(value: Value): void;
  /** The keys that registered values bring, below their names. */
  ownFields(): Tree;
};

type Options = {
  /** What a value is called, with its article. */
  readonly what: string;
  /** What names the value, to begin the message about an unknown name. */
  readonly subject: string;
  /** Settings that every value gets: a key of its own may not have one of these names. */
  readonly shared: readonly string[];
};

/** A table that begins with our own values. */
export function registryOf<Value extends Named>(
  builtIn: readonly Value[],
  { what, subject, shared }: Options,
): Registry<Value> {
  const values = new Map(builtIn.map((value) => [value.name, value]));
  const isBuiltIn = (name: string) => builtIn.some((value) => value.name === name);
  return {
    find(name) {
      const value = values.get(name);
      if (value === undefined) throw unknownName(subject, name, [...values.keys()]);
      return value;
    },
    has: (name) => values.has(name),
    isBuiltIn,
    names: () => [...values.keys()],
    register(value) {
      const { name, fields = {} } = value;
      const known = values.get(name);
      if (known === value) return;
      if (known !== undefined) throw new UserError(`There is ${what} "${name}" already. Give yours another name.`);
      checkKeys(name, fields, shared);
      values.set(name, value);
    },
    ownFields: () =>
      Object.fromEntries(
        [...values.values()]
          .filter(({ name, fields = {} }) => !isBuiltIn(name) && Object.keys(fields).length > 0)
          .map(({ name, fields = {} }) => [name, fields]),
      ),
  };
}

/** A name that has keys is a part of their paths. */
function checkKeys(name: string, fields: Tree, shared: readonly string[]): void {
  const keys = Object.keys(fields);
  if (keys.length === 0) return;
  for (const part of [name, ...keys]) {
    if (/^[A-Za-z_][\w-]*$/.test(part)) continue;
    throw new UserError(
      `"${part}" cannot be a part of a config key. Use letters, digits, _ and -, and begin with a letter or _.`,
    );
  }
  const taken = keys.find((key) => shared.includes(key));
  if (taken === undefined) return;
  throw new UserError(
    `"${name}" declares the key "${taken}", which it gets anyway. Read it from the settings, or choose another name.`,
  );
}
