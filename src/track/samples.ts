/**
 * Samples as people read them: which of a validation's are shown, and the files of `trainer.rollout_data_dir` and
 * `trainer.validation_data_dir`.
 *
 * Both are verl's: the same rows are shown for the same inputs at every validation, and a file has verl's columns.
 */
import { join } from "node:path";
import { MersenneTwister } from "../algos/metrics/mersenne-twister.ts";
import { writeFileAtomic } from "../util/files.ts";

export type Sample = {
  /** The prompt and the response, decoded. */
  readonly input: string;
  readonly output: string;
  readonly score: number;
  /** The row's ground truth. */
  readonly gts?: unknown;
  /** Further columns of the file: what the reward function returned besides the score. */
  readonly extra?: Readonly<Record<string, unknown>>;
};

/** The `count` samples to show (`trainer.log_val_generations`): sorted by input, shuffled as verl does, the first ones. */
export function chooseSamples(samples: readonly Sample[], count: number): Sample[] {
  const keyed = samples.map((sample) => ({ sample, key: Buffer.from(sample.input) }));
  keyed.sort((a, b) => Buffer.compare(a.key, b.key)); // by code point, as Python compares texts
  const random = new MersenneTwister(42);
  for (let i = keyed.length - 1; i >= 1; i--) {
    const j = random.int(i + 1);
    const kept = keyed[i]!;
    keyed[i] = keyed[j]!;
    keyed[j] = kept;
  }
  return keyed.slice(0, count).map(({ sample }) => sample);
}

/** Write the samples of a step to `{dir}/{step}.jsonl`; a number that is not finite is written as null. */
export async function dumpSamples(dir: string, step: number, samples: readonly Sample[]): Promise<void> {
  const lines = samples.map(({ input, output, gts = null, score, extra }) =>
    JSON.stringify({ input, output, gts, score, step, ...extra }),
  );
  await writeFileAtomic(join(dir, `${step}.jsonl`), lines.map((line) => `${line}\n`).join(""));
}

/** The columns of verl's table of validation generations. */
export const sampleColumns = ["step", "input", "output", "score"] as const;

/** One row of that table. */
export const sampleRow = (step: number, { input, output, score }: Sample) => ({ step, input, output, score });
