/**
 * What a check found wrong with rows: equal messages are one finding, with the numbers of all rows that have it.
 *
 * Most messages come from the readers that training uses, without the place of the row. Two messages are equal when they
 * differ in numbers and quoted texts only; the first one is shown.
 */
import { placeOf, type Row } from "../data/row.ts";
import { wrap } from "../track/text-width.ts";
import { UserError } from "../util/errors.ts";

/** An error stops training. */
export type Severity = "error" | "warning" | "note";

export type Finding = {
  readonly severity: Severity;
  readonly text: string;
  /** The numbers of the rows in the file; empty for a finding about the whole file. */
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

  /** What `read` returns; null where it throws a `UserError`, whose message is then a finding. */
  async attempt<T>(row: Row, read: () => T | Promise<T>, severity: Severity = "error"): Promise<T | null> {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      this.add(severity, row, withoutPlace(error.message, row));
      return null;
    }
  }

  /** All findings: errors first, then warnings, then notes. */
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

/** Row numbers that are listed; further ones are only counted. */
const maxShown = 12;

/** The lines of a finding. */
export function printFinding({ severity, text, rows }: Finding, total: number, width: number): string[] {
  const shown = rows.slice(0, maxShown).join(", ");
  const where = `${rows.length} of ${total} row${total === 1 ? "" : "s"} (${shown}${rows.length > maxShown ? ", …" : ""})`;
  const first = `${severity}: ${rows.length === 0 ? "" : `${where}: `}`;
  return wrap(first + text, width - 2).map((line, index) => (index === 0 ? line : `  ${line}`));
}
