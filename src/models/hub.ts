/**
 * A model by its folder or by its name on the Hugging Face hub (`owner/name`, `owner/name@revision`).
 *
 * A name is downloaded into Hugging Face's own cache (blobs/<etag>, snapshots/<commit>/<file> -> blob, refs/<revision>),
 * so that Python and this program share one copy. The library lists the files; `hub-download.ts` fetches them, because
 * the library's own download neither resumes nor verifies. Invariant: a ref is written only after all files of its
 * snapshot are there.
 */
import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import type { ListFileEntry } from "@huggingface/hub";
import { messageOf, UserError } from "../util/errors.ts";
import { writeFileAtomic } from "../util/files.ts";
import { fetchBlob, linkBlob, reasonOf } from "./hub-download.ts";

/** How far a download is: bytes of all its files, those that were there already included. */
export type DownloadProgress = { readonly file: string; readonly doneBytes: number; readonly totalBytes: number };

export type ResolveOptions = {
  /** HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, … */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined;
  readonly signal?: AbortSignal;
};

/** The local folder of a model, downloaded first if it is only on the hub. */
export async function resolveModel(pathOrId: string, options: ResolveOptions): Promise<string> {
  const path = expandHome(pathOrId, options.env);
  const found = await stat(path).catch(() => null);
  if (found?.isDirectory()) return path;
  if (found !== null)
    throw new UserError(`${pathOrId} is a file. Give the folder of a model, the one with config.json.`);
  const repo = openRepo(pathOrId, options);
  if (repo === null) {
    throw new UserError(
      `There is no folder "${pathOrId}". Give the folder of a model (the one with config.json), or the name of a model ` +
        "on the Hugging Face hub such as Qwen/Qwen2.5-0.5B-Instruct.",
    );
  }
  return isOn(options.env.HF_HUB_OFFLINE) || isOn(options.env.TRANSFORMERS_OFFLINE)
    ? fromCache(repo, "HF_HUB_OFFLINE is set, so nothing was downloaded. Unset it, or give the folder of a model.")
    : fromHub(repo, options);
}

type Repo = {
  readonly id: string;
  readonly revision: string;
  /** The repo's folder in the cache. */
  readonly folder: string;
  readonly endpoint: string;
  readonly fetch: typeof fetch;
};

function openRepo(name: string, { env, signal }: ResolveOptions): Repo | null {
  const match = /^([\w-][\w.-]*\/[\w-][\w.-]*)(?:@([\w][\w./-]*))?$/.exec(name);
  if (match?.[1] === undefined || name.includes("..")) return null;
  const [id, revision] = [match[1], match[2] ?? "main"];
  const endpoint = (env.HF_ENDPOINT || "https://huggingface.co").replace(/\/+$/, "");
  const folder = join(cacheFolder(env), `models--${id.replace("/", "--")}`);
  const authorised: typeof fetch = async (input, init) => {
    const headers = new Headers(init?.headers);
    const token = await readToken(env);
    // The token is for the hub alone; on a redirect to another host `fetch` takes it off again.
    if (token !== null && String(input).startsWith(`${endpoint}/`)) headers.set("authorization", `Bearer ${token}`);
    const response = await fetch(input, { ...init, headers, signal: signal ?? null });
    if (!response.ok && response.status !== 416) throw refusal(response, { id, revision, endpoint }, token !== null);
    return response;
  };
  return { id, revision, folder, endpoint, fetch: authorised };
}

async function fromHub(repo: Repo, options: ResolveOptions): Promise<string> {
  if (isCommit(repo.revision)) {
    const snapshot = join(repo.folder, "snapshots", repo.revision);
    if (await isWhole(snapshot)) return snapshot;
  }
  const listing = await listRepo(repo).catch((error) => {
    if (error instanceof UserError || options.signal?.aborted) throw error;
    return fromCache(
      repo,
      `${repo.endpoint} cannot be reached (${reasonOf(error)}). Check the connection and try again.`,
    );
  });
  if (typeof listing === "string") return listing;
  const { commit, files } = listing;
  const snapshot = join(repo.folder, "snapshots", commit);
  const index = files.filter((file) => file.path === indexFile);
  await download(repo, commit, index, { ...options, onProgress: undefined }); // it says which weights to fetch
  const weights = await weightFiles(repo, snapshot, files);
  await download(repo, commit, [...files.filter((file) => isText(file.path)), ...weights], options);
  if (repo.revision !== commit) await writeFileAtomic(join(repo.folder, "refs", repo.revision), commit);
  return snapshot;
}

/** The newest snapshot of the revision in the cache, if all of the model is there. */
async function fromCache(repo: Repo, otherwise: string): Promise<string> {
  const ref = await readFile(join(repo.folder, "refs", repo.revision), "utf8").catch(() => null);
  const commit = ref?.trim() ?? (isCommit(repo.revision) ? repo.revision : null);
  const snapshot = commit === null ? null : join(repo.folder, "snapshots", commit);
  if (snapshot !== null && (await isWhole(snapshot))) return snapshot;
  const state = snapshot === null ? "not" : "only in part";
  throw new UserError(`The model ${nameOf(repo)} is ${state} in the cache (${repo.folder}), and ${otherwise}`);
}

