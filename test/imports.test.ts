/**
 * Which room may import which: the table of docs/architecture.md, checked for every file of src/.
 *
 * Static and dynamic imports, `export … from` and types count alike. Tests beside the code are free: a law may need
 * the rooms below. The second half shows for every rule a file that breaks it, so that the first half means something.
 */
import { describe, expect, test } from "vitest";
import { type AstNode, isNode, parseCode, readSources, resolveImport, walk } from "./syntax.ts";

/** In the order a tensor and then an episode travels: a room imports from itself and from those before it. */
const rooms = [
  "util",
  "graph",
  "onnx",
  "runtime",
  "nn",
  "models",
  "text",
  "data",
  "algos",
  "rollout",
  "serve",
  "workers",
  "rewards",
  "agents",
  "engine",
  "run",
  "track",
  "config",
  "train",
  "dashboard",
  "cli",
];

/** One file: its path below src/, what it imports, and which members of `process` and `console` it names. */
type Source = { path: string; imports: readonly string[]; touches: readonly string[] };

/** Null when the import is allowed, else why it is not. `target` is a path below src/, or a package. */
type ImportRule = (path: string, target: string) => string | null;

const importRules: readonly ImportRule[] = [
  (path, target) => {
    const [from, to] = [roomOf(path), roomOf(target)];
    if (!target.endsWith(".ts") || from === null) return null;
    if (to === null) return "src/index.ts is for users of the package; import the file that has it";
    return rooms.indexOf(to) <= rooms.indexOf(from) ? null : `${to}/ comes after ${from}/ in the order of rooms`;
  },
  (path, target) =>
    isOneOf(path, ["engine/embedded/", "engine/ray/"]) && target.startsWith("engine/") && siblingOf(path, target)
      ? "engine/embedded and engine/ray never import each other"
      : null,
  (path, target) =>
    target.startsWith("onnxruntime") && roomOf(path) !== "runtime" ? "only runtime/ imports onnxruntime" : null,
  (path, target) =>
    isOneOf(path, ["graph/", "nn/", "algos/"]) && (roomOf(target) === "runtime" || doers.test(target))
      ? "graph/, nn/ and algos/ never run anything"
      : null,
  (path, target) =>
    /^(node:)?process$/.test(target) && roomOf(path) !== "cli" ? "only cli/ imports the process" : null,
];

const doers =
  /^(node:)?(fs|child_process|worker_threads|cluster|net|http|https|http2|tls|dgram|dns|timers|readline|repl|vm)(\/|$)/;

/** What only some files may touch, with who they are. */
const touchRules: readonly { touch: RegExp; allowed: readonly string[]; why: string }[] = [
  { touch: /^process\.(argv|argv0|execArgv|env)$/, allowed: ["cli/"], why: "only cli/ reads argv and env" },
  { touch: /^process\.(exit|exitCode|abort)$/, allowed: ["cli/"], why: "only cli/ exits" },
  {
    touch: /^(console\..+|process\.(stdout|stderr)\.(write|end))$/,
    allowed: ["track/", "util/log.ts", "cli/"],
    why: "only track/, util/log.ts and cli/ print",
  },
];

const roomOf = (path: string): string | null => rooms.find((room) => path.startsWith(`${room}/`)) ?? null;
const isOneOf = (path: string, prefixes: readonly string[]): boolean => prefixes.some((it) => path.startsWith(it));
const engineOf = (path: string): string | undefined => /^engine\/(embedded|ray)\//.exec(path)?.[1];
const siblingOf = (a: string, b: string): boolean => engineOf(b) !== undefined && engineOf(a) !== engineOf(b);

/** Every breach of the rules, one readable line each. */
function breaches(sources: readonly Source[]): string[] {
  return sources.flatMap(({ path, imports, touches }) => [
    ...(roomOf(path) === null && path !== "index.ts"
      ? [`${path}: is in no room; the rooms are ${rooms.join(", ")}`]
      : []),
    ...imports.flatMap((target) =>
      importRules
        .map((rule) => rule(path, target))
        .filter((why) => why !== null)
        .map((why) => `${path} imports ${target}: ${why}`),
    ),
    ...touches.flatMap((touched) =>
      touchRules
        .filter(({ touch, allowed }) => touch.test(touched) && !isOneOf(path, allowed))
        .map(({ why }) => `${path} uses ${touched}: ${why}`),
    ),
  ]);
}

/** Every circle of imports that a walk through the files runs into, as `a -> b -> a`. */
function circles(sources: readonly Source[]): string[] {
  const importsOf = new Map(sources.map(({ path, imports }) => [path, imports]));
  const done = new Set<string>();
  const visit = (path: string, way: readonly string[]): string[] => {
    if (way.includes(path)) return [[...way.slice(way.indexOf(path)), path].join(" -> ")];
    if (done.has(path)) return [];
    const found = (importsOf.get(path) ?? []).flatMap((target) => visit(target, [...way, path]));
    done.add(path);
    return found;
  };
  return sources.flatMap(({ path }) => visit(path, []));
}

/** Read a file's imports and what it touches out of its syntax tree. */
function parse(path: string, code: string): Source {
  const imports: string[] = [];
  const touches: string[] = [];
  walk(parseCode(code), (node) => {
    if (importers.has(String(node.type)) && isNode(node.source) && typeof node.source.value === "string") {
      imports.push(resolveImport(path, node.source.value));
    }
    const touched = memberName(node);
    if (touched !== null) touches.push(touched);
    for (const name of destructured(node)) touches.push(name);
  });
  return { path, imports, touches };
}

const importers = new Set([
  "ImportDeclaration",
  "ImportExpression",
  "TSImportType",
  "ExportAllDeclaration",
  "ExportNamedDeclaration",
]);

