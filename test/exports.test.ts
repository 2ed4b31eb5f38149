/**
 * No dead code: every export of src/ is imported by a file that an entry point reaches.
 *
 * The entry points are the command line, the two modules of the package, the scripts, benchmarks and examples. From them
 * a file is also reached by its address, when it starts as a thread or a process. Tests and goldens are not entry
 * points: what only they import is not part of the program. They may import what its own file uses too. An export that
 * only its own file uses is not needed.
 *
 * And every export that goldens cover has a caller outside of tests: a file that is reached imports it, or something in
 * its own file mentions it that is called itself. The last part shows a made-up source for every kind of finding.
 */
import { describe, expect, test } from "vitest";
import { type AstNode, isNode, parseCode, readSources, resolveImport, walk } from "./syntax.ts";

/** What one file imports: names by target, `*` for all of them. */
type Uses = ReadonlyMap<string, ReadonlySet<string>>;
type Source = {
  readonly path: string;
  readonly exports: readonly string[];
  /** Which of them are types: an exported function may need one in its signature, so use in its own file is enough. */
  readonly types: ReadonlySet<string>;
  readonly uses: Uses;
  /** How often each identifier appears. */
  readonly mentions: ReadonlyMap<string, number>;
  /** What each declaration of the file mentions; "" is what runs when the file is loaded. */
  readonly mentionedBy: ReadonlyMap<string, ReadonlySet<string>>;
};

