/**
 * `trainyard serve`: open a model and serve it until a signal comes.
 *
 * After the first SIGTERM or Ctrl-C open requests are finished, and the exit code is 0; a second one ends the program at
 * once.
 */
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import type { SamplerLimits } from "../rollout/request.ts";
import type { ServerOptions } from "../serve/server.ts";
import { messageOf, UserError } from "../util/errors.ts";
import { formatCount } from "../util/format.ts";
import { apiKeyOf } from "./api-key.ts";
import { flagVerb } from "./flag-verb.ts";
import type { FlagValues } from "./flags.ts";
import { untilSignal } from "./interrupt.ts";
import type { Call } from "./verb.ts";

const flags = {
  host: { kind: "text", value: "HOST", doc: "address to listen on; 0.0.0.0 for all (127.0.0.1)" },
  port: { kind: "count", least: 0, most: 65535, fallback: 8000, doc: "port to listen on; 0 for any that is free" },
  "api-key": {
    kind: "text",
    value: "KEY",
    doc: "key that clients must send (or the variable TRAINYARD_API_KEY, or else OPENAI_API_KEY)",
  },
  "served-model-name": { kind: "text", value: "NAME", doc: "name of the model for clients (the folder's name)" },
  "max-model-len": { kind: "count", least: 2, doc: "tokens of prompt and answer together (the model's context)" },
  "max-num-seqs": { kind: "count", least: 1, doc: "sequences decoded together" },
  "max-num-batched-tokens": { kind: "count", least: 1, doc: "prompt tokens computed in one step" },
  "cache-gb": { kind: "number", doc: "memory for keys and values of past tokens, in GB" },
  device: { kind: "choice", of: ["cpu", "webgpu", "cuda"], doc: "where the model runs" },
  threads: { kind: "count", least: 0, fallback: 0, doc: "threads of the engine; 0 for one per core" },
  "chat-template": { kind: "text", value: "FILE", doc: "Jinja template instead of the model's own" },
  "max-queued-requests": { kind: "count", least: 1, fallback: 1024, doc: "open prompts before further ones get 429" },
  "max-body-mb": { kind: "number", fallback: 8, doc: "largest request body, in MB" },
  "request-timeout": { kind: "number", fallback: 600, doc: "seconds one request may take" },
  "shutdown-timeout": { kind: "number", fallback: 30, doc: "seconds that open requests have to end" },
  "allowed-origins": { kind: "text", value: "A,B", doc: "origins that browsers may call from; * for all (none)" },
  "allow-reload": { kind: "switch", doc: "without a key, let programs on this machine call /reload_weights" },
} as const;

type Settings = FlagValues<typeof flags>;

export const verb = flagVerb({
  flags,
  help,
  async run({ flags: settings, words: [model, extra] }, { env }) {
    if (model === undefined) throw new UserError("There is no model to serve. Name one: trainyard serve MODEL.");
    if (extra !== undefined) throw new UserError(`Both ${model} and ${extra} are models. Serve one of them.`);
    const notice = "Stopping: open requests are finished first. Press Ctrl-C again to stop at once.";
    await untilSignal((signal) => serve(model, settings, { env, signal }), { notice });
    return 0;
  },
});

async function serve(
  name: string,
  settings: Settings,
  { env, signal }: { env: Call["env"]; signal: AbortSignal },
): Promise<void> {
  const [{ fetchModel }, { EmbeddedEngine }, { loadTokenizer }, { startServer }, { findActor }] = await Promise.all([
    import("../train/fetch-model.ts"),
    import("../engine/embedded/engine.ts"),
    import("../text/tokenizer.ts"),
    import("../serve/server.ts"),
    import("../run/find-model.ts"),
  ]);
  const options = await optionsOf(name, settings, env);
  const folder = await fetchModel(await findActor(name), { env, signal });
  const tokenizer = await loadTokenizer(folder);
  const engine = new EmbeddedEngine({ device: settings.device, threads: settings.threads });
  try {
    const model = await engine.open({ folder, sampler: limitsOf(settings) });
    await model.sample({ prompt: [0], maxNewTokens: 1 }); // so that an error shows now, and the first client need not wait
    const maxLength = lengthOf(settings, model.config.maxPositions, model.samplerStats().cacheTokens);
    if (signal.aborted) return;
    const server = await startServer(model, tokenizer, { ...options, maxLength });
    const about = `${formatCount(model.parameterCount)} parameters, context ${maxLength} tokens`;
    process.stdout.write(welcome(server.url, options, about));
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    await server.stop(settings["shutdown-timeout"] * 1000);
  } finally {
    await engine.close();
  }
}

