import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { promisify } from "node:util";
import { crc32, gunzipSync } from "node:zlib";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { trackContext } from "../../test/tracking.ts";
import { metricsPath } from "../run/names.ts";
import type { TrackContext } from "./tracker.ts";
import { openWandb } from "./wandb.ts";
import { frameRecord, wandbHeader } from "./wandb-log.ts";

const python = process.env.TRAINYARD_TEST_PYTHON;

let dir = "";
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "track-wandb-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** The records of a file, by the description of LevelDB's log format. */
function records(file: Buffer): Buffer[] {
  const found: Buffer[] = [];
  let parts: Buffer[] = [];
  for (let at = wandbHeader.length; at < file.length; ) {
    const room = 32768 - (at % 32768);
    if (room < 7) {
      at += room;
      continue;
    }
    const length = file.readUInt16LE(at + 4);
    const piece = file.subarray(at + 6, at + 7 + length);
    expect(file.readUInt32LE(at)).toBe(crc32(piece));
    if (piece[0] === 1 || piece[0] === 2) expect(parts).toEqual([]);
    parts.push(piece.subarray(1));
    if (piece[0] === 1 || piece[0] === 4) {
      found.push(Buffer.concat(parts));
      parts = [];
    }
    at += 7 + length;
  }
  return found;
}

test("records of any size come back whole from the blocks of the log", () => {
  const size = fc.oneof(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 32600, max: 33000 }), fc.constant(100_000));
  fc.assert(
    fc.property(fc.array(size, { maxLength: 12 }), (sizes) => {
      const written = sizes.map((length, i) => Buffer.alloc(length, i + 1));
      let file = Buffer.from(wandbHeader);
      for (const record of written) file = Buffer.concat([file, frameRecord(record, file.length)]);
      const read = records(file);
      expect(read.map(({ length }) => length)).toEqual(sizes);
      expect(read.every((record, i) => record.equals(written[i]!))).toBe(true);
    }),
    { numRuns: 40 },
  );
});

test("a resumed run keeps its id, one that starts over gets another", async () => {
  const run = async (startStep: number | null) => {
    const tracker = await openWandb(trackContext({ dir, startStep }));
    tracker.log(1, { a: 1 });
    await tracker.close("finished");
    return (await readdir(join(dir, "wandb"))).map((name) => name.replace(/^offline-run-\d{8}_\d{6}-/, ""));
  };
  const [first] = await run(null);
  expect(await run(4)).toEqual([first, first]);
  expect(new Set(await run(null)).size).toBe(2);
});

test("a resumed run takes no id from a folder that it shares with other runs", async () => {
  const env = { WANDB_DIR: dir };
  for (const startStep of [null, 4])
    await (await openWandb(trackContext({ dir: "elsewhere", env, startStep }))).close("finished");
  const ids = (await readdir(join(dir, "wandb"))).map((name) => name.split("-").at(-1));
  expect(new Set(ids).size).toBe(2);
});

test("WANDB_MODE=disabled writes nothing", async () => {
  const tracker = await openWandb(trackContext({ dir, env: { WANDB_MODE: "disabled" } }));
  tracker.log(1, { a: 1 });
  await tracker.close("finished");
  expect(await readdir(dir)).toEqual([]);
});

/** As much of a W&B server as `wandb sync` asks for; it keeps what it is sent. */
class WandbServer {
  readonly #server: Server;
  readonly history: Record<string, unknown>[] = [];
  readonly uploads = new Map<string, string>();
  readonly run: Record<string, unknown> = {};
  isComplete = false;
  exitCode: unknown;

  constructor() {
    this.#server = createServer(async (request, response) => {
      const bytes = await buffer(request);
      const body = (request.headers["content-encoding"] === "gzip" ? gunzipSync(bytes) : bytes).toString();
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify(this.#answer(request.url ?? "", body)));
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return this.#base;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #answer(url: string, body: string): unknown {
    if (url.endsWith("/file_stream")) {
      const { files, complete, exitcode } = JSON.parse(body);
      for (const line of files?.["wandb-history.jsonl"]?.content ?? [])
        this.history.push(JSON.parse(line.replace(/:NaN/g, ":null")));
      if (complete) Object.assign(this, { isComplete: true, exitCode: exitcode });
      return {};
    }
    if (url.startsWith("/up/")) {
      this.uploads.set(decodeURIComponent(url.slice("/up/".length)), body);
      return {};
    }
    if (url !== "/graphql") return {};
    const { operationName, variables } = JSON.parse(body);
    if (operationName === "CreateRunFiles") {
      const files = variables.files.map((name: string) => ({ name, uploadUrl: `${this.#base}/up/${name}` }));
      return { data: { createRunFiles: { runID: "1", uploadHeaders: [], files } } };
    }
    if (operationName !== "UpsertBucket") return { data: {} };
    for (const [key, value] of Object.entries(variables)) if (value !== null) this.run[key] = value;
    const project = { id: "1", name: variables.project, entity: { id: "1", name: "me" } };
    return { data: { upsertBucket: { bucket: { id: "1", name: variables.name, project }, inserted: true } } };
  }

  get #base(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
  }
}

