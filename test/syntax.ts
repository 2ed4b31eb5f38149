/** Reading source files as syntax trees, for the tests that hold laws over all of src/. */
import { globSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { fileURLToPath } from "node:url";
import { parseAst } from "vitest/node";

export type AstNode = Readonly<Record<string, unknown>>;

export const isNode = (value: unknown): value is AstNode =>
  typeof value === "object" && value !== null && "type" in value;

/** The syntax tree of a TypeScript file. */
export const parseCode = (code: string): unknown => parseAst(code, { lang: "ts" });

/** Visit a node and all below it; `parents` are those above it, nearest first. */
export function walk(
  value: unknown,
  visit: (node: AstNode, parents: readonly AstNode[]) => void,
  parents: readonly AstNode[] = [],
): void {
  if (Array.isArray(value)) for (const item of value) walk(item, visit, parents);
  else if (isNode(value)) {
    visit(value, parents);
    for (const child of Object.values(value)) walk(child, visit, [value, ...parents]);
  }
}

/** A path below the same root for a relative import, the specifier itself for a package. */
export function resolveImport(path: string, specifier: string): string {
  return specifier.startsWith(".") ? posix.join(posix.dirname(path), specifier) : specifier;
}

/** The files of the repository that match, without declarations and kernels: path and code, sorted by path. */
export function readSources(...patterns: readonly string[]): { path: string; code: string }[] {
  const root = fileURLToPath(new URL("..", import.meta.url));
  return globSync([...patterns], { cwd: root, exclude: ["**/*.as.ts", "**/*.d.ts", "**/node_modules"] })
    .map((path) => path.replaceAll("\\", "/"))
    .sort()
    .map((path) => ({ path, code: readFileSync(`${root}/${path}`, "utf8") }));
}
