/**
 * How many workers can one controller drive? Calls to 1, 2, 4 and 8 workers and steps on 1 and 2 are measured here, a line and a
 * spread are fitted to them, and steps on up to 1,000 workers are simulated (`scale-model.ts`). With --peers the page
 * docs/scale.md is written.
 */
import { join } from "node:path";
import { writeFileAtomic } from "../src/util/files.ts";
import { info } from "../src/util/log.ts";
import { Random } from "../src/util/random.ts";
import { pythonOf, sourceCommand } from "./commands.ts";
import { type Figure, figure, median, rounded } from "./figures.ts";
import { type ModelShape, modelFolder, root, smallModel } from "./models.ts";
import { callTimesSchema, type RayJob } from "./ray-job.ts";
import { machine, type Report } from "./results.ts";
import { fitCalls, type Measured, type Network, type Simulated, simulate } from "./scale-model.ts";
import { Side } from "./side.ts";
import type { BenchOptions } from "./train.ts";
import { optimizer, type Step, stepSchema } from "./train-job.ts";

const perWorker = { rows: 32, time: 96, microRows: 16 };
const scales = [1, 2, 8, 64, 256, 1000];
const network: Network = { bytesPerSecond: 12.5e9, latency: 20e-6 };

/** Measure, fit and simulate; each figure is handed to `print` as soon as it is known. */
export async function benchScale(options: BenchOptions, print: (figure: Figure) => void): Promise<Report> {
  const shape = smallModel(options);
  const job = jobFor(shape, (await modelFolder(shape)).folder, pythonOf("torch"));
  const calls: { workers: number; seconds: number }[] = [];
  for (const workers of options.isSmoke ? [1, 2] : [1, 2, 4, 8]) {
    info(`Calls to ${workers} …`);
    const { milliseconds } = await ask("ray-calls.ts", job(workers), async (side) =>
      side.ask("calls", callTimesSchema),
    );
    calls.push({ workers, seconds: median(milliseconds) / 1000 });
  }
  const steps = new Map<number, number[]>();
  for (const workers of [1, 2]) {
    info(`Steps on ${workers} …`);
    steps.set(workers, await stepsOn(job(workers), options.steps ?? 8));
  }
  const alone = steps.get(1) ?? [];
  const measured: Measured = {
    calls,
    step: median(alone),
    spread: spreadOf(alone),
    rounds: perWorker.rows / perWorker.microRows,
    parameters: 26e6,
    layers: Number(shape.config.num_hidden_layers),
  };
  const simulated = scales.map((workers) => simulate(measured, workers, network));
  const both = median(steps.get(2) ?? []);
  if (options.hasPeers) await writeFileAtomic(join(root, "docs", "scale.md"), page(shape, measured, both, simulated));

  const alike = (what: string, unit: string, value: number) =>
    figure("scale", { what, unit, isMore: false }, value, null);
  const figures = [
    ...calls.map(({ workers, seconds }) => alike(`a call to ${workers} (median)`, "ms", 1000 * seconds)),
    alike("step on 1 worker (median)", "s", measured.step),
    alike("step on 2 workers (median)", "s", both),
    ...simulated.map(({ workers, seconds }) => alike(`simulated step on ${workers}`, "s", seconds)),
  ];
  for (const made of figures) print(made);
  const versions = { node: process.versions.node };
  const notes = ["docs/scale.md says what is measured here, what is simulated, and what is assumed."];
  return { figures: figures.map((made) => ({ figure: made, remark: "" })), notes, versions, isComplete: true };
}

/** A job for a number of workers, each with the same number of sequences. */
function jobFor(shape: ModelShape, folder: string, python: string): (workers: number) => RayJob {
  const vocabulary = Number(shape.config.vocab_size);
  const { rows: count, time, microRows } = perWorker;
  return (workers) => {
    const random = new Random(0, "tokens");
    const rows = Array.from({ length: workers * count }, () =>
      Array.from({ length: time }, () => random.int(vocabulary)),
    );
    return { folder, python, rows, optimizer, microRows, workers };
  };
}

