/**
 * MLflow over REST: the project is an experiment, the experiment a run in it; the config becomes its parameters,
 * validation samples become artifacts `val_step{N}.json`.
 *
 * Names and parameters are what verl sends. A resumed run continues the MLflow run of its run folder, which a tag names;
 * steps that are repeated then have two points each, with equal values.
 */
import { resolve } from "node:path";
import { z } from "zod";
import { UserError } from "../util/errors.ts";
import { info, warn } from "../util/log.ts";
import { type Call, MlflowClient } from "./mlflow-client.ts";
import { Outbox } from "./outbox.ts";
import { type Sample, sampleRow } from "./samples.ts";
import type { Outcome, TrackContext, Tracker } from "./tracker.ts";

/** The limits of one `log-batch`, and of the value of a parameter. */
const MAX_METRICS = 1000;
const MAX_PARAMS = 100;
const MAX_PARAM_LENGTH = 6000;

const folderTag = "trainyard.run_folder";
const status: Record<Outcome, string> = { finished: "FINISHED", stopped: "KILLED", failed: "FAILED" };

const Experiment = z.object({ experiment: z.object({ experiment_id: z.string(), lifecycle_stage: z.string() }) });
const Created = z.object({ experiment_id: z.string() });
const RunInfo = z.object({ info: z.object({ run_id: z.string(), artifact_uri: z.string() }) });
const OneRun = z.object({ run: RunInfo });
const Found = z.object({ runs: z.array(RunInfo).default([]) });

export async function openMlflow(context: TrackContext): Promise<Tracker> {
  const client = new MlflowClient(context.env);
  const { run_id: runId, artifact_uri: artifacts } = await openRun(client, context);
  const outbox = new Outbox<Call>({
    name: "mlflow",
    sizeOf: ({ body }) => 2 * (body?.length ?? 0),
    send: (call, signal) => client.send(call, signal),
  });
  const folder = artifactPath(artifacts);
  let hasTold = false;
  info(`mlflow: the run is ${runId} of the experiment ${context.project} at ${client.address}.`);
  return {
    log(step, data) {
      const timestamp = Date.now();
      const metrics = Object.entries(data).map(([name, value]) => ({
        key: metricKey(name),
        value: Number.isFinite(value) ? value : String(value), // protobuf's JSON spells NaN and Infinity as texts
        timestamp,
        step,
      }));
      for (const part of parts(metrics, MAX_METRICS))
        outbox.put(post("runs/log-batch", { run_id: runId, metrics: part }));
    },
    logSamples(step, samples) {
      if (folder !== null) return outbox.put(upload(`${folder}/val_step${step}.json`, step, samples));
      if (!hasTold)
        warn(`mlflow: samples are not sent: the artifacts of this run are at ${artifacts}, not with the server.`);
      hasTold = true;
    },
    async close(outcome) {
      outbox.put(post("runs/update", { run_id: runId, status: status[outcome], end_time: Date.now() }));
      await outbox.close();
    },
  };
}

const post = (call: string, body: unknown): Call => ({
  method: "POST",
  path: `mlflow/${call}`,
  body: JSON.stringify(body),
});

function upload(path: string, step: number, samples: readonly Sample[]): Call {
  const body = JSON.stringify(samples.map((sample) => sampleRow(step, sample)));
  return { method: "PUT", path: `mlflow-artifacts/artifacts/${path}`, body };
}

