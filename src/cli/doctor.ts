/**
 * `trainyard doctor`: what this machine has and lacks, one line each: ok, note (it could be better) or problem (training
 * does not work), with what to do.
 *
 * Devices are tried in processes of their own, since a faulty driver can end its process. Every check has a time limit:
 * two seconds for the hub, half a minute for a device.
 */
import { execFile } from "node:child_process";
import { accessSync, constants, existsSync } from "node:fs";
import { readdir, readFile, statfs } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isOffline, openRepo } from "../models/hub-repo.ts";
import type { Device } from "../runtime/devices.ts";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { counted, formatBytes, formatCount } from "../util/format.ts";
import { type Machine, thisMachine } from "../util/machine.ts";
import { flagVerb } from "./flag-verb.ts";
import type { Call } from "./verb.ts";

type Level = "ok" | "note" | "problem";
/** The result of one check. */
export type Finding = { readonly level: Level; readonly about: string; readonly text: string };

const devices: readonly Device[] = ["cpu", "webgpu", "cuda"];

export const verb = flagVerb({
  flags: { device: { kind: "text", value: "DEVICE", doc: "try one device (cpu, webgpu or cuda) and nothing else" } },
  help,
  async run({ flags, words: [word] }, { env }) {
    if (word !== undefined)
      throw new UserError(`\`${word}\` is one word too many: trainyard doctor takes options only. --help lists them.`);
    return flags.device === undefined ? checkMachine(env) : checkDevice(flags.device);
  },
});

/** Try one device; returns 0, or 1 when it does not work. */
async function checkDevice(name: string): Promise<number> {
  const device = devices.find((one) => one === name);
  if (device === undefined) throw new UserError(`\`--device\` is ${name}; it should be one of ${devices.join(", ")}.`);
  const finding = await tryDevice(device);
  process.stdout.write(line(finding));
  return finding.level === "problem" ? 1 : 0;
}

/** Check everything; returns 0, or 1 when something keeps this machine from training. */
async function checkMachine(env: Call["env"]): Promise<number> {
  const checks: readonly (readonly Finding[] | Promise<readonly Finding[]>)[] = [
    [node()],
    deviceFindings(),
    [...machineFindings(thisMachine())],
    one(disk("checkpoints")),
    one(python()),
    one(cache(env)),
    one(hub(env)),
  ];
  const findings: Finding[] = [];
  for (const check of checks) {
    for (const finding of await check) {
      process.stdout.write(line(finding));
      findings.push(finding);
    }
  }
  const problems = findings.filter(({ level }) => level === "problem").length;
  process.stdout.write(
    problems === 0
      ? "\nThis machine can train. `npm start` in a clone, or trainyard ppo --help, to begin.\n"
      : `\n${counted(problems, "problem")} to solve before this machine can train.\n`,
  );
  return problems === 0 ? 0 : 1;
}

async function one(finding: Promise<Finding>): Promise<readonly Finding[]> {
  return [await finding];
}

const line = ({ level, about, text }: Finding): string => `${level.padEnd(7)}  ${about.padEnd(8)}  ${text}\n`;

function node(): Finding {
  const { version, platform, arch } = process;
  return { level: "ok", about: "node", text: `${version.slice(1)} on ${platform} ${arch}` }; // the launcher refuses an older one
}

/** Compile and run a tiny program on a device, in this process. */
async function tryDevice(device: Device): Promise<Finding> {
  const [{ Runtime }, { sharedFloats }, { compile }, { input, neg }] = await Promise.all([
    import("../runtime/runtime.ts"),
    import("../runtime/vectors.ts"),
    import("../onnx/emit.ts"),
    import("../graph/ops.ts"),
  ]);
  const started = performance.now();
  const runtime = new Runtime({ device, threads: 1 });
  try {
    const program = await runtime.load(compile({ y: neg(input("x", [2])) }));
    const arrays = { x: sharedFloats(2), y: sharedFloats(2) };
    arrays.x.set([1, -2]);
    await runtime.run(program, { arrays });
    if (arrays.y[0] !== -1 || arrays.y[1] !== 2)
      return {
        level: "problem",
        about: device,
        text: `it computes -[1, -2] as [${arrays.y}]. Install onnxruntime-node again.`,
      };
    const ms = Math.round(performance.now() - started);
    return {
      level: "ok",
      about: device,
      text: `runs programs (onnxruntime-node ${await runtimeVersion()}, ready in ${ms} ms)`,
    };
  } catch (error) {
    return { level: "problem", about: device, text: messageOf(error) };
  } finally {
    await runtime.close();
  }
}

