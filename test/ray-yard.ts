/** What tests of the Ray engine need: whether they can run, clusters, runs, and which processes are there. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseOverride } from "../src/config/overrides.ts";
import { ppoSchema } from "../src/config/ppo/schema.ts";
import { resolve } from "../src/config/resolve.ts";
import type { RewardFunction } from "../src/rewards/reward.ts";
import { trainRl } from "../src/train/rl/run.ts";
import { setLevel } from "../src/util/log.ts";
import { sevens, type Yard } from "./rl-yard.ts";

/** An interpreter that may have ray. */
export const python: string = process.env.TRAINYARD_TEST_PYTHON ?? "";

const find = "import sys; from importlib.util import find_spec as f; sys.exit(not (f('ray') and f('torch')))";

/** Whether the Ray engine can run here. */
export const hasRay: boolean = python !== "" && spawnSync(python, ["-c", find]).status === 0;

/** A cluster with a node for each number of processors; `do` kills and adds nodes. */
export async function startNodes(...cpus: number[]) {
  const script = fileURLToPath(new URL("python/ray_cluster.py", import.meta.url));
  // A session of its own, as the shim has one: so nothing of it stays behind unseen.
  const child = spawn(python, [script, ...cpus.map(String)], { stdio: ["pipe", "pipe", "ignore"], detached: true });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const { address } = JSON.parse((await lines.next()).value ?? "{}") as { address: string };
  return {
    address,
    session: child.pid!,
    async do(line: `kill ${number}` | `add ${number}`): Promise<void> {
      child.stdin.write(`${line}\n`);
      await lines.next();
    },
    async stop(): Promise<void> {
      child.stdin.end();
      await once(child, "exit");
      for (const pid of processesOf(child.pid!)) process.kill(pid, "SIGKILL"); // agents of nodes that were killed
    },
  };
}

/** Train by PPO in this process, with a reward at hand; the result is the run's metrics, timings aside. */
export function playOnRay(
  yard: Yard,
  run: string,
  overrides: readonly string[],
  reward?: RewardFunction,
): Promise<Record<string, number>[]> {
  return playWith(yard, run, overrides, { TRAINYARD_PYTHON: python, HF_HUB_OFFLINE: "1" }, reward);
}

/** The same with variables of the environment. */
export async function playWith(
  yard: Yard,
  run: string,
  overrides: readonly string[],
  env: Readonly<Record<string, string>>,
  reward: RewardFunction = sevens,
): Promise<Record<string, number>[]> {
  const { config } = resolve(ppoSchema, [yard.keys(run, overrides).map(parseOverride)], { home: "/", env });
  const custom = { ...config.custom_reward_function, function: { kind: "function", run: reward } as const };
  setLevel("quiet");
  try {
    await trainRl({ ...config, custom_reward_function: custom }, { signal: AbortSignal.any([]), env });
  } finally {
    setLevel("info");
  }
  return await yard.metrics(run);
}

/** The processes of a session, which are all that a process of its own session has started (Linux). */
export function processesOf(session: number): number[] {
  return processes().filter((pid) => stateOf(pid)?.session === session);
}

/** The workers that run in the cluster of a session (Linux). */
export function workersOf(session: number): number[] {
  return processesOf(session).filter((pid) => textOf(`/proc/${pid}/cmdline`).startsWith("ray::WorkerActor"));
}

const processes = (): number[] =>
  readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid));

function stateOf(pid: number): { session: number } | null {
  const fields = textOf(`/proc/${pid}/stat`).split(") ").at(-1)!.split(" ");
  return fields.length < 4 || fields[0] === "Z" ? null : { session: Number(fields[3]) };
}

/** Empty where the process has ended. */
function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
