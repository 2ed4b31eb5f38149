/**
 * The embedded engine computes what Hugging Face transformers computes: logits, log-probs, loss, every gradient,
 * left-padded rows and greedy tokens, for every family and for the options in which configurations differ.
 *
 * test/python/make_reference.py wrote fixtures/logits-more; sequences there are no multiples of four long.
 */
import { readdirSync } from "node:fs";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { compareFolder, passes } from "../scripts/parity.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";

const fixtures = fileURLToPath(new URL("fixtures", import.meta.url));
const engine = new EmbeddedEngine();
afterAll(() => engine.close());

/** The folders of language models; those with another head are heads.test.ts's. */
const foldersOf = (group: string): string[] =>
  readdirSync(`${fixtures}/${group}`)
    .filter((name) => !/_(value|score)$/.test(name))
    .map((name) => `${group}/${name}`);

const folders = ["logits", "logits-more"].flatMap(foldersOf);

test("every family is compared", () => {
  const families = new Set(folders.map((folder) => folder.split("/")[1]!.split("_")[0]));
  expect([...families].sort()).toEqual(["gemma", "gemma2", "llama", "llama3", "mistral", "qwen2", "qwen3"]);
});

describe("equal to transformers", () => {
  test.each(folders)("%s", async (folder) => {
    const parity = await compareFolder(engine, `${fixtures}/${folder}`);
    expect(passes(parity), JSON.stringify(parity)).toBe(true);
  });
});

describe("a difference is noticed", () => {
  /** The outcome for a copy of a folder whose reference has one number of a tensor replaced. */
  async function compareChanged(tensor: string, value: number) {
    const copy = await mkdtemp(join(tmpdir(), "parity-"));
    try {
      await cp(`${fixtures}/logits/llama`, copy, { recursive: true });
      const path = join(copy, "reference.safetensors");
      const bytes = await readFile(path);
      const start = 8 + Number(bytes.readBigUInt64LE());
      const header = JSON.parse(bytes.toString("utf8", 8, start));
      bytes.writeFloatLE(value, start + header[tensor].data_offsets[0]);
      await writeFile(path, bytes);
      return await compareFolder(engine, copy);
    } finally {
      await rm(copy, { recursive: true });
    }
  }

  const tensors = ["logits", "logprobs", "loss", "logits_leftpad", "grad.model.layers.0.self_attn.q_proj.weight"];
  test.each(tensors.flatMap((tensor) => [Number.NaN, 1e3].map((value) => ({ tensor, value }))))(
    "when the first number of $tensor is $value",
    async ({ tensor, value }) => {
      expect(passes(await compareChanged(tensor, value))).toBe(false);
    },
  );
});
