/**
 * What a config key is: its type, its default, one line of meaning.
 *
 * A `Type` is a zod schema with the words for it ("a whole number of at least 1"), so that the error message, the help and
 * the reference page say the same. A tree of fields gives the TypeScript types of the resolved config and of the input.
 */
import { z } from "zod";

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

/** The resolved config of a tree. */
export type Resolved<T> = T extends Field<infer Out, unknown> ? Out : { readonly [K in keyof T]: Resolved<T[K]> };

/** What a config file may say about a tree: any part of it. */
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

/** A count, or -1 for what `meaning` says. */
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
