/**
 * Loads a user's hook (`data/hooks.ts`) and calls its functions, in this process. Whatever goes wrong becomes one message
 * that names the file and the function.
 */
import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { HookSource } from "../config/hooks.ts";
import { type Hook, type HookKind, isHook } from "../data/hooks.ts";
import { isObject } from "../data/json-files.ts";
import { describe } from "../data/row.ts";
import { importUserFile } from "../rewards/custom.ts";
import { nearest, UserError } from "../util/errors.ts";
import { notJson } from "../util/plain-json.ts";
import { describeThrown } from "../workers/result.ts";

/** A hook and what messages call it. */
export type LoadedHook<Kind extends HookKind> = Pick<Hook<Kind>, "definition"> & {
  readonly name: string;
  /** Its file; null for one in the config. */
  readonly file: string | null;
};

/** What each kind is called, how it is made, and the functions that it needs. */
const kinds: Record<
  HookKind,
  { readonly noun: string; readonly maker: string; readonly functions: readonly string[] }
> = {
  sampler: { noun: "sampler", maker: "defineSampler({ … })", functions: ["next"] },
  dataset: { noun: "dataset", maker: "defineDataset(…)", functions: [] },
  generator: { noun: "data generator", maker: "defineDataGenerator({ … })", functions: ["generate"] },
};

/** Load the hook that the keys of `key` name; null where they name none. */
export async function loadHook<Kind extends HookKind>(
  kind: Kind,
  key: string,
  { path, name, value }: HookSource<Kind>,
): Promise<LoadedHook<Kind> | null> {
  if (path === null) {
    return value === null ? null : checked(kind, { definition: value.definition, name: `\`${key}\``, file: null });
  }
  if (value !== null)
    throw new UserError(`\`${key}\` names ${path}, and the config file holds a ${kinds[kind].noun} besides. Keep one.`);
  const file = resolve(path);
  if (!existsSync(file))
    throw new UserError(`\`${key}\` names ${path}, and there is no such file${file === path ? "" : ` (${file})`}.`);
  if (statSync(file).isDirectory())
    throw new UserError(`\`${key}\` names ${path}, which is a folder. Name the file in it.`);
  const exported = exportOf(await importUserFile(path), { kind, path, name: name ?? "default" });
  return checked(kind, { definition: exported.definition, name: path, file });
}

type Export<Kind> = { readonly kind: Kind; readonly path: string; readonly name: string };

function exportOf<Kind extends HookKind>(
  exports: Readonly<Record<string, unknown>>,
  { kind, path, name }: Export<Kind>,
): Hook<Kind> {
  const { noun, maker } = kinds[kind];
  const value = exports[name];
  if (isHook(value, kind)) return value;
  const write = name === "default" ? `export default ${maker}` : `export const ${name} = ${maker}`;
  if (Object.hasOwn(exports, name))
    throw new UserError(
      `${path}: the ${name === "default" ? "default export" : `export \`${name}\``} is no ${noun}. Write: ${write}`,
    );
  const names = Object.keys(exports).filter((it) => it !== "module.exports");
  const close = nearest(name, names);
  const hint = close.length === 0 ? `Write: ${write}` : `Did you mean ${close.map((it) => `\`${it}\``).join(" or ")}?`;
  throw new UserError(`${path} has no ${name === "default" ? "default export" : `export \`${name}\``}. ${hint}`);
}

function checked<Kind extends HookKind>(kind: Kind, hook: LoadedHook<Kind>): LoadedHook<Kind> {
  const { noun, maker, functions } = kinds[kind];
  const parts: unknown = hook.definition;
  if (functions.length === 0 && typeof parts !== "function")
    throw new UserError(`${hook.name}: a ${noun} is a function: ${maker}.`);
  for (const name of functions) {
    if (typeof parts === "object" && parts !== null && typeof Reflect.get(parts, name) === "function") continue;
    throw new UserError(`${hook.name}: the ${noun} has no function \`${name}\`.`);
  }
  return hook;
}

/** Call a function of a hook; an error in it is one about the hook. */
export async function callHook<T>(
  { name, file }: Pick<LoadedHook<HookKind>, "name" | "file">,
  called: string,
  run: () => T | Promise<T>,
): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof UserError) throw new UserError(`${name}: ${called} said: ${error.message}`, { cause: error });
    throw new UserError(`${name}: ${called} threw ${describeThrown(error, file)}.`, { cause: error });
  }
}

/**
 * The state of a sampler or generator. After each call it is written as JSON and read again, so that the functions see
 * the same values in a run that goes on as in one that is resumed.
 */
export class HookState {
  readonly #hook: LoadedHook<"sampler"> | LoadedHook<"generator">;
  #json: string;

  constructor(hook: LoadedHook<"sampler"> | LoadedHook<"generator">) {
    this.#hook = hook;
    this.#json = this.#write(hook.definition.state ?? {}, "at the start");
  }

  /** Call a function with the state, which it may change. */
  async call<T>(called: string, run: (state: object) => T | Promise<T>): Promise<T> {
    const state = this.saved();
    const result = await callHook(this.#hook, `\`${called}\``, () => run(state));
    this.#json = this.#write(state, `after \`${called}\``);
    return result;
  }

  /** A copy as a checkpoint has it. */
  saved(): object {
    return JSON.parse(this.#json);
  }

  restore(saved: object): void {
    this.#json = JSON.stringify(saved);
  }

  #write(state: object, when: string): string {
    const wrong = isObject(state) ? notJson(state, "state") : `state is ${describe(state)}`;
    if (wrong === null) return JSON.stringify(state);
    throw new UserError(
      `${this.#hook.name}: ${when}, ${wrong}, which a checkpoint cannot keep. The state is a plain object of ` +
        "texts, finite numbers, booleans, null, lists and plain objects.",
    );
  }
}
