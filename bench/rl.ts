/**
 * How long does a step of GRPO take, and how much memory? Prompts of single-digit addition are sampled, scored and trained
 * on, compared with TRL's GRPOTrainer.
 *
 * Each side is a process of its own, on the same prompts, and they take turns step by step. Where responses may end early,
 * the mean lengths are given beside the times, because the sides sample different responses.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { info } from "../src/util/log.ts";
import { additionRows } from "./addition.ts";
import { ourCommand, peerCommand, pythonOf } from "./commands.ts";
import { type Figure, figure, median, type Quantity } from "./figures.ts";
import { modelFolder, root, smallModel } from "./models.ts";
import type { Report } from "./results.ts";
import { type RlJob, type RlStep, rlStepSchema } from "./rl-job.ts";
import type { BenchOptions } from "./train.ts";
import { type Outcome, type SideSpec, takeTurns } from "./turns.ts";

type Workload = {
  readonly label: string;
  readonly isFull: boolean;
  readonly steps: number;
  readonly ask: (a: number, b: number) => string;
  readonly lr: number;
  /** The aim for the ratio of TRL's time to ours. */
  readonly ratio: number;
};

const workloads: readonly Workload[] = [
  { label: "full length", isFull: true, steps: 5, ask: (a, b) => `What is ${a} + ${b}?`, lr: 1e-5, ratio: 1.6 },
  // A learning rate that changes almost nothing: at 1e-5 the responses of the sides soon differ in length.
  { label: "early end", isFull: false, steps: 7, ask: (a, b) => `What is ${a} + ${b}?`, lr: 1e-9, ratio: 2.2 },
];
const MOST_MEMORY = 0.4;

/** Measure; each figure is handed to `print` as soon as it is known. */
export async function benchRl(options: BenchOptions, print: (figure: Figure) => void): Promise<Report> {
  const shape = smallModel(options);
  const { folder, isRandom } = await modelFolder(shape);
  const notes = [
    `GRPO on ${shape.name}, 8 prompts x 8 samples of up to 64 tokens, one update of 64 sequences without KL, ` +
      `at lr 1e-5 (1e-9 where responses end early, so that the lengths of the two sides stay alike), single-digit addition, in fp32 on ${options.threads} threads.`,
  ];
  const figures: Report["figures"][number][] = [];
  if (isRandom) {
    notes.push("Left out: the checkpoint is not there, and random weights have no tokenizer.");
    return { figures, notes, versions: {}, isComplete: false };
  }
  const versions: Record<string, string> = {};
  let isComplete = true;
  for (const workload of workloads) {
    const outcomes = await measure(workload, folder, options);
    for (const { versions: own } of outcomes) Object.assign(versions, own);
    isComplete &&= outcomes.every(({ failure }) => failure === null);
    notes.push(lengthNote(workload, outcomes));
    for (const made of compare(workload, outcomes)) {
      print(made);
      figures.push({ figure: made, remark: remarkOn(workload, made) });
    }
  }
  return { figures, notes, versions, isComplete };
}

async function measure(workload: Workload, folder: string, options: BenchOptions): Promise<Outcome<RlStep>[]> {
  const { label, isFull, ask, lr } = workload;
  const steps = options.steps ?? workload.steps;
  const data = join(root, ".cache", "bench", `addition ${label}.jsonl`);
  mkdirSync(join(root, ".cache", "bench"), { recursive: true });
  writeFileSync(
    data,
    additionRows(ask)
      .map((row) => `${JSON.stringify(row)}\n`)
      .join(""),
  );
  const [prompts, newTokens] = options.isSmoke ? [2, 8] : [8, 64];
  const size = { prompts, samples: 8, newTokens, lr, steps: steps + 2 };
  const job: RlJob = { folder, threads: options.threads, data, isFull, ...size };
  const entrants: SideSpec[] = [{ name: "ours", command: ourCommand("rl-worker.ts"), job }];
  if (options.hasPeers) entrants.push({ name: "trl", command: peerCommand(pythonOf("trl"), "rl_trl.py"), job });
  const turns = { warmUp: 1, rounds: steps, seconds: 4 * options.seconds, isTogether: true };
  info(`${label}: ${entrants.map(({ name }) => name).join(", ")} …`);
  return await takeTurns(entrants, rlStepSchema, turns, (round, answers) => {
    const described = answers.map((step) =>
      step ? `${step.seconds.toFixed(2)} s (${step.meanLength.toFixed(1)} tokens)` : "-",
    );
    info(`${label}: step ${round} of ${steps}: ${described.join(", ")}`);
  });
}

