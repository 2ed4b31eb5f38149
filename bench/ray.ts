/**
 * What does the Ray engine cost? It measures a training step on two workers of one thread each, compared with the same
 * loop as a plain torch script (FSDP2 over gloo, two processes, no Ray and no controller); a call that carries tensors and
 * does nothing; and, with --peers, the time to send new weights to vLLM.
 *
 * The two sides take turns step by step, and figures are given only if losses and gradient norms agree.
 */
import type { ZodType } from "zod";
import { info } from "../src/util/log.ts";
import { Random } from "../src/util/random.ts";
import { peerCommand, pythonOf, sourceCommand } from "./commands.ts";
import { type Figure, figure, median } from "./figures.ts";
import { modelFolder, smallModel } from "./models.ts";
import { type CallTimes, callTimesSchema, type HandoverTimes, handoverTimesSchema, type RayJob } from "./ray-job.ts";
import type { Report } from "./results.ts";
import { Side } from "./side.ts";
import type { BenchOptions } from "./train.ts";
import { compare } from "./train-figures.ts";
import { optimizer, stepSchema } from "./train-job.ts";
import { takeTurns } from "./turns.ts";

const warmUp = 1;
/** The aims: a step relative to the plain script's, a call in milliseconds, a transfer of weights in seconds. */
const aims = { step: 1.05, callMs: 5, handover: 2 };

/** Measure; each figure is handed to `print` as soon as it is known. */
export async function benchRay(options: BenchOptions, print: (figure: Figure) => void): Promise<Report> {
  const shape = smallModel(options);
  const size = options.isSmoke ? { rows: 4, time: 32, microRows: 2 } : { rows: 64, time: 96, microRows: 16 };
  const label = `${shape.name} ${size.rows}x${size.time} ray`;
  const { folder } = await modelFolder(shape);
  const python = pythonOf("torch");
  const random = new Random(0, "tokens");
  const vocabulary = Number(shape.config.vocab_size);
  const rows = Array.from({ length: size.rows }, () => Array.from({ length: size.time }, () => random.int(vocabulary)));
  const job: RayJob = { folder, python, rows, optimizer, microRows: size.microRows, workers: 2 };
  const notes = [
    `A step of ${size.rows} sequences of ${size.time} tokens in fp32 on two workers of one thread each, ` +
      `${size.microRows} sequences at a time on each; gradients are summed after every pass on both sides.`,
    "A call carries token ids, positions and targets of [64 x 128], a half to each worker, and an empty answer back.",
  ];
  const say = (note: string) => {
    info(note);
    notes.push(note);
  };
  const figures: Report["figures"][number][] = [];
  const add = (made: Figure, remark: string) => {
    print(made);
    figures.push({ figure: made, remark });
  };
  for (const made of callFigures(await answerOf("ray-calls.ts", job, callTimesSchema)))
    add(made, underAim(made, aims.callMs));
  if (options.hasPeers) {
    const handover = { ...job, vllmPython: pythonOf("vllm") };
    say(
      "New weights: after an optimizer step on two workers they are gathered, sent to vLLM on the CPU over gloo and loaded by it, " +
        "and it draws a token; 10 times.",
    );
    const times = await answerOf("ray-handover.ts", handover, handoverTimesSchema);
    for (const made of handoverFigures(times)) add(made, underAim(made, aims.handover));
  }

  const entrants = [{ name: "ours", command: sourceCommand("ray-worker.ts"), job }];
  if (options.hasPeers) entrants.push({ name: "torch-fsdp2", command: peerCommand(python, "ray_fsdp2.py"), job });
  const turns = { warmUp, rounds: options.steps ?? 8, seconds: options.seconds, isTogether: true };
  info(`${label}: ${entrants.map(({ name }) => name).join(", ")} …`);
  const outcomes = await takeTurns(entrants, stepSchema, turns, (round, steps) => {
    info(`${label}: step ${round}: ${steps.map((step) => (step ? `${step.seconds.toFixed(3)} s` : "-")).join(", ")}`);
  });
  const measured = { bench: "ray", label, tokens: size.rows * size.time, warmUp };
  const versions = Object.assign({}, ...outcomes.map((outcome) => outcome.versions));
  for (const made of compare(measured, outcomes, say)) {
    if (!made.what.startsWith("peak memory")) add(made, remarkOn(made)); // the memory of the controller alone means nothing
  }
  return { figures, notes, versions, isComplete: outcomes.every(({ failure }) => failure === null) };
}

/** Start a side, ask it one thing, and stop it. */
async function answerOf<T>(file: string, job: RayJob, schema: ZodType<T>): Promise<T> {
  const side = await Side.start(file, sourceCommand(file), job);
  try {
    return await side.ask("measure", schema);
  } finally {
    await side.stop();
  }
}

function callFigures({ milliseconds }: CallTimes): Figure[] {
  const sorted = milliseconds.toSorted((a, b) => a - b);
  const alone = (what: string, value: number) =>
    figure("ray", { what: `a call to 2 workers (${what})`, unit: "ms", isMore: false }, value, null);
  return [alone("median", median(sorted)), alone("95 %", sorted[Math.floor(0.95 * sorted.length)]!)];
}

function handoverFigures({ seconds }: HandoverTimes): Figure[] {
  const alone = (what: string, value: number) =>
    figure("ray", { what: `new weights in vLLM, 26 M parameters (${what})`, unit: "s", isMore: false }, value, null);
  return [alone("best", Math.min(...seconds)), alone("median", median(seconds)), alone("worst", Math.max(...seconds))];
}

const underAim = ({ ours, unit }: Figure, aim: number): string =>
  ours < aim ? `under ${aim} ${unit}: met` : `above the aim of ${aim} ${unit}`;

function remarkOn({ what, ratio }: Figure): string {
  if (ratio === null || !what.startsWith("step time")) return "";
  const percent = 100 * (1 / ratio - 1);
  const over = `${Math.abs(percent).toFixed(1)} % ${percent < 0 ? "under" : "over"}`;
  return 1 / ratio <= aims.step ? `${over}, at most 5 over: met` : `${over}, above the aim of 5`;
}
