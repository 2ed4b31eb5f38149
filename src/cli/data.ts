/**
 * `trainyard data`: prepare a dataset as verl's scripts do, show the rows of a file, or check whether training can use
 * them.
 *
 * The options of preparing are those of verl's scripts, so that `python3 gsm8k.py --local_save_dir D` becomes
 * `trainyard data gsm8k --local_save_dir D`.
 */
import { extname } from "node:path";
import type { Dataset } from "../data/prepare/dataset.ts";
import { nearest, UserError } from "../util/errors.ts";
import { info } from "../util/log.ts";
import { flagVerb } from "./flag-verb.ts";
import type { FlagValues } from "./flags.ts";
import { withInterrupt } from "./interrupt.ts";

const flags = {
  "local-dataset-path": {
    kind: "text",
    value: "PATH",
    doc: "raw file (.parquet, .jsonl, .json, .gz), or a folder with such files (the hub)",
  },
  "local-save-dir": { kind: "text", value: "DIR", doc: "where the files go (~/data/NAME)" },
  "local-dir": { kind: "text", value: "DIR", doc: "older spelling of --local-save-dir" },
  split: { kind: "text", value: "sft|rm|rl", doc: "with the hh-rlhf datasets: only this form of their rows (all)" },
  "hf-repo-id": {
    kind: "text",
    value: "REPO",
    doc: "another repository on the hub, owner/name or owner/name@revision",
  },
  "hdfs-dir": { kind: "text", value: "DIR", doc: "not supported: copy the files with `hdfs dfs -put`" },
} as const;

type Settings = FlagValues<typeof flags>;

export const verb = flagVerb({
  flags,
  help,
  needsArguments: true,
  subverbs: { show: () => import("./data-show.ts"), validate: () => import("./data-validate.ts") },
  async run({ flags: settings, words: [name, extra] }, { env }) {
    const { datasets, findDataset } = await import("../data/prepare/datasets.ts");
    if (name === undefined) throw new UserError("There is no dataset to prepare. Name one: trainyard data gsm8k.");
    const dataset = findDataset(name);
    if (dataset === null) throw unknownDataset(name, datasets);
    if (extra !== undefined) throw new UserError(`Both ${name} and ${extra} are datasets. Prepare one of them.`);
    const request = requestOf(dataset, settings);
    return withInterrupt(async (signal) => {
      const { prepare } = await import("../data/prepare/prepare.ts");
      const { files, missing } = await prepare(request, { env, signal });
      const widest = Math.max(...files.map(({ path }) => path.length));
      for (const { path, rows } of files)
        process.stdout.write(`${path.padEnd(widest)}  ${rows} row${rows === 1 ? "" : "s"}\n`);
      if (missing.length > 0) info(`The source has no rows for ${missing.join(", ")}.`);
      const [first] = files;
      if (first !== undefined)
        info(
          `\nLook at them:  trainyard data show ${first.path}\nCheck them:    trainyard data validate ${first.path} --model MODEL`,
        );
    });
  },
});

function requestOf(dataset: Dataset, settings: Settings) {
  const { split: part = null, "local-dir": older, "local-save-dir": saveDir, "hdfs-dir": hdfs } = settings;
  const { "local-dataset-path": localPath = null, "hf-repo-id": repo = null } = settings;
  if (hdfs !== undefined)
    throw new UserError(
      `\`--hdfs_dir\` is ${hdfs}, and nothing is copied to HDFS here. Use: hdfs dfs -put FILE ${hdfs}`,
    );
  if (older !== undefined && saveDir !== undefined)
    throw new UserError(`\`--local_dir\` is ${older} and \`--local_save_dir\` is ${saveDir}. Keep one of them.`);
  if (localPath !== null && repo !== null)
    throw new UserError(`\`--local_dataset_path\` is ${localPath} and \`--hf_repo_id\` is ${repo}. Keep one of them.`);
  if (dataset.source === null && (localPath ?? repo) !== null)
    throw new UserError(`${dataset.name} is made here: it reads no rows from ${localPath ?? repo}. Leave that out.`);
  const parts = [...new Set(dataset.outputs.flatMap((output) => output.part ?? []))];
  if (part !== null && !parts.includes(part))
    throw new UserError(
      parts.length === 0
        ? `\`--split\` is ${part}, and ${dataset.name} has one form only. Leave it out.`
        : `\`--split\` is ${part}; it should be one of ${parts.join(", ")}.`,
    );
  return { dataset, localPath, repo, part, saveDir: older ?? saveDir ?? dataset.saveDir };
}

function unknownDataset(name: string, datasets: readonly Dataset[]): UserError {
  if ([".parquet", ".jsonl", ".ndjson", ".json", ".gz"].includes(extname(name)))
    return new UserError(
      `${name} is a file. Write trainyard data show ${name} to print its rows, or trainyard data validate ${name}.`,
    );
  const known = datasets.map((dataset) => dataset.name);
  const [close] = nearest(name, [...known, "show", "validate"], 1);
  return new UserError(
    `\`${name}\` is no dataset that is prepared here.${close === undefined ? "" : ` Did you mean ${close}?`} The datasets ` +
      `are: ${known.join(", ")}. How to write rows of your own is in docs/data.md.`,
  );
}

async function help(options: string): Promise<string> {
  const { datasets } = await import("../data/prepare/datasets.ts");
  const width = Math.max(...datasets.map(({ name }) => name.length));
  const lines = datasets.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`);
  return `trainyard data: prepare a dataset, show the rows of a file, or check them.

Usage: trainyard data DATASET [options]          write the parquet files that verl's script of that name writes
       trainyard data show FILE [options]        print rows
       trainyard data validate FILE [key=value]  check whether training can use them

  trainyard data gsm8k
  trainyard data gsm8k --local_dataset_path raw/gsm8k --local_save_dir data/gsm8k
  trainyard data full_hh_rlhf --split rm
  trainyard data show data/gsm8k/train.parquet --rows 3 --from 100
  trainyard data validate data/gsm8k/train.parquet --model Qwen/Qwen2.5-0.5B-Instruct data.max_prompt_length=256

Datasets
${lines.join("\n")}

Options of preparing (a name may be written with _ or -)
${options}

trainyard data show --help and trainyard data validate --help list the options of these two.
`;
}
