/**
 * Import a user's own file. One that is written with `import` and `export` is a module, even where its package.json says
 * `"type": "commonjs"`, as `npm init` writes it: Node would refuse it, and the user has no reason to expect that.
 */
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";

/** A line that only a module can have. */
const moduleLine = /^[ \t]*(?:import[\s{*"'][^(]|export[\s{*])/m;

let isHooked = false;

/** Import the file and whatever it imports beside it. */
export async function importFile<T>(file: string): Promise<T> {
  if (!isHooked) {
    registerHooks({
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
