/**
 * `trainer.logger`: the trackers of a run, opened by name and used as one.
 */
import { UserError, unknownName } from "../util/errors.ts";
import { openConsole } from "./console.ts";
import { openFile } from "./file.ts";
import { openMlflow } from "./mlflow.ts";
import { openTensorboard } from "./tensorboard.ts";
import type { Outcome, TrackContext, Tracker } from "./tracker.ts";
import { openWandb } from "./wandb.ts";

/** In the order they are opened: first those that a server may refuse, last those that overwrite files. */
const trackers = {
  mlflow: openMlflow,
  wandb: openWandb,
  tensorboard: openTensorboard,
  file: openFile,
  console: openConsole,
} satisfies Record<string, (context: TrackContext) => Promise<Tracker>>;

type TrackerName = keyof typeof trackers;

/** The trackers of a run as one. If only `await using` closes them, the run counts as failed. */
export type Trackers = Tracker & AsyncDisposable;

const trackerNames = Object.keys(trackers).filter(isTracker);

/** Trackers of verl that exist only as Python packages. */
const pythonOnly = [
  ["swanlab", "SwanLab"],
  ["clearml", "ClearML"],
  ["trackio", "Trackio"],
  ["vemlp_wandb", "Volcengine's wandb"],
  ["rl_insight", "RL-Insight"],
] as const;
const unavailable: ReadonlyMap<string, string> = new Map(pythonOnly);

/** What `trainer.logger` takes. */
export type LoggerName = TrackerName | (typeof pythonOnly)[number][0];

/** Check `trainer.logger`: the trackers to open, and a message for each that only verl has. */
export function checkTrackers(wanted: readonly string[]): {
  readonly names: readonly TrackerName[];
  readonly notices: readonly string[];
} {
  const all = [...new Set(wanted)];
  const names = all.filter(isTracker);
  const notices: string[] = [];
  for (const name of all) {
    if (isTracker(name)) continue;
    const known = unavailable.get(name);
    if (known === undefined) throw unknownName("`trainer.logger`", name, [...trackerNames, ...unavailable.keys()]);
    const why = `\`trainer.logger\` names ${name}, and there is no client of ${known} for Node, so it is not available here`;
    if (names.length === 0) throw new UserError(`${why}. Choose from ${trackerNames.join(", ")}.`);
    notices.push(`${why}; metrics go to ${names.join(", ")}.`);
  }
  return { names, notices };
}

function isTracker(name: string): name is TrackerName {
  return Object.hasOwn(trackers, name);
}

/** Open the trackers of a run. If one of them cannot be opened, the others are closed and the error is thrown. */
export async function openTrackers(wanted: readonly string[], context: TrackContext): Promise<Trackers> {
  const open: Tracker[] = [];
  let isClosed = false;
  const close = async (outcome: Outcome): Promise<void> => {
    if (isClosed) return;
    isClosed = true;
    await Promise.all(open.map((tracker) => tracker.close(outcome)));
  };
  const { names } = checkTrackers(wanted);
  try {
    for (const name of trackerNames.filter((it) => names.includes(it))) open.push(await trackers[name](context));
  } catch (error) {
    await close("failed");
    throw error;
  }
  return {
    log(step, data) {
      for (const tracker of open) tracker.log(step, data);
    },
    logSamples(step, samples) {
      if (samples.length > 0) for (const tracker of open) tracker.logSamples(step, samples);
    },
    close,
    [Symbol.asyncDispose]: () => close("failed"),
  };
}
