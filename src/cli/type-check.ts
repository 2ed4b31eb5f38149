/**
 * The errors of the TypeScript compiler in a config file, where the project of the file has a compiler installed.
 *
 * Node runs such a file without checking its types, and the schema refuses wrong values by key. The compiler adds the line
 * and column, and finds errors in code that never becomes a value. Only errors in the file itself are reported.
 */
import { execFile } from "node:child_process";
import { mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const MAX_ERRORS = 5;
const DEADLINE_MS = 20_000;

/** The errors, as `file(line,column): message`; none where there is no compiler. */
export async function typeErrors(path: string): Promise<string[]> {
  const file = await realpath(path);
  const compiler = findCompiler(file);
  if (compiler === null) return [];
  const folder = await mkdtemp(join(tmpdir(), "trainyard-types-"));
  try {
    const project = join(folder, "tsconfig.json");
    await writeFile(project, JSON.stringify({ compilerOptions: optionsFor(file), files: [file] }));
    const args = [compiler, "--project", project, "--pretty", "false"];
    const output = await new Promise<string>((done) => {
      execFile(process.execPath, args, { cwd: dirname(file), timeout: DEADLINE_MS }, (_, stdout) => done(stdout));
    });
    return aboutFile(output, file).slice(0, MAX_ERRORS);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function findCompiler(file: string): string | null {
  try {
    return join(dirname(createRequire(file).resolve("typescript/package.json")), "bin/tsc");
  } catch {
    return null;
  }
}

/** Compiler options that read the file as Node does. In a clone the types of trainyard come from its sources. */
function optionsFor(file: string): Record<string, unknown> {
  const isClone = import.meta.url.endsWith(".ts");
  const source = (name: string) => [fileURLToPath(new URL(`../${name}`, import.meta.url))];
  return {
    target: "es2024",
    module: "nodenext",
    moduleResolution: "nodenext",
    strict: true,
    skipLibCheck: true,
    noEmit: true,
    allowImportingTsExtensions: true,
    typeRoots: [join(dirname(file), "node_modules/@types")],
    ...(isClone && { paths: { trainyard: source("index.ts"), "trainyard/reward": source("rewards/reward.ts") } }),
  };
}

/** A module or type that the compiler does not find may be found when the file runs. */
const isMissingModule = (line: string): boolean => /error TS(2307|2580|2591|2688|7016):/.test(line);

/** The errors that begin with the name of the file, in whatever folder, with the lines that explain them. */
function aboutFile(output: string, file: string): string[] {
  const name = file.slice(dirname(file).length + 1);
  const found: string[] = [];
  let isOurs = false;
  for (const line of output.split("\n")) {
    const head = /^(\S.*)\(\d+,\d+\): error TS\d+:/.exec(line);
    if (head !== null) {
      isOurs = (head[1] === name || head[1]?.endsWith(`/${name}`) === true) && !isMissingModule(line);
      if (isOurs) found.push(line.slice(line.indexOf(`${name}(`)).replace("error ", ""));
    } else if (isOurs && line.startsWith("  ")) found.push(`${found.pop()}\n${line}`);
  }
  return found;
}
