/**
 * How fast is a training step, and how much memory does it take? Forward, backward, clip and AdamW in fp32 on a CPU,
 * compared with Hugging Face transformers on torch, eager and compiled.
 *
 * Each side is a process of its own, on the same weights and tokens, and they take turns step by step. Figures are given
 * only if losses and gradient norms agree at every step.
 */
import { info } from "../src/util/log.ts";
import { Random } from "../src/util/random.ts";
import { ourCommand, peerCommand, pythonOf } from "./commands.ts";
import type { Figure } from "./figures.ts";
import { type ModelShape, modelFolder, qwen05b, smallModel } from "./models.ts";
import type { Report } from "./results.ts";
import { Side } from "./side.ts";
import { compare, remarkOn, shareFigures } from "./train-figures.ts";
import { optimizer, type Shares, type Step, sharesSchema, stepSchema, type TrainJob } from "./train-job.ts";
import { type Outcome, takeTurns } from "./turns.ts";

export type BenchOptions = {
  readonly hasPeers: boolean;
  readonly isLarge: boolean;
  /** Two rounds on a tiny model, to see that the bench runs. */
  readonly isSmoke: boolean;
  readonly threads: number;
  /** Timed steps of each side; null: each workload has its own number. */
  readonly steps: number | null;
  /** No further round begins after this many seconds of timed steps of a workload. */
  readonly seconds: number;
};

type PeerName = "torch-eager" | "torch-compile";
type Workload = {
  readonly shape: ModelShape;
  readonly rows: number;
  readonly time: number;
  readonly peers: readonly PeerName[];
  readonly warmUp: number;
  readonly steps: number;
  /** The memory of one side, which must be free before it starts. */
  readonly sideBytes: number;
  readonly neededBytes: number;
};

const small = ({ isSmoke }: BenchOptions): Workload => ({
  shape: smallModel({ isSmoke }),
  rows: isSmoke ? 2 : 8,
  time: isSmoke ? 32 : 256,
  peers: ["torch-eager", "torch-compile"],
  warmUp: 2,
  steps: 10,
  sideBytes: 2.5e9,
  neededBytes: isSmoke ? 0 : 4e9,
});
const large: Workload = {
  shape: qwen05b,
  rows: 2,
  time: 256,
  peers: ["torch-eager"],
  warmUp: 1,
  steps: 3,
  sideBytes: 11.5e9,
  neededBytes: 16e9,
};

/** Measure; each figure is handed to `print` as soon as it is known. */
export async function benchTrain(options: BenchOptions, print: (figure: Figure) => void): Promise<Report> {
  const figures: Report["figures"][number][] = [];
  const notes = [
    `One step is forward, backward, clipping at norm 1 and AdamW, in fp32 on ${options.threads} threads.`,
    "tokens/s counts every token of the batch; peak memory is the most that a process had in use from its start on.",
  ];
  const say = (note: string) => {
    info(note);
    notes.push(note);
  };
  const versions: Record<string, string> = {};
  let isComplete = true;
  for (const workload of options.isLarge ? [small(options), large] : [small(options)]) {
    const label = labelOf(workload);
    const free = process.availableMemory();
    if (free < workload.neededBytes) {
      say(
        `${label} was left out: ${gigabytes(free)} of memory are free, ${gigabytes(workload.neededBytes)} are needed.`,
      );
      continue;
    }
    const { folder, isRandom } = await modelFolder(workload.shape);
    if (isRandom) notes.push(`${label}: random weights of that shape.`);
    const job = { folder, threads: options.threads, rows: tokensOf(workload), optimizer, compile: false };
    const outcomes = await measure(workload, job, options, say);
    for (const outcome of outcomes) Object.assign(versions, outcome.versions);
    isComplete &&= outcomes.every(({ failure }) => failure === null);
    const made = compare(
      { bench: "train", label, tokens: workload.rows * workload.time, warmUp: workload.warmUp },
      outcomes,
      say,
    );
    if (workload !== large) made.push(...shareFigures(await sharesOf(job), say));
    for (const figure of made) {
      print(figure);
      figures.push({ figure, remark: remarkOn(figure) });
    }
  }
  return { figures, notes, versions, isComplete };
}

function labelOf({ shape, rows, time }: Workload): string {
  return `${shape.name} ${rows}x${time} train`;
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(1)} GB`;
}

function tokensOf({ rows, time, shape }: Workload): number[][] {
  const random = new Random(0, "tokens");
  const vocabulary = Number(shape.config.vocab_size);
  return Array.from({ length: rows }, () => Array.from({ length: time }, () => random.int(vocabulary)));
}

/** All steps of all sides, ours first. */
async function measure(
  workload: Workload,
  job: TrainJob,
  options: BenchOptions,
  say: (note: string) => void,
): Promise<Outcome<Step>[]> {
  const label = labelOf(workload);
  const peers = options.hasPeers ? workload.peers : [];
  const python = peers.length > 0 ? pythonOf("torch") : "";
  const entrants = [
    { name: "ours", command: ourCommand("train-worker.ts"), job },
    ...peers.map((name) => ({
      name,
      command: peerCommand(python, "train_torch.py"),
      job: { ...job, compile: name === "torch-compile" },
    })),
  ];
  const isTogether = process.availableMemory() > entrants.length * workload.sideBytes;
  if (!isTogether && peers.length > 0) {
    say(`${label}: the sides ran one after the other, because they do not fit into the memory together.`);
  }
  info(`${label}: ${entrants.map(({ name }) => name).join(", ")} …`);
  const rounds = options.steps ?? workload.steps;
  const turns = { warmUp: workload.warmUp, rounds, seconds: options.seconds, isTogether };
  return takeTurns(entrants, stepSchema, turns, (round, steps) => {
    const phase = round < workload.warmUp ? "warm-up" : `step ${round - workload.warmUp + 1} of ${rounds}`;
    info(`${label}: ${phase}: ${steps.map((step) => (step ? `${step.seconds.toFixed(3)} s` : "-")).join(", ")}`);
  });
}

/** Where the time of our own step goes, in a process that has the machine to itself. */
async function sharesOf(job: TrainJob): Promise<Shares> {
  info("Where the time of our step goes …");
  const side = await Side.start("shares", ourCommand("train-shares.ts"), job);
  try {
    return await side.ask("shares", sharesSchema);
  } finally {
    await side.stop();
  }
}
