/**
 * The keys of hooks, verl's names for Python classes: a file of TypeScript with an export that a `define…` function made,
 * or in a TypeScript config that value itself.
 */
import { extname } from "node:path";
import { z } from "zod";
import { type Hook, type HookKind, isHook } from "../data/hooks.ts";
import { field, name, nullable, type Type } from "../util/field.ts";
import { moduleExtensions } from "../util/import-file.ts";

/** Where a hook is: a file and its export, or the value; all null for none. */
export type HookSource<Kind extends HookKind> = {
  readonly path: string | null;
  readonly name: string | null;
  readonly value: Hook<Kind> | null;
};

/** A file with a hook; verl's Python files and modules (`pkg://…`) are refused with the way out. */
function hookFile(maker: string): Type<string> {
  return {
    schema: z.string().refine((path) => !path.startsWith("pkg://") && moduleExtensions.includes(extname(path))),
    expects: `a TypeScript or JavaScript file with \`export default ${maker}\` (docs/extending.md shows one; Python classes are not loaded)`,
    isPath: true,
  };
}

function hookValue<Kind extends HookKind>(kind: Kind, maker: string): Type<Hook<Kind>> {
  return {
    schema: z.custom<Hook<Kind>>((value) => isHook(value, kind)),
    expects: `what \`${maker}\` returns, in a TypeScript config`,
  };
}

const exportName = field(nullable(name), null, "The export of that file; null for the default export.");
const itself = (key: string) => `The value itself, in a TypeScript config, where it may stand as ${key}.`;

const sampler = "defineSampler({ … })";
const dataset = "defineDataset(…)";
const generator = "defineDataGenerator({ … })";

/** The keys of `data.sampler`. */
export const samplerKeys = {
  class_path: field(
    nullable(hookFile(sampler)),
    null,
    "File with a sampler, which chooses the rows of each batch and is told how they went; null for data.shuffle.",
  ),
  class_name: exportName,
  value: field(nullable(hookValue("sampler", sampler)), null, itself("data.sampler")),
};

/** The keys of `data.custom_cls`. */
export const datasetKeys = {
  path: field(nullable(hookFile(dataset)), null, "File with a dataset, which gives the rows; null reads data files."),
  name: exportName,
  value: field(nullable(hookValue("dataset", dataset)), null, itself("data.custom_cls")),
};

/** The keys of `data.datagen`. */
export const generatorKeys = {
  path: field(
    nullable(hookFile(generator)),
    null,
    "File with a data generator, which adds training rows after each step; null for none.",
  ),
  name: exportName,
  value: field(nullable(hookValue("generator", generator)), null, itself("data.datagen")),
};

/** The keys of a hook, or the hook itself. */
type OrHook<Keys> = Keys extends { readonly value?: infer Value } ? Keys | Exclude<Value, null | string> : Keys;

/** The input of a config whose branch `data` may hold hooks themselves at some keys. */
export type WithHooks<Parts extends { readonly data?: object }, Branch extends string> = Omit<Parts, "data"> & {
  readonly data?: Omit<Data<Parts>, Branch> & { readonly [B in Branch & keyof Data<Parts>]?: OrHook<Data<Parts>[B]> };
};
type Data<Parts extends { readonly data?: object }> = NonNullable<Parts["data"]>;

/** The input of a config that may hold a dataset. */
export type WithDataset<Parts extends { readonly data?: object }> = WithHooks<Parts, "custom_cls">;

/** Whether the keys of a hook name one. */
export const isNamed = (keys: { readonly value: unknown } & Readonly<Record<string, unknown>>): boolean =>
  keys.value !== null || (keys.class_path ?? keys.path ?? null) !== null;

/** The defaults of the data files beside a dataset, which need not read any. */
export const filesOfDataset = (given: ReadonlySet<string>): Readonly<Record<string, null>> =>
  given.has("data.custom_cls.path") || given.has("data.custom_cls.value")
    ? { "data.train_files": null, "data.val_files": null }
    : {};
