/**
 * `trainyard data validate`: which rows of a file training would refuse, and why, in the messages of training itself.
 *
 * Each verb that reads rows has its own check (`Verb.rows`); without `--for`, the columns decide which one is used. The
 * exit code is 0 where the verb would take the rows, else 2.
 */
import { isConfigFile, loadConfig } from "../config/file.ts";
import { type Entry, parseOverride } from "../config/overrides.ts";
import type { AnySchema } from "../config/schema.ts";
import { readRows } from "../data/files.ts";
import { UserError } from "../util/errors.ts";
import { clearStatus, status } from "../util/log.ts";
import { checkFile } from "./data-show.ts";
import { Findings, printFinding } from "./findings.ts";
import { flagVerb } from "./flag-verb.ts";
import { withInterrupt } from "./interrupt.ts";
import { type Call, loadVerbs, type RowCheck, type Verb } from "./verb.ts";

/** It is made for the verbs that the program has, since `--for` names them. */
export const verb: Pick<Verb, "run"> = {
  run: async (call) => validateVerb(await rowChecksOf(call)).run(call),
};

type RowChecks = ReadonlyMap<string, RowCheck & { readonly schema: AnySchema | null }>;

/** The verbs that read rows, in the order of the table. */
async function rowChecksOf({ verbs }: Call): Promise<RowChecks> {
  return new Map(
    (await loadVerbs(verbs)).flatMap(([name, { rows, schema }]) =>
      rows === null ? [] : [[name, { ...rows, schema }]],
    ),
  );
}

const validateVerb = (checks: RowChecks) =>
  flagVerb({
    flags: {
      model: { kind: "text", value: "MODEL", doc: "folder or hub id: its tokenizer and template are used (none)" },
      for: { kind: "choice", of: ["auto", ...checks.keys()], doc: "the verb that is to read the rows" },
    },
    help,
    async run({ flags, words: [file, ...keys] }, { env }) {
      if (file === undefined || file.includes("="))
        throw new UserError(
          "There is no file to check. Name one before the keys: trainyard data validate FILE key=value.",
        );
      const overrides = keys.filter((key) => !isConfigFile(key)).map(parseOverride);
      let isSound = true;
      const code = await withInterrupt(async (signal) => {
        status(`reading ${file}`);
        const path = checkFile(file);
        const hasDataset = overrides.some(({ path: key, value }) => key === "data.custom_cls.path" && value !== null);
        const { rows, columns } = hasDataset ? { rows: [], columns: [] } : await readRows(path);
        clearStatus();
        const [name, { check, schema }] = chooseCheck(checks, flags.for, { file, columns, hasDataset });
        const config = await entriesIn(keys.filter(isConfigFile), schema);
        const findings = new Findings();
        const { model = null } = flags;
        const used = await check({ file, rows, columns, model, config, overrides, env, signal }, findings);
        process.stdout.write(report(findings, { file, verb: name, used }));
        isSound = findings.count("error") === 0;
      });
      return code === 0 && !isSound ? 2 : code;
    },
  });

/** The keys of the config file that was named, if any. */
async function entriesIn([file, other]: readonly string[], schema: AnySchema | null): Promise<readonly Entry[]> {
  if (other !== undefined) throw new UserError(`Both ${file} and ${other} are config files. Keep one of them.`);
  if (file === undefined || schema === null) return [];
  return (await loadConfig({ file, folder: process.cwd() }, schema)).entries;
}

type File = {
  readonly file: string;
  readonly columns: readonly string[];
  /** Whether a dataset of the user reads the file. */
  readonly hasDataset: boolean;
};

/** The check that was asked for, or else the first one that the columns fit. */
function chooseCheck(checks: RowChecks, wanted: string, { file, columns, hasDataset }: File) {
  const has = (...names: readonly string[]) => names.every((name) => columns.includes(name));
  const found = [...checks].find(([name, { fits }]) => name === wanted || (wanted === "auto" && fits(has)));
  if (found !== undefined) return found;
  const options = [...checks.keys()].map((name) => `--for ${name}`);
  const why = hasDataset
    ? "The dataset of `data.custom_cls.path` reads the file, so its columns do not show which verb the rows are for."
    : `${file} has the columns ${columns.map((name) => `\`${name}\``).join(", ")}, which do not show which verb they are for.`;
  throw new UserError(`${why} Name it with ${options.slice(0, -1).join(", ")} or ${options.at(-1)}.`);
}

/** `1 row`, `1319 rows`. */
const counted = (count: number, noun: string) => `${count} ${noun}${count === 1 ? "" : "s"}`;

type Checked = { readonly file: string; readonly verb: string; readonly used: number };

function report(findings: Findings, { file, verb, used }: Checked): string {
  const width = Math.max(40, process.stdout.columns ?? 100);
  const [errors, warnings] = [findings.count("error"), findings.count("warning")];
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

function help(options: string): string {
  return `trainyard data validate: check whether training can use the rows of a file.

Usage: trainyard data validate FILE [CONFIG] [--model MODEL] [--for VERB] [key=value …]

  trainyard data validate ~/data/gsm8k/train.parquet --model Qwen/Qwen2.5-0.5B-Instruct
  trainyard data validate pairs.jsonl --for reward --model models/tiny data.max_length=512
  trainyard data validate train.jsonl trainyard.config.ts
  trainyard data validate rows.jsonl data.prompt_key=question data.response_key=answer
  trainyard data validate notes.txt --for sft data.custom_cls.path=dataset.ts

The keys are those of the verb (trainyard ppo --help); give the ones you train with, or the config file that has them. Every row is read as the verb would
read it, and the messages are those of the verb. It finds columns that are missing or of another type, ground truths
that no scorer can use, data sources without a scorer, prompts and rows that are too long, what the chat template
refuses, empty responses and repeated rows. Without a model, lengths and the chat template are not checked. Exit code 0:
the verb would take the rows; 2: it would not.

Options
${options}
`;
}
