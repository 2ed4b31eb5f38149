/**
 * Sides that take turns: round by round, each does one piece of work while the others rest.
 *
 * What the machine does besides then falls on all of them alike. The first rounds warm up and are not to be counted;
 * their answers are kept, because the sides must agree in them, too.
 */
import { setTimeout as pause } from "node:timers/promises";
import type * as z from "zod";
import { messageOf } from "../src/util/errors.ts";
import { type Command, Side } from "./side.ts";

export type Entrant = { readonly name: string; readonly command: Command; readonly job: unknown };

export type Turns = {
  readonly warmUp: number;
  /** Rounds that count. */
  readonly rounds: number;
  /** After so many seconds of rounds that count no further one begins. */
  readonly seconds: number;
  /** Whether all sides fit into the memory at once; if not, each has its rounds by itself. */
  readonly isTogether: boolean;
};

/** What became of a side; `failure` says why it stopped before the others, if it did. */
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
  entrants: readonly Entrant[],
  answer: z.ZodType<T>,
  turns: Turns,
  onRound: (round: number, answers: readonly (T | undefined)[]) => void,
): Promise<Outcome<T>[]> {
  if (!turns.isTogether && entrants.length > 1) {
    const outcomes: Outcome<T>[] = [];
    for (const entrant of entrants) outcomes.push(...(await takeTurns([entrant], answer, turns, onRound)));
    return outcomes;
  }
  const players = entrants.map((entrant) => new Player(entrant, answer));
  try {
    for (const player of players) await player.start();
    let deadline = Infinity;
    for (let round = 0; round < turns.warmUp + turns.rounds; round++) {
      if (round === turns.warmUp) deadline = performance.now() + turns.seconds * 1000;
      if (performance.now() > deadline) break;
      if (players[0]?.hasFailed) break; // ours: without it there is nothing to compare
      for (const player of players) await player.play();
      onRound(
        round,
        players.map(({ answers }) => answers[round]),
      );
    }
  } finally {
    for (const player of players) await player.stop();
  }
  return players.map((player) => player.outcome());
}

class Player<T> {
  readonly answers: T[] = [];
  readonly #entrant: Entrant;
  readonly #schema: z.ZodType<T>;
  #side: Side | null = null;
  #failure: string | null = null;

  constructor(entrant: Entrant, schema: z.ZodType<T>) {
    this.#entrant = entrant;
    this.#schema = schema;
  }

  get hasFailed(): boolean {
    return this.#failure !== null;
  }

  async start(): Promise<void> {
    const { name, command, job } = this.#entrant;
    await this.#try(async () => {
      this.#side = await Side.start(name, command, job);
    });
  }

  async play(): Promise<void> {
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
    const { name } = this.#entrant;
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
