/**
 * The safetensors format: eight bytes of header length, a JSON header, the tensors one after another.
 *
 * A header is used only after all of it was checked against the file's size, as in the Rust library, so a broken file
 * gives an error and never a large allocation. Tensors stream through a buffer of a few megabytes
 * and are converted on the way, so that the target may be shared memory. Little-endian machines only, like the format.
 */
import { type FileHandle, mkdir, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { inspect } from "node:util";
import * as z from "zod";
import { codeOf, invariant, messageOf, UserError } from "../util/errors.ts";
import { explainWrite, syncDirectory, temporaryName } from "../util/files.ts";

/** Bits per element of every dtype of the format. */
const bits = {
  BOOL: 8,
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  F8_E4M3FNUZ: 8,
  F8_E5M2FNUZ: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  C64: 64,
  F64: 64,
  I64: 64,
  U64: 64,
} as const;
export type Dtype = keyof typeof bits;

export type TensorInfo = {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Where the tensor begins, counted from the start of the file. */
  readonly offset: number;
  readonly bytes: number;
  readonly file: string;
};

export type Header = {
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  readonly metadata: Readonly<Record<string, string>>;
};

/** The limit of the Rust library. */
const maxHeaderBytes = 100_000_000;
const chunkBytes = 4 << 20;

/** Open a file for reading, or say that it is not there. */
export async function openForReading(path: string): Promise<FileHandle> {
  try {
    return await open(path, "r");
  } catch (error) {
    if (codeOf(error) === "ENOENT") throw new UserError(`${path} is not there. Check the path.`, { cause: error });
    if (codeOf(error) === "EACCES")
      throw new UserError(`${path} may not be read. Check its permissions.`, { cause: error });
    throw error;
  }
}

/** Read and verify the header of an open file; `path` is for messages. */
export async function readHeader(handle: FileHandle, path: string): Promise<Header> {
  const stat = await handle.stat();
  if (!stat.isFile()) throw new UserError(`${path} is not a file.`);
  if (stat.size < 8) throw broken(path, `it has ${stat.size} bytes where the header's length alone takes 8`);
  const prefix = new ArrayBuffer(8);
  await readFully(handle, new Uint8Array(prefix), 0, path);
  if (Buffer.from(prefix).toString("latin1") === "version ") {
    throw new UserError(`${path} is a Git LFS pointer, not the weights. Run \`git lfs pull\` in its folder.`);
  }
  const length = new DataView(prefix).getBigUint64(0, true);
  if (length > BigInt(maxHeaderBytes)) {
    throw broken(path, `it claims a header of ${length} bytes where ${maxHeaderBytes} is the limit`);
  }
  const headerBytes = Number(length);
  if (8 + headerBytes > stat.size) {
    throw broken(path, `it claims a header of ${headerBytes} bytes and has only ${stat.size} in all`);
  }
  const header = new Uint8Array(headerBytes);
  await readFully(handle, header, 8, path);
  return parseHeader(header, path, { start: 8 + headerBytes, end: stat.size });
}

const headerSchema = z.record(z.string(), z.unknown());
const metadataSchema = z.record(z.string(), z.string());
const entrySchema = z.object({
  dtype: z.string(),
  shape: z.array(z.int().min(0)),
  data_offsets: z.tuple([z.int().min(0), z.int().min(0)]),
});

function parseHeader(header: Uint8Array, path: string, data: { start: number; end: number }): Header {
  let text: string;
  let parsed: unknown;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(header);
    parsed = JSON.parse(text);
  } catch (error) {
    throw broken(path, `its header is not JSON (${messageOf(error)})`);
  }
  const record = headerSchema.safeParse(parsed);
  if (!record.success || Array.isArray(parsed)) throw broken(path, "its header is not a JSON object");
  const twice = duplicateKey(text);
  if (twice !== null) throw broken(path, `its header names "${twice}" twice`);

  const { __metadata__: rawMetadata, ...entries } = record.data;
  const metadata = metadataSchema.safeParse(rawMetadata ?? {});
  if (!metadata.success) throw broken(path, "the `__metadata__` of its header is not an object of strings");
  const infos = Object.entries(entries).map(([name, entry]) => parseEntry(name, entry, path, data.start));
  infos.sort((a, b) => a.offset - b.offset || a.bytes - b.bytes);
  let end = data.start;
  for (const info of infos) {
    if (info.offset !== end) {
      const what = info.offset < end ? "overlaps the tensor before it" : "leaves a gap before it";
      throw broken(path, `tensor "${info.name}" ${what} (starts at byte ${info.offset}, expected ${end})`);
    }
    end += info.bytes;
  }
  if (end !== data.end) {
    const problem = end > data.end ? "it was cut short" : "something was added";
    throw broken(path, `its header describes ${end} bytes and the file has ${data.end}: ${problem}`);
  }
  return { tensors: new Map(infos.map((info) => [info.name, info])), metadata: metadata.data };
}

