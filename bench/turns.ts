/**
 * Sides that take turns: in each round every side does one piece of work while the others wait.
 *
 * Other programs on the machine then slow all sides alike. The first rounds are a warm-up and do not count; their
 * answers are kept, because the sides must agree in them too.
 */
import { setTimeout as pause } from "node:timers/promises";
import type * as z from "zod";
import { messageOf } from "../src/util/errors.ts";
import { type Command, Side } from "./side.ts";

export type SideSpec = { readonly name: string; readonly command: Command; readonly job: unknown };

export type Turns = {
  readonly warmUp: number;
  /** Rounds that count. */
  readonly rounds: number;
  /** No further round begins after this many seconds of rounds that count. */
  readonly seconds: number;
  /** Whether all sides fit into the memory at once; if not, each has its rounds by itself. */
  readonly isTogether: boolean;
};

/** The result of a side; `failure` says why it stopped early, if it did. */
export type Outcome<T> = {
  readonly name: string;
  readonly answers: readonly T[];
  readonly versions: Readonly<Record<string, string>>;
  readonly failure: string | null;
};

/** Onnxruntime's threads spin for some milliseconds after a run, and so do OpenMP's. */
const PAUSE_MS = 300;

/** Start the sides, give each the command `step` in turn, and stop them. */
export async function takeTurns<T>(
  specs: readonly SideSpec[],
  answer: z.ZodType<T>,
  turns: Turns,
  onRound: (round: number, answers: readonly (T | undefined)[]) => void,
): Promise<Outcome<T>[]> {
  if (!turns.isTogether && specs.length > 1) {
    const outcomes: Outcome<T>[] = [];
    for (const spec of specs) outcomes.push(...(await takeTurns([spec], answer, turns, onRound)));
    return outcomes;
  }
  const sides = specs.map((spec) => new MeasuredSide(spec, answer));
  try {
    for (const side of sides) await side.start();
    let deadline = Infinity;
    for (let round = 0; round < turns.warmUp + turns.rounds; round++) {
      if (round === turns.warmUp) deadline = performance.now() + turns.seconds * 1000;
      if (performance.now() > deadline) break;
      if (sides[0]?.hasFailed) break; // ours: without it there is nothing to compare
      for (const side of sides) await side.step();
      onRound(
        round,
        sides.map(({ answers }) => answers[round]),
      );
    }
  } finally {
    for (const side of sides) await side.stop();
  }
  return sides.map((side) => side.outcome());
}

class MeasuredSide<T> {
  readonly answers: T[] = [];
  readonly #spec: SideSpec;
  readonly #schema: z.ZodType<T>;
  #side: Side | null = null;
  #failure: string | null = null;

  constructor(spec: SideSpec, schema: z.ZodType<T>) {
    this.#spec = spec;
    this.#schema = schema;
  }

  get hasFailed(): boolean {
    return this.#failure !== null;
  }

  async start(): Promise<void> {
    const { name, command, job } = this.#spec;
    await this.#try(async () => {
      this.#side = await Side.start(name, command, job);
    });
  }

  async step(): Promise<void> {
    const side = this.#side;
    if (side === null || this.hasFailed) return;
    await pause(PAUSE_MS);
    await this.#try(async () => {
      this.answers.push(await side.ask("step", this.#schema));
    });
  }

  async stop(): Promise<void> {
    await this.#side?.stop();
  }

  outcome(): Outcome<T> {
    const { name } = this.#spec;
    return { name, answers: this.answers, versions: this.#side?.versions ?? {}, failure: this.#failure };
  }

  async #try(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#failure = messageOf(error);
    }
  }
}
