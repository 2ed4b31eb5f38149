/**
 * `trainyard data validate`: what training would make of the rows of a file, in training's own words.
 *
 * The exit code is 0 where training would go and 2 where it would not.
 */
import { readRows } from "../data/files.ts";
import { UserError } from "../util/errors.ts";
import { clearStatus, status } from "../util/log.ts";
import type { Call } from "./call.ts";
import type { Check } from "./data-check.ts";
import { Findings, printFinding } from "./data-findings.ts";
import { checkFile } from "./data-show.ts";
import { flagHelp, parseFlags } from "./flags.ts";
import { withInterrupt } from "./interrupt.ts";

const flags = {
  model: { kind: "text", value: "MODEL", doc: "folder or hub id: its tokenizer and template are used (none)" },
  for: { kind: "choice", of: ["auto", "ppo", "sft", "reward", "generate"], doc: "the verb that is to read the rows" },
} as const;

type Verb = Exclude<(typeof flags.for.of)[number], "auto">;

const checks: Readonly<Record<Verb, () => Promise<Check>>> = {
  ppo: async () => (await import("./data-check-ppo.ts")).checkPpo,
  sft: async () => (await import("./data-check-sft.ts")).checkSft,
  reward: async () => (await import("./data-check-sft.ts")).checkRewardPairs,
  generate: async () => (await import("./data-check-ppo.ts")).checkGenerate,
};

/** Run the verb; returns the exit code. */
export async function run({ args, env }: Call): Promise<number> {
  const { flags: settings, words, isHelp } = parseFlags(flags, args);
  if (isHelp) {
    process.stdout.write(help());
    return 0;
  }
  const [file, ...keys] = words;
  if (file === undefined || file.includes("="))
    throw new UserError("There is no file to check. Name one before the keys: trainyard data validate FILE key=value.");
  const { parseOverride } = await import("../config/overrides.ts");
  const overrides = keys.map(parseOverride);
  let isSound = true;
  const code = await withInterrupt(async (signal) => {
    status(`reading ${file}`);
    const { rows, columns } = await readRows(checkFile(file));
    clearStatus();
    const verb = settings.for === "auto" ? verbFor(file, columns) : settings.for;
    const findings = new Findings();
    const check = await checks[verb]();
    const model = settings.model ?? null;
    const used = await check({ file, rows, columns, model, overrides, env, signal }, findings);
    process.stdout.write(report(findings, { file, verb, used }));
    isSound = findings.count("error") === 0;
  });
  return code === 0 && !isSound ? 2 : code;
}

/** The verb that rows with these columns are for. */
function verbFor(file: string, columns: readonly string[]): Verb {
  const has = (...names: readonly string[]) => names.every((name) => columns.includes(name));
  if (has("prompt", "reward_model") || has("prompt", "data_source")) return "ppo";
  if (has("chosen", "rejected")) return "reward";
  if (has("messages") || has("prompt", "response") || has("question", "answer") || has("instruction", "output"))
    return "sft";
  if (has("prompt")) return "generate";
  throw new UserError(
    `${file} has the columns ${columns.map((name) => `\`${name}\``).join(", ")}, which do not tell what they are for. ` +
      "Say it with --for ppo, --for sft, --for reward or --for generate.",
  );
}

type Checked = { readonly file: string; readonly verb: Verb; readonly used: number };

function report(findings: Findings, { file, verb, used }: Checked): string {
  const width = Math.max(40, process.stdout.columns ?? 100);
  const [errors, warnings] = [findings.count("error"), findings.count("warning")];
  const counted = (count: number, noun: string) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  const verdict =
    errors > 0
      ? `\`trainyard ${verb}\` would stop: ${counted(errors, "error")}, ${counted(warnings, "warning")}.`
      : `\`trainyard ${verb}\` would take these rows${warnings === 0 ? "." : `, with ${counted(warnings, "warning")}.`}`;
  return [
    `${file}: ${counted(used, "row")}, checked for \`trainyard ${verb}\`.`,
    ...findings.list().flatMap((finding) => ["", ...printFinding(finding, used, width)]),
    "",
    verdict,
    "",
  ].join("\n");
}

function help(): string {
  return `trainyard data validate: say what training would make of the rows of a file, in training's own words.

Usage: trainyard data validate FILE [--model MODEL] [--for VERB] [key=value …]

  trainyard data validate ~/data/gsm8k/train.parquet --model Qwen/Qwen2.5-0.5B-Instruct
  trainyard data validate pairs.jsonl --for reward --model models/tiny data.max_length=512
  trainyard data validate rows.jsonl data.prompt_key=question data.response_key=answer

The keys are those of the verb (trainyard ppo --help); give the ones you train with. Every row is read as the verb would
read it. Found are columns that are missing or of another type, ground truths that no scorer can use, data sources
without a scorer, prompts and rows that are too long, what the chat template refuses, empty responses and repeated rows.
Without a model, lengths and the chat template are not checked. Exit code 0: training would go; 2: it would not.

Options
${flagHelp(flags)}
  --help  this text
`;
}
