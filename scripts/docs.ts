/** Writes the pages of docs/ that are made from the code: `node scripts/docs.ts`. */
import { fileURLToPath } from "node:url";
import { configReference } from "../src/config/reference.ts";
import { sftSchema } from "../src/config/sft.ts";
import { writeFileAtomic } from "../src/util/files.ts";

await writeFileAtomic(fileURLToPath(new URL("../docs/config.md", import.meta.url)), configReference([sftSchema]));
