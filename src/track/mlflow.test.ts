import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { linesOf, trackContext } from "../../test/tracking.ts";
import { metricKey, openMlflow } from "./mlflow.ts";

const python = process.env.TRAINYARD_TEST_PYTHON;

test.each([
  ["val-core/openai/gsm8k/acc/mean@8", "val-core/openai/gsm8k/acc/mean_at_8"],
  ["invalid@key!", "invalid_at_key_"],
  ["bad key#", "bad key_"],
  ["a//b///c", "a/b/c"],
  ["train/total_tokens(B)", "train/total_tokens_B_"],
])("the metric %s is called %s", (name, key) => {
  expect(metricKey(name)).toBe(key);
});

type Request = { method: string; path: string; headers: IncomingHttpHeaders; body: string; status: number };

/** A server with prepared answers that keeps all requests. */
class Stub {
  readonly requests: Request[] = [];
  readonly #server: Server;
  /** Null leaves the question to the answers of a healthy server. */
  answer: (request: Request) => { status: number; body: unknown } | null = () => null;

  constructor() {
    this.#server = createServer(async (incoming, outgoing) => {
      const { method = "", url = "", headers } = incoming;
      const path = url.replace("/prefix/api/2.0/", "");
      const request = { method, path, headers, body: await text(incoming), status: 0 };
      this.requests.push(request);
      const { status, body } = this.answer(request) ?? { status: 200, body: healthy(request.path) };
      request.status = status;
      outgoing.writeHead(status, { "content-type": "application/json" });
      outgoing.end(typeof body === "string" ? body : JSON.stringify(body));
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `${z.object({ port: z.number() }).parse(this.#server.address()).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  /** The batches that were taken. */
  batches(): {
    metrics?: { key: string; step: number; value: unknown }[];
    params?: { key: string; value: string }[];
  }[] {
    const taken = this.requests.filter(({ path, status }) => path === "mlflow/runs/log-batch" && status === 200);
    return taken.map(({ body }) => JSON.parse(body));
  }
}

const run = { info: { run_id: "r1", artifact_uri: "mlflow-artifacts:/1/r1/artifacts" } };
function healthy(path: string): unknown {
  if (path.startsWith("mlflow/experiments/get-by-name")) {
    return { experiment: { experiment_id: "1", lifecycle_stage: "active" } };
  }
  if (path === "mlflow/runs/search") return { runs: [run] };
  return { run };
}

describe("against a server with prepared answers", () => {
  let stub: Stub;
  let port = "";
  const context = (more: Record<string, string> = {}) =>
    trackContext({ dir: "run", env: { MLFLOW_TRACKING_URI: `http://127.0.0.1:${port}/prefix/`, ...more } });
  beforeEach(async () => {
    stub = new Stub();
    port = await stub.listen();
  });
  afterEach(() => stub.close());

  test("no batch is larger than MLflow allows, and nothing is left out", async () => {
    const config = Object.fromEntries(Array.from({ length: 250 }, (_, i) => [`key${i}`, i]));
    const tracker = await openMlflow({ ...context(), config });
    tracker.log(1, Object.fromEntries(Array.from({ length: 2500 }, (_, i) => [`m/${i}`, i])));
    await tracker.close("finished");
    const params = stub.batches().flatMap(({ params = [] }) => [params.length]);
    const metrics = stub.batches().flatMap(({ metrics = [] }) => [metrics.length]);
    expect(params.filter((n) => n > 0)).toEqual([100, 100, 50]);
    expect(metrics.filter((n) => n > 0)).toEqual([1000, 1000, 500]);
  });

  test("an outage is reported once, delays nothing and loses nothing", async () => {
    let isDown = false;
    stub.answer = () => (isDown ? { status: 503, body: "starting up" } : null);
    const said = await linesOf(async () => {
      const tracker = await openMlflow(context());
      for (let step = 1; step <= 100; step++) {
        if (step === 30) isDown = true;
        if (step === 90) isDown = false;
        tracker.log(step, { a: step });
        if (step === 30) await new Promise((resolve) => setTimeout(resolve, 50));
      }
      await tracker.close("finished");
    });
    const taken = stub.batches().flatMap(({ metrics = [] }) => metrics.map(({ step }) => step));
    expect(taken).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));
    expect(said.filter((line) => line.startsWith("warning"))).toEqual([expect.stringContaining("answered 503")]);
  });

  test("a batch that the server will never take does not stop the others", async () => {
    stub.answer = ({ body }) =>
      body.includes('"key":"bad"') ? { status: 400, body: { message: "no bad keys" } } : null;
    const said = await linesOf(async () => {
      const tracker = await openMlflow(context());
      tracker.log(1, { bad: 1 });
      tracker.log(2, { good: 2 });
      await tracker.close("failed");
    });
    expect(stub.requests.at(-1)).toMatchObject({ path: "mlflow/runs/update", body: expect.stringContaining("FAILED") });
    expect(stub.batches().at(-1)?.metrics).toMatchObject([{ key: "good", step: 2, value: 2 }]);
    expect(said).toContainEqual(expect.stringMatching(/warning: mlflow: .*answered 400 .*no bad keys/));
  });

  test.each([
    [{ MLFLOW_TRACKING_TOKEN: "secret" }, "Bearer secret"],
    [{ MLFLOW_TRACKING_USERNAME: "me", MLFLOW_TRACKING_PASSWORD: "p:w" }, `Basic ${btoa("me:p:w")}`],
  ])("%j signs in with %s", async (env, authorization) => {
    await (await openMlflow(context(env))).close("finished");
    expect(new Set(stub.requests.map(({ headers }) => headers.authorization))).toEqual(new Set([authorization]));
  });

  test("a password in the address signs in and is never repeated", async () => {
    stub.answer = () => ({ status: 500, body: "broken" });
    const MLFLOW_TRACKING_URI = `http://me:hush@127.0.0.1:${port}/prefix`;
    const opening = openMlflow(context({ MLFLOW_TRACKING_URI }));
    await expect(opening).rejects.toThrow(/answered 500/);
    await expect(opening).rejects.not.toThrow(/hush/);
    expect(stub.requests[0]?.headers.authorization).toBe(`Basic ${btoa("me:hush")}`);
  });

  test.each([
    ["asks for a password", { status: 401, body: "" }, /answered 401: .*Set MLFLOW_TRACKING_TOKEN/],
    ["is no MLflow server", { status: 200, body: "<html>" }, /is not an answer of an MLflow server/],
    [
      "has deleted the experiment",
      { status: 200, body: { experiment: { experiment_id: "7", lifecycle_stage: "deleted" } } },
      /The MLflow experiment project is deleted\. Restore it with `mlflow experiments restore -x 7`/,
    ],
  ])("a server that %s ends the run before it starts", async (_, answer, message) => {
    stub.answer = () => answer;
    await expect(openMlflow(context())).rejects.toThrow(message);
  });

  test("a server that cannot be reached stops the run before it starts", async () => {
    stub.close();
    await expect(openMlflow(context())).rejects.toThrow(
      /is not reachable \(.*ECONNREFUSED.*\)\. Check MLFLOW_TRACKING_URI/,
    );
  });

  test.each([
    ["", /MLFLOW_TRACKING_URI is not set\. Start a server with `mlflow server`/],
    ["sqlite:////tmp/mlruns.db", /MLFLOW_TRACKING_URI is sqlite:.*only servers at http:/],
    ["127.0.0.1:5000", /MLFLOW_TRACKING_URI is 127\.0\.0\.1:5000/],
  ])("the address %j is refused", async (MLFLOW_TRACKING_URI, message) => {
    await expect(openMlflow(context({ MLFLOW_TRACKING_URI }))).rejects.toThrow(message);
  });
});

