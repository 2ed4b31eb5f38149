import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Random } from "../util/random.ts";
import { streamDecoder } from "./stream.ts";
import { loadTokenizer } from "./tokenizer.ts";

const fixtures = join(import.meta.dirname, "../../test/fixtures/text");
const texts: string[] = JSON.parse(readFileSync(join(fixtures, "texts.json"), "utf8"));
const kinds = readdirSync(fixtures).filter((name) => existsSync(join(fixtures, name, "expected.json")));

describe.each(kinds)("streaming with a tokenizer like %s", async (kind) => {
  const tokenizer = await loadTokenizer(join(fixtures, kind));
  const random = new Random(11, kind);
  const sequences = [
    ...texts.map((text) => tokenizer.encode(text)),
    tokenizer.encode(texts.join(" ")),
    ...Array.from({ length: 300 }, () =>
      Int32Array.from({ length: random.int(24) }, () => random.int(tokenizer.vocabSize + 3)),
    ),
  ];

  test.each([false, true])(
    "all pushes and the end are the whole decode (skipSpecialTokens %s)",
    (skipSpecialTokens) => {
      for (const ids of sequences) {
        const whole = tokenizer.decode(ids, { skipSpecialTokens });
        const stream = streamDecoder(tokenizer, { skipSpecialTokens });
        const parts = [...[...ids].map((id) => stream.push(id)), stream.end()];
        expect(parts.join("")).toBe(whole);
        for (const part of parts) {
          expect(part.isWellFormed()).toBe(true); // no half of a surrogate pair
          if (!whole.includes("\ufffd")) expect(part).not.toContain("\ufffd");
        }
      }
    },
  );

  test("the pushed text is always a prefix of the whole decode", () => {
    for (const ids of sequences) {
      const whole = tokenizer.decode(ids);
      const stream = streamDecoder(tokenizer);
      let soFar = "";
      for (const id of ids) {
        soFar += stream.push(id);
        expect(whole.startsWith(soFar)).toBe(true);
      }
    }
  });
});

test("plain words arrive with their own token, not later", async () => {
  for (const kind of ["gpt2", "qwen2", "llama2", "mistral", "gemma"]) {
    const tokenizer = await loadTokenizer(join(fixtures, kind));
    const stream = streamDecoder(tokenizer);
    const parts = [...tokenizer.encode("the answer is it", { addSpecialTokens: false })].map((id) => stream.push(id));
    expect(parts.every((part) => part !== "")).toBe(true);
    expect(parts.join("")).toBe("the answer is it");
  }
});

test("a decoder that needs the whole text returns it at the end", async () => {
  const source = JSON.parse(readFileSync(join(fixtures, "wordlevel/tokenizer.json"), "utf8"));
  source.model.vocab["##8"] = 16;
  const dir = await mkdtemp(join(tmpdir(), "stream-"));
  await writeFile(
    join(dir, "tokenizer.json"),
    JSON.stringify({ ...source, decoder: { type: "WordPiece", prefix: "##", cleanup: true } }),
  );
  const tokenizer = await loadTokenizer(dir);
  await rm(dir, { recursive: true });
  const stream = streamDecoder(tokenizer);
  expect([5, 16, 14, 6].map((id) => stream.push(id)).join("")).toBe("");
  expect(stream.end()).toBe("18, 2");
});

test("the time for a token does not grow with the text before it", async () => {
  const tokenizer = await loadTokenizer(join(fixtures, "llama2"));
  const ids = tokenizer.encode("the answer is 你好 ".repeat(4000), { addSpecialTokens: false });
  const stream = streamDecoder(tokenizer);
  const started = performance.now();
  let length = 0;
  for (const id of ids) length += stream.push(id).length;
  const half = performance.now() - started;
  for (let i = 0; i < ids.length; i++) length += stream.push(ids[i]!).length;
  const second = performance.now() - started - half;
  expect(length).toBeGreaterThan(100_000);
  expect(second).toBeLessThan(10 * half + 100); // quadratic work would be hundreds of times as long
});