function parseEntry(name: string, entry: unknown, path: string, dataStart: number): TensorInfo {
  const parsed = entrySchema.safeParse(entry);
  if (!parsed.success) {
    const key = parsed.error.issues[0]?.path.join(".") || "entry";
    throw broken(path, `the \`${key}\` of tensor "${name}" is not as the format wants it: ${shorten(entry)}`);
  }
  const {
    dtype,
    shape,
    data_offsets: [begin, end],
  } = parsed.data;
  if (!isDtype(dtype)) {
    throw new UserError(`${path}: tensor "${name}" has the unknown dtype ${dtype}. Save it as F32, F16 or BF16.`);
  }
  const bytes = (elementCount(shape) * bits[dtype]) / 8;
  if (!Number.isSafeInteger(bytes) || end - begin !== bytes) {
    throw broken(
      path,
      `tensor "${name}" (${dtype} [${shape}]) needs ${bytes} bytes and its offsets ${begin} to ${end} span ${end - begin}`,
    );
  }
  return { name, dtype, shape, offset: dataStart + begin, bytes, file: path };
}

function isDtype(text: string): text is Dtype {
  return Object.hasOwn(bits, text);
}

/** Number of elements of a shape. */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((count, size) => count * size, 1);
}

function broken(path: string, what: string): UserError {
  return new UserError(`${path} is not a whole safetensors file: ${what}. Download or copy it again.`);
}

/** Anything on one short line; unlike JSON.stringify it survives a million nested brackets. */
function shorten(value: unknown): string {
  const text = inspect(value, { depth: 2, maxArrayLength: 8, maxStringLength: 80, breakLength: Infinity });
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}