async function runtimeVersion(): Promise<string> {
  const { onnxruntimeFolder } = await import("../runtime/onnxruntime.ts");
  const { version }: { version: string } = JSON.parse(
    await readFile(join(onnxruntimeFolder(), "package.json"), "utf8"),
  );
  return version;
}

const DEVICE_MS = 30_000;

/** Try each device in a process of its own. Only the cpu is needed; where it does not work, the others are not shown. */
async function deviceFindings(): Promise<readonly Finding[]> {
  const { onnxruntimeFolder } = await import("../runtime/onnxruntime.ts");
  try {
    onnxruntimeFolder(); // before the processes that have a time limit
  } catch (error) {
    return [{ level: "problem", about: "cpu", text: messageOf(error) }];
  }
  const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));
  const findings = devices.map(async (device): Promise<Finding> => {
    const { output, failure } = await call(process.execPath, [launcher, "doctor", "--device", device], DEVICE_MS);
    const [, level, text] = /^(\w+) +\w+ +(.*)/s.exec(output) ?? [];
    const found: Finding =
      level === undefined || text === undefined
        ? { level: "problem", about: device, text: `the process that tried it ended: ${failure}` }
        : { level: level === "ok" ? "ok" : "problem", about: device, text: text.trim() };
    const isNeeded = device === "cpu";
    return found.level === "problem" && !isNeeded ? { ...found, level: "note" } : found;
  });
  const found = await Promise.all(findings);
  return found[0]?.level === "ok" ? found : found.slice(0, 1);
}

/** Weights, gradients and two moments of four bytes each, and a quarter more for activations. */
const BYTES_PER_PARAMETER = 20;
const LEAST_BYTES = 512 * 2 ** 20;

/** Memory and cores. */
export function machineFindings({ memory, isLimited, free, cores }: Machine): Finding[] {
  const what = `${formatBytes(memory)}${isLimited ? " (the container's limit)" : ""}, ${formatBytes(free)} of it free`;
  const most = formatCount((0.9 * memory) / BYTES_PER_PARAMETER);
  const memoryLevel: Level = memory < LEAST_BYTES ? "problem" : free < LEAST_BYTES ? "note" : "ok";
  const advice = {
    ok: `enough to train a model of about ${most} parameters by sft, half of that with a critic`,
    note: "close other programs before training",
    problem: "training needs 512 MB at the least",
  };
  const few = "sampling and rewards share it with training";
  return [
    { level: memoryLevel, about: "memory", text: `${what}: ${advice[memoryLevel]}` },
    { level: cores > 1 ? "ok" : "note", about: "cores", text: cores > 1 ? `${cores}` : `1: ${few}` },
  ];
}

/** Whether files can be written to a folder, or to the first folder above it that exists, and how many bytes are free. */
export async function disk(folder: string): Promise<Finding> {
  let existing = resolve(folder);
  while (!existsSync(existing) && existing !== dirname(existing)) existing = dirname(existing);
  const found = (level: Level, text: string): Finding => ({ level, about: "disk", text });
  const elsewhere = "Start from another folder, or set `trainer.default_local_dir`";
  try {
    accessSync(existing, constants.W_OK | constants.X_OK);
  } catch (error) {
    return found(
      "problem",
      `checkpoints would go to ${resolve(folder)}, and no file can be written to ${existing} (${codeOf(error)}). ${elsewhere}.`,
    );
  }
  const { bavail, bsize } = await statfs(existing);
  const free = bavail * bsize;
  const text = `${formatBytes(free)} free for checkpoints in ${resolve(folder)}`;
  if (free < 100e6) return found("problem", `${text}. ${elsewhere}, or free some.`);
  if (free < 5e9)
    return found(
      "note",
      `${text}; one of a model of 500M parameters takes 6 GB. \`trainer.max_ckpt_to_keep\` limits them.`,
    );
  return found("ok", text);
}