async function listRepo(repo: Repo): Promise<{ commit: string; files: ListFileEntry[] }> {
  const { listFiles, modelInfo } = await import("@huggingface/hub");
  const place = { hubUrl: repo.endpoint, fetch: repo.fetch };
  const { sha } = await modelInfo({ ...place, name: repo.id, revision: repo.revision, additionalFields: ["sha"] });
  if (!isCommit(sha)) throw new UserError(`${repo.endpoint} gives no commit for ${nameOf(repo)}. Check HF_ENDPOINT.`);
  const files: ListFileEntry[] = [];
  for await (const entry of listFiles({ ...place, repo: repo.id, revision: sha })) {
    if (entry.type === "file" && !/[\\/]|^\./.test(entry.path)) files.push(entry);
  }
  return { commit: sha, files };
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

async function download(
  repo: Repo,
  commit: string,
  files: readonly ListFileEntry[],
  { onProgress, signal }: ResolveOptions,
): Promise<void> {
  const totalBytes = files.reduce((sum, file) => sum + file.size, 0);
  let before = 0;
  for (const { path, size, oid, lfs } of files) {
    signal?.throwIfAborted();
    const checksum = lfs?.oid ?? oid ?? "";
    if (!/^[0-9a-f]{40}([0-9a-f]{24})?$/.test(checksum)) {
      throw new UserError(`${repo.endpoint} gives no checksum for ${path} of ${repo.id}. Check HF_ENDPOINT.`);
    }
    const report = (bytes: number) => onProgress?.({ file: path, doneBytes: before + bytes, totalBytes });
    await fetchBlob({
      name: `${path} of ${nameOf(repo)}`,
      url: `${repo.endpoint}/${repo.id}/resolve/${commit}/${encodeURIComponent(path)}`,
      blob: join(repo.folder, "blobs", checksum),
      size,
      checksum,
      fetch: repo.fetch,
      report,
    });
    await linkBlob(join(repo.folder, "blobs", checksum), join(repo.folder, "snapshots", commit, path));
    report(size);
    before += size;
  }
}

/** An answer other than 2xx, in words. */
function refusal(
  response: Response,
  { id, revision, endpoint }: Omit<Repo, "folder" | "fetch">,
  hasToken: boolean,
): Error {
  const code = response.headers.get("x-error-code");
  const page = `${endpoint}/${id}`;
  const token = `make a token at ${endpoint}/settings/tokens and set HF_TOKEN`;
  if (response.status === 403 || code === "GatedRepo") {
    return new UserError(
      `${id} is gated: its owner gives it to those who accept its conditions. Accept them at ${page}, then ` +
        (hasToken ? "check that HF_TOKEN belongs to that account and may read gated models." : `${token}.`),
    );
  }
  if (response.status === 404 && code === "RevisionNotFound") {
    return new UserError(`${id} has no revision "${revision}". See ${page}/tree/main for those it has.`);
  }
  if (response.status === 404 && code === "EntryNotFound") {
    return new UserError(`${new URL(response.url).pathname} is not there any more. Run the same command again.`);
  }
  if (response.status === 401 || response.status === 404) {
    return new UserError(
      `There is no folder ${id} here, and ${endpoint} shows no model ${id}. Check the spelling; if it is private, ` +
        (hasToken ? "check that HF_TOKEN may read it." : `${token}.`),
    );
  }
  return new Error(`${endpoint} answers ${response.status} ${response.statusText}`);
}

/** HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub: the order of Hugging Face's own library. */
function cacheFolder(env: ResolveOptions["env"]): string {
  const chosen = env.HF_HUB_CACHE || env.HUGGINGFACE_HUB_CACHE;
  return chosen ? expandHome(chosen, env) : join(homeFolder(env), "hub");
}

function homeFolder(env: ResolveOptions["env"]): string {
  return expandHome(env.HF_HOME || join(env.XDG_CACHE_HOME || "~/.cache", "huggingface"), env);
}

async function readToken(env: ResolveOptions["env"]): Promise<string | null> {
  const given = env.HF_TOKEN || env.HUGGING_FACE_HUB_TOKEN;
  const file = expandHome(env.HF_TOKEN_PATH || join(homeFolder(env), "token"), env);
  const token = given || (await readFile(file, "utf8").catch(() => ""));
  return token.trim() || null;
}

function expandHome(path: string, env: ResolveOptions["env"]): string {
  return /^~($|[\\/])/.test(path) ? join(env.HOME || homedir(), path.slice(1)) : path;
}

function isOn(value: string | undefined): boolean {
  return /^(1|on|yes|true)$/i.test(value ?? "");
}

function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision);
}

function nameOf({ id, revision }: Repo): string {
  return revision === "main" ? id : `${id}@${revision}`;
}
