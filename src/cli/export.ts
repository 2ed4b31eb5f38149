/**
 * `trainyard export`: the model of a checkpoint as a Hugging Face folder of its own, without what only training needs.
 *
 * Tensors are copied one at a time, so it needs no more memory than the largest of them. The folder is written under a
 * temporary name, read back and compared, and only then renamed: a folder of that name is complete and right.
 */
import { readdir, realpath, rename, rm } from "node:fs/promises";
import { dirname, relative, resolve } from "node:path";
import { type Head, type ParameterSpec, parameterSpecs, readConfig } from "../models/config.ts";
import { elementCount, type WriteDtype } from "../models/safetensors.ts";
import { loadParameters, saveParameters } from "../models/weights.ts";
import { findModelFolder, isModel, isRole, listFolder } from "../run/find-model.ts";
import { trainedRoles } from "../run/names.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { invariant, UserError, unknownName } from "../util/errors.ts";
import { explainWrite, syncDirectory, temporaryName } from "../util/files.ts";
import { formatBytes, formatCount } from "../util/format.ts";
import { clearStatus, status } from "../util/log.ts";
import { flagVerb } from "./flag-verb.ts";
import { withInterrupt } from "./interrupt.ts";

export const verb = flagVerb({
  flags: {
    to: { kind: "text", value: "DIR", doc: "folder to write; it must not exist yet" },
    dtype: { kind: "choice", of: ["f32", "bf16"], doc: "numbers as they were trained, or rounded to half the size" },
    role: { kind: "text", value: "ROLE", doc: "actor, critic or reward (the model that the run trains)" },
    force: { kind: "switch", doc: "replace the model that is in DIR" },
  },
  help,
  async run({ flags, words: [from, extra] }) {
    const { to, role } = flags;
    if (from === undefined)
      throw new UserError(
        "There is nothing to export. Name a run or one of its checkpoints: trainyard export RUN --to DIR.",
      );
    if (extra !== undefined) throw new UserError(`Both ${from} and ${extra} are to be exported. Export one of them.`);
    if (to === undefined) throw new UserError(`The folder to export ${from} to is missing. Add --to DIR.`);
    if (role !== undefined && !isRole(role)) throw unknownName("`--role`", role, trainedRoles);
    return withInterrupt(async (signal) => {
      const source = await findModelFolder(from, role);
      await checkTarget(source, to, flags.force);
      const dtype = flags.dtype === "bf16" ? "BF16" : "F32";
      const model = await exportModel(source, { to, dtype, signal }).finally(clearStatus);
      process.stdout.write(report(model, source, to));
    });
  },
});

/** Refuse a folder whose content would be lost. */
async function checkTarget(source: string, to: string, isForced: boolean): Promise<void> {
  const names = await listFolder(to);
  const target = names === null ? resolve(to) : await realpath(to);
  const from = await realpath(source);
  if (isWithin(from, target) || isWithin(target, from)) {
    throw new UserError(
      `\`--to\` is ${to}, and ${source} is exported: one lies in the other. Choose a folder elsewhere.`,
    );
  }
  if (names === null || names.length === 0) return;
  if (!isForced)
    throw new UserError(`${to} exists already. Choose another folder, or replace the model in it with --force.`);
  const entries = await readdir(to, { withFileTypes: true });
  if (isModel(names) && entries.every((entry) => entry.isFile())) return;
  throw new UserError(
    `${to} holds more than a model (${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""}), so --force does not ` +
      "replace it. Choose another folder, or remove it yourself.",
  );
}

const isWithin = (path: string, folder: string): boolean => !/^\.\.(?:[\\/]|$)|^[A-Za-z]:/.test(relative(folder, path));

type Exported = {
  readonly head: Head;
  readonly parameters: number;
  readonly bytes: number;
  readonly dtype: WriteDtype;
};
type ExportOptions = { readonly to: string; readonly dtype: WriteDtype; readonly signal: AbortSignal };

async function exportModel(source: string, { to, dtype, signal }: ExportOptions): Promise<Exported> {
  const config = await readConfig(source);
  const specs = parameterSpecs(config);
  const staged = temporaryName(resolve(to));
  let done = 0;
  const get = async (spec: ParameterSpec): Promise<Float32Array> => {
    signal.throwIfAborted();
    status(`writing ${to} · ${done++}/${specs.length}`);
    const values = await readOne(source, spec);
    checkFinite(values, spec, source);
    return values;
  };
  try {
    await saveParameters(staged, config, specs, get, { dtype, tokenizerFrom: source });
    await verify(source, staged, { specs, signal, isRounded: dtype === "BF16" });
    await putInPlace(staged, resolve(to));
  } catch (error) {
    throw explainExport(to, error);
  } finally {
    await rm(staged, { recursive: true, force: true }).catch(() => {}); // the error that stopped the export counts
  }
  const parameters = specs.reduce((total, { shape }) => total + elementCount(shape), 0);
  return { head: config.head, parameters, bytes: parameters * (dtype === "BF16" ? 2 : 4), dtype };
}

