/**
 * A model with another config.json: verl's `model.override_config` and `model.hf_config_path`. The weights stay where they
 * are; a small folder of links to them, with the changed config.json, stands for the model everywhere else. Equal changes
 * of one model give the same folder, so it is made once.
 */
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, realpath, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { messageOf, UserError } from "../util/errors.ts";

type Json = Readonly<Record<string, unknown>>;

export type ConfigChanges = {
  /** A folder whose config.json counts instead; null for the model's own. */
  readonly configFolder: string | null;
  /** Fields of config.json to set; a dict below a field is merged into it. */
  readonly overrides: Json;
};

/** The folder of the changed model; the model's own where nothing changes. */
export async function withChangedConfig(folder: string, { configFolder, overrides }: ConfigChanges): Promise<string> {
  const { model_config: nested, ...own } = overrides; // verl's Megatron configs have them one level deeper
  const changes = merged(own, isDict(nested) ? nested : {});
  if (configFolder === null && Object.keys(changes).length === 0) return folder;
  const source = await realpath(folder);
  const base = await readConfigJson(configFolder ?? folder);
  const text = `${JSON.stringify(merged(base, withRope(base, changes)), null, 2)}\n`;
  const key = createHash("sha256").update(`${source}\n${text}`).digest("hex").slice(0, 16);
  const parent = join(tmpdir(), `trainyard-models-${userInfo().uid}`);
  const target = join(parent, key);
  if (await stat(join(target, "config.json")).catch(() => null)) return target;
  await mkdir(parent, { recursive: true, mode: 0o700 });
  const made = await mkdtemp(`${target}.`);
  for (const name of await readdir(source))
    if (name !== "config.json") await symlink(join(source, name), join(made, name));
  await writeFile(join(made, "config.json"), text);
  await rename(made, target).catch(async (error: unknown) => {
    await rm(made, { recursive: true, force: true });
    if (!(await stat(target).catch(() => null))) throw error; // else another run has made the same folder meanwhile
  });
  return target;
}

async function readConfigJson(folder: string): Promise<Json> {
  const path = join(folder, "config.json");
  try {
    const value: unknown = JSON.parse(await readFile(path, "utf8"));
    if (isDict(value)) return value;
  } catch (error) {
    throw new UserError(`${path} cannot be read: ${messageOf(error)}. Check the path.`, { cause: error });
  }
  throw new UserError(`${path} does not hold an object. Download or copy the file again.`);
}

/** transformers 5 keeps `rope_theta` and `rope_scaling` in `rope_parameters`, which counts before them: set both. */
function withRope({ rope_parameters: rope }: Json, changes: Json): Json {
  const { rope_theta, rope_scaling, rope_parameters: given } = changes;
  if (!isDict(rope) || given !== undefined) return changes;
  const scaling = isDict(rope_scaling) ? rope_scaling : {};
  return { ...changes, rope_parameters: { ...scaling, ...(rope_theta !== undefined && { rope_theta }) } };
}

function merged(base: Json, changes: Json): Json {
  const entries = Object.entries(changes).map(([name, value]) => {
    const before = Object.hasOwn(base, name) ? base[name] : undefined;
    return [name, isDict(before) && isDict(value) ? merged(before, value) : value];
  });
  return { ...base, ...Object.fromEntries(entries) };
}

function isDict(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
