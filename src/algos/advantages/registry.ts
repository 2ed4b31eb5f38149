/**
 * The advantage estimators by name: verl's, and what users register.
 *
 * What the registry returns first checks the shapes of its input, and that all it needs is there. No NaN is passed on:
 * ours refuse what is not finite while they add it up, and the result of a user's estimator is checked.
 */
import { UserError } from "../../util/errors.ts";
import { mergeTrees, type NoFields, type Registered, type Tree } from "../../util/field.ts";
import { checkFinite, checkRows, type Rows } from "../batch.ts";
import { registryOf } from "../registry.ts";
import {
  type Advantage,
  type AdvantageInput,
  type AdvantageResult,
  checkLength,
  checkNumbers,
  needed,
  sharedSettings,
} from "./estimator.ts";
import { gae, reinforcePlusPlus, remax } from "./gae.ts";
import * as groups from "./groups.ts";
import { optimalTokenBaseline, tirOptimalTokenBaseline } from "./token-baselines.ts";

const builtIn = [
  gae,
  reinforcePlusPlus,
  remax,
  groups.grpo,
  groups.grpoVectorized,
  groups.grpoPassk,
  groups.reinforcePlusPlusBaseline,
  groups.rloo,
  groups.rlooVectorized,
  groups.opo,
  groups.gpg,
  groups.gdpo,
  optimalTokenBaseline,
  tirOptimalTokenBaseline,
] as const;

/** The names of ours, for typed configs; `registry.test.ts` compares them with the values. */
export type AdvantageName =
  | "gae"
  | "reinforce_plus_plus"
  | "remax"
  | "grpo"
  | "grpo_vectorized"
  | "grpo_passk"
  | "reinforce_plus_plus_baseline"
  | "rloo"
  | "rloo_vectorized"
  | "opo"
  | "gpg"
  | "gdpo"
  | "optimal_token_baseline"
  | "tir_optimal_token_baseline";

/** The keys of our estimators: keys of `algorithm`. */
export const advantageFields = mergeTrees(builtIn.map(({ fields }) => fields));

const registry = registryOf<Advantage>(builtIn, {
  what: "an advantage estimator",
  subject: "`algorithm.adv_estimator`",
  shared: [...sharedSettings, ...Object.keys(advantageFields)],
});

/** The estimator of `algorithm.adv_estimator`. */
export function findAdvantage(name: string): Advantage {
  const found = registry.find(name);
  return withCheckedInput(registry.isBuiltIn(name) ? found : withCheckedResult(found));
}

/**
 * Make an estimator known by its name; its `fields` become the keys `algorithm.own.NAME.KEY`. The `name` of the result
 * goes into a typed config.
 */
export function registerAdvantage<const Fields extends Tree = NoFields>(
  advantage: Advantage<Fields>,
): Registered<Advantage<Fields>> {
  registry.register(advantage);
  return advantage as Registered<Advantage<Fields>>; // now it is
}

/** The names of all estimators, in order of registration. */
export const advantageNames = (): string[] => registry.names();

/** The keys that registered estimators bring, below their names. */
export const ownAdvantageFields = (): Tree => registry.ownFields();

function withCheckedInput(advantage: Advantage): Advantage {
  return {
    ...advantage,
    compute(input, settings) {
      checkInput(advantage, input);
      return advantage.compute(input, settings);
    },
  };
}

function withCheckedResult(advantage: Advantage): Advantage {
  return {
    ...advantage,
    compute(input, settings) {
      const result = advantage.compute(input, settings);
      checkResult(advantage.name, input, result);
      return result;
    },
  };
}

function checkInput({ needs }: Advantage, input: AdvantageInput): void {
  for (const [name, rows] of rowsOf(input)) checkRows(name, rows, input.mask);
  for (const need of needs) needed(input[need], need);
  if (needs.includes("groups")) checkLength("groups", input.groups, input.mask);
  if (input.baselines !== undefined) checkNumbers("baselines", input.baselines, input.mask);
}

function checkResult(name: string, input: AdvantageInput, { advantages, returns }: AdvantageResult): void {
  for (const [what, rows] of Object.entries({ advantages, returns })) {
    checkRows(`${what} of ${name}`, rows, input.mask);
    const row = rows.findIndex((entries) => !entries.every(Number.isFinite));
    if (row === -1) continue;
    for (const [given, givenRows] of rowsOf(input)) checkFinite(given, givenRows, input.mask);
    throw new UserError(
      `The ${what} that ${name} computes for row ${row} are not all finite, though all it was given is. ` +
        "Look for a division by 0 in the estimator.",
    );
  }
}

function rowsOf({ rewards, values, oldLogprobs, sumPiSquared, rolloutWeights }: AdvantageInput): [string, Rows][] {
  return Object.entries({ rewards, values, oldLogprobs, sumPiSquared, rolloutWeights }).flatMap(([name, rows]) =>
    rows === undefined ? [] : [[name, rows]],
  );
}