/** Where the program begins. What index.ts and reward.ts re-export is the public package. */
const packageFiles = ["src/index.ts", "src/rewards/reward.ts"];
const isEntry = (path: string): boolean =>
  (/^(bin|bench|examples)\//.test(path) && !isTest(path)) ||
  (path.startsWith("scripts/") && !isTest(path)) ||
  packageFiles.includes(path) ||
  path === "src/cli/main.ts" ||
  path === "src/dashboard/page/main.ts";
const isGolden = (path: string): boolean => /^(scripts|test)\/(goldens|fuzz)/.test(path);
const isTest = (path: string): boolean => path.startsWith("test/") || path.endsWith(".test.ts") || isGolden(path);

/** Exports that are used without an import. */
const byAddress: Readonly<Record<string, string>> = {
  "src/cli/main.ts main": "bin/trainyard.js imports it by a computed path",
  "src/rewards/reward-worker.ts load": "a worker process imports it by its address",
};

/** Exports that have tests and goldens, and that the next change wires into a run. */
const wiredInNext: Readonly<Record<string, string>> = {
  "src/rollout/ledger.ts appendGiven": "what an agent puts between two samples",
};

/** What tests compare the program with; it stands beside what it describes. A file name stands for all of its exports. */
const oracles: Readonly<Record<string, string>> = {
  "src/config/schema.ts allKeys": "every key that a schema knows; tests ask what becomes of each",
  "src/graph/print.ts print": "a graph as text, for whoever looks at one",
  "src/runtime/interpreter.ts": "every op is run by it and by onnxruntime",
  "src/runtime/interpreter-tensors.ts": "the tensors of the interpreter",
};

/** Every export that is dead, one line each. */
function findings(sources: readonly Source[]): string[] {
  const isWaiting = (path: string) => Object.keys(wiredInNext).some((it) => it.startsWith(`${path} `));
  const reached = reachedFrom(sources, (path) => isEntry(path) || isWaiting(path));
  const importers = (path: string, name: string, some: (importer: string) => boolean) =>
    sources.some((source) => some(source.path) && source.path !== path && isUsed(source.uses.get(path), name));
  return sources
    .filter(({ path }) => path.startsWith("src/") && !isTest(path) && !packageFiles.includes(path))
    .flatMap(({ path, exports, types, mentions }) =>
      exports.flatMap((name) => {
        if (byAddress[`${path} ${name}`] !== undefined || importers(path, name, (it) => reached.has(it))) return [];
        const isOwn = (mentions.get(name) ?? 0) > 1 && reached.has(path);
        if (isOwn && (types.has(name) || importers(path, name, isTest))) return [];
        if (isOwn) return [`${path} ${name}: only its own file uses it`];
        return [`${path} ${name}: reached by no entry point`];
      }),
    );
}

const isUsed = (names: ReadonlySet<string> | undefined, name: string): boolean =>
  names !== undefined && (names.has("*") || names.has(name));

/** Exports that goldens import and nothing calls but tests, one line each. */
function coveredButUncalled(sources: readonly Source[]): string[] {
  const reached = reachedFrom(sources);
  const covered = sources.filter(({ path }) => isGolden(path));
  return sources
    .filter(({ path }) => path.startsWith("src/") && !isTest(path) && !packageFiles.includes(path))
    .flatMap((source) => {
      const called = calledIn(source, sources, reached);
      return source.exports
        .filter((name) => covered.some(({ uses }) => uses.get(source.path)?.has(name)) && !called.has(name))
        .map((name) => `${source.path} ${name}: goldens cover it, and no file outside of tests calls it`);
    });
}

/** The names of a file that are called: from files that are reached, and from there on by each other. */
function calledIn({ path, exports, mentionedBy }: Source, sources: readonly Source[], reached: ReadonlySet<string>) {
  const isImported = (name: string) =>
    byAddress[`${path} ${name}`] !== undefined ||
    sources.some((it) => it.path !== path && reached.has(it.path) && isUsed(it.uses.get(path), name));
  const called = new Set<string>();
  const call = (name: string): void => {
    if (called.has(name)) return;
    called.add(name);
    for (const mentioned of mentionedBy.get(name) ?? []) call(mentioned);
  };
  if (reached.has(path)) call("");
  for (const name of exports) if (isImported(name)) call(name);
  return called;
}

/** The files that an entry point imports, at any distance. */
function reachedFrom(sources: readonly Source[], isStart = isEntry): ReadonlySet<string> {
  const byPath = new Map(sources.map((source) => [source.path, source]));
  const reached = new Set<string>();
  const visit = (path: string): void => {
    if (reached.has(path)) return;
    reached.add(path);
    for (const target of byPath.get(path)?.uses.keys() ?? []) visit(target);
  };
  for (const { path } of sources) if (isStart(path)) visit(path);
  return reached;
}

/** Read the exports and imports of a file out of its syntax tree. */
function parse(path: string, code: string): Source {
  const exports: string[] = [];
  const types = new Set<string>();
  const uses = new Map<string, Set<string>>();
  const mentions = new Map<string, number>();
  const use = (specifier: unknown, names: readonly string[]) => {
    if (typeof specifier !== "string") return;
    const target = resolveImport(path, specifier);
    uses.set(target, new Set([...(uses.get(target) ?? []), ...names]));
  };
  const tree = parseCode(code);
  walk(tree, (node, parents) => {
    if (node.type === "Identifier") mentions.set(String(node.name), (mentions.get(String(node.name)) ?? 0) + 1);
    const from = isNode(node.source) ? node.source.value : undefined;
    if (node.type === "ImportDeclaration") use(from, importedNames(node, tree));
    if (node.type === "ExportAllDeclaration") use(from, ["*"]);
    if (node.type === "ExportNamedDeclaration") {
      exports.push(...(from === undefined ? exportedNames(node) : []));
      if (isNode(node.declaration) && /^TS(TypeAlias|Interface)/.test(String(node.declaration.type)))
        for (const name of exportedNames(node)) types.add(name);
      use(
        from,
        specifiersOf(node).map(({ local }) => nameOf(local)),
      );
    }
    if (node.type === "ImportExpression") use(from, takenNames(parents));
    if (node.type === "TSImportType") use(from, isNode(node.qualifier) ? [nameOf(node.qualifier)] : ["*"]);
    if (node.type === "CallExpression" && nameOf(node.callee) === "siblingModule") {
      const [file] = listOf(node.arguments);
      use(`./${nameOf(file)}.ts`, []); // it is started, and nobody takes its exports
    }
  });
  return { path, exports, types, uses, mentions, mentionedBy: mentionsOf(tree) };
}

/** What each statement of a file mentions, under the names that it declares. */
function mentionsOf(tree: unknown): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const statement of isNode(tree) ? listOf(tree.body) : []) {
    if (statement.type === "ImportDeclaration") continue;
    const inner = statement.type === "ExportNamedDeclaration" ? statement.declaration : statement;
    const declared = isNode(inner) ? exportedNames({ ...statement, declaration: inner }) : [];
    const names = declared.length > 0 && declared[0] !== "undefined" && declared[0] !== "*" ? declared : [""];
    const mentioned = new Set<string>();
    walk(statement, (node) => {
      if (node.type === "Identifier") mentioned.add(String(node.name));
    });
    for (const name of names) found.set(name, new Set([...(found.get(name) ?? []), ...mentioned]));
  }
  return found;
}

const listOf = (value: unknown): AstNode[] => (Array.isArray(value) ? value.filter(isNode) : []);
const specifiersOf = (node: AstNode): AstNode[] => listOf(node.specifiers);
const nameOf = (node: unknown): string => (isNode(node) ? String(node.name ?? node.value) : "*");

