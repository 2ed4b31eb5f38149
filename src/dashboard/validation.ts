/**
 * The validation rollouts of a run over time: which prompt was answered how well at which step.
 *
 * At most 24 validations are used, evenly spaced, with the first and the last. A line is parsed once and its scores are
 * kept.
 */
import { createHash } from "node:crypto";
import type { RolloutEntry, RolloutGroup, RolloutsReader } from "../run/rollouts.ts";
import type { PromptHistory, ValidationTable } from "./api.ts";
import { evenly } from "./page/series.ts";

const mostSteps = 24;
const mostPrompts = 200;

type Row = { readonly key: string; readonly group: Omit<RolloutGroup, "episodes">; readonly score: number | null };

export class ValidationHistory {
  readonly #rollouts: RolloutsReader;
  readonly #rows = new Map<number, readonly Row[]>();
  #version = 0;

  constructor(rollouts: RolloutsReader) {
    this.#rollouts = rollouts;
  }

  /** Mean scores by prompt and step. */
  async table(): Promise<ValidationTable> {
    if (this.#version !== this.#rollouts.version) this.#rows.clear();
    this.#version = this.#rollouts.version;
    const { chosen, validations } = this.#chosen();
    const prompts = new Map<string, { group: Row["group"]; scores: (number | null)[] }>();
    for (const [at, entry] of chosen.entries()) {
      for (const { key, group, score } of await this.#rowsOf(entry)) {
        if (!prompts.has(key)) prompts.set(key, { group, scores: new Array(chosen.length).fill(null) });
        prompts.get(key)!.scores[at] = score;
      }
    }
    return {
      steps: chosen.map(({ step }) => step),
      validations,
      prompts: [...prompts].slice(0, mostPrompts).map(([key, { group, scores }]) => ({ key, ...group, scores })),
    };
  }

  /** The responses to one prompt at those steps; null for an unknown prompt. */
  async promptHistory(key: string): Promise<PromptHistory | null> {
    const at: { step: number; episodes: RolloutGroup["episodes"] }[] = [];
    let group: Row["group"] | null = null;
    for (const { step } of this.#chosen().chosen) {
      const found = (await this.#rollouts.read("val", step))?.groups.find((it) => keyOf(it) === key);
      if (found === undefined) continue;
      const { episodes, ...rest } = found;
      group = rest;
      at.push({ step, episodes });
    }
    return group === null ? null : { group, at };
  }

  #chosen(): { chosen: RolloutEntry[]; validations: number } {
    const entries = this.#rollouts.entries("val");
    return { chosen: evenly(entries.length, mostSteps).map((i) => entries[i]!), validations: entries.length };
  }

  async #rowsOf({ step }: RolloutEntry): Promise<readonly Row[]> {
    const known = this.#rows.get(step);
    if (known !== undefined) return known;
    const groups = (await this.#rollouts.read("val", step))?.groups ?? [];
    const rows = groups.map(({ episodes, ...group }) => ({
      key: keyOf(group),
      group,
      score: meanScore(episodes.map(({ score }) => score)),
    }));
    this.#rows.set(step, rows);
    return rows;
  }
}

/** A short name of a prompt. */
const keyOf = ({ source, prompt }: Pick<RolloutGroup, "source" | "prompt">): string =>
  createHash("sha256").update(`${source}\n${prompt}`).digest("hex").slice(0, 16);

function meanScore(scores: readonly (number | null)[]): number | null {
  const present = scores.filter((score) => score !== null);
  return present.length === 0 ? null : present.reduce((sum, score) => sum + score, 0) / present.length;
}
