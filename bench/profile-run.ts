/** The profile of a program, from a session of its own: a session with profiling is slower than others. */
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InferenceSession, type Tensor } from "onnxruntime-node";
import { runInto } from "../src/runtime/zero-copy.ts";
import { invariant } from "../src/util/errors.ts";
import { type RunProfile, readProfile } from "./profile.ts";

export type Prepared = {
  readonly bytes: Uint8Array;
  readonly feeds: Record<string, Tensor>;
  readonly fetches: Record<string, Tensor>;
};

/** The fastest of a few profiled runs, and how long its call took as seen from outside. */
export async function profiledRun(
  { bytes, feeds, fetches }: Prepared,
  options: InferenceSession.SessionOptions,
  repeats: number,
): Promise<{ wall: number; profile: RunProfile }> {
  const folder = await mkdtemp(join(tmpdir(), "trainyard-profile-"));
  try {
    const profiling = { ...options, enableProfiling: true, profileFilePrefix: join(folder, "run") };
    const session = await InferenceSession.create(bytes, profiling);
    const walls: number[] = [];
    for (let i = 0; i <= repeats; i++) walls.push(await timed(() => runInto(session, feeds, fetches, "zero-copy")));
    session.endProfiling();
    await session.release();
    const [file] = await readdir(folder);
    invariant(file !== undefined, "onnxruntime wrote no profile");
    const profiles = readProfile(await readFile(join(folder, file), "utf8"));
    const runs = profiles.map((profile, i) => ({ profile, wall: walls[i]! }));
    return runs.slice(1).reduce((a, b) => (b.wall < a.wall ? b : a));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Seconds that the work takes. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}