/** The first key that occurs twice in one object of a valid JSON text; JSON.parse keeps the last without an error. */
function duplicateKey(json: string): string | null {
  const scopes: (Set<string> | null)[] = []; // one per open bracket; null for a list
  for (let at = 0; at < json.length; at++) {
    const char = json[at];
    if (char === "{") scopes.push(new Set());
    else if (char === "[") scopes.push(null);
    else if (char === "}" || char === "]") scopes.pop();
    else if (char === '"') {
      const start = at++;
      while (json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
      let next = at + 1;
      while (json[next] === " " || json[next] === "\n" || json[next] === "\r" || json[next] === "\t") next++;
      const scope = scopes.at(-1);
      if (json[next] !== ":" || !scope) continue;
      const key: string = JSON.parse(json.slice(start, at + 1));
      if (scope.has(key)) return key;
      scope.add(key);
    }
  }
  return null;
}

/** Read one tensor into `into`, converting F64, F16 and BF16 to F32; other dtypes are refused by name. */
export async function readTensor(handle: FileHandle, info: TensorInfo, into: Float32Array): Promise<void> {
  const convert = converters[info.dtype];
  if (convert === undefined) {
    throw new UserError(
      `${info.file}: tensor "${info.name}" is ${info.dtype}. Weights are read from ${Object.keys(converters).join(", ")}.`,
    );
  }
  invariant(into.length === elementCount(info.shape), `${info.name} [${info.shape}] read into ${into.length} numbers`);
  const elementBytes = bits[info.dtype] / 8;
  const chunk = new ArrayBuffer(Math.min(chunkBytes, info.bytes));
  for (let done = 0; done < info.bytes; done += chunk.byteLength) {
    const bytes = Math.min(chunk.byteLength, info.bytes - done);
    await readFully(handle, new Uint8Array(chunk, 0, bytes), info.offset + done, info.file);
    convert(chunk, into.subarray(done / elementBytes, (done + bytes) / elementBytes));
  }
  chunk.transfer(0); // freed now: hundreds of them would wait for the garbage collector
}

/** Fills `into` from the first bytes of `chunk`. */
type Convert = (chunk: ArrayBuffer, into: Float32Array) => void;

const converters: Partial<Record<Dtype, Convert>> = {
  F32: (chunk, into) => into.set(new Float32Array(chunk, 0, into.length)),
  F64: (chunk, into) => into.set(new Float64Array(chunk, 0, into.length)),
  // Through integer views: a NaN keeps its bits.
  BF16: (chunk, into) => {
    const from = new Uint16Array(chunk, 0, into.length);
    const to = new Uint32Array(into.buffer, into.byteOffset, into.length);
    for (let i = 0; i < to.length; i++) to[i] = from[i]! << 16;
  },
  F16: (chunk, into) => {
    halfTable ??= makeHalfTable();
    const table = halfTable;
    const from = new Uint16Array(chunk, 0, into.length);
    const to = new Uint32Array(into.buffer, into.byteOffset, into.length);
    for (let i = 0; i < to.length; i++) to[i] = table[from[i]!]!;
  },
};

/** The float32 bits of each of the 65,536 half-precision numbers, made when first needed. */
let halfTable: Uint32Array | undefined;

function makeHalfTable(): Uint32Array {
  const table = new Uint32Array(65536);
  const value = new Float32Array(1);
  const valueBits = new Uint32Array(value.buffer);
  for (let half = 0; half < 65536; half++) {
    const sign = (half & 0x8000) << 16;
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    value[0] = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
    table[half] = sign | (exponent === 31 ? 0x7f800000 | (fraction << 13) : valueBits[0]!);
  }
  return table;
}

/** Fill `into` from `position` on; a file that ends early was cut while it was being read. */
async function readFully(handle: FileHandle, into: Uint8Array, position: number, path: string): Promise<void> {
  let done = 0;
  while (done < into.length) {
    const { bytesRead } = await handle.read(into, done, into.length - done, position + done);
    if (bytesRead === 0) throw broken(path, `it ends at byte ${position + done}`);
    done += bytesRead;
  }
}

/** Whether two tensors are equal to the bit. */
export async function equalTensors(left: TensorInfo, right: TensorInfo): Promise<boolean> {
  if (left.dtype !== right.dtype || left.bytes !== right.bytes) return false;
  const a = await openForReading(left.file);
  try {
    const b = await openForReading(right.file);
    try {
      const size = Math.min(chunkBytes, left.bytes);
      const [one, other] = [Buffer.alloc(size), Buffer.alloc(size)];
      for (let done = 0; done < left.bytes; done += size) {
        const bytes = Math.min(size, left.bytes - done);
        await readFully(a, one.subarray(0, bytes), left.offset + done, left.file);
        await readFully(b, other.subarray(0, bytes), right.offset + done, right.file);
        if (!one.equals(other)) return false; // past a short last chunk both hold the equal bytes of the one before
      }
      return true;
    } finally {
      await b.close();
    }
  } finally {
    await a.close();
  }
}

export type TensorData =
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array;

export type Tensor = { readonly dtype: Dtype; readonly shape: readonly number[]; readonly data: TensorData };

/** The array of each dtype in memory; dtypes without one stay bytes. */
const arrays: Partial<Record<Dtype, (bytes: ArrayBuffer) => TensorData>> = {
  F64: (bytes) => new Float64Array(bytes),
  I64: (bytes) => new BigInt64Array(bytes),
  U64: (bytes) => new BigUint64Array(bytes),
  I32: (bytes) => new Int32Array(bytes),
  U32: (bytes) => new Uint32Array(bytes),
  I16: (bytes) => new Int16Array(bytes),
  U16: (bytes) => new Uint16Array(bytes),
  I8: (bytes) => new Int8Array(bytes),
};

/** Every tensor of a small file, of any dtype; F16 and BF16 are converted to F32. */
export async function readAll(path: string): Promise<Map<string, Tensor>> {
  const handle = await openForReading(path);
  try {
    const tensors = new Map<string, Tensor>();
    for (const info of (await readHeader(handle, path)).tensors.values()) {
      tensors.set(info.name, { dtype: info.dtype, shape: info.shape, data: await readData(handle, info) });
    }
    return tensors;
  } finally {
    await handle.close();
  }
}

async function readData(handle: FileHandle, info: TensorInfo): Promise<TensorData> {
  if (info.dtype === "F32" || info.dtype === "F16" || info.dtype === "BF16") {
    const into = new Float32Array(elementCount(info.shape));
    await readTensor(handle, info, into);
    return into;
  }
  const bytes = new ArrayBuffer(info.bytes);
  await readFully(handle, new Uint8Array(bytes), info.offset, info.file);
  return arrays[info.dtype]?.(bytes) ?? new Uint8Array(bytes);
}

/** A tensor to be written; `data` is called when it is written. */
export type TensorSource = {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: () => Float32Array | Promise<Float32Array>;
};

export type WriteDtype = "F32" | "BF16";

/** Write a whole file or nothing: tensors by name, as the Python library orders them. */
export async function writeSafetensors(
  path: string,
  tensors: readonly TensorSource[],
  options: { readonly dtype: WriteDtype; readonly metadata?: Readonly<Record<string, string>> },
): Promise<void> {
  const sorted = tensors.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const temporary = temporaryName(path);
  try {
    await mkdir(dirname(path), { recursive: true });
    const handle = await open(temporary, "wx");
    try {
      await writeFully(handle, header(sorted, options));
      const chunk = new ArrayBuffer(chunkBytes);
      for (const tensor of sorted) await writeTensor(handle, tensor, options.dtype, chunk);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
    await syncDirectory(dirname(path));
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {}); // the user needs the error that stopped the write
    throw explainWrite(path, error);
  }
}

function header(
  tensors: readonly TensorSource[],
  { dtype, metadata }: { dtype: WriteDtype; metadata?: Readonly<Record<string, string>> },
): Uint8Array {
  const entries: [string, unknown][] = metadata === undefined ? [] : [["__metadata__", metadata]];
  const names = new Set<string>(["__metadata__"]);
  let begin = 0;
  for (const { name, shape } of tensors) {
    invariant(!names.has(name), `two tensors are called ${name}`);
    names.add(name);
    const end = begin + (elementCount(shape) * bits[dtype]) / 8;
    entries.push([name, { dtype, shape, data_offsets: [begin, end] }]);
    begin = end;
  }
  // By hand, because an object would put names that look like numbers first.
  const json = Buffer.from(`{${entries.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`)}}`);
  const bytes = Buffer.alloc(8 + Math.ceil(json.length / 8) * 8, " "); // tensors start at a multiple of 8
  bytes.writeBigUInt64LE(BigInt(bytes.length - 8));
  json.copy(bytes, 8);
  return bytes;
}

async function writeTensor(
  handle: FileHandle,
  tensor: TensorSource,
  dtype: WriteDtype,
  chunk: ArrayBuffer,
): Promise<void> {
  const data = await tensor.data();
  invariant(data.length === elementCount(tensor.shape), `${tensor.name} [${tensor.shape}] has ${data.length} numbers`);
  const elementBytes = bits[dtype] / 8;
  const perChunk = chunk.byteLength / elementBytes;
  for (let done = 0; done < data.length; done += perChunk) {
    const part = data.subarray(done, done + perChunk);
    if (dtype === "F32") new Float32Array(chunk).set(part);
    else roundToBf16(part, new Uint16Array(chunk));
    await writeFully(handle, new Uint8Array(chunk, 0, part.length * elementBytes));
  }
}

/** Round to the nearest bfloat16, ties to even; a NaN stays one. */
function roundToBf16(from: Float32Array, to: Uint16Array): void {
  const source = new Uint32Array(from.buffer, from.byteOffset, from.length);
  for (let i = 0; i < source.length; i++) {
    const value = source[i]!;
    const isNan = (value & 0x7fffffff) > 0x7f800000;
    to[i] = isNan ? (value >>> 16) | 0x40 : (value + 0x7fff + ((value >>> 16) & 1)) >>> 16;
  }
}

async function writeFully(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length; ) done += (await handle.write(bytes, done, bytes.length - done)).bytesWritten;
}