/** The names of `import { a as b }`; for `import * as all` the members that the file takes, or all of them. */
function importedNames(node: AstNode, tree: unknown): string[] {
  return specifiersOf(node).flatMap((specifier) => {
    if (specifier.type === "ImportDefaultSpecifier") return ["default"];
    if (specifier.type === "ImportSpecifier") return [nameOf(specifier.imported)];
    const members: string[] = [];
    walk(tree, (it, [parent]) => {
      if (it.type !== "Identifier" || it.name !== nameOf(specifier.local) || parent === specifier) return;
      const isMember = parent?.object === it && !parent.computed;
      const isTypeMember = parent?.type === "TSQualifiedName" && parent.left === it;
      members.push(isMember ? nameOf(parent.property) : isTypeMember ? nameOf(parent.right) : "*");
    });
    return members;
  });
}

/** The names that are taken from an awaited `import(…)`: by a pattern or as a member; else all of them. */
function takenNames([awaited, owner]: readonly AstNode[]): string[] {
  if (awaited?.type !== "AwaitExpression") return ["*"];
  if (owner?.type === "MemberExpression" && !owner.computed) return [nameOf(owner.property)];
  const isPattern = owner?.type === "VariableDeclarator" && isNode(owner.id) && owner.id.type === "ObjectPattern";
  return isPattern && isNode(owner.id) ? listOf(owner.id.properties).map(({ key }) => nameOf(key)) : ["*"];
}

/** The names of `export const a = 1, b = 2`, `export function c`, `export type D` and `export { e as f }`. */
function exportedNames(node: AstNode): string[] {
  const names = specifiersOf(node).map(({ exported }) => nameOf(exported));
  if (!isNode(node.declaration)) return names;
  const declared = listOf(node.declaration.declarations).map(({ id }) => id);
  return [...names, ...(declared.length > 0 ? declared : [node.declaration.id]).map(nameOf)];
}

describe("the exports of src/", () => {
  const sources = readSources("{src,bin,scripts,bench,examples,test}/**/*.{ts,js,mjs}").map(({ path, code }) =>
    parse(path, code),
  );

  test("are there to be read", () => {
    expect(sources.flatMap(({ exports }) => exports).length).toBeGreaterThan(500);
  });

  test("are each imported by a file that an entry point reaches", () => {
    const allowed = new Set(Object.keys({ ...wiredInNext, ...oracles }));
    const dead = findings(sources).filter((finding) => {
      const name = finding.slice(0, finding.indexOf(":"));
      return !allowed.has(name) && !allowed.has(name.slice(0, name.indexOf(" ")));
    });
    expect(dead).toEqual([]);
  });

  test("that goldens cover have a caller outside of tests", () => {
    const allowed = new Set(Object.keys({ ...wiredInNext, ...oracles }));
    const uncalled = coveredButUncalled(sources).filter((finding) => {
      const name = finding.slice(0, finding.indexOf(":"));
      return !allowed.has(name) && !allowed.has(name.slice(0, name.indexOf(" ")));
    });
    expect(uncalled).toEqual([]);
  });

  test("that wait for the next change do wait for it", () => {
    const found = findings(sources).map((finding) => finding.slice(0, finding.indexOf(":")));
    expect(Object.keys(wiredInNext).filter((name) => !found.includes(name))).toEqual([]);
  });
});

