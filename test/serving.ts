/** Servers for the tests that talk to one, on free ports of this machine: on the small sampler, or on the engine. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { cp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { expect } from "vitest";
import * as z from "zod";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import type { EmbeddedModel } from "../src/engine/embedded/model.ts";
import { createModel } from "../src/models/create.ts";
import type { ServedModel } from "../src/serve/served-model.ts";
import { type RunningServer, type ServerOptions, startServer } from "../src/serve/server.ts";
import { loadTokenizer, type Tokenizer } from "../src/text/tokenizer.ts";
import { type FakeOptions, FakeSampler } from "./fake-sampler.ts";
import { pause, Sandbox, tinyConfig } from "./sandbox.ts";

const fixtures = fileURLToPath(new URL("fixtures/text", import.meta.url));
const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));

/** Qwen2's tokenizer with a template that writes out tools, as a folder of its own. */
export async function servedTokenizer(): Promise<{ tokenizer: Tokenizer; folder: string; remove(): void }> {
  const folder = mkdtempSync(join(tmpdir(), "trainyard-serve-"));
  for (const name of ["tokenizer.json", "tokenizer_config.json"])
    await cp(join(fixtures, "qwen2", name), join(folder, name));
  await cp(join(fixtures, "templates", "tools.jinja"), join(folder, "chat_template.jinja"));
  return {
    tokenizer: await loadTokenizer(folder),
    folder,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** What a server is started with unless a test says otherwise. */
export const serverDefaults: ServerOptions = {
  host: "127.0.0.1",
  port: 0,
  apiKey: null,
  names: ["fake", "models/fake"],
  root: "models/fake",
  maxLength: 2048,
  chatTemplate: null,
  maxPrompts: 1024,
  timeoutMs: 60_000,
  maxBodyBytes: 1 << 20,
  allowedOrigins: [],
  allowsReload: false,
  version: "1.2.3",
};

export type Served = {
  readonly server: RunningServer;
  readonly tokenizer: Tokenizer;
  readonly openai: OpenAI;
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>;
  /** The JSON that a POST is answered with. */
  ask(path: string, body: unknown): Promise<ReturnType<typeof JSON.parse>>;
};

/** Start a server on a model, with ways to talk to it. */
export async function serveModel(
  model: ServedModel,
  tokenizer: Tokenizer,
  options: Partial<ServerOptions> = {},
): Promise<Served> {
  const server = await startServer(model, tokenizer, { ...serverDefaults, ...options });
  const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: options.apiKey ?? "none", maxRetries: 0 });
  const post: Served["post"] = (path, body, init = {}) =>
    fetch(`${server.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: typeof body === "string" ? body : JSON.stringify(body),
      ...init,
    });
  return { server, tokenizer, openai, post, ask: async (path, body) => readJson(await post(path, body)) };
}

export type Fake = Served & { readonly model: FakeSampler; readonly folder: string; close(): Promise<void> };

/** Start a server on a fresh sampler. */
export async function serveFake(sampler: FakeOptions = {}, options: Partial<ServerOptions> = {}): Promise<Fake> {
  const { tokenizer, folder, remove } = await servedTokenizer();
  const model = new FakeSampler(tokenizer, sampler);
  const served = await serveModel(model, tokenizer, options);
  return {
    ...served,
    model,
    folder,
    async close() {
      await served.server.stop(0);
      remove();
    },
  };
}

/** A server on the embedded engine, with the sandbox's tiny model. */
export async function serveTiny(
  options: Partial<ServerOptions> = {},
): Promise<Served & { readonly model: EmbeddedModel; readonly sandbox: Sandbox; close(): Promise<void> }> {
  const sandbox = await Sandbox.make();
  const engine = new EmbeddedEngine({ threads: 2 });
  const model = await engine.open({ folder: sandbox.model });
  const tokenizer = await loadTokenizer(sandbox.model);
  const served = await serveModel(model, tokenizer, {
    maxLength: model.config.maxPositions,
    names: ["tiny"],
    ...options,
  });
  return {
    ...served,
    model,
    sandbox,
    async close() {
      await served.server.stop(0);
      await engine.close();
      sandbox.remove();
    },
  };
}

/** Every value has an end: lengths, counts and digits are bounded. */
export const Person = z.object({
  name: z.string().max(12),
  age: z.int().min(0).max(130),
  score: z.number().min(-1).max(1),
  role: z.enum(["admin", "user"]),
  tags: z.array(z.string().max(4)).max(3),
  isActive: z.boolean(),
  born: z.iso.date().nullable(),
});

/** The command `serve` in a process of its own, with a tiny model of random weights and a context of 4,096 tokens. */
export async function serveCommand(): Promise<{ base: string; openai: OpenAI; close(): void }> {
  const sandbox = await Sandbox.make();
  const model = sandbox.path("wide");
  await createModel(model, { ...tinyConfig, max_position_embeddings: 4096 }, 1);
  await sandbox.addTokenizer(model);
  const args = [launcher, "serve", model, "--port", "0", "--threads", "1", "--served-model-name", "tiny"];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => {
      said += chunk;
    });
  while (child.exitCode === null && !said.includes("Ctrl-C stops it.")) await pause(20);
  const [found] = /http:\/\/127\.0\.0\.1:\d+/.exec(said) ?? [];
  if (found === undefined) throw new Error(`the server did not start: ${said}`);
  const base = `${found}/v1`;
  return {
    base,
    openai: new OpenAI({ baseURL: base, apiKey: "none", maxRetries: 0 }),
    close() {
      child.kill("SIGKILL");
      sandbox.remove();
    },
  };
}

/** The JSON of an answer. */
export async function readJson(answer: Response): Promise<ReturnType<typeof JSON.parse>> {
  return JSON.parse(await answer.text());
}

/** OpenAI's error body, with a message that is a sentence. */
export function expectError(body: { error?: Record<string, unknown> }): void {
  expect(Object.keys(body.error ?? {}).sort()).toEqual(["code", "message", "param", "type"]);
  expect(body.error?.message).toMatch(/^[A-Z`\d].{10,}/s);
  expect(body.error?.message).not.toMatch(/Invalid input|undefined|\[object|internal|\n {4}at /);
}
