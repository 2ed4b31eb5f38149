/**
 * Weights & Biases, offline: a run folder as its own client writes one, for `wandb sync` to upload.
 *
 * There is no maintained client for Node, so nothing is uploaded here. Field numbers are those of wandb_internal.proto.
 * A step is one row of history, so the table of its validation samples waits for the step's metrics. `wandb sync` does
 * not join the parts of an offline run: the last one replaces the others. So a resumed run begins with all earlier steps.
 */
import { createHash, randomBytes } from "node:crypto";
import { mkdir, readdir } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Metrics } from "../run/metrics.ts";
import { codeOf } from "../util/errors.ts";
import { explainWrite, writeFileAtomic } from "../util/files.ts";
import { info } from "../util/log.ts";
import { Message } from "../util/protobuf.ts";
import { AppendFile } from "./append-file.ts";
import { Outbox } from "./outbox.ts";
import { type Sample, sampleColumns, sampleRow } from "./samples.ts";
import { earlierMetrics, type TrackContext, type Tracker } from "./tracker.ts";
import { frameRecord, wandbHeader } from "./wandb-log.ts";

/** A file beside the log, such as a table. */
type Attachment = {
  readonly path: string;
  readonly bytes: Uint8Array;
  readonly value: Readonly<Record<string, unknown>>;
};
type Item = { readonly records: readonly Uint8Array[]; readonly attachment: Attachment | null };

export async function openWandb(context: TrackContext): Promise<Tracker> {
  if (context.env.WANDB_MODE === "disabled") return { log() {}, logSamples() {}, async close() {} };
  const startedAt = Date.now();
  const { WANDB_DIR: shared, WANDB_RUN_ID: givenId } = context.env;
  const root = join(shared || context.dir, "wandb");
  const earlierId = context.startStep === null || shared ? null : await latestId(root); // a shared folder has runs of others
  const id = givenId || earlierId || newId();
  const folder = await makeFolder(root, startedAt, id);
  const file = await AppendFile.create(join(folder, `run-${id}.wandb`), wandbHeader);
  const runtime = () => Math.max(0, Date.now() - startedAt) / 1000;
  const write = recordWriter(file);
  const replayed = (await earlierMetrics(context)).map(({ step, data }) => historyRecord(step, rowOf(step, data)));
  await write([header(id), runRecord(id, context, startedAt), ...replayed]);
  info(`wandb: the run is written to ${folder}. \`wandb sync ${folder}\` uploads it.`);

  const outbox = new Outbox<Item>({
    name: `wandb (${file.path})`,
    sizeOf: ({ records, attachment }) =>
      records.reduce((total, record) => total + record.length, attachment?.bytes.length ?? 0),
    async send({ records, attachment }) {
      if (attachment !== null) await writeFileAtomic(join(folder, "files", attachment.path), attachment.bytes);
      await write(records);
      return undefined;
    },
  });

  let table: Attachment | null = null;
  const flush = (step: number, data: Metrics) => {
    const row = rowOf(step, { _timestamp: Date.now() / 1000, _runtime: runtime(), ...data });
    if (table !== null) row.push(["val/generations", JSON.stringify(table.value)]);
    const files = table === null ? [] : [filesRecord(table.path)];
    outbox.put({ records: [...files, historyRecord(step, row), summaryRecord(row)], attachment: table });
    table = null;
  };
  let tableStep = 0;
  return {
    log: flush,
    logSamples(step, samples) {
      table = tableOf(step, samples);
      tableStep = step;
    },
    async close(outcome) {
      if (table !== null) flush(tableStep, {});
      const exit = new Message().int(1, outcome === "finished" ? 0 : outcome === "stopped" ? 130 : 1);
      exit.int(2, Math.round(runtime()));
      outbox.put({ records: [withStream(new Message().message(18, exit), id)], attachment: null });
      await outbox.close();
      await file.close();
    },
  };
}

/** Writes records, numbered from 1, as one piece, so that a second try repeats none of them. */
function recordWriter(file: AppendFile): (records: readonly Uint8Array[]) => Promise<void> {
  let count = 0;
  return async (records) => {
    const frames: Uint8Array[] = [];
    let end = file.end;
    for (const [i, record] of records.entries()) {
      const numbered = Buffer.concat([new Message().int(1, count + i + 1).finish(), record]);
      const frame = frameRecord(numbered, end);
      frames.push(frame);
      end += frame.length;
    }
    await file.append(Buffer.concat(frames));
    count += records.length;
  };
}

