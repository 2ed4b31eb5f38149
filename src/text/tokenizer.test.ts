import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { loadTokenizer, type Tokenizer } from "./tokenizer.ts";

const fixtures = join(import.meta.dirname, "../../test/fixtures/text");
const texts: string[] = JSON.parse(readFileSync(join(fixtures, "texts.json"), "utf8"));
const kinds = readdirSync(fixtures).filter((name) => existsSync(join(fixtures, name, "expected.json")));
const shared = join(import.meta.dirname, "../../../shared/models");

/** What the Python libraries give for one tokenizer; `decoded` and `skipped` only where they differ from the text. */
type Expected = {
  vocabSize: number;
  bos: number | null;
  eos: number | null;
  pad: number | null;
  special: Record<string, number[]>;
  ids: number[][];
  decoded: Record<string, string>;
  skipped: Record<string, string>;
  random: { ids: number[]; decoded: string; skipped: string }[];
};

describe.each(kinds)("a tokenizer like %s", async (kind) => {
  const dir = join(fixtures, kind);
  const expected: Expected = JSON.parse(readFileSync(join(dir, "expected.json"), "utf8"));
  const tokenizer = await loadTokenizer(dir);

  test("gives the reference library's ids for every text", () => {
    const ids = texts.map((text) => [...tokenizer.encode(text, { addSpecialTokens: false })]);
    expect(ids).toEqual(expected.ids);
  });

  test("puts special tokens where the reference library puts them", () => {
    for (const [index, ids] of Object.entries(expected.special)) {
      expect([...tokenizer.encode(texts[Number(index)]!)]).toEqual(ids);
    }
  });

  test("decodes ids to the reference library's text, with and without special tokens", () => {
    texts.forEach((text, i) => {
      const decoded = expected.decoded[i] ?? text;
      expect(tokenizer.decode(expected.ids[i]!)).toBe(decoded);
      expect(tokenizer.decode(expected.ids[i]!, { skipSpecialTokens: true })).toBe(expected.skipped[i] ?? decoded);
    });
  });

  test("decodes ids in any order to the reference library's text", () => {
    for (const { ids, decoded, skipped } of expected.random) {
      expect(tokenizer.decode(Int32Array.from(ids))).toBe(decoded);
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe(skipped);
    }
  });

  test("knows the size of its vocabulary and its special ids", () => {
    expect(tokenizer.vocabSize).toBe(expected.vocabSize);
    expect(tokenizer.bosId).toBe(expected.bos);
    expect(tokenizer.eosId).toBe(expected.eos);
    expect(tokenizer.padId).toBe(expected.pad ?? expected.eos);
  });

  test("takes a lone surrogate as U+FFFD", () => {
    expect(tokenizer.encode("a\ud83d b\udc4b")).toEqual(tokenizer.encode("a\ufffd b\ufffd"));
  });

  test("decodes ids beyond the vocabulary to nothing", () => {
    const ids = [...tokenizer.encode(texts[6]!, { addSpecialTokens: false })];
    expect(tokenizer.decode([...ids, tokenizer.vocabSize + 7])).toBe(tokenizer.decode(ids));
    expect(tokenizer.tokenText(tokenizer.vocabSize + 7)).toBe("");
  });
});

describe("the text of a single token", () => {
  test.each([
    ["llama2", " world"],
    ["mistral", " world"],
    ["gemma", " world"],
    ["qwen2", " and"],
    ["unigram", " and"],
  ])("keeps its leading space in a tokenizer like %s", async (kind, text) => {
    const tokenizer = await loadTokenizer(join(fixtures, kind));
    const ids = tokenizer.encode(`x${text}`, { addSpecialTokens: false });
    const pieces = [...ids].map((id) => tokenizer.tokenText(id));
    expect(pieces.join("").trimStart()).toBe(`x${text}`);
  });
});

