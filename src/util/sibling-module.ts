/** The address of a file of ours that starts as a thread or a process: `.ts` in a clone, `.js` in the published package. */
export function siblingModule(name: string, base: string): URL {
  return new URL(`./${name}${base.endsWith(".ts") ? ".ts" : ".js"}`, base);
}
