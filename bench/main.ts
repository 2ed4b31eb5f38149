/**
 * `npm run bench [name…] [-- options]`: one JSON line per figure on standard output, everything else on standard error.
 *
 *   --peers        measure the peers in the same run and write bench/results.md; their Python is installed on demand
 *   --large        the large model too (with --peers it is included unless --no-large)
 *   --steps N      timed steps of each side
 *   --seconds S    no further round of timed steps after this time, per workload
 *   --threads N    threads of each side
 *   --smoke        two rounds on a tiny model: whether a bench runs at all, in seconds; its figures mean nothing
 */
import { parseArgs } from "node:util";
import { codeOf, messageOf, nearest, UserError } from "../src/util/errors.ts";
import { benchAlgos } from "./algos.ts";
import { figureLine } from "./figures.ts";
import { benchRay } from "./ray.ts";
import { writeResults } from "./results.ts";
import { benchRl } from "./rl.ts";
import { benchRollout } from "./rollout.ts";
import { benchScale } from "./scale.ts";
import { type BenchOptions, benchTrain } from "./train.ts";

const benches = {
  train: benchTrain,
  rollout: benchRollout,
  rl: benchRl,
  ray: benchRay,
  scale: benchScale,
  algos: benchAlgos,
};
type BenchName = keyof typeof benches;

async function main(args: readonly string[]): Promise<number> {
  const { names, options } = readArguments(args);
  let isComplete = true;
  for (const name of names) {
    const report = await benches[name](options, (figure) => console.log(figureLine(figure)));
    isComplete &&= report.isComplete;
    const flags = args.filter((arg) => arg.startsWith("-") || /^[\d.]+$/.test(arg));
    if (options.hasPeers) await writeResults(name, ["npm run bench", name, "--", ...flags].join(" "), report);
  }
  return isComplete ? 0 : 1;
}

function readArguments(args: readonly string[]): { names: readonly BenchName[]; options: BenchOptions } {
  const { values, positionals } = parse(args);
  const names = positionals.length === 0 ? Object.keys(benches) : positionals;
  const unknown = names.find((name) => !Object.hasOwn(benches, name));
  if (unknown !== undefined) {
    const [close] = nearest(unknown, Object.keys(benches), 1);
    throw new UserError(
      `There is no bench called "${unknown}".${close === undefined ? "" : ` Did you mean ${close}?`} ` +
        `The benches are: ${Object.keys(benches).join(", ")}.`,
    );
  }
  const hasPeers = values.peers ?? false;
  const isSmoke = values.smoke ?? false;
  if (isSmoke && hasPeers) throw new UserError("`--smoke` is without the peers: leave out `--peers`.");
  return {
    names: names as BenchName[], // each was found in `benches`
    options: {
      hasPeers,
      isSmoke,
      isLarge: values.large ?? hasPeers,
      threads: positive("--threads", values.threads ?? "2", Number.isInteger),
      steps: values.steps === undefined ? (isSmoke ? 2 : null) : positive("--steps", values.steps, Number.isInteger),
      seconds: positive("--seconds", values.seconds ?? "90", Number.isFinite),
    },
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      allowNegative: true,
      options: {
        peers: { type: "boolean" },
        large: { type: "boolean" },
        steps: { type: "string" },
        seconds: { type: "string" },
        threads: { type: "string" },
        smoke: { type: "boolean" },
      },
    });
  } catch (error) {
    if (!codeOf(error).startsWith("ERR_PARSE_ARGS")) throw error;
    const message = `${messageOf(error).split(". ")[0]}. The options are --peers, --large, --no-large, --steps N, --seconds S, --threads N and --smoke.`;
    throw new UserError(message, { cause: error });
  }
}

function positive(option: string, text: string, isKind: (value: number) => boolean): number {
  const value = Number(text);
  if (isKind(value) && value > 0) return value;
  throw new UserError(`\`${option}\` is "${text}"; give it a number above 0, such as ${option} 3.`);
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = error instanceof UserError ? 2 : 1;
}