/** The run that MLFLOW_RUN_ID names, the one of the run folder when it is resumed, or a new one. */
async function openRun(client: MlflowClient, context: TrackContext): Promise<z.infer<typeof RunInfo>["info"]> {
  const { project, experiment, config, dir, startStep, env } = context;
  const given = env.MLFLOW_RUN_ID;
  const experimentId = given ? null : await openExperiment(client, project);
  const earlier = given
    ? await runById(client, given)
    : startStep === null || experimentId === null
      ? null
      : await runOfFolder(client, experimentId, dir);
  if (earlier !== null) {
    await client.mustStart(post("runs/update", { run_id: earlier.run_id, status: "RUNNING" }));
    return earlier;
  }
  const tags = [
    { key: "mlflow.source.name", value: "trainyard" },
    { key: folderTag, value: resolve(dir) },
  ];
  const body = { experiment_id: experimentId, run_name: experiment, start_time: Date.now(), tags };
  const { run } = OneRun.parse(await client.mustStart(post("runs/create", body)));
  for (const params of parts(flatten(config), MAX_PARAMS)) {
    await client.mustStart(post("runs/log-batch", { run_id: run.info.run_id, params }));
  }
  return run.info;
}

async function openExperiment(client: MlflowClient, name: string): Promise<string> {
  const path = `mlflow/experiments/get-by-name?experiment_name=${encodeURIComponent(name)}`;
  const found = await client.start({ method: "GET", path });
  if (found.status === 404) {
    return Created.parse(await client.mustStart(post("experiments/create", { name }))).experiment_id;
  }
  const parsed = Experiment.safeParse(found.body);
  if (!parsed.success) {
    throw new UserError(
      `${client.address} answered ${found.status}: ${found.message}, which is not an answer of an MLflow server. ` +
        "Check MLFLOW_TRACKING_URI.",
    );
  }
  const { experiment_id: id, lifecycle_stage: stage } = parsed.data.experiment;
  if (stage === "active") return id;
  throw new UserError(
    `The MLflow experiment ${name} is ${stage}. Restore it with \`mlflow experiments restore -x ${id}\`, or choose ` +
      "another `trainer.project_name`.",
  );
}

async function runById(client: MlflowClient, id: string): Promise<z.infer<typeof RunInfo>["info"]> {
  const path = `mlflow/runs/get?run_id=${encodeURIComponent(id)}`;
  return OneRun.parse(await client.mustStart({ method: "GET", path })).run.info;
}

async function runOfFolder(client: MlflowClient, experimentId: string, dir: string) {
  const folder = resolve(dir);
  if (folder.includes("'")) return null; // the filter language has no way to write it
  const filter = `tags.\`${folderTag}\` = '${folder}'`;
  const order = ["attributes.start_time DESC"];
  const body = { experiment_ids: [experimentId], filter, order_by: order, max_results: 1 };
  const { runs } = Found.parse(await client.mustStart(post("runs/search", body)));
  return runs[0]?.info ?? null;
}

/** A metric's name in the letters that MLflow allows, as verl writes it: `mean@8` is `mean_at_8`. */
export function metricKey(name: string): string {
  return name
    .replaceAll("@", "_at_")
    .replace(/\/+/g, "/")
    .replace(/[^/\p{L}\p{N}_.\- :]/gu, "_");
}

/** The leaves of the config by their path: `trainer/logger/0`; a list has its length in `list_len`, as in verl. */
function flatten(config: unknown, path: readonly string[] = []): { key: string; value: string }[] {
  if (Array.isArray(config)) {
    return flatten({ list_len: config.length, ...Object.fromEntries(config.entries()) }, path);
  }
  if (typeof config === "object" && config !== null) {
    return Object.entries(config).flatMap(([key, value]) => flatten(value, [...path, key]));
  }
  const value = String(config);
  const shown = value.length > MAX_PARAM_LENGTH ? `${value.slice(0, MAX_PARAM_LENGTH - 1)}…` : value;
  return [{ key: metricKey(path.join("/")), value: shown }];
}

/** Where a run's artifacts are below the server's own store; null when they are somewhere else. */
function artifactPath(uri: string): string | null {
  const match = /^mlflow-artifacts:\/+(?:[^/]*:\d+\/)?(.*)$/.exec(uri);
  return match === null ? null : match[1]!.split("/").map(encodeURIComponent).join("/");
}

function parts<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, i) => items.slice(i * size, (i + 1) * size));
}
