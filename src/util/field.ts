/**
 * What a config key is: its type, its default, one line of meaning.
 *
 * A `Type` is a zod schema with the words for it ("a whole number of at least 1"), so that the error message, the help and
 * the reference page say the same. A tree of fields gives the TypeScript types of the resolved config and of the input.
 */
import { z } from "zod";
import { invariant } from "./errors.ts";

/** What values a key takes; `In` is what may be written, `Out` what the program gets. */
export type Type<Out, In = Out> = {
  readonly schema: z.ZodType<Out, In>;
  /** Ends the sentence "it takes …". */
  readonly expects: string;
  /** Holds paths: `~` is the home folder. */
  readonly isPath?: boolean;
  /** A dict whose keys are the user's own. */
  readonly isOpen?: boolean;
};

/** The default of a key that must be given, as in Hydra. */
export const mandatory = "???";

/** A text with `${another.key}` in it, which may stand for any value. */
export type Interpolation = `${string}\${${string}}${string}`;

/** One key. */
export type Field<Out, In> = {
  readonly type: Type<Out, In>;
  readonly default: In | Interpolation | typeof mandatory;
  readonly doc: string;
};

/** Fields under their names. */
export type Tree = { readonly [name: string]: Tree | Field<unknown, unknown> };

/** A tree without fields. */
export type NoFields = Readonly<Record<never, never>>;

/** The resolved config of a tree. */
export type Resolved<T> = T extends Field<infer Out, unknown> ? Out : { readonly [K in keyof T]: Resolved<T[K]> };

/** What a config file may hold of a tree: any part of it. */
export type Input<T> =
  T extends Field<unknown, infer In> ? In | Interpolation : { readonly [K in keyof T]?: Input<T[K]> };

/** One key of a tree. */
export function field<Out, In>(type: Type<Out, In>, initial: In | Interpolation | typeof mandatory, doc: string) {
  return { type, default: initial, doc } satisfies Field<Out, In>;
}

/** Whether a node of a tree is a field rather than a branch. */
export function isField(node: Tree | Field<unknown, unknown>): node is Field<unknown, unknown> {
  return "doc" in node && typeof node.doc === "string";
}

/** One tree of the fields of all members of a union of trees. */
type Merged<T> = (T extends unknown ? (tree: T) => void : never) extends (tree: infer All) => void ? All : never;

/** The fields of several trees as one. Where two declare the same key, it must be the same field. */
export function mergeTrees<T extends Tree>(trees: readonly T[]): Merged<T> {
  const merged = trees.reduce<Tree>((all, tree) => joinTrees(all, tree), {});
  for (const tree of trees) checkSame(tree, merged, "");
  return merged as Merged<T>; // every field of every tree is in it, at its own place
}

/** The fields of both trees; where both have one at the same place, the second's. */
export function joinTrees(a: Tree, b: Tree): Tree {
  const both = Object.entries(b).map(([name, node]) => {
    const other = Object.hasOwn(a, name) ? a[name] : undefined;
    return [name, other === undefined || isField(other) || isField(node) ? node : joinTrees(other, node)];
  });
  return { ...a, ...Object.fromEntries(both) };
}

function checkSame(tree: Tree, merged: Tree, prefix: string): void {
  for (const [name, node] of Object.entries(tree)) {
    const found = merged[name]!;
    if (isField(node) || isField(found)) invariant(node === found, `the key ${prefix}${name} is declared twice`);
    else checkSame(node, found, `${prefix}${name}.`);
  }
}

/** The values of a tree's own keys, out of a config that may hold others too. */
export function valuesOf<T extends Tree>(tree: T, config: Resolved<T>): Resolved<T> {
  const select = (node: Tree, values: Readonly<Record<string, unknown>>): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(node).map(([name, child]) => [
        name,
        isField(child) ? values[name] : select(child, values[name] as Readonly<Record<string, unknown>>), // as the tree
      ]),
    );
  return select(tree, config as Readonly<Record<string, unknown>>) as Resolved<T>; // the same keys, with their values
}

/** The values of a tree whose keys are all left at their defaults; none of them may refer to another key. */
export function defaultsOf<T extends Tree>(tree: T): Resolved<T> {
  const select = (node: Tree): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(node).map(([name, child]) => [
        name,
        isField(child) ? child.type.schema.parse(child.default) : select(child),
      ]),
    );
  return select(tree) as Resolved<T>; // each leaf was parsed by the schema of its own field
}

/** true or false. */
export const bool: Type<boolean> = { schema: z.boolean(), expects: "true or false" };

/** Any text. */
export const text: Type<string> = { schema: z.string(), expects: "a text" };

/** A name that must not be empty. */
export const name: Type<string> = { schema: z.string().min(1), expects: "a text that is not empty" };

/** A file or folder. */
export const path: Type<string> = { schema: z.string().min(1), expects: "a path", isPath: true };

