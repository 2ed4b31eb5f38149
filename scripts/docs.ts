/** Writes the pages of docs/ that are made from the code: `node scripts/docs.ts`. */
import { fileURLToPath } from "node:url";
import { metricReference } from "../src/algos/metric-reference.ts";
import { configReference } from "../src/config/reference.ts";
import { sftSchema } from "../src/config/sft.ts";
import { writeFileAtomic } from "../src/util/files.ts";

const pages = {
  "config.md": () => configReference([sftSchema]),
  "metrics.md": metricReference,
};
for (const [name, page] of Object.entries(pages))
  await writeFileAtomic(fileURLToPath(new URL(`../docs/${name}`, import.meta.url)), page());
