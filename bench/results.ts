/**
 * bench/results.md, written by the bench: one section per bench, each from one run, replaced when that bench runs again.
 */
import { readFile } from "node:fs/promises";
import { availableParallelism, cpus, totalmem } from "node:os";
import { join } from "node:path";
import { codeOf } from "../src/util/errors.ts";
import { writeFileAtomic } from "../src/util/files.ts";
import { type Figure, rounded } from "./figures.ts";

/** The results of one run of a bench. */
export type Report = {
  /** Figures in the order they were printed, each with a remark. */
  readonly figures: readonly { readonly figure: Figure; readonly remark: string }[];
  /** Sentences about how it was measured, and what was not measured. */
  readonly notes: readonly string[];
  readonly versions: Readonly<Record<string, string>>;
  /** No side stopped early. */
  readonly isComplete: boolean;
};

const title = `# Measured speed and memory

Written by \`npm run bench\`. Every ratio is of one run in which the sides took turns; above 1, ours is the better one.
`;

/** Write the section of a bench into results.md; an older one is replaced. */
export async function writeResults(name: string, command: string, report: Report): Promise<void> {
  const path = join(import.meta.dirname, "results.md");
  const text = await readFile(path, "utf8").catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return title;
    throw error;
  });
  await writeFileAtomic(path, withSection(text, name, sectionText(name, command, report)));
}

/** A text with its section `## name` replaced, or added at the end. */
export function withSection(text: string, name: string, section: string): string {
  const [head, ...sections] = text.split(/^(?=## )/m);
  const at = sections.findIndex((old) => old.startsWith(`## ${name}\n`));
  const all = at === -1 ? [...sections, section] : sections.with(at, section);
  return `${[head, ...all].map((part) => part?.trim()).join("\n\n")}\n`;
}

function sectionText(name: string, command: string, { figures, notes, versions }: Report): string {
  const compared = figures.filter(({ figure }) => figure.peer !== null);
  const alone = figures.filter(({ figure }) => figure.peer === null);
  const aim = alone.some(({ remark }) => remark !== "") ? ["aim"] : [];
  return [
    `## ${name}`,
    `\`${command}\` on ${machine()}; ${Object.entries(versions)
      .map(([what, version]) => `${what} ${version}`)
      .join(", ")}.`,
    notes.map((note) => `- ${note}`).join("\n"),
    table(
      ["what", "unit", "ours", "peer", "theirs", "ratio", "aim"],
      compared.map(({ figure: f, remark }) => [f.what, f.unit, f.ours, f.peer, f.theirs, f.ratio, remark]),
    ),
    table(
      ["of ours", "unit", "value", ...aim],
      alone.map(({ figure: f, remark }) => [f.what, f.unit, f.ours, ...aim.map(() => remark)]),
    ),
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

/** A short description of this machine. */
export function machine(): string {
  const memory = (totalmem() / 1e9).toFixed(0);
  return `${cpus()[0]?.model.trim() ?? "an unknown processor"}, ${availableParallelism()} cores, ${memory} GB of memory`;
}

type Cell = string | number | null;

function table(header: readonly string[], rows: readonly (readonly Cell[])[]): string {
  if (rows.length === 0) return "";
  const line = (cells: readonly Cell[]) => `| ${cells.map(cellText).join(" | ")} |`;
  return [line(header), line(header.map(() => "---")), ...rows.map(line)].join("\n");
}

function cellText(cell: Cell): string {
  return typeof cell === "number" ? String(rounded(cell)) : (cell ?? "");
}
