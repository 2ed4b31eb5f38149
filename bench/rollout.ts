/**
 * How fast are tokens sampled, and in how much memory? Prompts of 32 tokens are continued by 64 each, at temperature 1
 * with log-probs, prompts included in the time, compared with llama.cpp's batched decoding and Hugging Face's `generate`.
 *
 * Each side is a process of its own and they take turns round by round. The samples of a side are scored by our forward
 * pass: a side whose log-probs are not those of the model is not compared.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { info } from "../src/util/log.ts";
import { Random } from "../src/util/random.ts";
import { ourCommand, peerCommand, pythonOf } from "./commands.ts";
import { type Figure, figure, median, type Quantity } from "./figures.ts";
import { type ModelShape, minimind2Small, modelFolder, qwen05b, root, smallModel } from "./models.ts";
import type { Report } from "./results.ts";
import { type RolloutJob, type Round, roundSchema, type Split, scoreSchema, splitSchema } from "./rollout-job.ts";
import { Side } from "./side.ts";
import type { BenchOptions } from "./train.ts";
import { type Outcome, type SideSpec, takeTurns } from "./turns.ts";

type Peer = "llama.cpp-f32" | "llama.cpp-q8_0" | "hf-generate";
type Workload = {
  readonly shape: ModelShape;
  readonly rows: number;
  readonly peers: readonly Peer[];
  readonly rounds: number;
  readonly newTokens: number;
  readonly neededBytes: number;
};

const all: readonly Peer[] = ["llama.cpp-f32", "llama.cpp-q8_0", "hf-generate"];
function smallWorkloads({ isSmoke }: BenchOptions): [Workload, ...Workload[]] {
  const shape = smallModel({ isSmoke });
  if (isSmoke) return [{ shape, rows: 4, peers: [], rounds: 1, newTokens: 8, neededBytes: 0 }];
  return [
    { shape, rows: 32, peers: all, rounds: 7, newTokens: 64, neededBytes: 4e9 },
    { shape, rows: 128, peers: all, rounds: 5, newTokens: 64, neededBytes: 5e9 },
  ];
}
const large: Workload = {
  shape: qwen05b,
  rows: 32,
  peers: ["hf-generate"],
  rounds: 2,
  newTokens: 16,
  neededBytes: 12e9,
};

const PROMPT_TOKENS = 32;

/** Measure; each figure is handed to `print` as soon as it is known. */
export async function benchRollout(options: BenchOptions, print: (figure: Figure) => void): Promise<Report> {
  const figures: Report["figures"][number][] = [];
  const notes = [
    `Prompts of ${PROMPT_TOKENS} random tokens, in fp32 on ${options.threads} threads, at temperature 1 with log-probs; the time includes reading the prompts.`,
    "tokens/s counts the tokens drawn. The random numbers of llama.cpp's side are drawn before its clock starts.",
  ];
  const say = (note: string) => {
    info(note);
    notes.push(note);
  };
  const versions: Record<string, string> = {};
  let isComplete = true;
  const small = smallWorkloads(options);
  for (const workload of options.isLarge ? [...small, large] : small) {
    const label = `${workload.shape.name} batch ${workload.rows}`;
    if (process.availableMemory() < workload.neededBytes) {
      say(`${label} was left out: too little memory is free.`);
      continue;
    }
    const { folder, isRandom } = await modelFolder(workload.shape);
    if (isRandom) notes.push(`${label}: random weights of that shape.`);
    const outcomes = await measure(workload, jobOf(workload, folder, options.threads), options);
    for (const { versions: own } of outcomes) Object.assign(versions, own);
    isComplete &&= outcomes.every(({ failure }) => failure === null);
    for (const made of compare(workload, outcomes, say)) {
      print(made);
      figures.push({ figure: made, remark: remarkOn(made) });
    }
  }
  const { folder } = await modelFolder(small[0].shape);
  const split = await splitOf(jobOf(small[0], folder, options.threads));
  for (const made of splitFigures(split)) {
    print(made);
    figures.push({ figure: made, remark: "" });
  }
  return { figures, notes, versions, isComplete };
}

