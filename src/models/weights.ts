/**
 * A folder of weights: `model.safetensors`, or shards with an index, to parameters and back.
 *
 * Reading requires every parameter of the model, with its shape and a dtype that we convert, and accepts the names that
 * wrappers of torch give. Saving writes a folder that transformers 4 and 5 both load, first under a temporary name: a
 * save that stops half-way leaves no files, and a new folder is complete when it appears.
 */
import { mkdir, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import * as z from "zod";
import { codeOf, messageOf, nearest, UserError } from "../util/errors.ts";
import { explainWrite, syncDirectory, temporaryName, writeFileAtomic } from "../util/files.ts";
import type { ModelConfig, ParameterSpec } from "./config.ts";
import { configText } from "./config-text.ts";
import type { Piece } from "./parts/part.ts";
import {
  elementCount,
  equalTensors,
  openForReading,
  readHeader,
  readTensor,
  type TensorInfo,
  type TensorSource,
  type WriteDtype,
  writeSafetensors,
} from "./safetensors.ts";

const singleName = "model.safetensors";
const indexName = "model.safetensors.index.json";

/** The tensors a folder holds, by their names in the files. */
export type Weights = { readonly dir: string; readonly tensors: ReadonlyMap<string, TensorInfo> };

/** Find the weights of a folder and verify every header; no tensor is read yet. */
export async function openWeights(dir: string): Promise<Weights> {
  const names = await listFolder(dir);
  if (names.has(singleName)) return { dir, tensors: await readFileHeader(join(dir, singleName)) };
  if (names.has(indexName)) return { dir, tensors: await readShards(dir) };
  const pickled = [...names].find((name) => /^pytorch_model.*\.bin$/.test(name));
  throw new UserError(
    `${dir} has neither ${singleName} nor ${indexName}. ` +
      (pickled === undefined
        ? "Check the path, or whether the download finished."
        : `It has ${pickled}: save the model again with transformers, which writes safetensors.`),
  );
}

async function listFolder(dir: string): Promise<Set<string>> {
  try {
    return new Set(await readdir(dir));
  } catch (error) {
    if (codeOf(error) === "ENOENT") throw new UserError(`${dir} is not there. Check the path.`, { cause: error });
    if (codeOf(error) === "ENOTDIR") throw new UserError(`${dir} is not a folder. Check the path.`, { cause: error });
    throw error;
  }
}

async function readFileHeader(path: string): Promise<ReadonlyMap<string, TensorInfo>> {
  const handle = await openForReading(path);
  try {
    return (await readHeader(handle, path)).tensors;
  } finally {
    await handle.close();
  }
}

const indexSchema = z.object({ weight_map: z.record(z.string(), z.string()) });

async function readShards(dir: string): Promise<Map<string, TensorInfo>> {
  const path = join(dir, indexName);
  const weightMap = await readIndex(path);
  const shards = new Map<string, ReadonlyMap<string, TensorInfo>>();
  const tensors = new Map<string, TensorInfo>();
  for (const [name, shard] of weightMap) {
    if (basename(shard) !== shard) throw new UserError(`${path} places "${name}" in ${shard}, outside its folder.`);
    let header = shards.get(shard);
    if (header === undefined) {
      header = await readFileHeader(join(dir, shard)).catch((error: unknown) => {
        if (codeOf(error instanceof Error ? error.cause : error) !== "ENOENT") throw error;
        const message = `${join(dir, shard)} is not there, but ${indexName} names it. Download the missing shard.`;
        throw new UserError(message, { cause: error });
      });
      shards.set(shard, header);
    }
    const info = header.get(name);
    if (info === undefined) {
      throw new UserError(
        `${path} places "${name}" in ${shard}, which does not hold it. Download both files again, from one revision.`,
      );
    }
    tensors.set(name, info);
  }
  return tensors;
}

async function readIndex(path: string): Promise<[name: string, shard: string][]> {
  let raw: unknown;
  try {
    raw = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new UserError(`${path} is not JSON: ${messageOf(error)}. Download it again.`, { cause: error });
  }
  const index = indexSchema.safeParse(raw);
  if (index.success) return Object.entries(index.data.weight_map);
  const where = index.error.issues[0]?.path.join(".") || "the file";
  throw new UserError(
    `${path}: ${where} is not as an index has it (\`weight_map\`: tensor name to file). Download it again.`,
  );
}

export type LoadOptions = {
  /** A missing value or score head is reported instead of refused: for a critic made from a language model. */
  readonly allowNewHead?: boolean;
};

export type Loaded = {
  /** Parameters that the checkpoint lacks; allocated but not filled, for the caller to initialise. */
  readonly uninitialised: readonly ParameterSpec[];
  /** Tensors of the checkpoint that the model does not use. */
  readonly unexpected: readonly string[];
};

/** One tensor of a parameter, and where it begins in the parameter's numbers. */
type StoredPiece = { readonly spec: ParameterSpec; readonly piece: Piece; readonly start: number };

/** The tensors that parameters consist of: the pieces of one parameter follow each other in memory. */
function piecesOf(specs: readonly ParameterSpec[]): StoredPiece[] {
  return specs.flatMap((spec) => {
    let start = 0;
    return spec.pieces.map((piece) => {
      const stored = { spec, piece, start };
      start += elementCount(piece.shape);
      return stored;
    });
  });
}

/** The numbers of a piece, in those of its parameter. */
function numbersOf({ piece, start }: StoredPiece, values: Float32Array): Float32Array {
  return values.subarray(start, start + elementCount(piece.shape));
}

/** Fill every parameter from a folder, in the order of the files, converted to F32. */
export async function loadParameters(
  dir: string,
  specs: readonly ParameterSpec[],
  allocate: (spec: ParameterSpec) => Float32Array,
  options: LoadOptions = {},
): Promise<Loaded> {
  const weights = await openWeights(dir);
  const find = finder(weights);
  const found: (StoredPiece & { readonly info: TensorInfo })[] = [];
  const missing: StoredPiece[] = [];
  const used = new Set<string>();
  for (const part of piecesOf(specs)) {
    const { name, aliases } = part.piece;
    const copies = [name, ...aliases].map(find).filter((info) => info !== undefined);
    for (const info of copies) used.add(info.name);
    const [info, alias] = copies;
    if (info === undefined) missing.push(part);
    else found.push({ ...part, info });
    if (info && alias) await checkTied(dir, info, alias);
  }
  const refused = missing.filter(({ spec }) => !(options.allowNewHead && isNewHead(spec)));
  if (refused.length > 0) throw explainMissing(weights, refused);
  for (const { piece, info } of found) checkShape(piece, info);
  const allocated = new Map<ParameterSpec, Float32Array>();
  const once = (spec: ParameterSpec): Float32Array => {
    const values = allocated.get(spec) ?? allocate(spec);
    allocated.set(spec, values);
    return values;
  };
  await readInto(found, once);
  const uninitialised = [...new Set(missing.map(({ spec }) => spec))];
  for (const spec of uninitialised) once(spec);
  const isUnexpected = (name: string) => !used.has(name) && !name.endsWith("rotary_emb.inv_freq"); // we compute these
  return { uninitialised, unexpected: [...weights.tensors.keys()].filter(isUnexpected) };
}

/** Whether a parameter belongs to a value or score head. */
const isNewHead = ({ key }: ParameterSpec) => key.startsWith("head.score");

/** Find a tensor by its name in transformers, also if a wrapper or a missing prefix changed the name. */
function finder({ dir, tensors }: Weights): (name: string) => TensorInfo | undefined {
  const byBareName = new Map<string, TensorInfo[]>();
  for (const info of tensors.values()) {
    const bare = bareName(info.name);
    byBareName.set(bare, [...(byBareName.get(bare) ?? []), info]);
  }
  return (name) => {
    const exact = tensors.get(name);
    if (exact !== undefined) return exact;
    const [info, second] = byBareName.get(bareName(name)) ?? [];
    if (second === undefined) return info;
    throw new UserError(`${dir} holds "${info?.name}" and "${second.name}", which are both ${name}. Remove one.`);
  };
}

/** Without the base model's prefix, and without those of torch.compile, DDP, FSDP and activation checkpointing. */
function bareName(name: string): string {
  return name
    .replaceAll(/(?<=^|\.)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\./g, "")
    .replace(/^(?:module\.)?(?:model\.)?/, "");
}

function checkShape({ shape }: Piece, info: TensorInfo): void {
  const isSame = shape.length === info.shape.length && shape.every((size, axis) => size === info.shape[axis]);
  if (isSame) return;
  throw new UserError(
    `${info.file}: "${info.name}" has the shape [${info.shape.join(", ")}] where config.json asks for ` +
      `[${shape.join(", ")}]. Check that config.json belongs to these weights.`,
  );
}

function explainMissing({ dir, tensors }: Weights, missing: readonly StoredPiece[]): UserError {
  const [first] = missing;
  const name = first?.piece.name ?? "";
  const more = missing.length > 1 ? ` (and ${missing.length - 1} more)` : "";
  if (first?.spec.key === "head.lm") {
    return new UserError(
      `${dir} has no "${name}". If the head of this model is its embedding, set "tie_word_embeddings": true in ` +
        "config.json; else the checkpoint is a base model without a language-model head.",
    );
  }
  if (first && isNewHead(first.spec)) {
    return new UserError(`${dir} has no "${name}"${more}: it is a checkpoint without a value or reward head.`);
  }
  const close = nearest(name, tensors.keys()).map((candidate) => `"${candidate}"`);
  const hint = close.length > 0 ? ` The nearest are ${close.join(", ")}.` : "";
  return new UserError(
    `${dir} has no tensor "${name}"${more}.${hint} Check that config.json belongs to these weights.`,
  );
}

/** A tied head that is stored must be equal to the embedding; transformers 4 and 5 treat other cases differently. */
async function checkTied(dir: string, embedding: TensorInfo, head: TensorInfo): Promise<void> {
  if (await equalTensors(embedding, head)) return;
  throw new UserError(
    `${dir}: \`tie_word_embeddings\` says that "${head.name}" is "${embedding.name}", but the two differ in ` +
      'the weights. Set "tie_word_embeddings": false in config.json to train them apart, or remove one.',
  );
}

/** Each file is opened once and read forwards. */
async function readInto(
  found: readonly (StoredPiece & { readonly info: TensorInfo })[],
  allocate: (spec: ParameterSpec) => Float32Array,
): Promise<void> {
  for (const [file, group] of Map.groupBy(found, ({ info }) => info.file)) {
    const handle = await openForReading(file);
    try {
      for (const part of group.toSorted((a, b) => a.info.offset - b.info.offset)) {
        await readTensor(handle, part.info, numbersOf(part, allocate(part.spec)));
      }
    } finally {
      await handle.close();
    }
  }
}

export type SaveOptions = {
  readonly dtype: WriteDtype;
  /** Larger weights are split into files of up to this size; the default is transformers 4's. */
  readonly maxShardBytes?: number;
  /** The model folder from which the tokenizer and the generation settings are copied. */
  readonly tokenizerFrom?: string;
  /** Write a head that is the embedding as a tensor of its own, and say so in config.json. */
  readonly isUntied?: boolean;
};

/**
 * Save a model folder. A new folder appears complete or not at all. In an existing folder, an older save is replaced
 * file by file once everything is written, and files that are not the model's stay.
 */
export async function saveParameters(
  dir: string,
  config: ModelConfig,
  specs: readonly ParameterSpec[],
  get: (spec: ParameterSpec) => Float32Array | Promise<Float32Array>,
  { dtype, maxShardBytes = 5e9, tokenizerFrom, isUntied = false }: SaveOptions,
): Promise<void> {
  const saved = isUntied ? { ...config, raw: { ...config.raw, tie_word_embeddings: false } } : config;
  const isThere = await exists(dir);
  const staging = temporaryName(isThere ? join(dir, "save") : dir);
  try {
    await mkdir(staging, { recursive: true });
    await writeWeights(staging, specs, get, { dtype, maxShardBytes, isUntied });
    if (tokenizerFrom !== undefined) await copyTokenizer(tokenizerFrom, staging);
    await writeFileAtomic(join(staging, "config.json"), configText(saved, dtype));
    if (isThere) await replaceSave(staging, dir);
    else await rename(staging, dir);
    await syncDirectory(isThere ? dir : dirname(resolve(dir)));
  } catch (error) {
    throw explainSave(dir, error);
  } finally {
    await rm(staging, { recursive: true, force: true }).catch(() => {}); // the error that stopped the save matters more
  }
}

/** Copy the tokenizer and the generation settings of a model folder, as far as it has them. */
export async function copyTokenizer(from: string, to: string): Promise<void> {
  for (const path of await tokenizerPaths(from)) await writeFileAtomic(join(to, basename(path)), await readFile(path));
}

/** Name the folder the user asked for, not the temporary file inside that the disk refused. */
function explainSave(dir: string, error: unknown): unknown {
  const reason = error instanceof UserError ? error.cause : error;
  const explained = explainWrite(dir, reason);
  return explained === reason ? error : explained;
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return false;
    throw explainWrite(path, error);
  }
}