async function ask<T>(file: string, job: RayJob, work: (side: Side) => Promise<T>): Promise<T> {
  const side = await Side.start(file, sourceCommand(file), job);
  try {
    return await work(side);
  } finally {
    await side.stop();
  }
}

async function stepsOn(job: RayJob, count: number): Promise<number[]> {
  const taken = await ask("ray-worker.ts", job, async (side) => {
    const answers: Step[] = [];
    for (let i = 0; i <= count; i++) answers.push(await side.ask("step", stepSchema));
    return answers;
  });
  return taken.slice(1).map(({ seconds }) => seconds);
}

/** The standard deviation of the logarithms. */
function spreadOf(values: readonly number[]): number {
  const logs = values.map(Math.log);
  const mean = logs.reduce((a, b) => a + b, 0) / logs.length;
  return Math.sqrt(logs.reduce((sum, it) => sum + (it - mean) ** 2, 0) / (logs.length - 1));
}

function page(shape: ModelShape, measured: Measured, both: number, simulated: readonly Simulated[]): string {
  const { calls, step, spread, rounds } = measured;
  const { fixed, each } = fitCalls(calls);
  const ms = (seconds: number) => rounded(1000 * seconds, 2);
  const percent = (part: number, whole: number) => `${((100 * part) / whole).toFixed(1)} %`;
  const rows = simulated.map(({ workers, seconds, parts }) =>
    [
      workers,
      rounded(seconds, 3),
      percent(parts.work, seconds),
      percent(parts.waiting, seconds),
      percent(parts.exchange, seconds),
      percent(parts.calls, seconds),
    ].join(" | "),
  );
  return `# How many workers one controller can run

One process controls all workers and contacts each of them in every call. This page shows the measured cost on few workers and the simulated cost on many. \`npm run bench scale -- --peers\` measures, simulates and writes this page.

## Measured

On ${machine()}; ${shape.name} (26 million parameters), ${perWorker.rows} sequences of ${perWorker.time} tokens per worker in ${rounds} rounds, workers of one thread each.

| workers | a call that does nothing |
| --- | --- |
${calls.map(({ workers, seconds }) => `| ${workers} | ${ms(seconds)} ms |`).join("\n")}

The line through them is ${ms(fixed)} ms and ${ms(each)} ms for each worker. A call carries the token ids, positions and targets of [64 x 128] tokens, divided among the workers. In this measurement workers share processors when there are more workers than processors, so the second number is probably too high.

A step takes ${rounded(step, 3)} s on one worker and ${rounded(both, 3)} s on two, which have one processor each and share the memory. Single steps on one worker differ by ${percent(spread, 1)} (the standard deviation of their logarithms). The simulation has ${rounded(simulated[1]!.seconds, 3)} s for two. The difference comes from two processes that share one machine, mostly its memory, and is not part of the simulation for more machines.

## Simulated

Every worker has the same number of sequences, so a step without overhead would take ${rounded(step, 3)} s on any number of workers.

| workers | a step, s | work | waiting for the slowest | exchange | controller |
| --- | --- | --- | --- | --- | --- |
${rows.map((row) => `| ${row} |`).join("\n")}

## Assumed

- The time of a call follows the line above, up to 1,000 workers; a step has two calls for each round and one for the optimizer.
- The times of workers vary independently in each round, as much as steps of one worker vary here. Machines that are always slow would be worse; they are not simulated.
- The network transfers ${network.bytesPerSecond / 1e9} GB/s for each worker with ${1e6 * network.latency} µs for each stage. In each round, parameters are gathered twice and gradients are summed once, in a ring, with 4 bytes each. Nothing is computed during this exchange.
- Nothing fails. If a worker is lost, its group ends and the run resumes from its last checkpoint ([cluster.md](cluster.md)), so more machines need more frequent checkpoints.
- Sampling is not simulated: workers sample independently and wait only for the last one to finish. Its share of a step depends on the lengths of responses.

Only the first table and the steps on one and two workers were measured. A step of a larger model takes longer, but calls take the same time, so the controller's share is smaller.
`;
}
