import { mkdtemp, open, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { readAll, readHeader, readTensor, type TensorSource, writeSafetensors } from "./safetensors.ts";

let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "trainyard-safetensors-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const fixture = (path: string) => new URL(`../../test/fixtures/logits/${path}`, import.meta.url).pathname;

/** A file from the text of its header and its data, with no check at all. */
function fileBytes(header: string, data: Uint8Array = new Uint8Array(0), length?: bigint): Buffer {
  const text = Buffer.from(header);
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(length ?? BigInt(text.length));
  return Buffer.concat([prefix, text, data]);
}

async function readBytes(bytes: Uint8Array) {
  const path = join(dir, "case.safetensors");
  await writeFile(path, bytes);
  return readAll(path);
}

/** The bits, so that NaN equals NaN and -0 differs from 0. */
const bitsOf = (data: Float32Array) => [...new Uint32Array(data.buffer, data.byteOffset, data.length)];

const float = fc.oneof(
  fc.float({ noNaN: true }),
  fc.constantFrom(Number.NaN, Infinity, -Infinity, -0, 1e-45, -1e-40, 3.4e38),
);
const namedArrays = fc.uniqueArray(
  fc.record({
    name: fc.string({ unit: "grapheme" }).filter((name) => name !== "__metadata__" && name !== "__proto__"),
    data: fc.float32Array({ maxLength: 40 }),
  }),
  { selector: ({ name }) => name, maxLength: 6 },
);
const sources = (arrays: readonly { name: string; data: Float32Array }[]): TensorSource[] =>
  arrays.map(({ name, data }) => ({ name, shape: [data.length], data: () => data }));

describe("a file that is written and read has the same tensors", () => {
  test("F32: every bit, every name, the metadata", async () => {
    await fc.assert(
      fc.asyncProperty(namedArrays, async (arrays) => {
        const path = join(dir, "round.safetensors");
        await writeSafetensors(path, sources(arrays), { dtype: "F32", metadata: { format: "pt" } });
        const read = await readAll(path);
        expect(read.size).toBe(arrays.length);
        for (const { name, data } of arrays) {
          const tensor = read.get(name);
          expect(tensor?.shape).toEqual([data.length]);
          expect(tensor?.data instanceof Float32Array && bitsOf(tensor.data)).toEqual(bitsOf(data));
        }
      }),
      { numRuns: 60 },
    );
  });

  test("BF16: the nearest of all bfloat16 numbers, ties to the even one, NaN stays NaN", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(float, { minLength: 1, maxLength: 50 }), async (values) => {
        const data = Float32Array.from(values);
        const path = join(dir, "bf16.safetensors");
        await writeSafetensors(path, sources([{ name: "x", data }]), { dtype: "BF16" });
        const read = (await readAll(path)).get("x")?.data;
        if (!(read instanceof Float32Array)) throw new Error("x is not there");
        for (const [i, value] of data.entries()) {
          expect(Object.is(read[i], nearestBf16(value)), `${value} -> ${read[i]}`).toBe(true);
        }
      }),
      { numRuns: 100 },
    );
  });

  test("tensors larger than a chunk, in shared memory", async () => {
    const count = 3_000_001; // 12 MB: two whole chunks and a part
    const data = new Float32Array(new SharedArrayBuffer(count * 4)).map((_, i) => Math.fround(i * 0.37 - 1e5));
    const path = join(dir, "large.safetensors");
    await writeSafetensors(path, sources([{ name: "x", data }]), { dtype: "F32" });
    const into = new Float32Array(new SharedArrayBuffer(count * 4));
    const handle = await open(path, "r");
    try {
      const info = (await readHeader(handle, path)).tensors.get("x");
      await readTensor(handle, info!, into);
    } finally {
      await handle.close();
    }
    expect(Buffer.compare(Buffer.from(into.buffer), Buffer.from(data.buffer))).toBe(0);
  });
});

/** By search instead of bit arithmetic: the closer neighbour; of two equally close the one with an even last bit. */
function nearestBf16(value: number): number {
  if (Number.isNaN(value)) return Number.NaN;
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  const at = (high: number) => {
    view.setUint32(0, high << 16);
    return view.getFloat32(0);
  };
  const high = view.getUint32(0) >>> 16;
  const [below, above] = [at(high), at(high + 1)];
  if (below === value) return below;
  const beyond = Number.isFinite(above) ? above : Math.sign(value) * 2 ** 128; // infinity begins where the next would be
  const [left, right] = [Math.abs(value - below), Math.abs(beyond - value)];
  if (left === right) return high % 2 === 0 ? below : above;
  return left < right ? below : above;
}

