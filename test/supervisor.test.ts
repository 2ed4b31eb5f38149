/** The process that runs a server for a Ray actor: whichever process is killed, no process of the server remains. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { pause } from "./sandbox.ts";

const python = process.env.TRAINYARD_TEST_PYTHON ?? "";
const supervisor = fileURLToPath(new URL("../python/trainyard_worker/supervisor.py", import.meta.url));

/** Prints its process id and that of a child, both ignoring SIGTERM, and waits, or exits with the code it is given. */
const command = `
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(60 if len(sys.argv) < 2 else 0.2)
sys.exit(int(sys.argv[1]))
`;

async function run(...args: readonly string[]): Promise<{ child: ChildProcess; pids: readonly number[] }> {
  const child = spawn(python, ["-P", supervisor, python, "-c", command, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const { value } = await createInterface(child.stdout)[Symbol.asyncIterator]().next();
  return { child, pids: String(value).split(" ").map(Number) };
}

/** Whether a process runs and is not a zombie (Linux). */
function isRunning(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

async function expectGone(pids: readonly number[], withinMs: number): Promise<void> {
  const end = performance.now() + withinMs;
  while (pids.some(isRunning) && performance.now() < end) await pause(20);
  expect(pids.filter(isRunning)).toEqual([]);
}

describe.skipIf(python === "" || process.platform !== "linux")("a supervised command (needs Python, on Linux)", () => {
  test("ends, with its children, when the process that started it is gone", async () => {
    const { child, pids } = await run();
    expect(pids.every(isRunning)).toBe(true);
    child.stdin?.destroy();
    await expectGone(pids, 30_000);
  });

  test("ends, with its children, when its supervisor is killed", async () => {
    const { child, pids } = await run();
    child.kill("SIGKILL");
    await expectGone(pids, 30_000);
  });

  test("leaves no children when it ends by itself, and its exit code is passed on", async () => {
    const { child, pids } = await run("3");
    const [code] = await once(child, "exit");
    expect(code).toBe(3);
    await expectGone(pids, 30_000);
  });

  test("that is killed gives the exit code that a shell would give", async () => {
    const { child, pids } = await run();
    process.kill(pids[0]!, "SIGKILL");
    const [code] = await once(child, "exit");
    expect(code).toBe(128 + 9);
    await expectGone(pids, 30_000);
  });
});