const timed = ({ answers }: Outcome<RlStep>): readonly RlStep[] => answers.slice(1);
const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

function lengthNote({ label }: Workload, outcomes: readonly Outcome<RlStep>[]): string {
  const described = outcomes.map(
    (outcome) => `${outcome.name} ${mean(timed(outcome).map((s) => s.meanLength)).toFixed(1)}`,
  );
  return `${label}: tokens per response: ${described.join(", ")}.`;
}

function compare({ label }: Workload, outcomes: readonly Outcome<RlStep>[]): Figure[] {
  const [ours, peer] = outcomes;
  if (ours?.failure !== null) throw new Error(ours?.failure ?? "our side did not start");
  if (peer !== undefined && peer.failure !== null) info(peer.failure);
  const quantities = (outcome: Outcome<RlStep>): (Quantity & { value: number })[] => {
    const seconds = timed(outcome).map((step) => step.seconds);
    const tokens = 64 * mean(timed(outcome).map((step) => step.meanLength));
    const bytes = Math.max(...outcome.answers.map((step) => step.peakBytes));
    return [
      { what: `step time ${label} rl (best)`, unit: "s", isMore: false, value: Math.min(...seconds) },
      { what: `step time ${label} rl (median)`, unit: "s", isMore: false, value: median(seconds) },
      {
        what: `tokens/s ${label} rl (sampled and learnt)`,
        unit: "tokens/s",
        isMore: true,
        value: tokens / mean(seconds),
      },
      { what: `peak memory ${label} rl`, unit: "MB", isMore: false, value: bytes / 1e6 },
    ];
  };
  const theirs = peer === undefined || peer.failure !== null ? null : quantities(peer);
  const compared = quantities(ours).map(({ value, ...quantity }, i) =>
    figure("rl", quantity, value, theirs === null ? null : { name: peer!.name, value: theirs[i]!.value }),
  );
  return [...compared, ...splitFigures(label, timed(ours))];
}

/** Where the time of a step goes. */
function splitFigures(label: string, steps: readonly RlStep[]): Figure[] {
  const alone = (what: string, value: number) => figure("rl", { what, unit: "%", isMore: false }, value, null);
  const seconds = (name: string) => mean(steps.map(({ split = {} }) => split[`timing_s/${name}`] ?? 0));
  const whole = mean(steps.map((step) => step.seconds));
  const [sampling, update] = [seconds("gen"), seconds("update_actor")];
  const share = (name: string, part: number) => alone(`share of a step ${label}: ${name}`, (100 * part) / whole);
  return [
    share("sampling and rewards", sampling),
    share("update", update),
    share("the rest (the sampler's check, advantages, metrics)", whole - sampling - update),
    alone(
      `share of the update's matrix products that is useful, ${label}`,
      100 * mean(steps.map(({ usefulShare = 0 }) => usefulShare)),
    ),
  ];
}

function remarkOn({ ratio: aim }: Workload, { what, ratio }: Figure): string {
  if (ratio === null) return "";
  if (what.startsWith("step time")) return ratio >= aim ? `at least ${aim}: met` : `below the aim of ${aim}`;
  if (!what.startsWith("peak memory")) return "";
  const share = (1 / ratio).toFixed(2);
  return `${share} of theirs, ${1 / ratio <= MOST_MEMORY ? `at most ${MOST_MEMORY}: met` : `above the aim of ${MOST_MEMORY}`}`;
}