describe("the Python library's files", () => {
  const files = { F32: "llama_v5/model.safetensors", BF16: "qwen2_v5_sharded_bf16/model-00002-of-00007.safetensors" };
  for (const dtype of ["F32", "BF16"] as const) {
    test(`in ${dtype} are written byte for byte alike`, async () => {
      const tensors = [...(await readAll(fixture(files[dtype])))].map(([name, { shape, data }]) => {
        if (!(data instanceof Float32Array)) throw new Error(`${name} was not read as numbers`);
        return { name, shape, data: () => data };
      });
      const path = join(dir, "copy.safetensors");
      await writeSafetensors(path, tensors, { dtype, metadata: { format: "pt" } });
      expect((await readFile(path)).equals(await readFile(fixture(files[dtype])))).toBe(true);
    });
  }

  test("give integers in arrays of their own kind", async () => {
    const ids = (await readAll(fixture("llama/reference.safetensors"))).get("input_ids");
    expect(ids?.dtype).toBe("I64");
    expect(ids?.data).toBeInstanceOf(BigInt64Array);
  });
});

test("every half-precision number is read exactly", async () => {
  const halves = Uint16Array.from({ length: 65536 }, (_, i) => i);
  const header = `{"x":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}}`;
  const read = (await readBytes(fileBytes(header, new Uint8Array(halves.buffer)))).get("x")?.data;
  halves.forEach((half, i) => {
    const sign = half & 0x8000 ? -1 : 1;
    const [exponent, fraction] = [(half >> 10) & 31, half & 1023];
    const special = fraction === 0 ? sign * Infinity : Number.NaN;
    const finite = exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
    if (!Object.is(read?.[i], exponent === 31 ? special : finite))
      throw new Error(`half ${half} was read as ${read?.[i]}`);
  });
});

