/**
 * The time of a step on many workers, simulated from times that were measured on few.
 *
 * The work grows with the workers (each has the same number of sequences), so ideally every step would take as long as
 * on one. It takes longer for three reasons: the controller calls the workers one by one, the workers exchange parameters
 * and gradients, and each round waits for the slowest.
 */
import { Random } from "../src/util/random.ts";

/** Times on this machine, in seconds. */
export type Measured = {
  /** Of a call that does nothing, by the number of workers. */
  readonly calls: readonly { readonly workers: number; readonly seconds: number }[];
  /** Of one worker's step, alone. */
  readonly step: number;
  /** How much single steps differ: the standard deviation of their logarithms. */
  readonly spread: number;
  readonly rounds: number;
  readonly parameters: number;
  readonly layers: number;
};

export type Network = { readonly bytesPerSecond: number; readonly latency: number };

/** A call takes `fixed`, and `each` for every worker. */
export type CallFit = { readonly fixed: number; readonly each: number };

/** The least-squares line through measured calls. */
export function fitCalls(calls: Measured["calls"]): CallFit {
  const mean = (of: (call: Measured["calls"][number]) => number) =>
    calls.reduce((sum, call) => sum + of(call), 0) / calls.length;
  const [w, t] = [mean((call) => call.workers), mean((call) => call.seconds)];
  const each = mean((call) => (call.workers - w) * (call.seconds - t)) / mean((call) => (call.workers - w) ** 2);
  return { fixed: t - each * w, each };
}

/** The bytes that the workers exchange in one forward and backward pass: parameters twice, gradients once, in a ring. */
export function exchangeSeconds({ parameters, layers }: Measured, workers: number, network: Network): number {
  if (workers === 1) return 0;
  const share = (workers - 1) / workers;
  const bytes = 3 * 4 * parameters * share;
  return bytes / network.bytesPerSecond + 3 * layers * network.latency * Math.log2(workers);
}

export type Simulated = {
  readonly workers: number;
  readonly seconds: number;
  /** The parts of a step: the work itself, waiting for the slowest, the exchange, the controller. */
  readonly parts: {
    readonly work: number;
    readonly waiting: number;
    readonly exchange: number;
    readonly calls: number;
  };
};

/** The mean of many simulated steps. Per round there are two calls, and one more for the optimizer. */
export function simulate(measured: Measured, workers: number, network: Network, steps = 200): Simulated {
  const { step, spread, rounds } = measured;
  const fit = fitCalls(measured.calls);
  const random = new Random(1, "scale", workers);
  const oneRound = step / rounds;
  let waiting = 0;
  for (let i = 0; i < steps * rounds; i++) {
    let slowest = 0;
    for (let worker = 0; worker < workers; worker++)
      slowest = Math.max(slowest, oneRound * Math.exp(random.normal(-(spread ** 2) / 2, spread)));
    waiting += slowest - oneRound;
  }
  const calls = (2 * rounds + 1) * (fit.fixed + fit.each * workers);
  const exchange = rounds * exchangeSeconds(measured, workers, network);
  const parts = { work: step, waiting: waiting / steps, exchange, calls };
  return { workers, seconds: parts.work + parts.waiting + parts.exchange + parts.calls, parts };
}
