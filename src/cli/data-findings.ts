/**
 * What was found wrong with rows: equal complaints are one finding with the rows it is about.
 *
 * Complaints are the words of the readers that training uses, without the place of the row. Two are equal when they
 * differ in numbers and quoted texts only; the first one stands for all.
 */
import { placeOf, type Row } from "../data/row.ts";
import { wrap } from "../track/text-width.ts";
import { UserError } from "../util/errors.ts";

/** An error is what training stops at. */
export type Severity = "error" | "warning" | "note";

export type Finding = {
  readonly severity: Severity;
  readonly text: string;
  /** As the file counts them; empty for what is not about rows. */
  readonly rows: readonly number[];
};

export class Findings {
  readonly #byKind = new Map<string, { severity: Severity; text: string; rows: number[] }>();

  /** Something about a row. */
  add(severity: Severity, row: Row, text: string): void {
    const kind = `${severity} ${kindOf(text)}`;
    const found = this.#byKind.get(kind);
    if (found === undefined) this.#byKind.set(kind, { severity, text, rows: [row.row] });
    else if (found.rows.at(-1) !== row.row) found.rows.push(row.row);
  }

  /** Something about the whole file. */
  say(severity: Severity, text: string): void {
    this.#byKind.set(`${severity} ${text}`, { severity, text, rows: [] });
  }

  /** What `read` gives; null where it refuses, in which case its words are the finding. */
  async attempt<T>(row: Row, read: () => T | Promise<T>, severity: Severity = "error"): Promise<T | null> {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      this.add(severity, row, withoutPlace(error.message, row));
      return null;
    }
  }

  /** All findings, the worst first. */
  list(): readonly Finding[] {
    const order: readonly Severity[] = ["error", "warning", "note"];
    return [...this.#byKind.values()].sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
  }

  count(severity: Severity): number {
    return this.list().filter((finding) => finding.severity === severity).length;
  }
}

function kindOf(text: string): string {
  return text.replace(/"(?:[^"\\]|\\.)*"/g, '""').replace(/\d+/g, "0");
}

function withoutPlace(message: string, row: Row): string {
  const place = placeOf(row);
  return message.startsWith(place) ? message.slice(place.length).replace(/^[,:]\s*/, "") : message;
}

/** Row numbers that are told before the others are counted. */
const maxShown = 12;

/** The lines of a finding. */
export function printFinding({ severity, text, rows }: Finding, total: number, width: number): string[] {
  const shown = rows.slice(0, maxShown).join(", ");
  const where = `${rows.length} of ${total} row${total === 1 ? "" : "s"} (${shown}${rows.length > maxShown ? ", …" : ""})`;
  const first = `${severity}: ${rows.length === 0 ? "" : `${where}: `}`;
  return wrap(first + text, width - 2).map((line, index) => (index === 0 ? line : `  ${line}`));
}
