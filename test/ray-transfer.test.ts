/** How weights get from the first worker to servers; TRAINYARD_TEST_PYTHON names an interpreter that has torch. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { pythonFolder } from "../src/engine/ray/shim.ts";
import { hasRay, python } from "./ray-yard.ts";

const script = fileURLToPath(new URL("python/transfer.py", import.meta.url));

test.skipIf(!hasRay)(
  "weights come as they were sent, or it is said (needs Python with torch)",
  { timeout: 120_000 },
  () => {
    const { stdout, stderr } = spawnSync(python, [script, pythonFolder], { encoding: "utf8" });
    expect(stdout.trim().split("\n"), stderr).toEqual([
      "what comes is what was sent, every time",
      "what comes otherwise is refused",
      "who is gone is missed",
    ]);
  },
);
