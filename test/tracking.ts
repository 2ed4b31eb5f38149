/** What tests of trackers and runs share: a context, and what the program said meanwhile. */
import type { TrackContext } from "../src/track/tracker.ts";
import { mirrorTo } from "../src/util/log.ts";

export function trackContext(given: Partial<TrackContext> & Pick<TrackContext, "dir">): TrackContext {
  return {
    project: "project",
    experiment: "experiment",
    config: { trainer: { logger: ["console"], lr: 1e-6, path: null } },
    startStep: null,
    totalSteps: 100,
    env: {},
    ...given,
  };
}

/** Run `work` and return the lines that were logged. */
export async function linesOf(work: () => Promise<unknown>): Promise<string[]> {
  const lines: string[] = [];
  const stop = mirrorTo((line) => lines.push(line));
  try {
    await work();
  } finally {
    stop();
  }
  return lines;
}