describe("the files beside tokenizer.json", () => {
  const folders: string[] = [];
  afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true }))));

  async function folderWith(files: Record<string, string | object>): Promise<string> {
    const dir = await mkdtemp(join(tmpdir(), "tokenizer-"));
    folders.push(dir);
    for (const [name, content] of Object.entries(files)) {
      await writeFile(join(dir, name), typeof content === "string" ? content : JSON.stringify(content));
    }
    return dir;
  }
  const gpt2 = readFileSync(join(fixtures, "gpt2/tokenizer.json"), "utf8");
  const loadWith = async (files: Record<string, string | object>): Promise<Tokenizer> =>
    loadTokenizer(await folderWith({ "tokenizer.json": gpt2, ...files }));

  test("generation_config.json adds ends of a response after eos_token, each once", async () => {
    const config = { eos_token: "<|endoftext|>" };
    const list = await loadWith({
      "tokenizer_config.json": config,
      "generation_config.json": { eos_token_id: [7, 0] },
    });
    expect(list.eosIds).toEqual([0, 7]);
    const one = await loadWith({ "tokenizer_config.json": config, "generation_config.json": { eos_token_id: 9 } });
    expect(one.eosIds).toEqual([0, 9]);
  });

  test("special_tokens_map.json names tokens that tokenizer_config.json does not", async () => {
    const tokenizer = await loadWith({
      "tokenizer_config.json": { eos_token: "<|endoftext|>" },
      "special_tokens_map.json": { eos_token: "!", pad_token: { content: "<pad>", lstrip: false } },
    });
    expect(tokenizer.specialTokens).toEqual({ eos_token: "<|endoftext|>", pad_token: "<pad>" });
    expect(tokenizer.padId).toBe(tokenizer.vocabSize - 1);
    expect([...tokenizer.encode("a<pad>")].at(-1)).toBe(tokenizer.padId);
  });

  test.each([
    ["a text in tokenizer_config.json", { "tokenizer_config.json": { chat_template: "A" } }, "A", null],
    [
      "chat_template.jinja before it",
      { "tokenizer_config.json": { chat_template: "A" }, "chat_template.jinja": "B" },
      "B",
      null,
    ],
    ["chat_template.json", { "chat_template.json": { chat_template: "C" } }, "C", null],
    [
      "a list of named ones",
      {
        "tokenizer_config.json": {
          chat_template: [
            { name: "tool_use", template: "T" },
            { name: "default", template: "D" },
          ],
        },
      },
      "D",
      "T",
    ],
    ["none", {}, null, null],
  ])("the chat template is %s", async (_, files, chatTemplate, toolTemplate) => {
    const tokenizer = await loadWith(files);
    expect(tokenizer).toMatchObject({ chatTemplate, toolTemplate });
  });

  test("a missing, a broken and an unsupported tokenizer.json are different errors that name it", async () => {
    const empty = await folderWith({});
    await expect(loadTokenizer(empty)).rejects.toThrow(`${empty} has no tokenizer.json`);
    await expect(loadTokenizer(empty)).rejects.toBeInstanceOf(UserError);
    await expect(loadTokenizer(await folderWith({ "tokenizer.json": "{" }))).rejects.toThrow(
      /tokenizer\.json is not JSON/,
    );
    await expect(loadTokenizer(await folderWith({ "tokenizer.json": "[]" }))).rejects.toThrow(/is not a JSON object/);
    await expect(loadTokenizer(await folderWith({ "tokenizer.json": {} }))).rejects.toThrow(/has no `model.vocab`/);
    const nmt = { ...JSON.parse(gpt2), normalizer: { type: "Nmt" } };
    await expect(loadWith({ "tokenizer.json": nmt })).rejects.toThrow(/uses a feature that.*does not support: .*Nmt/);
    const word = { ...JSON.parse(gpt2), added_tokens: [{ id: 420, content: "w", special: false, single_word: true }] };
    await expect(loadWith({ "tokenizer.json": word })).rejects.toThrow(/"w" has `single_word`/);
  });

  test("a folder in the place of tokenizer.json is an error for the user", async () => {
    const dir = await folderWith({});
    await mkdir(join(dir, "tokenizer.json"));
    await expect(loadTokenizer(dir)).rejects.toBeInstanceOf(UserError);
  });
});

test("a word outside a vocabulary without an unknown token is an error that shows it", async () => {
  const source = JSON.parse(readFileSync(join(fixtures, "wordlevel/tokenizer.json"), "utf8"));
  delete source.model.unk_token;
  const dir = await mkdtemp(join(tmpdir(), "tokenizer-"));
  await writeFile(join(dir, "tokenizer.json"), JSON.stringify(source));
  const tokenizer = await loadTokenizer(dir);
  await rm(dir, { recursive: true });
  expect(() => tokenizer.encode("12x")).toThrow(/no token for "x"/);
});

describe.skipIf(!existsSync(shared))("with the models of ../shared (skipped without them)", () => {
  const digests: Record<string, string> = JSON.parse(readFileSync(join(fixtures, "models.json"), "utf8"));
  test.each(Object.entries(digests))("%s gives the reference library's ids", async (name, digest) => {
    const tokenizer = await loadTokenizer(join(shared, name));
    const ids = texts.map((text) => [...tokenizer.encode(text)]);
    expect(createHash("sha256").update(JSON.stringify(ids)).digest("hex")).toBe(digest);
  });
});
