/**
 * Many clients at once, a third of which disconnect: every answer is the one that its request gets alone, no request
 * stays behind, and memory does not grow. The server is the command itself, in its own process, with a tiny model.
 *
 * TRAINYARD_LOAD_SECONDS sets how long (10 here, 60 for the whole test); the latencies are printed.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Random } from "../src/util/random.ts";
import { pause, Sandbox } from "./sandbox.ts";

const seconds = Number(process.env.TRAINYARD_LOAD_SECONDS ?? 10);
const clients = 200;
const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));

let sandbox: Sandbox;
let server: ChildProcess;
let ended: Promise<unknown>;
let url = "";
beforeAll(async () => {
  sandbox = await Sandbox.make();
  const args = [launcher, "serve", sandbox.model, "--port", "0", "--max-num-seqs", "64"];
  server = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  ended = new Promise((resolve) => server.once("close", resolve));
  let said = "";
  server.stdout?.on("data", (chunk) => {
    said += chunk;
  });
  while (server.exitCode === null && !said.includes("Ctrl-C")) await pause(20);
  url = /http:\/\/127\.0\.0\.1:\d+/.exec(said)?.[0] ?? "";
});
afterAll(async () => {
  server.kill("SIGTERM");
  await ended;
  sandbox.remove();
});

type Ask = { readonly path: string; readonly body: Readonly<Record<string, unknown>> };

/** Short and long, greedy and seeded, one and several samples, texts and chats, streamed and whole. */
const asks: readonly Ask[] = Array.from({ length: 48 }, (_, i) => {
  const shared = {
    max_tokens: 4 + ((i * 7) % 40),
    seed: i,
    temperature: i % 3 === 0 ? 0 : 1,
    stream: i % 2 === 0,
    n: 1 + (i % 4 === 3 ? 1 : 0),
  };
  const words = `Question ${i % 12}: ${i}+${i * 3}=?`;
  return i % 3 === 1
    ? { path: "/v1/chat/completions", body: { ...shared, messages: [{ role: "user", content: words }] } }
    : { path: "/v1/completions", body: { ...shared, prompt: words, return_token_ids: true } };
});

function send({ path, body }: Ask, signal: AbortSignal | null = null): Promise<Response> {
  const headers = { "content-type": "application/json" };
  return fetch(url + path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** What an answer says, sample by sample, without what differs from one request to the next. */
async function read(answer: Response): Promise<string[]> {
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${answer.status}: ${text}`);
  const isStream = text.startsWith("data:");
  const events = isStream
    ? text
        .split("\n\n")
        .slice(0, -2)
        .map((line) => line.replace("data: ", ""))
    : [text];
  const said: string[] = [];
  for (const event of events) {
    for (const { index, text: piece, delta, message, finish_reason: end } of JSON.parse(event).choices) {
      said[index] = (said[index] ?? "") + (piece ?? delta?.content ?? message?.content ?? "") + (end ?? "");
    }
  }
  return said;
}

async function gauge(name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(new RegExp(`^trainyard:${name}\\{.*\\} (.*)$`, "m").exec(text)?.[1]);
}

/** Resident bytes of the server; 0 if the system does not report them. */
function residentBytes(): number {
  try {
    const [, kilobytes] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, "utf8")) ?? [];
    return Number(kilobytes ?? 0) * 1024;
  } catch {
    return 0;
  }
}

test(`${clients} clients, some of which disconnect: no wrong answer, no leak`, {
  timeout: (seconds + 60) * 1000,
}, async () => {
  const alone: string[][] = [];
  for (const ask of asks) alone.push(await read(await send(ask)));
  const latencies: number[] = [];
  let left = 0;
  let warmBytes = 0;
  const startedAt = performance.now();
  const elapsed = () => (performance.now() - startedAt) / 1000;

  const client = async (number: number) => {
    const random = new Random(number, "client");
    while (elapsed() < seconds) {
      const i = random.int(asks.length);
      const isFleeting = random.uniform() < 0.3;
      const signal = isFleeting ? AbortSignal.timeout(random.int(400)) : null;
      const before = performance.now();
      try {
        expect(await read(await send(asks[i]!, signal))).toEqual(alone[i]);
        latencies.push(performance.now() - before);
      } catch (error) {
        if (!signal?.aborted) throw error;
        left++;
      }
      if (warmBytes === 0 && elapsed() > seconds / 2) warmBytes = residentBytes();
    }
  };
  await Promise.all(Array.from({ length: clients }, (_, number) => client(number)));
  const took = elapsed();

  const deadline = performance.now() + 5000;
  while (
    performance.now() < deadline &&
    (await gauge("num_requests_running")) + (await gauge("num_requests_waiting")) > 0
  )
    await pause(20);
  expect([await gauge("num_requests_running"), await gauge("num_requests_waiting")]).toEqual([0, 0]);
  for (const [i, ask] of asks.entries()) expect(await read(await send(ask))).toEqual(alone[i]);

  latencies.sort((a, b) => a - b);
  const at = (part: number) => `${Math.round(latencies[Math.floor((latencies.length - 1) * part)] ?? 0)} ms`;
  const grown = (residentBytes() - warmBytes) / 2 ** 20;
  process.stdout.write(
    `${latencies.length} answers and ${left} disconnects in ${took.toFixed(1)} s: p50 ${at(0.5)}, p99 ${at(0.99)}; ` +
      `memory ${Math.round(residentBytes() / 2 ** 20)} MB, ${grown.toFixed(0)} MB more than halfway\n`,
  );
  expect(latencies.length).toBeGreaterThan(clients);
  expect(left).toBeGreaterThan(0);
  expect(grown).toBeLessThan(150); // the heap still settles; a lost request would show as a waiting one
});
