/** The process that keeps a server under a Ray actor: whatever is killed, nothing of the server stays behind. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { pause } from "./sandbox.ts";

const python = process.env.TRAINYARD_TEST_PYTHON ?? "";
const keeper = fileURLToPath(new URL("../python/trainyard_worker/keeper.py", import.meta.url));

/** Says its process id and that of a child, both deaf to SIGTERM, and waits, or ends when it is told a code. */
const command = `
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(60 if len(sys.argv) < 2 else 0.2)
sys.exit(int(sys.argv[1]))
`;

async function keep(...args: readonly string[]): Promise<{ kept: ChildProcess; pids: readonly number[] }> {
  const kept = spawn(python, ["-P", keeper, python, "-c", command, ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const { value } = await createInterface(kept.stdout)[Symbol.asyncIterator]().next();
  return { kept, pids: String(value).split(" ").map(Number) };
}

/** Whether a process is there, and not only its remains (Linux). */
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

describe.skipIf(python === "" || process.platform !== "linux")("a kept command (needs Python, on Linux)", () => {
  test("ends, with its children, when whoever started it is gone", async () => {
    const { kept, pids } = await keep();
    expect(pids.every(isRunning)).toBe(true);
    kept.stdin?.destroy();
    await expectGone(pids, 10_000);
  });

  test("ends, with its children, when its keeper is killed", async () => {
    const { kept, pids } = await keep();
    kept.kill("SIGKILL");
    await expectGone(pids, 5000);
  });

  test("leaves no children when it ends by itself, and its exit code is told", async () => {
    const { kept, pids } = await keep("3");
    const [code] = await once(kept, "exit");
    expect(code).toBe(3);
    await expectGone(pids, 5000);
  });

  test("that is killed is told as a shell tells it", async () => {
    const { kept, pids } = await keep();
    process.kill(pids[0]!, "SIGKILL");
    const [code] = await once(kept, "exit");
    expect(code).toBe(128 + 9);
    await expectGone(pids, 5000);
  });
});
