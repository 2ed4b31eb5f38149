/** Compiles `src/runtime/kernels/kernels.wat` and writes the result as a base64 string: `npm run kernels`. */
import { readFile, writeFile } from "node:fs/promises";
import loadWabt from "wabt";

const folder = new URL("../src/runtime/kernels/", import.meta.url);

/** The text of `kernels.wasm.ts`. */
export async function kernelsModule(): Promise<string> {
  const wabt = await loadWabt();
  const source = await readFile(new URL("kernels.wat", folder), "utf8");
  const features = { simd: true, threads: true, multi_memory: true };
  const parsed = wabt.parseWat("kernels.wat", source, features);
  const { buffer } = parsed.toBinary({ canonicalize_lebs: true, write_debug_names: false });
  const header = "/** `kernels.wat` compiled by `npm run kernels`; a test checks that the two belong together. */";
  return `${header}\nexport const kernelsBase64 =\n  "${Buffer.from(buffer).toString("base64")}";\n`;
}

if (import.meta.main) await writeFile(new URL("kernels.wasm.ts", folder), await kernelsModule());