/** A tensor of a file: a piece of a parameter under its name or another. */
type Written = StoredPiece & { readonly name: string };

async function writeWeights(
  dir: string,
  specs: readonly ParameterSpec[],
  get: (spec: ParameterSpec) => Float32Array | Promise<Float32Array>,
  { dtype, maxShardBytes, isUntied }: { dtype: WriteDtype; maxShardBytes: number; isUntied: boolean },
): Promise<void> {
  const tensors = piecesOf(specs).flatMap((part) => {
    const { name, aliases } = part.piece;
    return [name, ...(isUntied ? aliases : [])].map((written): Written => ({ ...part, name: written }));
  });
  const bytesOf = ({ piece }: Written) => elementCount(piece.shape) * (dtype === "F32" ? 4 : 2);
  const shards = split(tensors, bytesOf, maxShardBytes);
  const five = (count: number) => String(count).padStart(5, "0");
  const weightMap: [string, string][] = [];
  for (const [index, shard] of shards.entries()) {
    const file = shards.length === 1 ? singleName : `model-${five(index + 1)}-of-${five(shards.length)}.safetensors`;
    const sources = shard.map(
      (written): TensorSource => ({
        name: written.name,
        shape: written.piece.shape,
        data: async () => numbersOf(written, await get(written.spec)),
      }),
    );
    await writeSafetensors(join(dir, file), sources, { dtype, metadata: { format: "pt" } });
    for (const { name } of shard) weightMap.push([name, file]);
  }
  if (shards.length === 1) return;
  const sum = (size: (tensor: Written) => number) => tensors.reduce((total, tensor) => total + size(tensor), 0);
  const metadata = { total_parameters: sum(({ piece }) => elementCount(piece.shape)), total_size: sum(bytesOf) };
  const index = { metadata, weight_map: Object.fromEntries(weightMap.toSorted(([a], [b]) => (a < b ? -1 : 1))) };
  await writeFileAtomic(join(dir, indexName), `${JSON.stringify(index, null, 2)}\n`);
}