/** `process.stdout.write` of the expression that says so, by dot or by a string in brackets; null for anything else. */
function memberName(node: unknown): string | null {
  if (!isNode(node)) return null;
  if (node.type === "Identifier") return String(node.name);
  if (node.type !== "MemberExpression" || !isNode(node.property)) return null;
  const owner = memberName(node.object);
  const name = node.computed ? node.property.value : node.property.name;
  if (owner === null || typeof name !== "string") return null;
  return `${owner}.${name}`.replace(/^globalThis\./, "");
}

/** The names that `const { env } = process` takes out. */
function destructured(node: AstNode): string[] {
  if (node.type !== "VariableDeclarator" || !isNode(node.id) || node.id.type !== "ObjectPattern") return [];
  const owner = memberName(node.init);
  const properties = Array.isArray(node.id.properties) ? node.id.properties.filter(isNode) : [];
  return owner === null ? [] : properties.map(({ key }) => `${owner}.${isNode(key) ? key.name : "*"}`);
}

describe("the rooms of src/", () => {
  const sources = readSources("src/**/*.ts")
    .filter(({ path }) => !path.endsWith(".test.ts"))
    .map(({ path, code }) => parse(path.slice("src/".length), code));

  test("are there to be read", () => {
    expect(sources.length).toBeGreaterThan(10);
    expect(sources.flatMap(({ imports }) => imports).length).toBeGreaterThan(sources.length);
  });

  test("import only what the table allows", () => {
    expect(breaches(sources)).toEqual([]);
  });

  test("import nothing in a circle", () => {
    expect(circles(sources)).toEqual([]);
  });
});

describe("a breach is seen and named", () => {
  const cases: readonly [path: string, code: string, breach: string][] = [
    ["graph/a.ts", 'import { x } from "../nn/b.ts"', "nn/ comes after graph/ in the order of rooms"],
    ["graph/a.ts", 'import type { X } from "../nn/b.ts"', "nn/ comes after graph/"],
    ["graph/a.ts", 'import "../nn/b.ts"', "nn/ comes after graph/"],
    ["graph/a.ts", 'export * from "../nn/b.ts"', "nn/ comes after graph/"],
    ["graph/a.ts", 'export type { X } from "../nn/b.ts"', "nn/ comes after graph/"],
    ["graph/a.ts", 'const x = await import("../nn/b.ts")', "nn/ comes after graph/"],
    ["graph/a.ts", 'let x: import("../nn/b.ts").X', "nn/ comes after graph/"],
    ["engine/embedded/a.ts", 'import "../ray/b.ts"', "engine/embedded and engine/ray never import each other"],
    ["engine/ray/a.ts", 'import "../embedded/b.ts"', "engine/embedded and engine/ray never import each other"],
    ["util/a.ts", 'import "../index.ts"', "src/index.ts is for users of the package"],
    ["models/a.ts", 'import { Tensor } from "onnxruntime-node"', "only runtime/ imports onnxruntime"],
    ["nn/a.ts", 'import { run } from "../runtime/b.ts"', "graph/, nn/ and algos/ never run anything"],
    ["algos/a.ts", 'import { readFile } from "node:fs/promises"', "graph/, nn/ and algos/ never run anything"],
    ["data/a.ts", 'import { env } from "node:process"', "only cli/ imports the process"],
    ["data/a.ts", "const home = process.env.HOME", "only cli/ reads argv and env"],
    ["data/a.ts", "const { env } = process", "only cli/ reads argv and env"],
    ["data/a.ts", 'globalThis.process["argv"]', "only cli/ reads argv and env"],
    ["train/a.ts", "process.exit(1)", "only cli/ exits"],
    ["train/a.ts", "process.exitCode = 1", "only cli/ exits"],
    ["train/a.ts", 'console.log("hello")', "only track/, util/log.ts and cli/ print"],
    ["util/files.ts", 'process.stderr.write("hello")', "only track/, util/log.ts and cli/ print"],
    ["common/a.ts", "", "is in no room"],
  ];
  for (const [path, code, breach] of cases) {
    test(`${path}: ${code === "" ? "an unknown room" : code}`, () => {
      expect(breaches([parse(path, code)])).toEqual([expect.stringContaining(breach)]);
    });
  }

  const allowed: readonly [path: string, code: string][] = [
    ["nn/a.ts", 'import { x } from "../graph/b.ts"; import { y } from "./c.ts"'],
    ["runtime/a.ts", 'import * as ort from "onnxruntime-node"'],
    ["engine/embedded/a.ts", 'import { x } from "../contract.ts"; import { y } from "./b.ts"'],
    ["cli/a.ts", "process.exitCode = process.argv.length; console.log(process.env)"],
    ["util/log.ts", 'process.stderr.write("hello")'],
    [
      "data/a.ts",
      '// console.log(process.env)\nconst text = "process.exit(1)"; const a = { env: 1 }.env; process.kill(1, 0)',
    ],
    ["index.ts", 'export { trainSft } from "./train/sft.ts"'],
  ];
  for (const [path, code] of allowed) {
    test(`but not in ${path}: ${code.replaceAll("\n", " ")}`, () => {
      expect(breaches([parse(path, code)])).toEqual([]);
    });
  }

  test("a circle through three files is named", () => {
    const circle = ["a", "b", "c"].map((name, i, all) => parse(`util/${name}.ts`, `import "./${all[(i + 1) % 3]}.ts"`));
    expect(circles(circle)).toEqual(["util/a.ts -> util/b.ts -> util/c.ts -> util/a.ts"]);
    expect(circles(circle.slice(0, 2))).toEqual([]);
  });
});
