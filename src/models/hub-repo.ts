/**
 * A repository on the Hugging Face hub and its place in Hugging Face's own cache, the same for models and datasets.
 *
 * The layout is blobs/<etag>, snapshots/<commit>/<file> -> blob, refs/<revision>, so that Python and this program share
 * one copy. The library lists the files; `hub-download.ts` fetches them, because the library's own download neither
 * resumes nor verifies. Invariant: a ref is written only after all files of its snapshot are there.
 */
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import type { ListFileEntry } from "@huggingface/hub";
import { UserError } from "../util/errors.ts";
import { writeFileAtomic } from "../util/files.ts";
import { warn } from "../util/log.ts";
import { fetchBlob, linkBlob, reasonOf } from "./hub-download.ts";

/** How far a download is: bytes of all its files, including those that were cached before. */
export type DownloadProgress = { readonly file: string; readonly doneBytes: number; readonly totalBytes: number };

export type ResolveOptions = {
  /** HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, … */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined;
  readonly signal?: AbortSignal;
};

export type RepoKind = "model" | "dataset";

export type Repo = {
  readonly kind: RepoKind;
  readonly id: string;
  readonly revision: string;
  /** The repo's folder in the cache. */
  readonly folder: string;
  readonly endpoint: string;
  /** Its page on the hub, which the addresses of its files begin with. */
  readonly page: string;
  readonly fetch: typeof fetch;
};

/** The repository of a name such as `owner/name` or `owner/name@revision`; null if it is not such a name. */
export function openRepo(kind: RepoKind, name: string, { env, signal }: ResolveOptions): Repo | null {
  const match = /^([\w-][\w.-]*\/[\w-][\w.-]*)(?:@([\w][\w./-]*))?$/.exec(name);
  if (match?.[1] === undefined || name.includes("..")) return null;
  const [id, revision] = [match[1], match[2] ?? "main"];
  if (env.VERL_USE_MODELSCOPE?.toLowerCase() === "true")
    warn(
      `VERL_USE_MODELSCOPE has no effect: ${id} comes from the Hugging Face hub, or from the mirror that HF_ENDPOINT names. ` +
        "To use ModelScope's copy, download it with its own program and give the folder.",
    );
  const endpoint = (env.HF_ENDPOINT || "https://huggingface.co").replace(/\/+$/, "");
  const page = kind === "model" ? `${endpoint}/${id}` : `${endpoint}/datasets/${id}`;
  const folder = join(cacheFolder(env), `${kind}s--${id.replace("/", "--")}`);
  const described = { kind, id, revision, folder, endpoint, page };
  const authorised: typeof fetch = async (input, init) => {
    const headers = new Headers(init?.headers);
    const token = await readToken(env);
    // The token is for the hub only; on a redirect to another host `fetch` removes it.
    if (token !== null && String(input).startsWith(`${endpoint}/`)) headers.set("authorization", `Bearer ${token}`);
    const response = await fetch(input, { ...init, headers, signal: signal ?? null });
    if (!response.ok && response.status !== 416) throw refusal(response, described, token !== null);
    return response;
  };
  return { ...described, fetch: authorised };
}

/** What is known of a repository: the newest commit of its revision and the files in it. */
export type Listing = { readonly commit: string; readonly files: readonly ListFileEntry[] };

/** Ask the hub what it has; if it cannot be reached, the reason. */
export async function listRepo(repo: Repo, signal: AbortSignal | undefined): Promise<Listing | { why: string }> {
  try {
    return await list(repo);
  } catch (error) {
    if (error instanceof UserError || signal?.aborted) throw error;
    return { why: `${repo.endpoint} cannot be reached (${reasonOf(error)}). Check the connection and try again.` };
  }
}

