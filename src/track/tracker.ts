/**
 * What a tracker is: a place that metrics and samples are sent to while a run goes on.
 *
 * The run folder's metrics.jsonl is the truth that a resumed run and every tool reads; a tracker is a copy of it for
 * people. So a tracker never holds training up and never ends it: `log` and `logSamples` take what they are given and
 * return at once, and trouble on the way is told once and retried. Only `openTrackers`, before the first step, refuses.
 */
import { type Metrics, readMetrics } from "../run/metrics.ts";
import type { Sample } from "./samples.ts";

/** How a run ended: it did all its steps, the user stopped it, or it broke. */
export type Outcome = "finished" | "stopped" | "failed";

export type Tracker = {
  /** Send the metrics of a step. */
  log(step: number, data: Metrics): void;
  /** Send validation samples; those of a step come before its metrics. */
  logSamples(step: number, samples: readonly Sample[]): void;
  /** Send what is left, for some seconds at most, and say how the run ended. */
  close(outcome: Outcome): Promise<void>;
};

/** Where the console writes. */
export type Screen = {
  write(text: string): void;
  /** Whether what was written can be redrawn. */
  readonly isTerminal: boolean;
  readonly columns: number;
  readonly rows: number;
};

export type TrackContext = {
  /** `trainer.project_name` and `trainer.experiment_name`. */
  readonly project: string;
  readonly experiment: string;
  /** The resolved config. */
  readonly config: Readonly<Record<string, unknown>>;
  /** The run folder; it may still hold metrics of steps after the start, from an earlier part of the run. */
  readonly dir: string;
  /** The step that the run goes on after; null at its beginning. */
  readonly startStep: number | null;
  readonly totalSteps: number;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** A table that is redrawn (the default), or verl's line per step on stdout. */
  readonly consoleStyle?: "table" | "verl";
  /** Where the table goes; stderr if not given. */
  readonly screen?: Screen;
};

/** The metrics that a resumed run goes on from; none at the beginning of a run. */
export async function earlierMetrics({ dir, startStep }: TrackContext): Promise<{ step: number; data: Metrics }[]> {
  if (startStep === null) return [];
  return (await readMetrics(dir)).filter(({ step }) => step <= startStep);
}
