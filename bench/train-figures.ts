/**
 * Makes the figures of the train bench from its steps. It is separate from the measuring so that it can be tested.
 *
 * Aims are the project's own. A remark says in words whether a figure reaches its aim.
 */
import { info } from "../src/util/log.ts";
import { type Figure, figure, median, type Quantity } from "./figures.ts";
import type { Shares, Step } from "./train-job.ts";
import type { Outcome } from "./turns.ts";

type Say = (note: string) => void;
export type Measured = {
  readonly bench: string;
  readonly label: string;
  readonly tokens: number;
  readonly warmUp: number;
};

/** The figures of a workload, ours (the first outcome) beside each peer that was measured, or else alone. */
export function compare(measured: Measured, outcomes: readonly Outcome<Step>[], say: Say): Figure[] {
  for (const { name, failure } of outcomes) {
    if (failure === null) continue;
    if (name === outcomes[0]?.name) throw new Error(failure);
    info(failure); // not in the report: it may contain paths of this machine
    say(`${measured.label}: ${name} could not be measured.`);
  }
  const [ours, ...peers] = outcomes.filter(({ failure }) => failure === null);
  for (const peer of peers) say(`${measured.label}: ${agreement(ours!, peer)}`);
  for (const side of [ours!, ...peers]) noteDisturbance(measured, side, say);
  const mine = quantities(measured, ours!);
  if (peers.length === 0) return mine.map(({ value, ...quantity }) => figure(measured.bench, quantity, value, null));
  return peers.flatMap((peer) => {
    const theirs = quantities(measured, peer);
    return mine.map(({ value, ...quantity }, i) =>
      figure(measured.bench, quantity, value, { name: peer.name, value: theirs[i]!.value }),
    );
  });
}

function quantities({ label, tokens, warmUp }: Measured, { answers }: Outcome<Step>): (Quantity & { value: number })[] {
  const seconds = answers.slice(warmUp).map((step) => step.seconds);
  const best = Math.min(...seconds);
  const middle = median(seconds);
  const peak = Math.max(...answers.map(({ peakBytes }) => peakBytes));
  return [
    { what: `tokens/s ${label} (best)`, unit: "tokens/s", isMore: true, value: tokens / best },
    { what: `tokens/s ${label} (median)`, unit: "tokens/s", isMore: true, value: tokens / middle },
    { what: `step time ${label} (best)`, unit: "s", isMore: false, value: best },
    { what: `step time ${label} (median)`, unit: "s", isMore: false, value: middle },
    { what: `peak memory ${label}`, unit: "MB", isMore: false, value: peak / 1e6 },
  ];
}

/** Say so when other programs slowed the steps; without them times differ by a few per cent. */
function noteDisturbance({ label, warmUp }: Measured, { name, answers }: Outcome<Step>, say: Say): void {
  const seconds = answers.slice(warmUp).map((step) => step.seconds);
  const spread = median(seconds) / Math.min(...seconds);
  if (spread > 1.15) {
    say(`${label}: the machine was not quiet, the median step of ${name} took ${spread.toFixed(2)} times the best.`);
  }
}

/** Largest relative differences between the sides, step by step. torch adds a norm up in fp32, which large tensors feel. */
const tolerances = { loss: 1e-3, gradNorm: 1e-2 } as const;

/** How closely two sides agree, in words; an error if they do not. */
function agreement(ours: Outcome<Step>, peer: Outcome<Step>): string {
  const largest = { loss: 0, gradNorm: 0 };
  const count = Math.min(ours.answers.length, peer.answers.length);
  for (let step = 0; step < count; step++) {
    for (const name of ["loss", "gradNorm"] as const) {
      const [a, b] = [ours.answers[step]![name], peer.answers[step]![name]];
      const difference = Math.abs(a - b) / Math.abs(b);
      if (!(difference <= tolerances[name])) {
        throw new Error(
          `At step ${step + 1} the ${name} is ${a} with ours and ${b} with ${peer.name}: the two do not compute the ` +
            "same, so their times say nothing.",
        );
      }
      largest[name] = Math.max(largest[name], difference);
    }
  }
  const [loss, norm] = [largest.loss, largest.gradNorm].map((value) => value.toExponential(0));
  const [first, last] = [ours.answers[0]!.loss, ours.answers[count - 1]!.loss].map((value) => value.toFixed(3));
  return (
    `over ${count} steps (loss ${first} to ${last}) ours and ${peer.name} agree to ${loss} in the loss and ` +
    `${norm} in the gradient's norm.`
  );
}

/** Where the time of one step goes. The first four shares make up the whole. */
export function shareFigures(shares: Shares, say: Say): Figure[] {
  const { run, graph, products, copies, optimizer, plain } = shares;
  const step = run + optimizer;
  const share = (what: string, seconds: number) =>
    figure("train", { what: `share of step: ${what}`, unit: "%", isMore: false }, (100 * seconds) / step, null);
  const rate = products.flops / products.seconds;
  const rest = shares.operations
    .filter(({ seconds }) => seconds > 0.005 * step)
    .map(({ name, seconds }) => `${name} ${((100 * seconds) / step).toFixed(1)}`);
  say(`The graph's operations in % of our step: ${rest.join(", ")}.`);
  say(
    `At the rate of the best plain product (${plain.shape}) the matrix products alone would take ` +
      `${((100 * products.flops) / plain.flopsPerSecond / step).toFixed(0)} % of our step: nothing but fewer or faster ` +
      "products gets below that.",
  );
  return [
    share("matrix products", products.seconds),
    share("other operations", graph - products.seconds),
    share("output copies", run - graph),
    share("optimizer", optimizer),
    share("output copies, were outputs not written in place", copies),
    figure("train", { what: "GFLOP/s of the matrix products", unit: "GFLOP/s", isMore: true }, rate / 1e9, {
      name: "best plain product",
      value: plain.flopsPerSecond / 1e9,
    }),
  ];
}

type Aim = { readonly what: RegExp; readonly peer: string } & (
  | { readonly ratio: number }
  | { readonly shareOfTheirs: number }
  | { readonly megabytes: number }
);

const aims: readonly Aim[] = [
  { what: /^tokens\/s minimind2-small /, peer: "torch-eager", ratio: 1.15 },
  { what: /^tokens\/s minimind2-small /, peer: "torch-compile", ratio: 1.05 },
  { what: /^peak memory minimind2-small /, peer: "torch-compile", shareOfTheirs: 0.85 },
  { what: /^tokens\/s qwen2\.5-0\.5b /, peer: "torch-eager", ratio: 0.95 },
  { what: /^peak memory qwen2\.5-0\.5b /, peer: "torch-eager", megabytes: 14000 },
];

/** Whether a figure reaches its aim, in words; empty where there is no aim. */
export function remarkOn({ what, peer, ours, ratio }: Figure): string {
  const aim = aims.find((candidate) => candidate.what.test(what) && candidate.peer === peer);
  if (aim === undefined || ratio === null) return "";
  if ("ratio" in aim) return ratio >= aim.ratio ? `at least ${aim.ratio}: met` : `below the aim of ${aim.ratio}`;
  if ("megabytes" in aim)
    return ours < aim.megabytes ? `under ${aim.megabytes} MB: met` : `above the aim of ${aim.megabytes} MB`;
  const share = (1 / ratio).toFixed(2);
  return 1 / ratio <= aim.shareOfTheirs
    ? `${share} of theirs, at most ${aim.shareOfTheirs}: met`
    : `${share} of theirs, above the aim of ${aim.shareOfTheirs}`;
}