function jobOf({ shape, rows, newTokens }: Workload, folder: string, threads: number): RolloutJob {
  const random = new Random(0, "prompts");
  const vocabulary = Number(shape.config.vocab_size);
  const prompts = Array.from({ length: rows }, () =>
    Array.from({ length: PROMPT_TOKENS }, () => random.int(vocabulary)),
  );
  return { folder, file: null, threads, prompts, newTokens };
}

async function measure(workload: Workload, job: RolloutJob, options: BenchOptions): Promise<Outcome<Round>[]> {
  const { shape, rows, peers } = workload;
  const label = `${shape.name} batch ${rows}`;
  const entrants: SideSpec[] = [{ name: "ours", command: ourCommand("rollout-worker.ts"), job }];
  if (options.hasPeers) for (const peer of peers) entrants.push(entrantOf(peer, job));
  const rounds = options.steps ?? workload.rounds;
  const turns = { warmUp: 1, rounds, seconds: options.seconds, isTogether: true };
  info(`${label}: ${entrants.map(({ name }) => name).join(", ")} …`);
  const outcomes = await takeTurns(entrants, roundSchema, turns, (round, answers) => {
    const rates = answers.map((answer) => (answer ? `${((rows * job.newTokens) / answer.seconds).toFixed(0)}` : "-"));
    info(`${label}: round ${round} of ${rounds}: ${rates.join(", ")} tokens/s`);
  });
  return await checked(outcomes, job);
}

function entrantOf(peer: Peer, job: RolloutJob): SideSpec {
  if (peer === "hf-generate") return { name: peer, command: peerCommand(pythonOf("torch"), "rollout_hf.py"), job };
  const kind = peer === "llama.cpp-f32" ? "f32" : "q8_0";
  const python = pythonOf("llama");
  const folder = join(root, ".cache", "bench");
  const file = join(folder, `${minimind2Small.name}-${kind}.gguf`);
  if (!existsSync(file)) {
    mkdirSync(folder, { recursive: true });
    const made = spawnSync(python, [join(import.meta.dirname, "peers", "make_gguf.py"), job.folder, file, kind]);
    if (made.status !== 0) throw new Error(`The GGUF file could not be made: ${made.stderr}`);
  }
  return { name: peer, command: peerCommand(python, "rollout_llama.py"), job: { ...job, file } };
}

/** The largest mean difference between a side's log-probs and our forward pass; Q8_0 rounds the weights. */
const tolerances: Record<string, number> = { "llama.cpp-q8_0": 0.5 };

/** A side whose log-probs are not those of the model has failed. */
async function checked(outcomes: readonly Outcome<Round>[], job: RolloutJob): Promise<Outcome<Round>[]> {
  const judge = await Side.start("judge", ourCommand("rollout-worker.ts"), job);
  try {
    const results: Outcome<Round>[] = [];
    for (const outcome of outcomes) {
      const last = outcome.answers.at(-1);
      if (outcome.failure !== null || last === undefined) {
        results.push(outcome);
        continue;
      }
      const { logprobs } = await judge.ask(JSON.stringify({ ids: last.ids }), scoreSchema);
      const gap = logprobs.reduce((sum, p, i) => sum + Math.abs(p - last.logprobs[i]!), 0) / logprobs.length;
      info(`${outcome.name}: its log-probs are ${gap.toExponential(1)} from the model's, on average.`);
      const isRight = gap <= (tolerances[outcome.name] ?? 1e-3);
      results.push(isRight ? outcome : { ...outcome, failure: `its log-probs are ${gap} from the model's` });
    }
    return results;
  } finally {
    await judge.stop();
  }
}