/** One path or several; null is none. */
export const paths: Type<readonly string[], string | readonly string[] | null> = {
  schema: listSchema(z.string().min(1)),
  expects: "a path, a list of paths, or null",
  isPath: true,
};

/** One name or several; null is none. */
export const names: Type<readonly string[], string | readonly string[] | null> = {
  schema: listSchema(z.string().min(1)),
  expects: "a name, a list of names, or null",
};

/** A dict with keys of the user's own. */
export const dict: Type<Readonly<Record<string, unknown>>> = {
  schema: z.record(z.string(), z.unknown()),
  expects: "a dict such as {key: value}",
  isOpen: true,
};

/** A whole number of at least `min`. */
export function int(min: number): Type<number> {
  return { schema: z.int().min(min), expects: `a whole number of at least ${min}` };
}

/** A number between two bounds, both included. */
export function number(min: number, max = Number.POSITIVE_INFINITY): Type<number> {
  const expects = max === Number.POSITIVE_INFINITY ? `a number of at least ${min}` : `a number from ${min} to ${max}`;
  return { schema: z.number().min(min).max(max), expects };
}

/** Any finite number. */
export const real: Type<number> = { schema: z.number(), expects: "a number" };

/** A number above `bound`. */
export const above = (bound: number): Type<number> => ({
  schema: z.number().gt(bound),
  expects: `a number above ${bound}`,
});

/** A number above 0. */
export const positive = above(0);

/** Several numbers. */
export const reals: Type<readonly number[]> = {
  schema: z.array(z.number()).readonly(),
  expects: "a list of numbers such as [1,0.5]",
};

declare const registered: unique symbol;

/** The name of something that a program has registered: the compiler takes it where it knows all other names. */
export type OwnName = string & { readonly [registered]: true };

/** A value that was registered. Its name may stand in a typed config. */
export type Registered<Value> = Value & { readonly name: OwnName };

/** One of a table of names that a program may add to. Whether the name is in the table is checked there. */
export function nameOf<Known extends string>(what: string, known: readonly string[]): Type<string, Known | OwnName> {
  const expects = `the name of ${what}: ${known.join(", ")}, or one of your own`;
  return { schema: narrowed(z.string().min(1)), expects };
}

/** Some of the names of a table, for the compiler; whether they are in the table is checked there. */
export function namesOf<Known extends string>(
  expects: string,
): Type<readonly string[], Known | readonly Known[] | null> {
  return { schema: narrowed(listSchema(z.string().min(1))), expects };
}

/** The same schema; the compiler lets less be written in a config file than a run of the program would take. */
function narrowed<Out, In, Written extends In>(schema: z.ZodType<Out, In>): z.ZodType<Out, Written> {
  return schema as unknown as z.ZodType<Out, Written>; // safe: what may be written is a part of what is parsed
}

/** A count, or -1 with the meaning `meaning`. */
export function countOr(meaning: string): Type<number> {
  const schema = z.int().refine((value) => value === -1 || value > 0);
  return { schema, expects: `a whole number of at least 1, or -1 for ${meaning}` };
}

/** One of a few texts. */
export function choice<const T extends string>(...options: readonly [T, ...T[]]): Type<T> {
  const listed = options.map((option) => `\`${option}\``);
  const last = listed.pop() ?? "";
  return { schema: z.enum(options), expects: listed.length === 0 ? last : `${listed.join(", ")} or ${last}` };
}

/** Any number of a few texts, as a list. */
export function someOf<const T extends string>(...options: readonly [T, ...T[]]): Type<readonly T[]> {
  const listed = options.map((option) => `\`${option}\``).join(", ");
  return { schema: z.array(z.enum(options)), expects: `a list of some of ${listed}` };
}

/** The type, or null. */
export function nullable<Out, In>(type: Type<Out, In>): Type<Out | null, In | null> {
  return { ...type, schema: type.schema.nullable(), expects: `${type.expects}, or null` };
}

/** The type, where null stands for `value`. */
export function orNull<Out, In>(type: Type<Out, In>, value: Out): Type<Out, In | null> {
  const absent = z.null().transform(() => value);
  return { ...type, schema: z.union([absent, type.schema]), expects: `${type.expects}, or null for ${String(value)}` };
}

/** Either of two types. */
export function either<A, B>(a: Type<A>, b: Type<B>): Type<A | B> {
  return { schema: z.union([a.schema, b.schema]), expects: `${a.expects}, or ${b.expects}` };
}

/** Two numbers of one type. */
export function pair(type: Type<number>): Type<readonly [number, number]> {
  return {
    schema: z.tuple([type.schema, type.schema]),
    expects: `two numbers such as [0.9,0.95], each ${type.expects}`,
  };
}

function listSchema(item: z.ZodType<string, string>): z.ZodType<readonly string[], string | readonly string[] | null> {
  const one = item.transform((value): readonly string[] => [value]);
  const none = z.null().transform((): readonly string[] => []);
  return z.union([one, z.array(item).readonly(), none]);
}
