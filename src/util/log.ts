/**
 * The messages of the program while it works: lines on stderr, and one live line that is redrawn in a terminal.
 *
 * Results go to stdout from `cli/`. Messages go to stderr, so the output of a command can be piped.
 */

type Level = "quiet" | "info" | "debug";

let level: Level = "info";
let live = "";
let printed = 0;
const mirrors = new Set<(line: string) => void>();

export function setLevel(next: Level): void {
  level = next;
}

/** Also pass every line to `write` (a log file); returns a function that stops it. */
export function mirrorTo(write: (line: string) => void): () => void {
  mirrors.add(write);
  return () => mirrors.delete(write);
}

/** A line for the log files only, where the screen shows the same in another form. */
export function record(line: string): void {
  for (const write of mirrors) write(line);
}

/** How many lines were printed so far, for code that redraws lines: new lines may be below them. */
export function printedLines(): number {
  return printed;
}

export function info(line: string): void {
  if (level !== "quiet") print(line);
}

export function debug(line: string): void {
  if (level === "debug") print(line);
}

/** Something the user should act on; printed even when quiet. */
export function warn(line: string): void {
  print(`warning: ${line}`);
}

/** Redraw the live line in a terminal; elsewhere nothing is drawn, so logs hold whole lines only. */
export function status(line: string): void {
  if (level === "quiet" || !process.stderr.isTTY) return;
  const width = process.stderr.columns ?? 80;
  live = line.length < width ? line : `${line.slice(0, width - 2)}…`;
  process.stderr.write(`\r\x1b[2K${live}`);
}

/** End the live line: it is erased, and the next line starts at the left. */
export function clearStatus(): void {
  if (live !== "") process.stderr.write("\r\x1b[2K");
  live = "";
}

/** Let `write` change the lines above the live line, which is erased first and drawn again afterwards. */
export function aboveStatus(write: () => void): void {
  const redraw = live;
  clearStatus();
  write();
  if (redraw !== "") status(redraw);
}

function print(line: string): void {
  printed++;
  aboveStatus(() => process.stderr.write(`${line}\n`));
  record(line);
}