describe.skipIf(!python)("a real `mlflow server` (needs Python with mlflow)", () => {
  let server: ChildProcess;
  let address = "";
  let folder = "";

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "track-mlflow-"));
    const options = ["--host", "127.0.0.1", "--port", "0", "--workers", "1"];
    const store = [
      "--backend-store-uri",
      `sqlite:///${folder}/mlflow.db`,
      "--artifacts-destination",
      join(folder, "files"),
    ];
    server = spawn(python!, ["-m", "mlflow", "server", ...options, ...store], {
      cwd: folder,
      detached: true, // it starts workers of its own: all are ended by their group
      env: { ...process.env, MLFLOW_SERVER_ENABLE_JOB_EXECUTION: "false" },
      stdio: ["ignore", "ignore", "pipe"],
    });
    let said = "";
    address = await new Promise<string>((resolve, reject) => {
      server.stderr?.on("data", (chunk) => {
        said += chunk;
        const found = /running on (http:\/\/127\.0\.0\.1:\d+)/.exec(said)?.[1];
        if (found !== undefined) resolve(found);
      });
      server.once("exit", (code) => reject(new Error(`mlflow server ended with ${code}:\n${said}`)));
    });
  });
  afterAll(async () => {
    const ended = new Promise((resolve) => server.once("exit", resolve));
    process.kill(-server.pid!, "SIGTERM");
    await ended;
    await rm(folder, { recursive: true, force: true });
  });

  const ask = async (path: string, body?: unknown) => {
    const headers = { "content-type": "application/json" };
    const init = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
    const response = await fetch(`${address}/api/2.0/${path}`, init);
    expect(response.status, path).toBe(200);
    return JSON.parse(await response.text());
  };
  const runsOf = async (project: string) => {
    const { experiment } = await ask(`mlflow/experiments/get-by-name?experiment_name=${encodeURIComponent(project)}`);
    const { runs } = await ask("mlflow/runs/search", { experiment_ids: [experiment.experiment_id] });
    return runs;
  };
  const context = (project: string, startStep: number | null = null) =>
    trackContext({
      dir: join(folder, "it's here", project),
      project,
      startStep,
      env: { MLFLOW_TRACKING_URI: address },
    });

  test("holds every metric of every step, the config, the samples and the outcome", async () => {
    const tracker = await openMlflow(context("math é/1"));
    for (let step = 1; step <= 30; step++) {
      tracker.log(step, { "val-core/x/acc/mean@1": step / 7, nan: Number.NaN, inf: Number.NEGATIVE_INFINITY });
    }
    tracker.logSamples(30, [{ input: "3+4=?", output: "7 é", score: 1 }]);
    await tracker.close("finished");

    const [stored, ...others] = await runsOf("math é/1");
    expect(others).toEqual([]);
    expect(stored.info).toMatchObject({ status: "FINISHED", run_name: "experiment" });
    expect(stored.data.params).toEqual(
      expect.arrayContaining([
        { key: "trainer/logger/list_len", value: "1" },
        { key: "trainer/logger/0", value: "console" },
        { key: "trainer/lr", value: "0.000001" },
      ]),
    );
    const id = stored.info.run_id;
    const history = async (key: string) => {
      const { metrics } = await ask(`mlflow/metrics/get-history?run_id=${id}&metric_key=${encodeURIComponent(key)}`);
      return metrics.map(({ step, value }: { step: number; value: unknown }) => [step, value]);
    };
    expect(await history("val-core/x/acc/mean_at_1")).toEqual(
      Array.from({ length: 30 }, (_, i) => [i + 1, (i + 1) / 7]),
    );
    expect((await history("nan"))[29]).toEqual([30, "NaN"]);
    expect((await history("inf"))[0][1]).toBeLessThan(-1e308);
    const path = stored.info.artifact_uri.replace("mlflow-artifacts:/", "");
    expect(await ask(`mlflow-artifacts/artifacts/${path}/val_step30.json`)).toEqual([
      { step: 30, input: "3+4=?", output: "7 é", score: 1 },
    ]);
  });

  test("has one run for a run that was interrupted and resumed, and another for one that started over", async () => {
    const names = async () => (await runsOf("again")).map(({ info }: { info: { status: string } }) => info.status);
    const inPlain = (startStep: number | null) => ({ ...context("again", startStep), dir: join(folder, "again") });
    const first = await openMlflow(inPlain(null));
    first.log(1, { a: 1 });
    await first.close("stopped");
    expect(await names()).toEqual(["KILLED"]);
    const second = await openMlflow(inPlain(1));
    expect(await names()).toEqual(["RUNNING"]);
    second.log(2, { a: 2 });
    await second.close("finished");
    expect(await names()).toEqual(["FINISHED"]);
    await (await openMlflow(inPlain(null))).close("failed");
    expect((await names()).sort()).toEqual(["FAILED", "FINISHED"]);
  });
});
