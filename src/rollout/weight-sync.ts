/**
 * Updates the weights of a rollout server, by the HTTP API of the program that it runs: `trainyard serve`, vLLM or
 * SGLang. The weights are files in a folder that the server can read, whose path is sent; or training workers send them
 * to vLLM directly (weight_transfer.py).
 *
 * When `loadWeights` or `receiveWeights` returns, no request runs on older weights, nothing computed from them is in a
 * cache, the server reports the new version if it can, and it has sampled a token since. Only its log-probs show whether
 * it really samples from these weights.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { fetchWithoutTimeout } from "../util/fetch-without-timeout.ts";
import { errorOf, excerpt } from "./remote-reply.ts";
import { jsonHeaders } from "./servers.ts";

/** The programs whose weights can be updated, as `owned_by` in their list of models names them. */
export const serverKinds = ["trainyard", "vllm", "sglang"] as const;
export type ServerKind = (typeof serverKinds)[number];

/** A server whose weights are updated. */
export type RolloutServer = {
  /** The address that is used for sampling. */
  readonly url: string;
  readonly kind: ServerKind;
  readonly apiKey?: string | undefined;
  /** The config key that names it, for messages. */
  readonly setting: string;
  /** The user started it, so messages may advise to start it differently. */
  readonly isUsers: boolean;
};

export type NewWeights = Named & { readonly folder: string };

type Named = {
  /** The server reports this version afterwards. */
  readonly version: string;
  /** The name of the model on the server, and a token of its vocabulary. */
  readonly model: string;
  readonly token: number;
};

/** The settings that a server reports; null for those that it does not report. */
export type ServerFacts = {
  readonly dtype: string | null;
  readonly logprobsMode: string | null;
  /** SGLang uses seeds, and each sample needs its own. */
  readonly usesSeeds: boolean;
};

/** How long one call may take: large weights are read from slow disks. */
const limitMs = 1_800_000;

/** Make a server sample from the weights of a folder. It has no signal: a step that was trained must be saved. */
export async function loadWeights(server: RolloutServer, weights: NewWeights): Promise<void> {
  await protocols[server.kind](server, weights);
}

const protocols: Record<ServerKind, (server: RolloutServer, weights: NewWeights) => Promise<void>> = {
  async trainyard(server, { folder }) {
    await ask(server, "/reload_weights", { path: folder });
  },

  async vllm(server, { folder, ...named }) {
    await updateVllm(server, { method: "reload_weights", kwargs: { weights_path: folder } }, named);
  },

  // It waits for running requests and clears its prefix cache itself. `/flush_cache` is not called: it fails while any
  // request runs, and health checks are such requests.
  async sglang(server, { folder, version, token }) {
    const body = { model_path: folder, weight_version: version, flush_cache: true };
    const reported = Succeeded.safeParse(await ask(server, "/update_weights_from_disk", body)).data;
    if (reported?.success === false)
      throw refused(server, "/update_weights_from_disk", reported.message ?? "no reason given");
    const one = { input_ids: [token], sampling_params: { max_new_tokens: 1, temperature: 0 } };
    const meta = Generated.safeParse(await ask(server, "/generate", one)).data?.meta_info;
    const sampledWith = meta?.weight_versions?.at(-1)?.version ?? meta?.weight_version;
    checkVersion(server, version, { weight_version: sampledWith });
  },
};

/** Let vLLM receive the weights that workers are sending; its workers have a method for it (worker_extension.py). */
export async function receiveWeights(server: RolloutServer, named: Named): Promise<void> {
  await updateVllm(server, { method: "receive_weights" }, named);
}

// A path that vLLM cannot read ends its engine, but its HTTP process still answers: hence the token at the end.
async function updateVllm(server: RolloutServer, reload: object, { version, model, token }: Named): Promise<void> {
  await ask(server, "/pause?mode=wait&clear_cache=false", {});
  try {
    await ask(server, "/collective_rpc", reload);
    await resetCache(server);
    await ask(server, "/update_weight_version", { new_version: version }, { isOptional: true });
  } catch (error) {
    await ask(server, "/resume", {}).catch(() => {}); // report the first error
    throw error;
  }
  await ask(server, "/resume", {});
  const reported = await ask(server, "/weight_info", undefined, { isOptional: true });
  checkVersion(server, version, reported);
  await ask(server, "/v1/completions", { model, prompt: [token], max_tokens: 1, temperature: 0 });
}