function compare(workload: Workload, outcomes: readonly Outcome<Round>[], say: (note: string) => void): Figure[] {
  const label = `${workload.shape.name} batch ${workload.rows} rollout`;
  for (const { name, failure } of outcomes) {
    if (failure === null) continue;
    if (name === "ours") throw new Error(failure);
    info(failure);
    say(`${label}: ${name} could not be measured.`);
  }
  const quantities = ({ answers }: Outcome<Round>): (Quantity & { value: number })[] => {
    const seconds = answers.slice(1).map((round) => round.seconds);
    const tokens = workload.rows * workload.newTokens;
    return [
      { what: `tokens/s ${label} (best)`, unit: "tokens/s", isMore: true, value: tokens / Math.min(...seconds) },
      { what: `tokens/s ${label} (median)`, unit: "tokens/s", isMore: true, value: tokens / median(seconds) },
      {
        what: `peak memory ${label}`,
        unit: "MB",
        isMore: false,
        value: Math.max(...answers.map((a) => a.peakBytes)) / 1e6,
      },
    ];
  };
  const [ours, ...peers] = outcomes.filter(({ failure }) => failure === null);
  const mine = quantities(ours!);
  const most = Math.max(...ours!.answers.map(({ peakBytes, heldBytes = 0 }) => peakBytes - heldBytes));
  const beyond = { what: `peak memory beyond weights and cache ${label}`, unit: "MB", isMore: false };
  const alone = [figure("rollout", beyond, most / 1e6, null)];
  if (peers.length === 0)
    return [...mine.map(({ value, ...quantity }) => figure("rollout", quantity, value, null)), ...alone];
  const compared = peers.flatMap((peer) => {
    const theirs = quantities(peer);
    return mine.map(({ value, ...quantity }, i) =>
      figure("rollout", quantity, value, { name: peer.name, value: theirs[i]!.value }),
    );
  });
  return [...compared, ...alone];
}

/** Where our own time goes, in a process that has the machine to itself. */
async function splitOf(job: RolloutJob): Promise<Split> {
  info("Where the time of our decoding goes …");
  const side = await Side.start("split", ourCommand("rollout-split.ts"), job);
  try {
    return await side.ask("split", splitSchema);
  } finally {
    await side.stop();
  }
}

function splitFigures(split: Split): Figure[] {
  const alone = (what: string, unit: string, value: number) =>
    figure("rollout", { what, unit, isMore: false }, value, null);
  const share = (what: string, seconds: number) =>
    alone(`share of a round: ${what}`, "%", (100 * seconds) / split.round);
  const { group, contexts } = split;
  const rest =
    split.round - split.products - split.attention - split.otherOperations - split.cacheMoves - split.drawing;
  return [
    share("matrix products", split.products),
    share("attention", split.attention),
    share("other operations", split.otherOperations),
    share("cache moves", split.cacheMoves),
    share("drawing tokens", split.drawing),
    share("planning", split.scheduling),
    share("calls, arrays and other JavaScript", rest - split.scheduling),
    alone(
      "step time of 8 samples of a 256-token prompt to their first token, over that of one",
      "times",
      group.eight / group.one,
    ),
    ...contexts.map(({ length, seconds }) => alone(`step time batch 8 at context ${length}`, "ms", seconds * 1000)),
  ];
}

const aims: readonly { readonly what: RegExp; readonly peer: Peer; readonly ratio: number }[] = [
  { what: /^tokens\/s minimind2-small batch 32 /, peer: "llama.cpp-f32", ratio: 1.25 },
  { what: /^tokens\/s minimind2-small batch 128 /, peer: "llama.cpp-f32", ratio: 1.4 },
  { what: /^tokens\/s minimind2-small /, peer: "llama.cpp-q8_0", ratio: 1 },
  { what: /^tokens\/s minimind2-small /, peer: "hf-generate", ratio: 1.8 },
  { what: /^tokens\/s qwen2\.5-0\.5b /, peer: "hf-generate", ratio: 1 },
];

/** Whether a figure reaches its aim, in words; empty where there is no aim. */
function remarkOn({ what, peer, ratio }: Figure): string {
  const aim = aims.find((candidate) => candidate.what.test(what) && candidate.peer === peer);
  if (aim === undefined || ratio === null) return "";
  return ratio >= aim.ratio ? `at least ${aim.ratio}: met` : `below the aim of ${aim.ratio}`;
}
