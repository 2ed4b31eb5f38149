/** The laws of every engine, on the embedded one. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe } from "vitest";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { engineLaws } from "./engine-conformance.ts";

describe("the embedded engine", () => {
  const engine = new EmbeddedEngine();
  let temporary = "";
  beforeAll(async () => {
    temporary = await mkdtemp(join(tmpdir(), "conformance-"));
  });
  afterAll(async () => {
    await engine.close();
    await rm(temporary, { recursive: true });
  });
  engineLaws(
    () => engine,
    () => temporary,
  );
});
