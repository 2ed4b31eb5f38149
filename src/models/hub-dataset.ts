/**
 * Files of a dataset on the Hugging Face hub, in Hugging Face's own cache.
 *
 * The caller chooses the files: it gets all paths of the repository. If the hub cannot be reached, it gets the paths
 * that are in the cache, so it must refuse a choice that is not complete.
 */
import { readdir, stat } from "node:fs/promises";
import { join, sep } from "node:path";
import { UserError } from "../util/errors.ts";
import {
  cachedSnapshot,
  download,
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

/** Chooses among the paths of a repository; null if a file that it needs is missing. */
export type Choose = (paths: readonly string[]) => readonly string[] | null;

/** The folder with the chosen files of a dataset, downloaded first if they are only on the hub. */
export async function resolveDataset(id: string, choose: Choose, options: ResolveOptions): Promise<string> {
  const repo = openRepo("dataset", id, options);
  if (repo === null) {
    throw new UserError(`"${id}" is no name of a dataset on the Hugging Face hub. Write it as owner/name.`);
  }
  if (isOffline(options.env)) {
    return fromCache(
      repo,
      choose,
      "HF_HUB_OFFLINE is set, so nothing was downloaded. Unset it, or give files with --local_dataset_path.",
    );
  }
  if (isCommit(repo.revision)) {
    const snapshot = snapshotOf(repo, repo.revision);
    if (choose(await pathsIn(snapshot)) !== null) return snapshot;
  }
  const listing = await listRepo(repo, options.signal);
  if ("why" in listing) return fromCache(repo, choose, `${listing.why} Or give files with --local_dataset_path.`);
  const chosen = choose(listing.files.map(({ path }) => path));
  if (chosen === null) {
    const seen = listing.files.map(({ path }) => path).slice(0, 8);
    throw new UserError(
      `${nameOf(repo)} does not have the files that are looked for. It has ${seen.length === 0 ? "none" : seen.join(", ")}` +
        `${listing.files.length > seen.length ? ", …" : ""}. Choose another revision (${repo.id}@revision) or repository.`,
    );
  }
  const wanted = new Set(chosen);
  await download(
    repo,
    listing.commit,
    listing.files.filter(({ path }) => wanted.has(path)),
    options,
  );
  await writeRef(repo, listing.commit);
  return snapshotOf(repo, listing.commit);
}

async function fromCache(repo: Repo, choose: Choose, otherwise: string): Promise<string> {
  const snapshot = await cachedSnapshot(repo);
  const paths = snapshot === null ? [] : await pathsIn(snapshot);
  if (snapshot !== null && choose(paths) !== null) return snapshot;
  throw notCached(repo, paths.length > 0, otherwise);
}

/** The paths of the files below a folder, with `/` between their parts; a link to nothing is no file. */
export async function pathsIn(folder: string): Promise<string[]> {
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  const found: string[] = [];
  for (const name of names.sort()) {
    const status = await stat(join(folder, name)).catch(() => null);
    if (status?.isFile()) found.push(name.split(sep).join("/"));
  }
  return found;
}
