/**
 * One run folder for the dashboard: it follows the files and makes the answers from them. It writes nothing.
 */
import { findMetric } from "../algos/metrics/reference.ts";
import { newestRollouts, type RolloutKind, type Rollouts, RolloutsReader } from "../run/rollouts.ts";
import type {
  MetricInfo,
  PromptHistory,
  RolloutIndex,
  RunConfig,
  RunDetail,
  RunSummary,
  SearchPage,
  ValidationTable,
  Warning,
} from "./api.ts";
import { MetricColumns } from "./columns.ts";
import { encodeColumns } from "./page/wire.ts";
import { readConfig, readSetKeys } from "./run-status.ts";
import { searchRollouts } from "./search.ts";
import { Summarizer } from "./summary.ts";
import { ValidationHistory } from "./validation.ts";
import { findWarnings } from "./warnings.ts";

/** How many steps of rollouts are used to count groups with equal scores. */
const groupSteps = 8;

export class RunView {
  readonly #dir: string;
  readonly #summarizer: Summarizer;
  readonly #columns: MetricColumns;
  readonly #rollouts: RolloutsReader;
  readonly #validation: ValidationHistory;
  #judged: { readonly key: string; readonly warnings: Warning[] } = { key: "", warnings: [] };

  constructor(id: string, dir: string) {
    this.#dir = dir;
    this.#summarizer = new Summarizer(id, dir);
    this.#columns = new MetricColumns(dir);
    this.#rollouts = new RolloutsReader(dir);
    this.#validation = new ValidationHistory(this.#rollouts);
  }

  async summary(): Promise<RunSummary> {
    return await this.#summarizer.summary();
  }

  async detail(): Promise<RunDetail> {
    const [summary] = await Promise.all([this.summary(), this.#columns.refresh()]);
    const { version, rows, names, unreadable } = this.#columns;
    return { summary, version, rows, metricCount: names.length, unreadable, warnings: await this.#warnings() };
  }

  /** Every metric of the run, with its row of the metric table. */
  async metrics(): Promise<MetricInfo[]> {
    await this.#columns.refresh();
    return this.#columns.names.sort().map((name) => {
      const { unit, meaning, worry } = findMetric(name) ?? { unit: "", meaning: "", worry: "" };
      return { name, unit, meaning, worry };
    });
  }

  /** Rows of these metrics after the first `from`; all rows if `version` is not the current one. */
  async columns(names: readonly string[], from: number, version: number): Promise<Uint8Array<ArrayBuffer>> {
    await this.#columns.refresh();
    const { steps, rows } = this.#columns;
    const start = version === this.#columns.version ? Math.min(from, rows) : 0;
    const columns = new Map(
      names.flatMap((name) => {
        const column = this.#columns.column(name);
        return column === null ? [] : [[name, column.subarray(start)] as const];
      }),
    );
    return encodeColumns({ version: this.#columns.version, from: start, steps: steps.subarray(start), columns });
  }

  async config(): Promise<RunConfig> {
    return { config: await readConfig(this.#dir), set: await readSetKeys(this.#dir) };
  }

  async rolloutIndex(): Promise<RolloutIndex> {
    await this.#rollouts.refresh();
    const steps = (kind: RolloutKind) => this.#rollouts.entries(kind).map(({ step }) => step);
    const { version, unreadable } = this.#rollouts;
    return { version, train: steps("train"), val: steps("val"), unreadable };
  }

  async rollouts(kind: RolloutKind, step: number): Promise<Rollouts | null> {
    await this.#rollouts.refresh();
    return await this.#rollouts.read(kind, step);
  }

  async search(text: string, before: number | null): Promise<SearchPage> {
    await this.#rollouts.refresh();
    return await searchRollouts(this.#rollouts, text, before);
  }

  async validationTable(): Promise<ValidationTable> {
    await this.#rollouts.refresh();
    return await this.#validation.table();
  }

  async promptHistory(key: string): Promise<PromptHistory | null> {
    await this.#rollouts.refresh();
    return await this.#validation.promptHistory(key);
  }

  async #warnings(): Promise<Warning[]> {
    const { version, rows, steps } = this.#columns;
    const key = `${version} ${rows}`;
    if (key !== this.#judged.key) {
      const warnings = findWarnings({
        steps,
        groups: countGroups(await newestRollouts(this.#dir, groupSteps)),
        column: (name) => this.#columns.column(name),
        notFiniteSince: (step) => this.#columns.notFiniteSince(step),
      });
      this.#judged = { key, warnings };
    }
    return this.#judged.warnings;
  }
}

type GroupCount = { readonly equal: number; readonly total: number };

/** How many groups of several responses there are, and how many of them have only equal scores. */
function countGroups(lines: readonly Rollouts[]): GroupCount {
  const scores = lines
    .flatMap(({ groups }) => groups)
    .map(({ episodes }) => episodes.map(({ score }) => score).filter((score) => score !== null))
    .filter((group) => group.length > 1);
  return { equal: scores.filter((group) => group.every((score) => score === group[0])).length, total: scores.length };
}
