/**
 * The advantage estimators by name: verl's, and what users register.
 *
 * What the registry hands out checks the shapes of its input first, and that all it needs is there. Nothing passes on a
 * NaN in silence: ours refuse what is not finite while they add it up, and a user's estimator has its result searched.
 */
import { UserError, unknownName } from "../../util/errors.ts";
import { checkFinite, checkRows, type Rows } from "../batch.ts";
import {
  type Advantage,
  type AdvantageInput,
  type AdvantageResult,
  checkLength,
  checkNumbers,
  needed,
} from "./estimator.ts";
import { gae, reinforcePlusPlus, remax } from "./gae.ts";
import * as groups from "./groups.ts";
import { optimalTokenBaseline, tirOptimalTokenBaseline } from "./token-baselines.ts";

const builtIn: readonly Advantage[] = [
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
];

type Entry = { readonly given: Advantage; readonly checked: Advantage };
const registry = new Map<string, Entry>(
  builtIn.map((given) => [given.name, { given, checked: withCheckedInput(given) }]),
);

/** The estimator of `algorithm.adv_estimator`. */
export function findAdvantage(name: string): Advantage {
  const entry = registry.get(name);
  if (entry !== undefined) return entry.checked;
  throw unknownName("`algorithm.adv_estimator`", name, advantageNames());
}

/** Make an estimator known by its name; a name that another estimator has is refused. */
export function registerAdvantage(advantage: Advantage): void {
  const { name } = advantage;
  const entry = registry.get(name);
  if (entry?.given === advantage) return;
  if (entry !== undefined) {
    throw new UserError(`There is an advantage estimator "${name}" already. Register yours under another name.`);
  }
  registry.set(name, { given: advantage, checked: withCheckedInput(withCheckedResult(advantage)) });
}

/** The names of all estimators, in order of registration. */
export function advantageNames(): string[] {
  return [...registry.keys()];
}

function withCheckedInput(advantage: Advantage): Advantage {
  return {
    ...advantage,
    compute(input, options) {
      checkInput(advantage, input);
      return advantage.compute(input, options);
    },
  };
}

function withCheckedResult(advantage: Advantage): Advantage {
  return {
    ...advantage,
    compute(input, options) {
      const result = advantage.compute(input, options);
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
