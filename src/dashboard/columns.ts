/**
 * The metrics of a run as columns: one array of numbers per metric, one place per logged step.
 *
 * What was read is kept, and only new lines are parsed. A metric that a step does not have is NaN there. A step that
 * appears again (in a file that was edited by hand) replaces its earlier line and all lines after that, as a resumed run
 * does.
 */
import { LineFollower } from "../run/json-lines.ts";
import { metricsPath } from "../run/names.ts";

export class MetricColumns {
  readonly #follower: LineFollower;
  readonly #columns = new Map<string, Float64Array>();
  /** Steps at which a metric was written as null: it was not finite. */
  readonly #notFinite = new Map<string, number[]>();
  #steps = new Float64Array(64);
  #rows = 0;
  #version = 0;
  #unreadable = 0;

  constructor(dir: string) {
    this.#follower = new LineFollower(metricsPath(dir), {
      onReset: () => this.#cutTo(0),
      onLine: (line) => this.#add(line.toString("utf8")),
    });
  }

  /** Read what was written since the last time. */
  async refresh(): Promise<void> {
    await this.#follower.refresh();
  }

  /** Changes whenever earlier rows change. */
  get version(): number {
    return this.#version;
  }

  get rows(): number {
    return this.#rows;
  }

  get unreadable(): number {
    return this.#unreadable;
  }

  get steps(): Float64Array {
    return this.#steps.subarray(0, this.#rows);
  }

  get names(): string[] {
    return [...this.#columns.keys()];
  }

  /** The values of a metric; null if no step has it. */
  column(name: string): Float64Array | null {
    return this.#columns.get(name)?.subarray(0, this.#rows) ?? null;
  }

  /** Metrics that were not finite at or after a step. */
  notFiniteSince(step: number): string[] {
    return [...this.#notFinite].filter(([, steps]) => steps.at(-1)! >= step).map(([name]) => name);
  }

  #add(text: string): void {
    const line = parseLine(text);
    if (line === null) {
      this.#unreadable++;
      return;
    }
    const { step, data } = line;
    if (this.#rows > 0 && step <= this.#steps[this.#rows - 1]!) this.#cutTo(this.#firstAt(step));
    if (this.#rows === this.#steps.length) this.#grow();
    const row = this.#rows++;
    this.#steps[row] = step;
    for (const name in data) {
      const value = data[name];
      let column = this.#columns.get(name);
      if (column === undefined) {
        column = new Float64Array(this.#steps.length).fill(Number.NaN);
        this.#columns.set(name, column);
      }
      if (typeof value === "number") column[row] = value;
      else this.#markNotFinite(name, step);
    }
  }

  #markNotFinite(name: string, step: number): void {
    const steps = this.#notFinite.get(name);
    if (steps === undefined) this.#notFinite.set(name, [step]);
    else steps.push(step);
  }

  #firstAt(step: number): number {
    const at = this.steps.findIndex((earlier) => earlier >= step);
    return at < 0 ? this.#rows : at;
  }

  #cutTo(rows: number): void {
    const step = rows < this.#rows ? this.#steps[rows]! : 0;
    for (const column of this.#columns.values()) column.fill(Number.NaN, rows);
    for (const [name, steps] of this.#notFinite) {
      const kept = steps.filter((earlier) => earlier < step);
      if (kept.length === 0) this.#notFinite.delete(name);
      else this.#notFinite.set(name, kept);
    }
    if (rows === 0) {
      this.#columns.clear();
      this.#unreadable = 0;
    }
    this.#rows = rows;
    this.#version++;
  }

  #grow(): void {
    const larger = (from: Float64Array) => {
      const to = new Float64Array(from.length * 2).fill(Number.NaN, from.length);
      to.set(from);
      return to;
    };
    this.#steps = larger(this.#steps);
    for (const [name, column] of this.#columns) this.#columns.set(name, larger(column));
  }
}

/** Parse a line. Checked by hand: a schema over a million numbers would take longer than reading them. */
export function parseLine(text: string): { step: number; data: Record<string, unknown> } | null {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || !("step" in value) || !("data" in value)) return null;
    const { step, data } = value;
    if (typeof step !== "number" || typeof data !== "object" || data === null) return null;
    return { step, data: data as Record<string, unknown> }; // an object that came out of JSON is such a record
  } catch {
    return null;
  }
}