const PYTHON_MS = 5000;
const pythonProgram = `import importlib.metadata as m, platform, sys
def v(name):
    try: return name + " " + m.version(name)
    except m.PackageNotFoundError: return ""
print("%s|%s|%s" % (platform.python_version(), int(sys.version_info >= (3, 11)), " ".join(filter(None, map(v, ["ray", "torch", "vllm"])))))`;

/** Only rewards in Python and the Ray engine need Python. */
async function python(): Promise<Finding> {
  const found = (level: Level, text: string): Finding => ({ level, about: "python", text });
  const { output } = await call("python3", ["-c", pythonProgram], PYTHON_MS);
  const [version = "", isNew, packages = ""] = output.trim().split("|");
  if (version === "")
    return found("note", "python3 was not found; only rewards written in Python and the Ray engine need it");
  if (isNew !== "1") return found("note", `${version}; the Ray engine needs 3.11 or newer, nothing else does`);
  return found(
    "ok",
    `${version}${packages === "" ? "; Ray and torch are not installed, and only the Ray engine needs them" : ` with ${packages}`}`,
  );
}

/** Where models of the hub are kept. */
async function cache(env: Call["env"]): Promise<Finding> {
  const folder = dirname(anyRepo(env).folder);
  const names = await readdir(folder).catch(() => []);
  const models = names.filter((name) => name.startsWith("models--")).length;
  return { level: "ok", about: "cache", text: `${counted(models, "model")} of the hub in ${folder}` };
}

const HUB_MS = 2000;

/** Whether the hub answers; without it, models and datasets must be on this machine already. */
async function hub(env: Call["env"]): Promise<Finding> {
  const found = (level: Level, text: string): Finding => ({ level, about: "hub", text });
  const { endpoint } = anyRepo(env);
  const instead = "name models by their folder, or use what is in the cache";
  if (isOffline(env)) return found("note", `HF_HUB_OFFLINE is set, so ${endpoint} is not asked: ${instead}`);
  try {
    await fetch(endpoint, { method: "HEAD", redirect: "manual", signal: AbortSignal.timeout(HUB_MS) });
    return found("ok", `${endpoint} answers`);
  } catch {
    return found(
      "note",
      `${endpoint} does not answer within ${HUB_MS / 1000} seconds: ${instead}, or set HF_ENDPOINT to a mirror`,
    );
  }
}

/** A repository of the hub: it shows the address of the hub and the folder of the cache. */
function anyRepo(env: Call["env"]): { readonly folder: string; readonly endpoint: string } {
  const repo = openRepo("model", "owner/name", { env });
  if (repo === null) throw new Error("internal: owner/name is the name of a repository");
  return repo;
}

type Called = { readonly output: string; readonly failure: string };

/** What a program prints; it is killed when it takes too long, and its exit code does not matter. */
function call(command: string, args: readonly string[], timeoutMs: number): Promise<Called> {
  return new Promise((done) => {
    execFile(command, args, { timeout: timeoutMs, killSignal: "SIGKILL" }, (error, output) => {
      const failure =
        error === null
          ? ""
          : error.killed
            ? `it took more than ${timeoutMs / 1000} seconds`
            : (error.signal ?? error.message);
      done({ output, failure });
    });
  });
}

function help(options: string): string {
  return `trainyard doctor: what this machine has and lacks for training, and what to do about it.

Usage: trainyard doctor [options]

Each line is ok, note (it could be better) or problem (training does not work). The exit code is 0 unless there is a
problem.

Options
${options}
`;
}
