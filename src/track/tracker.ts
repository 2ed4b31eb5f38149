/**
 * What a tracker is: a place that metrics and samples are sent to during a run.
 *
 * The run folder's metrics.jsonl is what a resumed run and every tool reads; a tracker is a copy of it for people. So
 * a tracker never delays training and never ends it: `log` and `logSamples` return at once, and a delivery that fails is
 * reported once and retried. Only `openTrackers`, before the first step, may throw.
 */
import { type Metrics, readMetrics } from "../run/metrics.ts";
import type { Sample } from "./samples.ts";

/** How a run ended: all steps are done, the user stopped it, or it failed. */
export type Outcome = "finished" | "stopped" | "failed";

export type Tracker = {
  /** Send the metrics of a step. */
  log(step: number, data: Metrics): void;
  /** Send validation samples; those of a step come before its metrics. */
  logSamples(step: number, samples: readonly Sample[]): void;
  /** Send what is left, for a few seconds at most, and report how the run ended. */
  close(outcome: Outcome): Promise<void>;
};

/** Where the console writes. */
export type Screen = {
  write(text: string): void;
  /** Whether written lines can be redrawn. */
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
  /** The step after which the run resumes; null for a new run. */
  readonly startStep: number | null;
  readonly totalSteps: number;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** A table that is redrawn (the default), or verl's line per step on stdout. */
  readonly consoleStyle?: "table" | "verl";
  /** Where the table goes; stderr if not given. */
  readonly screen?: Screen;
};

/** The metrics of the steps before a resumed run; none for a new run. */
export async function earlierMetrics({ dir, startStep }: TrackContext): Promise<{ step: number; data: Metrics }[]> {
  if (startStep === null) return [];
  return (await readMetrics(dir)).filter(({ step }) => step <= startStep);
}
