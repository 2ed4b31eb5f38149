/**
 * The data of one run in the page: its state, and the columns that a chart has requested.
 *
 * A poll requests the state and, if rows were added, only these rows. When earlier rows have changed (the run was
 * resumed from an earlier step), all columns are requested again.
 */
import type { MetricInfo, RunDetail } from "../api.ts";
import { getColumns, getMetrics, getRun } from "./fetch.ts";
import type { ColumnBlock } from "./wire.ts";

/** Names in one request: the length of an address is limited. */
const mostNames = 60;

export class RunData {
  readonly id: string;
  detail: RunDetail | null = null;
  infos: ReadonlyMap<string, MetricInfo> = new Map();
  steps: Float64Array = new Float64Array(0);
  readonly #columns = new Map<string, Float32Array>();
  #version = -1;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(id: string) {
    this.id = id;
  }

  /** The values of a metric by row; null while it is not loaded. */
  column(name: string): Float32Array | null {
    return this.#columns.get(name) ?? null;
  }

  get names(): string[] {
    return [...this.infos.keys()];
  }

  /** Poll; true if there is new data. */
  poll(): Promise<boolean> {
    return this.#inOrder(async () => {
      const isFirst = this.detail === null;
      const [detail, infos] = await Promise.all([getRun(this.id), isFirst ? getMetrics(this.id) : null]);
      const isNew = JSON.stringify(detail) !== JSON.stringify(this.detail);
      this.detail = detail;
      if (detail.metricCount !== (infos?.length ?? this.infos.size)) this.#name(await getMetrics(this.id));
      else if (infos !== null) this.#name(infos);
      // Columns that were requested at different times may end at different rows.
      const shortest = [...this.#columns.values()].reduce((least, { length }) => Math.min(least, length), detail.rows);
      if (this.#columns.size > 0 && (detail.version !== this.#version || detail.rows > shortest))
        await this.#load([...this.#columns.keys()], shortest);
      return isNew;
    });
  }

  /** Load these metrics from now on; true if some were not loaded before. */
  need(names: readonly string[]): Promise<boolean> {
    return this.#inOrder(async () => {
      const missing = names.filter((name) => this.infos.has(name) && !this.#columns.has(name));
      if (missing.length === 0) return false;
      await this.#load(missing, 0);
      return true;
    });
  }

  #name(infos: readonly MetricInfo[]): void {
    this.infos = new Map(infos.map((info) => [info.name, info]));
  }

  async #load(names: readonly string[], from: number): Promise<void> {
    for (let start = 0; start < names.length; start += mostNames) {
      const part = names.slice(start, start + mostNames);
      const block = await getColumns(this.id, { names: part, from, version: Math.max(0, this.#version) });
      if (block.version !== this.#version && this.#version !== -1 && this.#columns.size > 0) {
        // Earlier rows have changed: everything is requested again, with the new version.
        const all = [...new Set([...this.#columns.keys(), ...names])];
        this.#columns.clear();
        this.steps = new Float64Array(0);
        this.#version = block.version;
        await this.#load(all, 0);
        return;
      }
      this.#version = block.version;
      this.#take(block, part);
    }
  }

  #take({ from, steps, columns }: ColumnBlock, names: readonly string[]): void {
    const rows = from + steps.length;
    if (rows > this.steps.length) {
      const longer = new Float64Array(rows);
      longer.set(this.steps);
      longer.set(steps, from);
      this.steps = longer;
    }
    for (const name of names) {
      const longer = new Float32Array(rows).fill(Number.NaN);
      longer.set(this.#columns.get(name)?.subarray(0, from) ?? []);
      longer.set(columns.get(name) ?? [], from);
      this.#columns.set(name, longer);
    }
  }

  /** One request after the other, so that the rows fit together. */
  #inOrder<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#queue.then(work);
    this.#queue = done.catch(() => {}); // the caller gets the error; the next request is sent anyway
    return done;
  }
}
