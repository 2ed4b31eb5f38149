/** How the first worker sends weights to servers; TRAINYARD_TEST_PYTHON names a Python that has torch. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { pythonFolder } from "../src/engine/ray/shim.ts";
import { hasRay, python } from "./ray-yard.ts";

const script = fileURLToPath(new URL("python/weight_transfer.py", import.meta.url));

test.skipIf(!hasRay)(
  "weights arrive as they were sent, or an error is raised (needs Python with torch)",
  { timeout: 120_000 },
  () => {
    const { stdout, stderr } = spawnSync(python, [script, pythonFolder], { encoding: "utf8" });
    expect(stdout.trim().split("\n"), stderr).toEqual([
      "the received tensors are the sent ones, every time",
      "a wrong checksum is an error",
      "a dead receiver is an error",
    ]);
  },
);