describe("a broken file is refused in a sentence that names it", () => {
  const entry = (name: string, begin: number, end: number, shape = [(end - begin) / 4], dtype = "F32") =>
    `${JSON.stringify(name)}:{"dtype":"${dtype}","shape":[${shape}],"data_offsets":[${begin},${end}]}`;
  const eight = new Uint8Array(8);
  const cases: [name: string, bytes: Uint8Array, part: string][] = [
    ["empty", new Uint8Array(0), "it has 0 bytes"],
    ["seven bytes", new Uint8Array(7), "it has 7 bytes"],
    ["a Git LFS pointer", Buffer.from("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"],
    ["a huge header length", fileBytes("{}", eight, 2n ** 63n), "the limit"],
    ["a header longer than the file", fileBytes("{}", eight, 99n), "only 18 in all"],
    ["a header that is not JSON", fileBytes("{nope"), "not JSON"],
    ["a header that is not UTF-8", fileBytes("", Uint8Array.of(0xff, 0xfe), 2n), "not JSON"],
    ["a header that is a list", fileBytes("[]"), "not a JSON object"],
    ["an entry that is not one", fileBytes(`{"a":5}`), 'tensor "a"'],
    ["brackets without end", fileBytes(`{"a":${"[".repeat(1e5)}${"]".repeat(1e5)}}`), 'tensor "a"'],
    ["an unknown dtype", fileBytes(`{${entry("a", 0, 8, [2], "F31")}}`, eight), "unknown dtype F31"],
    ["a negative size", fileBytes(`{${entry("a", 0, 8, [-2])}}`, eight), "shape.0"],
    ["sizes past counting", fileBytes(`{${entry("a", 0, 8, [2 ** 50, 2 ** 50])}}`, eight), "span 8"],
    ["a shape of another size", fileBytes(`{${entry("a", 0, 8, [3])}}`, eight), "needs 12 bytes"],
    ["offsets that run backwards", fileBytes(`{${entry("a", 8, 0, [2])}}`, eight), "span -8"],
    ["a tensor past the end", fileBytes(`{${entry("a", 0, 16)}}`, eight), "cut short"],
    ["bytes of no tensor", fileBytes(`{${entry("a", 0, 4)}}`, eight), "something was added"],
    ["a gap", fileBytes(`{${entry("a", 4, 8)}}`, eight), "a gap"],
    ["an overlap", fileBytes(`{${entry("a", 0, 8)},${entry("b", 4, 8)}}`, eight), "overlaps"],
    ["a name twice", fileBytes(`{${entry("a", 0, 8)},${entry("\u0061", 0, 8)}}`, eight), '"a" twice'],
    [
      "a name twice, escaped",
      fileBytes(`{${entry("a", 0, 8)},${entry("a", 0, 8).replace("a", "\\u0061")}}`, eight),
      '"a" twice',
    ],
    ["metadata that is not text", fileBytes(`{"__metadata__":{"a":1}}`), "__metadata__"],
  ];
  for (const [name, bytes, part] of cases) {
    test(name, async () => {
      const error = await readBytes(bytes).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toContain("case.safetensors");
      expect(String(error)).toContain(part);
    });
  }

  test("integers where weights should be", async () => {
    const path = join(dir, "integers.safetensors");
    await writeFile(path, fileBytes(`{${entry("ids", 0, 8, [1], "I64")}}`, eight));
    const handle = await open(path, "r");
    try {
      const info = (await readHeader(handle, path)).tensors.get("ids");
      await expect(readTensor(handle, info!, new Float32Array(1))).rejects.toThrow('tensor "ids" is I64');
    } finally {
      await handle.close();
    }
  });

  test("a file cut after its header was read", async () => {
    const path = join(dir, "cut.safetensors");
    await writeSafetensors(path, sources([{ name: "x", data: new Float32Array(100) }]), { dtype: "F32" });
    const handle = await open(path, "r");
    try {
      const info = (await readHeader(handle, path)).tensors.get("x");
      await truncate(path, (await stat(path)).size - 4);
      await expect(readTensor(handle, info!, new Float32Array(100))).rejects.toThrow("it ends at byte");
    } finally {
      await handle.close();
    }
  });
});

describe("any bytes give a value or a UserError", () => {
  const survives = async (bytes: Uint8Array) => {
    try {
      return (await readBytes(bytes)).size >= 0;
    } catch (error) {
      return error instanceof UserError;
    }
  };

  test("random bytes", async () => {
    await fc.assert(fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), survives), { numRuns: 300 });
  });

  test("random JSON as the header", async () => {
    const json = fc.json({ maxDepth: 4 });
    await fc.assert(
      fc.asyncProperty(json, fc.uint8Array(), (text, data) => survives(fileBytes(text, data))),
      { numRuns: 300 },
    );
  });

  test("a good file, cut anywhere, is refused", async () => {
    const good = await readFile(fixture("llama/model.safetensors"));
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: good.length - 1 }), async (length) => {
        await expect(readBytes(good.subarray(0, length))).rejects.toBeInstanceOf(UserError);
      }),
      { numRuns: 100 },
    );
  });

  test("a good file with bytes of its header changed", async () => {
    const good = await readFile(fixture("llama/model.safetensors"));
    const header = 8 + Number(good.readBigUInt64LE());
    const change = fc.tuple(fc.nat(header - 1), fc.integer({ min: 0, max: 255 }));
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 4 }), (changes) => {
        const bytes = Buffer.from(good);
        for (const [at, value] of changes) bytes[at] = value;
        return survives(bytes);
      }),
      { numRuns: 300 },
    );
  });
});

describe("a write that does not finish", () => {
  test("leaves the file that was there, and nothing else", async () => {
    const folder = await mkdtemp(join(dir, "stopped-"));
    const path = join(folder, "model.safetensors");
    await writeSafetensors(path, sources([{ name: "x", data: Float32Array.of(1, 2) }]), { dtype: "F32" });
    const before = await readFile(path);
    const stopped: TensorSource[] = [
      { name: "a", shape: [2_000_000], data: () => new Float32Array(2_000_000) },
      { name: "b", shape: [1], data: () => Promise.reject(new Error("the engine is gone")) },
    ];
    await expect(writeSafetensors(path, stopped, { dtype: "F32" })).rejects.toThrow("the engine is gone");
    expect(await readdir(folder)).toEqual(["model.safetensors"]);
    expect((await readFile(path)).equals(before)).toBe(true);
  });

  test("because the path leads through a file gives an error that says so", async () => {
    await writeFile(join(dir, "plain"), "");
    const write = writeSafetensors(join(dir, "plain", "model.safetensors"), [], { dtype: "F32" });
    await expect(write).rejects.toThrow("plain/model.safetensors cannot be written");
  });
});
