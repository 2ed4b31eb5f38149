/**
 * The server on the embedded engine: its answers are those of the model, and the command starts and stops correctly.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { createModel } from "../src/models/create.ts";
import { pause, tinyConfig } from "./sandbox.ts";
import { serveTiny } from "./serving.ts";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const launcher = path("../bin/trainyard.js");
const minimind = path("../../shared/models/minimind2-small");

let tiny: Awaited<ReturnType<typeof serveTiny>>;
beforeAll(async () => {
  tiny = await serveTiny({ allowsReload: true });
});
const children: ChildProcess[] = [];
afterAll(async () => {
  for (const child of children) child.kill("SIGKILL"); // those of tests that went wrong
  await tiny.close();
});

const prompts = ["1+1=?", "Hello", "What is 3+4?", "a"];

test("the server's text and log-probs are the model's own, also for many at once", async () => {
  const settings = { max_tokens: 24, seed: 5, temperature: 0.8, top_p: 0.95, logprobs: 2, n: 2 };
  const answers = await Promise.all(
    prompts.map((prompt) => tiny.openai.completions.create({ model: "tiny", prompt, ...settings })),
  );
  for (const [i, prompt] of prompts.entries()) {
    const { samples } = await tiny.model.sample({
      prompt: tiny.tokenizer.encode(prompt),
      maxNewTokens: 24,
      seed: 5,
      temperature: 0.8,
      topP: 0.95,
      topLogprobs: 2,
      n: 2,
      wantsText: true,
    });
    expect(answers[i]?.choices.map(({ text }) => text)).toEqual(samples.map(({ text }) => text));
    for (const [k, { logprobs }] of samples.entries()) {
      const given = answers[i]?.choices[k]?.logprobs?.token_logprobs ?? [];
      expect(given).toHaveLength(logprobs.length);
      for (const [at, logprob] of logprobs.entries()) expect(given[at]).toBeCloseTo(logprob, 4);
    }
  }
});

test("streamed and whole answers of the engine are the same, and stop where the engine stops", async () => {
  const ask = { model: "tiny", messages: [{ role: "user" as const, content: "Hi" }], max_tokens: 60, seed: 9 };
  const [free] = (await tiny.openai.chat.completions.create(ask)).choices;
  const stop = free?.message.content?.slice(10, 12) ?? "";
  for (const asked of [ask, { ...ask, stop }]) {
    const [whole] = (await tiny.openai.chat.completions.create(asked)).choices;
    let text = "";
    for await (const { choices } of await tiny.openai.chat.completions.create({ ...asked, stream: true }))
      text += choices[0]?.delta.content ?? "";
    expect(text).toBe(whole?.message.content);
  }
  const [stopped] = (await tiny.openai.chat.completions.create({ ...ask, stop })).choices;
  expect(stopped?.message.content).toBe(free?.message.content?.slice(0, free.message.content.indexOf(stop)));
});

test("the prompt's log-probs are those of the model's forward pass", async () => {
  const ids = [...tiny.tokenizer.encode("What is 3+4?")];
  const { choices } = await tiny.openai.completions.create({
    model: "tiny",
    prompt: ids,
    max_tokens: 0,
    echo: true,
    logprobs: 0,
  });
  const row = { ids: Int32Array.from(ids), mask: ids.map(() => 1) };
  const [{ logprobs } = {}] = await tiny.model.forward([row], ["logprobs"], { micro: { rows: 1 } });
  const given = choices[0]?.logprobs?.token_logprobs ?? [];
  expect(given).toHaveLength(ids.length);
  for (let i = 1; i < ids.length; i++) expect(given[i]).toBeCloseTo(logprobs?.[i] ?? Number.NaN, 4);
});

test("after new weights are loaded, answers equal those of a model opened on them; other shapes are refused", async () => {
  const ask = { prompt: "1+1=?", max_tokens: 20, temperature: 0 };
  const textOf = async () => (await tiny.ask("/v1/completions", ask)).choices[0].text;
  const before = await textOf();
  const other = tiny.sandbox.path("other");
  await createModel(other, { ...tinyConfig, initializer_range: 0.5 }, 2);
  expect((await tiny.post("/reload_weights", { path: other })).status).toBe(200);
  const engine = new EmbeddedEngine({ threads: 1 });
  const model = await engine.open({ folder: other });
  const { samples } = await model.sample({ prompt: tiny.tokenizer.encode("1+1=?"), maxNewTokens: 20, temperature: 0 });
  await engine.close();
  const after = await textOf();
  expect(after).toBe(tiny.tokenizer.decode(samples[0]?.ids ?? [], { skipSpecialTokens: true }));
  expect(after).not.toBe(before);
  const wide = tiny.sandbox.path("wide");
  await createModel(wide, { ...tinyConfig, intermediate_size: 96 }, 2);
  const refused = await tiny.post("/reload_weights", { path: wide });
  expect(refused.status).toBe(400);
  expect(await textOf()).toBe(after);
  expect((await tiny.post("/reload_weights", { path: tiny.sandbox.model })).status).toBe(200);
  expect(await textOf()).toBe(before);
});

/** The command in a process of its own. */
function command(...args: readonly string[]) {
  const child = spawn(process.execPath, [launcher, "serve", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => {
      said += chunk;
    });
  const ended = new Promise<number | NodeJS.Signals | null>((resolve) =>
    child.once("close", (code, signal) => resolve(signal ?? code)),
  );
  const url = async () => {
    while (child.exitCode === null && !said.includes("Ctrl-C stops it.")) await pause(20);
    const [found] = /http:\/\/127\.0\.0\.1:\d+/.exec(said) ?? [];
    if (found === undefined) throw new Error(`the server did not start: ${said}`);
    return found;
  };
  return { child, ended, url, said: () => said };
}

describe("the command", () => {
  test("prints its address, finishes running requests on SIGTERM and ends with exit code 0", async () => {
    const { child, ended, url, said } = command(
      tiny.sandbox.model,
      "--port",
      "0",
      "--max-model-len",
      "200",
      "--threads",
      "1",
    );
    const base = await url();
    expect(said()).toMatch(
      /^Serving model \(\d[\d.]*K parameters, context 200 tokens\) at http:\/\/127\.0\.0\.1:\d+\/v1\n/,
    );
    const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
    const ask = { model: "model", prompt: "a", max_tokens: 190, stream: true as const, ignore_eos: true };
    const stream = await openai.completions.create(ask);
    child.kill("SIGTERM");
    let end: string | null = null;
    for await (const { choices } of stream) end = choices[0]?.finish_reason ?? end;
    expect(end).toBe("length");
    expect(await ended).toBe(0);
    expect(said()).toMatch(/Stopping: open requests are finished first/);
  });

  test("ends at once on a second Ctrl-C", async () => {
    const { child, ended, url } = command(tiny.sandbox.model, "--port", "0", "--threads", "1");
    const base = await url();
    const ask = JSON.stringify({ prompt: ["a", "b", "c", "d"], max_tokens: 240, n: 100, ignore_eos: true });
    const headers = { "content-type": "application/json" };
    fetch(`${base}/v1/completions`, { method: "POST", body: ask, headers }).catch(() => undefined);
    await pause(300);
    child.kill("SIGINT");
    await pause(500);
    child.kill("SIGINT");
    expect(await ended).toBe("SIGINT");
  });

  test.each([
    [[], /There is no model to serve/],
    [["a", "b"], /Both a and b are models/],
    [["./nowhere"], /There is no folder "\.\/nowhere"/],
    [["MODEL", "--port", "70000"], /it should be a whole number from 0 to 65535/],
    [["MODEL", "--max-model-len", "999999"], /`--max-model-len` is 999999, and the model's context is 256/],
    [["MODEL", "--chat-template", "nowhere.jinja"], /nowhere\.jinja \(`--chat-template`\) cannot be read/],
    [["MODEL", "--port", "TAKEN"], /another program listens on port \d+ already/],
    [["MODEL", "--host", "203.0.113.1", "--port", "0"], /this machine has no such address/],
  ] as const)("%j is a mistake that is told, with exit code 2", async (args, message) => {
    const words: Readonly<Record<string, string>> = { MODEL: tiny.sandbox.model, TAKEN: String(tiny.server.port) };
    const { ended, said } = command(...args.map((word) => words[word] ?? word));
    expect(await ended).toBe(2);
    expect(said()).toMatch(message);
    expect(said().trim().split("\n")).toHaveLength(1);
  });
});

test.skipIf(!existsSync(minimind))(
  "the capital of France is what Hugging Face's generate says it is (needs ../shared)",
  async () => {
    const { child, ended, url } = command(minimind, "--port", "0");
    const openai = new OpenAI({ baseURL: `${await url()}/v1`, apiKey: "none" });
    const messages = [{ role: "user" as const, content: "What is the capital of France?" }];
    const { choices } = await openai.chat.completions.create({ model: "minimind2-small", messages, temperature: 0 });
    child.kill("SIGTERM");
    expect(choices[0]?.message.content).toBe("The capital of France is Paris.");
    expect(await ended).toBe(0);
  },
);
