/**
 * A model by its folder or by its name on the Hugging Face hub (`owner/name`, `owner/name@revision`).
 *
 * Only the files that are needed to run the model are downloaded: configuration, tokenizer and one set of weights. If
 * the hub cannot be reached, the model in the cache is used, provided that it is complete.
 */
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type { ListFileEntry } from "@huggingface/hub";
import { messageOf, UserError } from "../util/errors.ts";
import {
  cachedSnapshot,
  download,
  expandHome,
  isCommit,
  isOffline,
  listRepo,
  nameOf,
  notCached,
  openRepo,
  type Repo,
  type ResolveOptions,
  snapshotOf,
  writeRef,
} from "./hub-repo.ts";

export type { DownloadProgress, ResolveOptions } from "./hub-repo.ts";

/** The local folder of a model, downloaded first if it is only on the hub. */
export async function resolveModel(pathOrId: string, options: ResolveOptions): Promise<string> {
  const path = expandHome(pathOrId, options.env);
  const found = await stat(path).catch(() => null);
  if (found?.isDirectory()) return path;
  if (found !== null)
    throw new UserError(`${pathOrId} is a file. Give the folder of a model, the one with config.json.`);
  const repo = openRepo("model", pathOrId, options);
  if (repo === null) {
    throw new UserError(
      `There is no folder "${pathOrId}". Give the folder of a model (the one with config.json), or the name of a model ` +
        "on the Hugging Face hub such as Qwen/Qwen2.5-0.5B-Instruct.",
    );
  }
  return isOffline(options.env)
    ? fromCache(repo, "HF_HUB_OFFLINE is set, so nothing was downloaded. Unset it, or give the folder of a model.")
    : fromHub(repo, options);
}

async function fromHub(repo: Repo, options: ResolveOptions): Promise<string> {
  if (isCommit(repo.revision)) {
    const snapshot = snapshotOf(repo, repo.revision);
    if (await isWhole(snapshot)) return snapshot;
  }
  const listing = await listRepo(repo, options.signal);
  if ("why" in listing) return fromCache(repo, listing.why);
  const { commit, files } = listing;
  const snapshot = snapshotOf(repo, commit);
  const index = files.filter((file) => file.path === indexFile);
  await download(repo, commit, index, { ...options, onProgress: undefined }); // it says which weights to fetch
  const weights = await weightFiles(repo, snapshot, files);
  await download(repo, commit, [...files.filter((file) => isText(file.path)), ...weights], options);
  await writeRef(repo, commit);
  return snapshot;
}

/** The newest snapshot of the revision in the cache, if all of the model is there. */
async function fromCache(repo: Repo, otherwise: string): Promise<string> {
  const snapshot = await cachedSnapshot(repo);
  if (snapshot !== null && (await isWhole(snapshot))) return snapshot;
  throw notCached(repo, snapshot !== null, otherwise);
}

/** The configuration and the tokenizer: everything that is not weights. */
function isText(path: string): boolean {
  return /^(config|generation_config|special_tokens_map|added_tokens)\.json$|^(tokenizer|chat_template)/.test(path);
}

const indexFile = "model.safetensors.index.json";

/** The shards that the index names, else model.safetensors, else whatever safetensors there are. */
async function weightFiles(repo: Repo, snapshot: string, files: readonly ListFileEntry[]): Promise<ListFileEntry[]> {
  const shards = await shardsOf(snapshot);
  const names = shards ?? (files.some((file) => file.path === singleFile) ? new Set([singleFile]) : null);
  const chosen = files.filter((file) => (names === null ? file.path.endsWith(".safetensors") : names.has(file.path)));
  if (chosen.length > 0 && chosen.length >= (names?.size ?? 0)) return chosen;
  throw new UserError(
    names === null
      ? `${nameOf(repo)} has no *.safetensors. Choose a model that has, or convert it with transformers (save_pretrained).`
      : `${nameOf(repo)} lacks ${[...names].filter((name) => !chosen.some((file) => file.path === name)).join(", ")}, ` +
          `which its ${indexFile} names. Choose another revision.`,
  );
}

const singleFile = "model.safetensors";

/** The files that a snapshot's index names; `null` without an index. */
async function shardsOf(snapshot: string): Promise<Set<string> | null> {
  const text = await readFile(join(snapshot, indexFile), "utf8").catch(() => null);
  if (text === null) return null;
  try {
    const index: { weight_map?: Record<string, string> } = JSON.parse(text);
    return new Set(Object.values(index.weight_map ?? {}));
  } catch (error) {
    throw new UserError(`${join(snapshot, indexFile)} is not JSON: ${messageOf(error)}. Choose another revision.`);
  }
}

/** Whether a snapshot has a config and all weights (a link to a missing blob is a missing file). */
async function isWhole(snapshot: string): Promise<boolean> {
  const shards = (await shardsOf(snapshot).catch(() => null)) ?? [singleFile];
  const needed = ["config.json", ...shards].map((name) => stat(join(snapshot, name)));
  return (await Promise.allSettled(needed)).every(({ status }) => status === "fulfilled");
}
