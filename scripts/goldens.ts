/**
 * Compares golden files with the implementation: `npm run goldens -- DIR [--tokenizer FOLDER]`.
 *
 * Every DIR/*.json is a topic by its name (a `_v091` at the end is the same topic). Each miss is a line with the case,
 * the place in its outputs, what came and what was expected; a check that breaks off is a miss of its case. The last
 * line is `N passed, N failed`. Topics without a checker are named and not counted. The exit code is 1 on a miss and 2 when the arguments or files are not usable.
 */
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { z } from "zod";
import { Runtime } from "../src/runtime/runtime.ts";
import { messageOf, UserError } from "../src/util/errors.ts";
import { checkAdvantages } from "./goldens/advantages.ts";
import { GoldenCase } from "./goldens/compare.ts";
import { checkDataset } from "./goldens/dataset.ts";
import { checkLossesKl } from "./goldens/losses-kl.ts";
import { checkMetrics } from "./goldens/metrics.ts";
import { checkPolicyLosses } from "./goldens/policy-losses.ts";
import { checkRewardManagers } from "./goldens/reward-managers.ts";
import { checkRewardScores } from "./goldens/reward-scores.ts";
import { checkRolloutCorrection } from "./goldens/rollout-correction.ts";
import { checkSeqlenBalancing } from "./goldens/seqlen-balancing.ts";
import { checkTorchFunctional } from "./goldens/torch-functional.ts";

/** What checkers share. */
export type Bench = { readonly runtime: Runtime; readonly tokenizer: string };
/** The misses of one case. */
type Checker = (golden: GoldenCase, bench: Bench) => Promise<readonly string[]>;

const checkers: Readonly<Record<string, Checker>> = {
  advantages: (golden) => checkAdvantages(golden),
  losses_kl: (golden) => checkLossesKl(golden),
  policy_losses: (golden) => checkPolicyLosses(golden),
  rollout_correction: (golden) => checkRolloutCorrection(golden),
  metrics: (golden) => checkMetrics(golden),
  seqlen_balancing: (golden) => checkSeqlenBalancing(golden),
  reward_scores: (golden) => checkRewardScores(golden),
  reward_managers: (golden) => checkRewardManagers(golden),
  torch_functional: (golden, { runtime }) => checkTorchFunctional(golden, runtime),
  dataset: (golden, { tokenizer }) => checkDataset(golden, tokenizer),
};
/** The misses of one case of a topic. A check that breaks off is a miss too, and the next case follows. */
export async function checkCase(topic: string, golden: GoldenCase, bench: Bench): Promise<readonly string[]> {
  const checker = checkers[topic];
  if (checker === undefined) return [`${golden.name}: no topic is called ${topic}`];
  try {
    return await checker(golden, bench);
  } catch (error) {
    return [`${golden.name}: the check broke off: ${messageOf(error)}`];
  }
}

/** Topics whose ids are those of minimind2-small's tokenizer. */
const needsTokenizer: readonly string[] = ["dataset"];

export type Report = {
  readonly passed: number;
  readonly failed: number;
  readonly misses: readonly string[];
  /** Why some topics were not checked. */
  readonly notes: readonly string[];
};

/** Check every golden file of a folder. */
export async function checkFolder(dir: string, options: { readonly tokenizer?: string } = {}): Promise<Report> {
  const files = await goldenFiles(dir);
  const places = options.tokenizer === undefined ? tokenizerPlaces(dir) : [options.tokenizer];
  const tokenizer = places.find((place) => existsSync(join(place, "tokenizer.json")));
  const topicOf = (file: string) => basename(file, ".json").replace(/_v\d+$/, "");
  const uncovered = files.filter((file) => !Object.hasOwn(checkers, topicOf(file)));
  const isBlocked = (file: string) => needsTokenizer.includes(topicOf(file)) && tokenizer === undefined;
  const notes = files
    .filter(isBlocked)
    .map((file) => `skipped ${file}: no tokenizer.json in ${places.join(" or ")}; name its folder with --tokenizer`);
  if (uncovered.length > 0) notes.push(`not covered: ${uncovered.map((file) => basename(file, ".json")).join(", ")}`);

  const runtime = new Runtime();
  try {
    const found: (readonly string[])[] = [];
    for (const file of files) {
      if (uncovered.includes(file) || isBlocked(file)) continue;
      for (const golden of await readCases(join(dir, file)))
        found.push(await checkCase(topicOf(file), golden, { runtime, tokenizer: tokenizer ?? "" }));
    }
    const failed = found.filter((misses) => misses.length > 0).length;
    return { passed: found.length - failed, failed, misses: found.flat(), notes };
  } finally {
    await runtime.close();
  }
}

/** Beside the goldens, or in the shared folder beside this repository. */
function tokenizerPlaces(dir: string): string[] {
  const models = [join(dir, "..", "..", "models"), join(import.meta.dirname, "..", "..", "shared", "models")];
  return models.map((folder) => join(folder, "minimind2-small"));
}

async function goldenFiles(dir: string): Promise<string[]> {
  const names = await readdir(dir).catch((error: unknown) => {
    throw new UserError(`The folder ${dir} cannot be read: ${messageOf(error)}. Name a folder of golden files.`);
  });
  const files = names.filter((name) => name.endsWith(".json")).sort();
  if (files.length === 0) throw new UserError(`${dir} holds no .json file. Name a folder of golden files.`);
  return files;
}

async function readCases(path: string): Promise<GoldenCase[]> {
  try {
    return z.object({ cases: z.array(GoldenCase) }).parse(JSON.parse(await readFile(path, "utf8"))).cases;
  } catch (error) {
    throw new UserError(
      `${path} is not a golden file, {"cases": [{"name", "inputs", "outputs"}]}: ${messageOf(error)}`,
    );
  }
}

/** Run the command; the result is the exit code. */
export async function main(args: readonly string[], print: (line: string) => void): Promise<number> {
  try {
    const { positionals, values } = parseArgs({
      args: [...args],
      options: { tokenizer: { type: "string" } },
      allowPositionals: true,
    });
    const [dir, ...more] = positionals;
    if (dir === undefined || more.length > 0) {
      print("Name one folder: npm run goldens -- DIR [--tokenizer FOLDER]");
      return 2;
    }
    const report = await checkFolder(dir, values.tokenizer === undefined ? {} : { tokenizer: values.tokenizer });
    for (const line of [...report.misses, ...report.notes]) print(line);
    print(`${report.passed} passed, ${report.failed} failed`);
    return report.failed === 0 ? 0 : 1;
  } catch (error) {
    const isUsage = error instanceof UserError || (error instanceof TypeError && "code" in error);
    if (!isUsage) throw error;
    print(messageOf(error));
    return 2;
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2), (line) => console.log(line));