async function list(repo: Repo): Promise<Listing> {
  const { listFiles, modelInfo, datasetInfo } = await import("@huggingface/hub");
  const place = { hubUrl: repo.endpoint, fetch: repo.fetch };
  const asked = { ...place, name: repo.id, revision: repo.revision, additionalFields: ["sha" as const] };
  const { sha } = repo.kind === "model" ? await modelInfo(asked) : await datasetInfo(asked);
  if (!isCommit(sha)) throw new UserError(`${repo.endpoint} gives no commit for ${nameOf(repo)}. Check HF_ENDPOINT.`);
  const files: ListFileEntry[] = [];
  const recursive = repo.kind === "dataset"; // a model's files are at the top level
  const asPlace = { type: repo.kind, name: repo.id };
  for await (const entry of listFiles({ ...place, repo: asPlace, revision: sha, recursive })) {
    if (entry.type === "file" && isPlain(entry.path, recursive)) files.push(entry);
  }
  return { commit: sha, files };
}

/** Neither hidden nor outside of the snapshot. */
function isPlain(path: string, mayBeNested: boolean): boolean {
  return !path.includes("\\") && (mayBeNested || !path.includes("/")) && !/(^|\/)(\.|$)|\/\//.test(path);
}

/** Whether the user has forbidden to ask the hub. */
export function isOffline(env: ResolveOptions["env"]): boolean {
  return isOn(env.HF_HUB_OFFLINE) || isOn(env.TRANSFORMERS_OFFLINE);
}

/** Where the files of a commit are. */
export function snapshotOf(repo: Repo, commit: string): string {
  return join(repo.folder, "snapshots", commit);
}

/** The newest snapshot of the revision in the cache, whole or not. */
export async function cachedSnapshot(repo: Repo): Promise<string | null> {
  const ref = await readFile(join(repo.folder, "refs", repo.revision), "utf8").catch(() => null);
  const commit = ref?.trim() ?? (isCommit(repo.revision) ? repo.revision : null);
  return commit === null ? null : snapshotOf(repo, commit);
}

/** A repository that is not in the cache, or not all of it; `otherwise` says why it was not downloaded. */
export function notCached(repo: Repo, isPart: boolean, otherwise: string): UserError {
  const state = isPart ? "only in part" : "not";
  return new UserError(`The ${repo.kind} ${nameOf(repo)} is ${state} in the cache (${repo.folder}), and ${otherwise}`);
}

/** Record in the cache that a revision is this commit; all its files must be there. */
export async function writeRef(repo: Repo, commit: string): Promise<void> {
  if (repo.revision !== commit) await writeFileAtomic(join(repo.folder, "refs", repo.revision), commit);
}

/** Bring files of a commit into the cache. */
export async function download(
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
      url: `${repo.page}/resolve/${commit}/${path.split("/").map(encodeURIComponent).join("/")}`,
      blob: join(repo.folder, "blobs", checksum),
      size,
      checksum,
      fetch: repo.fetch,
      report,
    });
    await linkBlob(join(repo.folder, "blobs", checksum), join(snapshotOf(repo, commit), path));
    report(size);
    before += size;
  }
}

/** The error for a response other than 2xx. */
function refusal(
  response: Response,
  { kind, id, revision, endpoint, page }: Omit<Repo, "fetch">,
  hasToken: boolean,
): Error {
  const code = response.headers.get("x-error-code");
  const token = `make a token at ${endpoint}/settings/tokens and set HF_TOKEN`;
  if (response.status === 403 || code === "GatedRepo") {
    return new UserError(
      `${id} is gated: its owner gives it to those who accept its conditions. Accept them at ${page}, then ` +
        (hasToken ? `check that HF_TOKEN belongs to that account and may read gated ${kind}s.` : `${token}.`),
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
      `There is no folder ${id} here, and ${endpoint} shows no ${kind} ${id}. Check the spelling; if it is private, ` +
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

/** `~` as the environment has it. */
export function expandHome(path: string, env: ResolveOptions["env"]): string {
  return /^~($|[\\/])/.test(path) ? join(env.HOME || homedir(), path.slice(1)) : path;
}

function isOn(value: string | undefined): boolean {
  return /^(1|on|yes|true)$/i.test(value ?? "");
}

/** Whether a revision is a commit, which never changes. */
export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision);
}

/** `owner/name`, with the revision where it is another than the default. */
export function nameOf({ id, revision }: Pick<Repo, "id" | "revision">): string {
  return revision === "main" ? id : `${id}@${revision}`;
}
