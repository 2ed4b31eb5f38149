/**
 * The error classes of the project, and what makes their messages useful.
 *
 * `UserError` is about the user's input (message only, exit code 2), `ApiError` carries an HTTP status, `GraphError`
 * names a node of a traced graph. Everything else is a bug of ours and goes through `invariant`.
 */

/** Something in the user's input: the message says what was found and what to do about it. */
export class UserError extends Error {
  override readonly name = "UserError";
}

/** An HTTP answer other than 2xx, with the body OpenAI's clients expect. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly param: string | null;
  constructor(status: number, message: string, options: { param?: string; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.status = status;
    this.param = options.param ?? null;
  }
}

/** A tensor program that does not fit together; `path` is the way to the node, such as `layers.3.mlp.up`. */
export class GraphError extends Error {
  override readonly name = "GraphError";
  readonly path: string;
  constructor(path: string, message: string) {
    super(path === "" ? message : `${path}: ${message}`);
    this.path = path;
  }
}

/** Stop if our own reasoning is wrong; never used to check input. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`internal: ${message}`);
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The error code of a Node system error (`ENOENT`, `ENOSPC`, …), or "" for anything else. */
export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** The candidates closest to a misspelt name, nearest first; empty when nothing is close. */
export function nearest(name: string, candidates: Iterable<string>, count = 3): string[] {
  const limit = Math.max(2, Math.floor(name.length / 3));
  return [...candidates]
    .map((candidate) => ({ candidate, distance: editDistance(name, candidate) }))
    .filter(({ distance }) => distance <= limit)
    .sort((a, b) => a.distance - b.distance || (a.candidate < b.candidate ? -1 : 1))
    .slice(0, count)
    .map(({ candidate }) => candidate);
}

/** The error for a name that is not in a table: the name, the nearest ones, and all that are known. */
export function unknownName(what: string, name: string, known: readonly string[]): UserError {
  const close = nearest(name, known);
  const hint = close.length > 0 ? `Did you mean ${close.map((it) => `"${it}"`).join(" or ")}? ` : "";
  return new UserError(`${what} is "${name}", which does not exist. ${hint}Known: ${known.join(", ")}.`);
}

/** Levenshtein distance. */
function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(change, previous[j]! + 1, row[j - 1]! + 1));
    }
    previous = row;
  }
  return previous[b.length]!;
}
