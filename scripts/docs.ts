/** Writes the pages of docs/ that are generated from the code: `node scripts/docs.ts`. */
import { fileURLToPath } from "node:url";
import { metricReference } from "../src/algos/metrics/reference.ts";
import { loadSchemas } from "../src/cli/verbs.ts";
import { configReference } from "../src/config/reference.ts";
import { writeFileAtomic } from "../src/util/files.ts";

const schemas = await loadSchemas();
const pages = {
  "config.md": () => configReference(schemas),
  "metrics.md": metricReference,
};
for (const [name, page] of Object.entries(pages))
  await writeFileAtomic(fileURLToPath(new URL(`../docs/${name}`, import.meta.url)), page());