/** The versions in an answer of SGLang: the one that its engine sampled with, and the one that its HTTP process knows. */
const Generated = z.object({
  meta_info: z.object({
    weight_versions: z.array(z.object({ version: z.string() })).nullish(),
    weight_version: z.string().nullish(),
  }),
});

const Succeeded = z.object({ success: z.boolean(), message: z.string().optional() });

/** Cached prefixes belong to the old weights. vLLM cannot reset the cache while blocks are in use, e.g. by transfers. */
async function resetCache(server: RolloutServer): Promise<void> {
  for (let attempt = 0; attempt < 20; attempt++) {
    const reported = Succeeded.safeParse(await ask(server, "/reset_prefix_cache", {})).data;
    if (reported?.success !== false) return; // older versions say nothing
    await sleep(100);
  }
  throw refused(server, "/reset_prefix_cache", "its cache is still in use, so samples would mix old and new weights");
}

function checkVersion(server: RolloutServer, version: string, reported: unknown): void {
  const named = z.object({ weight_version: z.string() }).safeParse(reported).data?.weight_version;
  if (named === undefined || named === version) return;
  throw refused(server, "the new weights", `it got version ${version} and reports ${named}; does another run use it?`);
}

/** The settings of a server, as far as it reports them. */
export async function factsOf(server: RolloutServer): Promise<ServerFacts> {
  const unknown = { dtype: null, logprobsMode: null, usesSeeds: false };
  if (server.kind === "vllm") {
    const reported = await ask(server, "/server_info?config_format=json", undefined, { isOptional: true });
    const model = VllmInfo.safeParse(reported).data?.vllm_config.model_config;
    return {
      ...unknown,
      dtype: model?.dtype.replace(/^torch\./, "") ?? null,
      logprobsMode: model?.logprobs_mode ?? null,
    };
  }
  if (server.kind === "sglang") {
    const reported =
      (await ask(server, "/server_info", undefined, { isOptional: true })) ??
      (await ask(server, "/get_server_info", undefined, { isOptional: true }));
    const { dtype = null, enable_deterministic_inference: usesSeeds = false } =
      SglangInfo.safeParse(reported).data ?? {};
    return { ...unknown, dtype, usesSeeds };
  }
  return unknown;
}

const SglangInfo = z.object({ dtype: z.string(), enable_deterministic_inference: z.boolean().optional() });

const VllmInfo = z.object({
  vllm_config: z.object({ model_config: z.object({ dtype: z.string(), logprobs_mode: z.string().nullish() }) }),
});

/** Call a path; returns the JSON of the answer, or null if it has none or if an optional path does not exist. */
async function ask(
  server: RolloutServer,
  path: string,
  body: unknown,
  { isOptional = false }: { readonly isOptional?: boolean } = {},
): Promise<unknown> {
  const address = new URL(path, server.url);
  const limit = AbortSignal.timeout(limitMs);
  const response = await fetchWithoutTimeout(address, {
    method: body === undefined ? "GET" : "POST",
    headers: jsonHeaders(server.apiKey),
    signal: limit,
    body: body === undefined ? null : JSON.stringify(body),
  }).catch((error: unknown) => {
    const cause = error instanceof TypeError ? error.cause : error;
    const how = codeOf(cause) || messageOf(cause);
    throw new UserError(
      `${address} (\`${server.setting}\`) does not answer: ${how}. Check that the server still runs.`,
      {
        cause: error,
      },
    );
  });
  const text = await response.text();
  if (response.status === 404 && isOptional) return null;
  if (!response.ok) throw refused(server, address.pathname, errorOf(text)?.message ?? excerpt(text), response.status);
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const starts: Record<ServerKind, string> = {
  trainyard: "Start it with `trainyard serve MODEL --allow-reload`",
  vllm: "Start vLLM with VLLM_SERVER_DEV_MODE=1 in its environment, on a machine that has the run folder under the same path",
  sglang: "Start SGLang on a machine that has the run folder under the same path",
};

function refused(
  { url, kind, setting, isUsers }: RolloutServer,
  what: string,
  message: string,
  status?: number,
): UserError {
  const code = status === undefined ? "" : ` (${status})`;
  const end = /[.!?]$/.test(message) ? "" : ".";
  const advice = isUsers ? ` ${starts[kind]}, or with a key that OPENAI_API_KEY holds here too.` : "";
  return new UserError(
    `${new URL(url).origin} (\`${setting}\`) refused the new weights at ${what}${code}: ${message}${end}${advice}`,
  );
}
