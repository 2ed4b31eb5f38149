/**
 * Import a user's own file. A file with `import` and `export` is loaded as a module, even if its package.json says
 * `"type": "commonjs"`, as `npm init` writes it; Node alone would refuse it, which surprises users. Its import of
 * `trainyard` is the running program, so that what it registers is found, and a clone needs no build.
 */
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { extname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** A line that only a module can have. */
const moduleLine = /^[ \t]*(?:import[\s{*"'][^(]|export[\s{*])/m;

/** How the files end that can be imported. */
export const moduleExtensions: readonly string[] = [".ts", ".mts", ".cts", ".js", ".mjs", ".cjs"];

/** Our files behind the names of the package: see `exports` in package.json. */
const modules: Readonly<Record<string, string | undefined>> = {
  trainyard: "index",
  "trainyard/reward": "rewards/reward",
};

let isHooked = false;

/** Import the file and the files that it imports. */
export async function importFile<T>(file: string): Promise<T> {
  if (!isHooked) {
    registerHooks({
      resolve(specifier, context, nextResolve) {
        const own = modules[specifier];
        if (own === undefined) return nextResolve(specifier, context);
        const extension = extname(new URL(import.meta.url).pathname);
        return { url: new URL(`../${own}${extension}`, import.meta.url).href, shortCircuit: true };
      },
      load(url, context, nextLoad) {
        const format = context.format ?? "";
        const isOwn = url.startsWith("file:") && !url.includes("/node_modules/");
        if (!isOwn || !format.startsWith("commonjs") || !moduleLine.test(readFileSync(fileURLToPath(url), "utf8")))
          return nextLoad(url, context);
        return nextLoad(url, { ...context, format: format.replace("commonjs", "module") });
      },
    });
    isHooked = true;
  }
  return await import(/* @vite-ignore */ pathToFileURL(file).href);
}