/** Fill shards in order; a tensor that is larger than the limit gets a shard of its own. */
function split<T>(items: readonly T[], bytesOf: (item: T) => number, limit: number): T[][] {
  const shards: T[][] = [[]];
  let used = 0;
  for (const item of items) {
    const last = shards.at(-1);
    const bytes = bytesOf(item);
    if (last === undefined || (last.length > 0 && used + bytes > limit)) {
      shards.push([item]);
      used = bytes;
    } else {
      last.push(item);
      used += bytes;
    }
  }
  return shards;
}

/** Move a finished save over an older one; config.json last, because it marks a complete model. */
async function replaceSave(staging: string, dir: string): Promise<void> {
  const fresh = (await readdir(staging)).sort((a, b) => Number(a === "config.json") - Number(b === "config.json"));
  for (const name of fresh) await rename(join(staging, name), join(dir, name));
  const isOurs = (name: string) => name === indexName || /^model(-\d+-of-\d+)?\.safetensors$/.test(name);
  const stale = (await readdir(dir)).filter((name) => isOurs(name) && !fresh.includes(name));
  for (const name of stale) await rm(join(dir, name));
}

const tokenizerFiles = [
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "generation_config.json",
  "chat_template.jinja",
  "chat_template.json",
  "vocab.json",
  "vocab.txt",
  "merges.txt",
  "tokenizer.model",
];

/** The files of a folder that belong to its tokenizer. */
export async function tokenizerPaths(dir: string): Promise<string[]> {
  const there = await listFolder(dir);
  return tokenizerFiles.filter((name) => there.has(name)).map((name) => join(dir, name));
}
