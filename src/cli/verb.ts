/**
 * What a verb of the command line is: one value in one file, `cli/<verb>.ts`, listed by one line of `verbs.ts`.
 *
 * A verb takes either the keys of a config (`config-verb.ts` makes it) or a table of options (`flag-verb.ts` makes it).
 * Help, completion, the reference page, `--dry-run` and `data validate` read this value; none of them knows a verb by its
 * name. `config/define-config.ts` has a function for the typed config of each.
 */
import type { AnySchema } from "../config/schema.ts";
import type { Check } from "./row-check.ts";

/** What a verb is called with. */
export type Call = {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** What the table says that the verb is for. */
  readonly summary: string;
  /** All verbs of the program. */
  readonly verbs: Verbs;
};

/** How the rows of a file are checked for a verb (`trainyard data validate`). */
export type RowCheck = {
  /** Whether rows with these columns are most likely for this verb; `has` says whether the file has all of the given columns. */
  fits(has: (...columns: readonly string[]) => boolean): boolean;
  readonly check: Check;
};

/** A verb. */
export type Verb = {
  /** The keys that it takes; null for a verb with options. */
  readonly schema: AnySchema | null;
  /** Null for a verb that reads no rows. */
  readonly rows: RowCheck | null;
  /** What a shell completes behind it: keys, options, names. */
  words(): readonly string[];
  /** Do what the arguments ask for; returns the exit code. */
  run(call: Call): Promise<number>;
};

/** The verbs of a program by name, in the order of the help; each is loaded when it is called. */
export type Verbs = Readonly<Record<string, { readonly summary: string; load(): Promise<{ readonly verb: Verb }> }>>;

/** Load every verb of a table. */
export async function loadVerbs(table: Verbs): Promise<readonly (readonly [name: string, verb: Verb])[]> {
  return await Promise.all(Object.entries(table).map(async ([name, { load }]) => [name, (await load()).verb] as const));
}
