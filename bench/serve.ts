/** The other end of `side.ts`, for sides of ours: read the job, then answer commands one by one until the input ends. */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { env } from "onnxruntime-node";

export type Answers = {
  answer(command: string): Promise<unknown>;
  close(): Promise<void>;
};

/** Serve the commands of the process that started this one. */
export async function serve(open: (job: unknown) => Promise<Answers>): Promise<void> {
  let answers: Answers | null = null;
  for await (const line of createInterface({ input: process.stdin })) {
    if (answers === null) {
      answers = await open(JSON.parse(line));
      reply({ ready: { node: process.versions.node, "onnxruntime-node": env.versions.node ?? "unknown" } });
    } else reply(await answers.answer(line));
  }
  await answers?.close();
}

function reply(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** The peak memory of this process in bytes. */
export function peakBytes(): number {
  if (process.platform !== "linux") return process.resourceUsage().maxRSS * 1024;
  const kilobytes = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
  return Number(kilobytes) * 1024;
}