/** The id of the newest run of this run folder: a resumed run replaces it. */
async function latestId(root: string): Promise<string | null> {
  const names = await readdir(root).catch((): string[] => []); // no folder means no earlier run
  const newest = names
    .filter((name) => /^offline-run-\d{8}_\d{6}-/.test(name))
    .sort()
    .at(-1);
  return newest?.replace(/^offline-run-\d{8}_\d{6}-/, "") ?? null;
}

/** A new folder, also for a run that is resumed within the same second. */
async function makeFolder(root: string, startedAt: number, id: string): Promise<string> {
  try {
    await mkdir(root, { recursive: true });
    for (let time = startedAt; ; time += 1000) {
      const folder = join(root, `offline-run-${stamp(new Date(time))}-${id}`);
      const isTaken = await mkdir(folder).then(
        () => false,
        (error: unknown) => {
          if (codeOf(error) === "EEXIST") return true;
          throw error;
        },
      );
      if (!isTaken) return folder;
    }
  } catch (error) {
    throw explainWrite(root, error);
  }
}

/** Eight characters, as wandb's own ids. */
function newId(): string {
  return Array.from(randomBytes(8), (byte) => (byte % 36).toString(36)).join("");
}

/** Local time as `20250131_235959`. */
function stamp(time: Date): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const date = `${time.getFullYear()}${two(time.getMonth() + 1)}${two(time.getDate())}`;
  return `${date}_${two(time.getHours())}${two(time.getMinutes())}${two(time.getSeconds())}`;
}

const withStream = (record: Message, id: string): Uint8Array =>
  record.message(200, new Message().string(1, id)).finish();

function header(id: string): Uint8Array {
  const version = new Message().string(1, "trainyard").string(2, "0.70.0"); // the oldest client that can read it
  return withStream(new Message().message(21, new Message().message(1, version)), id);
}

function runRecord(id: string, { project, experiment, config, env }: TrackContext, startedAt: number): Uint8Array {
  const settings = new Message();
  for (const [key, value] of Object.entries(config)) {
    settings.message(1, new Message().string(1, key).string(16, JSON.stringify(value) ?? "null"));
  }
  const time = new Message().int(1, Math.floor(startedAt / 1000)).int(2, (startedAt % 1000) * 1e6);
  const run = new Message().string(1, id);
  if (env.WANDB_ENTITY) run.string(2, env.WANDB_ENTITY);
  run.string(3, project).message(4, settings).string(8, experiment).string(13, hostname()).message(17, time);
  return withStream(new Message().message(17, run), id);
}

/** Keys and values of a history or a summary; a value is JSON, with NaN and Infinity as Python has them. */
type Row = [key: string, json: string][];

function rowOf(step: number, data: Metrics): Row {
  return [["_step", String(step)], ...Object.entries(data).map(([key, value]): Row[number] => [key, String(value)])];
}

const cell = ([key, json]: Row[number]): Message => new Message().string(2, key).string(16, json);

function historyRecord(step: number, row: Row): Uint8Array {
  const history = new Message();
  for (const entry of row) history.message(1, cell(entry));
  return new Message().message(2, history.message(2, new Message().int(1, step))).finish();
}

function summaryRecord(row: Row): Uint8Array {
  const summary = new Message();
  for (const entry of row) summary.message(1, cell(entry));
  return new Message().message(3, summary).finish();
}

function filesRecord(path: string): Uint8Array {
  return new Message().message(6, new Message().message(1, new Message().string(1, path))).finish();
}

/** A table as wandb keeps one: a JSON file, and its description as the value in the history. */
function tableOf(step: number, samples: readonly Sample[]): Attachment {
  const rows = samples.map((sample) => sampleRow(step, sample));
  const data = rows.map((row) => sampleColumns.map((column) => row[column]));
  const bytes = Buffer.from(JSON.stringify({ columns: sampleColumns, data }));
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const path = `media/table/val/generations_${step}_${sha256.slice(0, 20)}.table.json`;
  const shape = { ncols: sampleColumns.length, nrows: rows.length };
  return { path, bytes, value: { _type: "table-file", path, sha256, size: bytes.length, ...shape } };
}