function limitsOf(settings: Settings): SamplerLimits {
  const gigabytes = settings["cache-gb"];
  const limits: { -readonly [K in keyof SamplerLimits]: SamplerLimits[K] | undefined } = {
    cacheBytes: gigabytes === undefined ? undefined : Math.round(gigabytes * 2 ** 30),
    maxSequences: settings["max-num-seqs"],
    maxBatchedTokens: settings["max-num-batched-tokens"],
    maxLength: settings["max-model-len"],
  };
  return Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined));
}

/** Tokens of prompt and answer together: what the option says, else what both the model and the cache can hold. */
function lengthOf(settings: Settings, maxPositions: number, cacheTokens: number): number {
  const asked = settings["max-model-len"];
  if (asked !== undefined && asked > maxPositions)
    throw new UserError(`\`--max-model-len\` is ${asked}, and the model's context is ${maxPositions}. Lower it.`);
  if (asked !== undefined && asked > cacheTokens)
    throw new UserError(
      `\`--max-model-len\` is ${asked}, and the cache holds ${cacheTokens} tokens. Lower it, or raise \`--cache-gb\`.`,
    );
  return asked ?? Math.min(maxPositions, cacheTokens);
}

type Options = Omit<ServerOptions, "maxLength">;

async function optionsOf(name: string, settings: Settings, env: Call["env"]): Promise<Options> {
  return {
    host: settings.host ?? "127.0.0.1",
    port: settings.port,
    apiKey: settings["api-key"] ?? apiKeyOf(env) ?? null,
    names: [settings["served-model-name"] ?? basename(name.replace(/[\\/]+$/, "")), name],
    root: name,
    chatTemplate: settings["chat-template"] === undefined ? null : await readTemplate(settings["chat-template"]),
    maxPrompts: settings["max-queued-requests"],
    timeoutMs: settings["request-timeout"] * 1000,
    maxBodyBytes: Math.round(settings["max-body-mb"] * 2 ** 20),
    allowedOrigins: (settings["allowed-origins"] ?? "").split(",").filter((origin) => origin !== ""),
    allowsReload: settings["allow-reload"],
    version: await readVersion(),
  };
}

async function readTemplate(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw new UserError(`${file} (\`--chat-template\`) cannot be read: ${messageOf(error)}.`, { cause: error });
  }
}

/** The same relative path from src/cli and from dist/cli. */
async function readVersion(): Promise<string> {
  const { version }: { version: string } = JSON.parse(
    await readFile(new URL("../../package.json", import.meta.url), "utf8"),
  );
  return version;
}

function welcome(url: string, { names, apiKey }: Options, about: string): string {
  const body = JSON.stringify({ model: names[0], messages: [{ role: "user", content: "Hello" }] });
  const key = apiKey === null ? "" : ' -H "authorization: Bearer $TRAINYARD_API_KEY"';
  return `Serving ${names[0]} (${about}) at ${url}/v1

  curl ${url}/v1/chat/completions -H "content-type: application/json"${key} \\
    -d '${body.replaceAll("'", "'\\''")}'

Ctrl-C stops it.
`;
}

function help(options: string): string {
  return `trainyard serve: an OpenAI-compatible server for a model.

Usage: trainyard serve MODEL [options]

  trainyard serve models/tiny
  trainyard serve Qwen/Qwen2.5-0.5B-Instruct --port 8080 --api-key "$KEY"
  trainyard serve checkpoints/project/experiment --served-model-name step-100 --max-model-len 4096

MODEL is a Hugging Face folder, a name on the hub, or a run folder or checkpoint, whose actor is served (the latest one
of a run). Endpoints: /v1/models, /v1/completions, /v1/chat/completions,
/v1/responses, /tokenize, /detokenize, /reload_weights, /health, /version, /metrics (docs/serving.md).

Options
${options}
`;
}