describe("a dead export is found", () => {
  const main = ["src/cli/main.ts", 'import { used } from "../util/a.ts"; export const main = used;'] as const;
  const dead = (...files: readonly (readonly [path: string, code: string])[]) =>
    findings([main, ...files].map(([path, code]) => parse(path, code)));

  const alone: readonly [what: string, code: string, finding: string | null][] = [
    ["that nobody imports", "export const used = 1; export const b = 2", "src/util/a.ts b: reached by no entry point"],
    ["of each kind", "export const used = 1; export function b() {}", "src/util/a.ts b: reached by no entry point"],
    ["that is a type", "export const used = 1; export type B = 1", "src/util/a.ts B: reached by no entry point"],
    [
      "under another name",
      "export const used = 1; const c = 2; export { c as b }",
      "src/util/a.ts b: reached by no entry point",
    ],
    [
      "of its own file",
      "export const used = () => b; export const b = 2",
      "src/util/a.ts b: only its own file uses it",
    ],
    ["unless it is a type of its own file", "export const used = (b: B) => b; export type B = 1", null],
    ["unless it is imported", "export const used = 1", null],
  ];
  for (const [what, code, finding] of alone) {
    test(what, () => expect(dead(["src/util/a.ts", code])).toEqual(finding === null ? [] : [finding]));
  }

  const both = "export const used = 1; export const b = 2; export const c = 3";
  const imported: readonly [what: string, code: string, found: readonly string[]][] = [
    ["import { b as other }", 'import { b as other } from "./a.ts"', ["c"]],
    ["import * as", 'import * as a from "./a.ts"; a.b; let x: a.c', []],
    ["import * as, of which one member is taken", 'import * as a from "./a.ts"; a.b', ["c"]],
    ["import * as, handed on as a whole", 'import * as a from "./a.ts"; f(a)', []],
    ["export { } from", 'export { b } from "./a.ts"', ["c"]],
    ["export * from", 'export * from "./a.ts"', []],
    ["an awaited import with a pattern", 'const { b } = await import("./a.ts")', ["c"]],
    ["an awaited import with a member", '(await import("./a.ts")).b', ["c"]],
    ["an import that is handed on", 'f(import("./a.ts"))', []],
    ["the type of an import", 'let x: import("./a.ts").b', ["c"]],
  ];
  for (const [what, code, found] of imported) {
    test(`or used: ${what}`, () => {
      const lines = dead(["src/util/a.ts", both], ["scripts/b.ts", code.replaceAll("./a.ts", "../src/util/a.ts")]);
      expect(lines).toEqual(found.map((name) => `src/util/a.ts ${name}: reached by no entry point`));
    });
  }

  const used = "export const used = 1; export const b = 2";
  const importing = 'import { b } from "../src/util/a.ts"';
  test("that only a test, a golden or a file that nobody reaches imports", () => {
    for (const path of ["test/b.test.ts", "scripts/goldens/b.ts", "src/util/b.ts"]) {
      const code = importing.replace(
        "../src/util",
        path.startsWith("src/") ? "." : path === "test/b.test.ts" ? "../src/util" : "../../src/util",
      );
      expect(dead(["src/util/a.ts", used], [path, code])).toEqual(["src/util/a.ts b: reached by no entry point"]);
    }
  });

  test("but not what its own file uses and a test imports too", () => {
    const own = "export const used = () => b; export const b = 2";
    expect(dead(["src/util/a.ts", own], ["test/b.test.ts", importing])).toEqual([]);
  });

  test("but not in the package's own modules, and what a started file imports is used", () => {
    const start = 'siblingModule("thread", import.meta.url); export const used = 1';
    const thread = ["src/util/thread.ts", 'import { b } from "./b.ts"'] as const;
    expect(dead(["src/index.ts", "export const b = 1"], ["src/util/a.ts", used])).toHaveLength(1);
    expect(dead(["src/util/a.ts", start], thread, ["src/util/b.ts", "export const b = 1"])).toEqual([]);
    expect(
      dead(["src/util/a.ts", "export const used = 1"], thread, ["src/util/b.ts", "export const b = 1"]),
    ).toHaveLength(1);
  });
});

describe("an export that goldens cover and nothing calls is found", () => {
  const uncalled = (...files: readonly (readonly [path: string, code: string])[]) =>
    coveredButUncalled(files.map(([path, code]) => parse(path, code)));
  const main = ["src/cli/main.ts", 'import { used } from "../util/a.ts"; export const main = used;'] as const;
  const golden = ["scripts/goldens/a.ts", 'import { b } from "../../src/util/a.ts"; b();'] as const;
  const line = "src/util/a.ts b: goldens cover it, and no file outside of tests calls it";

  const cases: readonly [what: string, code: string, found: readonly string[]][] = [
    ["where nobody mentions it", "export const used = 1; export const b = 2", [line]],
    ["where what is called mentions it", "export const used = () => c; const c = () => b; export const b = 2", []],
    [
      "where only what is not called mentions it",
      "export const used = 1; export const b = 2; const c = () => b",
      [line],
    ],
    ["where a table that is loaded mentions it", "export const used = 1; export function b() {} register(b);", []],
  ];
  for (const [what, code, found] of cases) {
    test(what, () => expect(uncalled(main, golden, ["src/util/a.ts", code])).toEqual(found));
  }

  test("and a caller in a test or in a file that nobody reaches is none", () => {
    const source = ["src/util/a.ts", "export const used = 1; export const b = 2"] as const;
    const caller = 'import { b } from "./a.ts"; b();';
    expect(uncalled(main, golden, source, ["src/util/a.test.ts", caller], ["src/util/c.ts", caller])).toEqual([line]);
    const reached = [
      "src/cli/main.ts",
      'import { used, b } from "../util/a.ts"; export const main = [used, b];',
    ] as const;
    expect(uncalled(reached, golden, source)).toEqual([]);
  });
});
