/**
 * What the TypeScript compiler says about a config file, where the project that it belongs to has one installed.
 *
 * Node runs such a file without looking at its types, and the schema refuses wrong values by key; the compiler adds the
 * line and column, and finds what never becomes a value. Only what it says about the file itself is taken.
 */
import { execFile } from "node:child_process";
import { mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const MOST = 5;
const DEADLINE_MS = 20_000;

/** The compiler's errors, as `file(line,column): message`; none where there is no compiler. */
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
    return aboutFile(output, file).slice(0, MOST);
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

/** As Node reads the file. In a clone the types of trainyard are those of its sources. */
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

/** Modules and types that the compiler does not find need not be missing when the file runs. */
const isMissingModule = (line: string): boolean => /error TS(2307|2580|2591|2688|7016):/.test(line);

/** Lines that begin with the file's name, whatever folder the compiler takes it relative to, with those that explain them. */
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