describe.skipIf(!python)("the real `wandb sync` (needs Python with wandb)", () => {
  const sync = async (server: WandbServer): Promise<string> => {
    const env = {
      ...process.env,
      WANDB_BASE_URL: await server.listen(),
      WANDB_API_KEY: "0".repeat(40),
      WANDB_ERROR_REPORTING: "false",
      HOME: dir,
    };
    const folder = (await readdir(join(dir, "wandb"))).sort().at(-1)!;
    const args = ["-m", "wandb", "sync", join(dir, "wandb", folder)];
    const { stdout, stderr } = await promisify(execFile)(python!, args, { env, cwd: dir });
    return stdout + stderr;
  };

  test("uploads every step, the config and the samples", async () => {
    const context: TrackContext = trackContext({ dir, project: "math", experiment: "first" });
    const tracker = await openWandb(context);
    for (let step = 1; step <= 300; step++) {
      if (step === 200) tracker.logSamples(step, [{ input: "3+4=?", output: "7".repeat(50_000), score: 1 }]);
      tracker.log(step, { "critic/score/mean": step / 7, "val-core/x/acc/mean@1": step === 2 ? Number.NaN : 1 });
    }
    await tracker.close("stopped");

    const server = new WandbServer();
    try {
      expect(await sync(server)).toContain("Finished syncing");
    } finally {
      server.close();
    }
    expect(server.history.map((row) => [row._step, row["critic/score/mean"]])).toEqual(
      Array.from({ length: 300 }, (_, i) => [i + 1, (i + 1) / 7]),
    );
    expect(server.history[199]?.["val/generations"]).toMatchObject({ _type: "table-file", ncols: 4, nrows: 1 });
    expect(server.run).toMatchObject({ project: "math", displayName: "first" });
    expect(JSON.parse(String(server.run.config)).trainer.value).toEqual(context.config.trainer);
    const [table] = [...server.uploads].filter(([name]) => name.startsWith("media/table/val/generations_200_"));
    expect(JSON.parse(table![1])).toEqual({
      columns: ["step", "input", "output", "score"],
      data: [[200, "3+4=?", "7".repeat(50_000), 1]],
    });
    expect(JSON.parse(server.uploads.get("wandb-summary.json")!)["critic/score/mean"]).toBe(300 / 7);
    expect([server.isComplete, server.exitCode]).toEqual([true, 130]);
  });

  test("finds all steps of an interrupted run in what its last part wrote", async () => {
    const first = await openWandb(trackContext({ dir }));
    for (let step = 1; step <= 5; step++) first.log(step, { a: step });
    await first.close("stopped");
    const kept = [1, 2, 3].map((step) => `{"step":${step},"data":{"a":${step}}}\n`); // as a run that goes on after step 3
    await writeFile(metricsPath(dir), kept.join(""));
    const second = await openWandb(trackContext({ dir, startStep: 3 }));
    for (let step = 4; step <= 6; step++) second.log(step, { a: 10 * step });
    await second.close("finished");
    const server = new WandbServer();
    try {
      await sync(server);
    } finally {
      server.close();
    }
    expect(server.history.map(({ _step, a }) => [_step, a])).toEqual([1, 2, 3, 40, 50, 60].map((a, i) => [i + 1, a]));
  });
});

test("samples without metrics of their step are written at the end", async () => {
  const tracker = await openWandb(trackContext({ dir }));
  tracker.logSamples(3, [{ input: "a", output: "b", score: 0 }]);
  await tracker.close("finished");
  const [folder = ""] = await readdir(join(dir, "wandb"));
  const [id] = folder.split("-").slice(-1);
  const file = await readFile(join(dir, "wandb", folder, `run-${id}.wandb`));
  expect(records(file).some((record) => record.includes("val/generations"))).toBe(true);
  expect(await readdir(join(dir, "wandb", folder, "files", "media", "table", "val"))).toHaveLength(1);
});