/** Name the folder that the user gave, not the temporary one. */
function explainExport(to: string, error: unknown): unknown {
  const reason = error instanceof UserError ? error.cause : error;
  const explained = explainWrite(to, reason);
  return explained === reason ? error : explained;
}

async function readOne(dir: string, spec: ParameterSpec): Promise<Float32Array> {
  const values = new Float32Array(elementCount(spec.shape));
  await loadParameters(dir, [spec], () => values);
  return values;
}

function checkFinite(values: Float32Array, { name }: ParameterSpec, dir: string): void {
  if (values.every(Number.isFinite)) return;
  const count = values.reduce((total, value) => total + Number(!Number.isFinite(value)), 0);
  throw new UserError(
    `${dir}: ${count} of the ${values.length} numbers of "${name}" are not finite, so the model is of no use. ` +
      "Export an earlier checkpoint, and lower the learning rate.",
  );
}

type Check = { readonly specs: readonly ParameterSpec[]; readonly isRounded: boolean; readonly signal: AbortSignal };

/** Read what was written and compare it with its source. */
async function verify(source: string, written: string, { specs, isRounded, signal }: Check): Promise<void> {
  const config = await readConfig(written);
  invariant(parameterSpecs(config).length === specs.length, "config.json describes the model that was written");
  // A bfloat16 has eight binary digits, so rounding moves a number by at most one part in 256.
  const tolerance = isRounded ? 2 ** -8 : 0;
  for (const [done, spec] of specs.entries()) {
    signal.throwIfAborted();
    status(`reading it back · ${done}/${specs.length}`);
    const [before, after] = [await readOne(source, spec), await readOne(written, spec)];
    const at = before.findIndex((value, i) => !(Math.abs(value - after[i]!) <= tolerance * Math.abs(value)));
    if (at < 0) continue;
    throw new UserError(
      `"${spec.name}" was read back as ${after[at]} where ${before[at]} was written: the disk does not keep what is ` +
        "written. Nothing was exported; choose another disk.",
    );
  }
  if (((await listFolder(written)) ?? []).includes("tokenizer.json")) await loadTokenizer(written);
}

/** Give the folder its name; an existing model is moved aside until that is done. */
async function putInPlace(staged: string, to: string): Promise<void> {
  const aside = temporaryName(to);
  const replaces = (await listFolder(to)) !== null;
  if (replaces) await rename(to, aside);
  try {
    await rename(staged, to);
  } catch (error) {
    if (replaces) await rename(aside, to);
    throw error;
  }
  await syncDirectory(dirname(to));
  if (replaces) await rm(aside, { recursive: true, force: true });
}

const classes: Readonly<Record<Head, string>> = {
  lm: "AutoModelForCausalLM",
  value: "AutoModelForTokenClassification",
  score: "AutoModelForSequenceClassification",
};

function report({ head, parameters, bytes, dtype }: Exported, source: string, to: string): string {
  const uses: [string, string][] = [["transformers", `${classes[head]}.from_pretrained("${to}")`]];
  if (head === "lm") {
    uses.push(["vLLM", `vllm serve ${to}`], ["llama.cpp", `python convert_hf_to_gguf.py ${to} --outfile model.gguf`]);
    uses.push(["trainyard", `npx trainyard chat ${to}`]);
  } else if (head === "score") {
    uses.push(["trainyard", `npx trainyard ppo reward_model.enable=true reward_model.model.path=${to} …`]);
  } else uses.push(["trainyard", `npx trainyard ppo critic.model.path=${to} …`]);
  return `${source} is exported to ${to}: ${formatCount(parameters)} parameters as ${dtype}, ${formatBytes(bytes)}, read back and compared.

${uses.map(([name, use]) => `  ${name.padEnd(12)}  ${use}`).join("\n")}
`;
}

function help(options: string): string {
  return `trainyard export: the model of a checkpoint as a Hugging Face folder, without optimizer state.

Usage: trainyard export RUN|CHECKPOINT|MODEL --to DIR [options]

  trainyard export checkpoints/project/experiment --to my-model
  trainyard export checkpoints/project/experiment/global_step_100 --to my-model --dtype bf16
  trainyard export checkpoints/project/experiment/global_step_100 --role critic --to my-critic

RUN is a run folder, whose latest checkpoint is taken. What is written loads in transformers, vLLM and llama.cpp's
converter.

Options
${options}
`;
}
