import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { trackContext } from "../../test/tracking.ts";
import { openTensorboard, tensorboardDir } from "./tensorboard.ts";
import { crc32c, tfRecord } from "./tfrecord.ts";

const python = process.env.TRAINYARD_TEST_PYTHON;

let dir = "";
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "track-tensorboard-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

test.each([
  ["", 0],
  ["123456789", 0xe3069283],
  ["\0".repeat(32), 0x8a9136aa], // RFC 3720, B.4
])("the CRC-32C of %j is known", (text, crc) => {
  expect(crc32c(Buffer.from(text, "latin1"))).toBe(crc);
});

test("a record is its data between its length and its checksums", () => {
  const record = Buffer.from(tfRecord(Buffer.from("data")));
  expect(record.length).toBe(8 + 4 + 4 + 4);
  expect(record.readBigUInt64LE(0)).toBe(4n);
  expect(record.subarray(12, 16).toString()).toBe("data");
});

test.each([
  [{}, "tensorboard_log/project/experiment"],
  [{ TENSORBOARD_DIR: "/events" }, "/events"],
])("with %j the folder is %s", (env, expected) => {
  expect(tensorboardDir(trackContext({ dir: "", env }))).toBe(expected);
});

test("the file is records from its beginning to its end", async () => {
  const tracker = await openTensorboard(trackContext({ dir, env: { TENSORBOARD_DIR: dir } }));
  for (let step = 1; step <= 20; step++) tracker.log(step, { a: step });
  await tracker.close("finished");
  const [name] = await readdir(dir);
  const file = await readFile(join(dir, name!));
  const records: Buffer[] = [];
  for (let at = 0; at < file.length; ) {
    const length = Number(file.readBigUInt64LE(at));
    records.push(file.subarray(at + 12, at + 12 + length));
    expect(file.subarray(at, at + 16 + length)).toEqual(tfRecord(records.at(-1)!));
    at += 16 + length;
  }
  expect(records.length).toBe(2 + 20); // the version and the config, then the steps
});

/** Everything TensorBoard's own reader finds in the folder. */
const readBack = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
print(json.dumps({
    "scalars": {tag: [[e.step, repr(e.value)] for e in events.Scalars(tag)] for tag in tags["scalars"]},
    "texts": {tag: [[e.step, e.tensor_proto.string_val[0].decode()] for e in events.Tensors(tag)] for tag in tags["tensors"]},
    "plugins": sorted({events.SummaryMetadata(tag).plugin_data.plugin_name for tag in tags["tensors"]}),
}))`;

describe.skipIf(!python)("TensorBoard's own library (needs Python with tensorboard)", () => {
  const read = async () => JSON.parse((await promisify(execFile)(python!, ["-c", readBack, dir])).stdout);
  const context = (startStep: number | null) => trackContext({ dir, env: { TENSORBOARD_DIR: dir }, startStep });

  test("reads the scalars, the config and the samples back", async () => {
    const tracker = await openTensorboard(context(null));
    tracker.log(1, { "critic/score/mean": 0.5, "actor/lr": 1e-6 });
    tracker.logSamples(2, [{ input: "3+4=?", output: "# 7\n`é`", score: 1 }]);
    tracker.log(2, { "critic/score/mean": Number.NaN, "actor/lr": -3.5e10 });
    await tracker.close("finished");

    const { scalars, texts, plugins } = await read();
    expect(scalars["critic/score/mean"]).toEqual([
      [1, "0.5"],
      [2, "nan"],
    ]);
    const rates = scalars["actor/lr"].map(([step, value]: [number, string]) => [step, Number(value)]);
    expect(rates).toEqual([
      [1, Math.fround(1e-6)],
      [2, Math.fround(-3.5e10)],
    ]);
    expect(Object.keys(texts).sort()).toEqual(["config/text_summary", "val/generations/text_summary"]);
    expect(texts["config/text_summary"][0][1]).toContain('"lr": 0.000001');
    expect(texts["val/generations/text_summary"]).toEqual([[2, expect.stringContaining("    # 7\n    `é`")]]);
    expect(plugins).toEqual(["text"]);
  });

  test("drops the steps that a resumed run repeats", async () => {
    const first = await openTensorboard(context(null));
    for (let step = 1; step <= 5; step++) first.log(step, { a: step });
    await first.close("failed");
    const second = await openTensorboard(context(3));
    for (let step = 4; step <= 6; step++) second.log(step, { a: 10 * step });
    await second.close("finished");
    expect((await read()).scalars.a).toEqual([1, 2, 3, 40, 50, 60].map((value, i) => [i + 1, `${value}.0`]));
  });
});
