/**
 * The answers of the server to the page, as types only, so both sides may import them.
 *
 * Every answer is made from a run folder's files and nothing else. Columns of metrics are sent as bytes, see
 * page/wire.ts.
 */
import type { RolloutEpisode, RolloutGroup, RolloutKind } from "../run/rollouts.ts";

/** `live`: a process is writing; `finished`: all steps are done; `stopped`: neither. */
export type RunStatus = "live" | "finished" | "stopped";

/** A metric that stands for a run: its newest value, and a few points of its series for a sparkline. */
export type Headline = {
  readonly label: string;
  readonly name: string;
  readonly value: number;
  readonly series: readonly number[];
};

/** A run as the overview lists it. */
export type RunSummary = {
  /** The path below the folder that is shown; "." for the folder itself. */
  readonly id: string;
  readonly name: string;
  readonly status: RunStatus;
  /** The last step that was logged; 0 at the beginning. */
  readonly step: number;
  /** Null if the folder does not say. */
  readonly total: number | null;
  /** When the metrics were last written, in milliseconds since 1970. */
  readonly updatedAt: number;
  /** Seconds of a recent step; null before the first one. */
  readonly stepSeconds: number | null;
  /** Reward, accuracy or loss, whichever the run has; null before the first step. */
  readonly headline: Headline | null;
  /** Of the last validation; null if there was none. */
  readonly validation: Headline | null;
};

export type RunList = { readonly folder: string; readonly runs: readonly RunSummary[] };

/** A problem that shows in the metrics. */
export type Warning = {
  readonly id: string;
  readonly level: "notice" | "serious";
  readonly title: string;
  /** What was seen, with its numbers. */
  readonly text: string;
  /** What to try, most promising first. */
  readonly tries: readonly string[];
  readonly metrics: readonly string[];
  /** The first step at which it shows. */
  readonly since: number;
};

/** A run as its own page shows it; polled while the run goes on. */
export type RunDetail = {
  readonly summary: RunSummary;
  /** Changes when earlier rows have changed. */
  readonly version: number;
  readonly rows: number;
  /** How many metrics there are; when it grows, the page asks for `/api/metrics`. */
  readonly metricCount: number;
  readonly unreadable: number;
  readonly warnings: readonly Warning[];
};

/** A metric and its documentation; the texts are "" for a metric that the metric table does not have. */
export type MetricInfo = {
  readonly name: string;
  readonly unit: string;
  readonly meaning: string;
  readonly worry: string;
};

/** Steps that have rollouts, ascending. */
export type RolloutIndex = {
  readonly version: number;
  readonly train: readonly number[];
  readonly val: readonly number[];
  readonly unreadable: number;
};

/** One place where a searched text was found. */
export type SearchHit = {
  readonly step: number;
  readonly kind: RolloutKind;
  readonly group: number;
  /** Null if it is in the prompt or in the truth. */
  readonly episode: number | null;
  readonly score: number | null;
  /** A line of text around it, and where in that line it is. */
  readonly excerpt: string;
  readonly at: number;
};

export type SearchPage = {
  readonly hits: readonly SearchHit[];
  /** Lines of the file that are still to be searched. */
  readonly left: number;
  /** Where to continue; null at the end. */
  readonly next: number | null;
};

/** Validation prompts by step: mean scores, one row per prompt, one column per step. */
export type ValidationTable = {
  /** At most 24 of all validated steps, evenly spaced, with the first and the last. */
  readonly steps: readonly number[];
  readonly validations: number;
  readonly prompts: readonly {
    readonly key: string;
    readonly prompt: string;
    readonly source: string;
    readonly truth: unknown;
    readonly scores: readonly (number | null)[];
  }[];
};

/** One validation prompt: its responses at those steps. */
export type PromptHistory = {
  readonly group: Omit<RolloutGroup, "episodes">;
  readonly at: readonly { readonly step: number; readonly episodes: readonly RolloutEpisode[] }[];
};

/** The config of a run; `config` is null if it cannot be read. */
export type RunConfig = {
  readonly config: unknown;
  /** The keys that the user has set, as far as the run folder says. */
  readonly set: readonly string[];
};
