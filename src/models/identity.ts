/**
 * What a model is, whatever its folder is called: checksums of its config.json, its tokenizer and its weights.
 *
 * Files of weights up to 32 MB are read whole, of larger ones their size and 16 KB of every MB: training changes numbers
 * everywhere in a matrix, and a model of 100 GB is still checked in seconds.
 */
import { createHash } from "node:crypto";
import { readdir, readFile, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { crc32 } from "node:zlib";
import * as z from "zod";
import { openForReading } from "./safetensors.ts";
import { tokenizerPaths } from "./weights.ts";

/** Checksums of a model, and the folder that it was read from. */
export const ModelIdentity = z.object({
  folder: z.string(),
  config: z.string(),
  tokenizer: z.string(),
  weights: z.string(),
});
export type ModelIdentity = z.infer<typeof ModelIdentity>;

const wholeBytes = 32 << 20;
const strideBytes = 1 << 20;
const sampleBytes = 16 << 10;

/** Identify the model of a folder, with the tokenizer of another one where it has that. */
export async function identifyModel({
  folder,
  tokenizerFolder = folder,
}: {
  readonly folder: string;
  readonly tokenizerFolder?: string;
}): Promise<ModelIdentity> {
  return {
    folder,
    config: hashOf([canonical(await readFile(join(folder, "config.json"), "utf8"))]),
    tokenizer: await hashFiles(await tokenizerPaths(tokenizerFolder)),
    weights: await hashWeights(folder),
  };
}

/** A config.json without what says nothing about the model: the order of keys, who saved it, and where. */
function canonical(text: string): string {
  const sorted = (_: string, value: unknown): unknown =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  const { transformers_version: _version, _name_or_path: _path, ...rest } = JSON.parse(text);
  return JSON.stringify(rest, sorted);
}

async function hashFiles(paths: readonly string[]): Promise<string> {
  return hashOf(await Promise.all(paths.map(async (path) => `${basename(path)} ${await readFile(path, "latin1")}`)));
}

async function hashWeights(folder: string): Promise<string> {
  const names = (await readdir(folder)).sort();
  const safe = names.filter((name) => name.endsWith(".safetensors"));
  const files = safe.length > 0 ? safe : names.filter((name) => name.endsWith(".bin"));
  const lines: string[] = [];
  for (const name of files) lines.push(`${name} ${await sampleFile(join(folder, name))}`);
  return hashOf(lines);
}

/** The size of a file and the CRC-32 of its bytes, or of some of them. */
async function sampleFile(path: string): Promise<string> {
  const { size } = await stat(path);
  const buffer = Buffer.alloc(size <= wholeBytes ? strideBytes : sampleBytes);
  const handle = await openForReading(path);
  try {
    let crc = 0;
    for (let at = 0; at < size; at += strideBytes) {
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, at);
      crc = crc32(buffer.subarray(0, bytesRead), crc);
    }
    return `${size} ${crc}`;
  } finally {
    await handle.close();
  }
}

function hashOf(texts: readonly string[]): string {
  const hash = createHash("sha256");
  for (const text of texts) hash.update(`${text}\n`);
  return hash.digest("hex").slice(0, 16);
}
