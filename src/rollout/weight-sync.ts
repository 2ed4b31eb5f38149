/**
 * New weights for a server that samples, by the HTTP calls of the program that it runs: `trainyard serve`, vLLM or
 * SGLang. Weights are files in a folder that the server sees, of which the path is sent; or workers that train send them
 * to vLLM meanwhile, by a way of their own.
 *
 * When `giveWeights` or `receiveWeights` returns, no request runs on older weights, nothing computed from them is kept, the server names the
 * new version where it can, and it has drawn a token since. Whether it draws from these weights only its log-probs tell.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { patientFetch } from "./patient-fetch.ts";
import { excerpt, refusalOf } from "./remote-reply.ts";
import { jsonHeaders } from "./servers.ts";

/** The programs that can be given weights, by what their list of models says in `owned_by`. */
export const serverKinds = ["trainyard", "vllm", "sglang"] as const;
export type ServerKind = (typeof serverKinds)[number];

/** A server as it is spoken to about its weights. */
export type Sampled = {
  /** Its address, as it is given for sampling. */
  readonly url: string;
  readonly kind: ServerKind;
  readonly apiKey?: string | undefined;
  /** What the user has asked for it with, for messages. */
  readonly setting: string;
  /** They have started it, and may have to start it otherwise. */
  readonly isUsers: boolean;
};

export type NewWeights = Named & { readonly folder: string };

type Named = {
  /** What the server is to call them. */
  readonly version: string;
  /** The name of the model there, and a token of its vocabulary. */
  readonly model: string;
  readonly token: number;
};

/** What a server says of itself; null where it does not say. */
export type ServerFacts = {
  readonly dtype: string | null;
  readonly logprobsMode: string | null;
  /** Each of SGLang's samples needs a seed of its own. */
  readonly drawsBySeed: boolean;
};

/** How long a server may take over one call: large weights are read from slow disks. */
const limitMs = 1_800_000;

/** Make a server sample from the weights of a folder. Not to be cut short: a step that is learnt is to be saved. */
export async function giveWeights(server: Sampled, weights: NewWeights): Promise<void> {
  await protocols[server.kind](server, weights);
}

const protocols: Record<ServerKind, (server: Sampled, weights: NewWeights) => Promise<void>> = {
  async trainyard(server, { folder }) {
    await ask(server, "/reload_weights", { path: folder });
  },

  async vllm(server, { folder, ...named }) {
    await renewVllm(server, { method: "reload_weights", kwargs: { weights_path: folder } }, named);
  },

  // It waits for what runs and forgets its prefixes by itself. `/flush_cache` is not called: it is refused while any
  // request runs, and those who ask after the server's health make such requests.
  async sglang(server, { folder, version, token }) {
    const body = { model_path: folder, weight_version: version, flush_cache: true };
    const told = Succeeded.safeParse(await ask(server, "/update_weights_from_disk", body)).data;
    if (told?.success === false) throw refused(server, "/update_weights_from_disk", told.message ?? "no reason given");
    const one = { input_ids: [token], sampling_params: { max_new_tokens: 1, temperature: 0 } };
    const meta = Drawn.safeParse(await ask(server, "/generate", one)).data?.meta_info;
    const drawnWith = meta?.weight_versions?.at(-1)?.version ?? meta?.weight_version;
    checkVersion(server, version, { weight_version: drawnWith });
  },
};

/** Let vLLM take weights that workers are sending; its own workers have been given a method for it (receiver.py). */
export async function receiveWeights(server: Sampled, named: Named): Promise<void> {
  await renewVllm(server, { method: "receive_weights" }, named);
}

// A path that vLLM does not see ends its engine while its HTTP side still answers, hence the token at the end.
async function renewVllm(server: Sampled, reload: object, { version, model, token }: Named): Promise<void> {
  await ask(server, "/pause?mode=wait&clear_cache=false", {});
  try {
    await ask(server, "/collective_rpc", reload);
    await resetCache(server);
    await ask(server, "/update_weight_version", { new_version: version }, { mayLack: true });
  } catch (error) {
    await ask(server, "/resume", {}).catch(() => {}); // never hide what was refused
    throw error;
  }
  await ask(server, "/resume", {});
  const told = await ask(server, "/weight_info", undefined, { mayLack: true });
  checkVersion(server, version, told);
  await ask(server, "/v1/completions", { model, prompt: [token], max_tokens: 1, temperature: 0 });
}

/** What SGLang says of a token: the version that its engine drew it with, and the one that its HTTP side was told of. */
const Drawn = z.object({
  meta_info: z.object({
    weight_versions: z.array(z.object({ version: z.string() })).nullish(),
    weight_version: z.string().nullish(),
  }),
});

const Succeeded = z.object({ success: z.boolean(), message: z.string().optional() });

/** What prefixes were computed to is of the old weights. vLLM refuses while blocks are in use, by transfers for one. */
async function resetCache(server: Sampled): Promise<void> {
  for (let attempt = 0; attempt < 20; attempt++) {
    const told = Succeeded.safeParse(await ask(server, "/reset_prefix_cache", {})).data;
    if (told?.success !== false) return; // older versions say nothing
    await sleep(100);
  }
  throw refused(server, "/reset_prefix_cache", "its cache is still in use, so samples would be of mixed weights");
}

function checkVersion(server: Sampled, version: string, told: unknown): void {
  const named = z.object({ weight_version: z.string() }).safeParse(told).data?.weight_version;
  if (named === undefined || named === version) return;
  throw refused(server, "the new weights", `it was given version ${version} and names ${named}; is it another run's?`);
}

/** What a server computes with and how it draws, as far as it tells. */
export async function factsOf(server: Sampled): Promise<ServerFacts> {
  const unknown = { dtype: null, logprobsMode: null, drawsBySeed: false };
  if (server.kind === "vllm") {
    const told = await ask(server, "/server_info?config_format=json", undefined, { mayLack: true });
    const model = VllmInfo.safeParse(told).data?.vllm_config.model_config;
    return {
      ...unknown,
      dtype: model?.dtype.replace(/^torch\./, "") ?? null,
      logprobsMode: model?.logprobs_mode ?? null,
    };
  }
  if (server.kind === "sglang") {
    const told =
      (await ask(server, "/server_info", undefined, { mayLack: true })) ??
      (await ask(server, "/get_server_info", undefined, { mayLack: true }));
    const { dtype = null, enable_deterministic_inference: drawsBySeed = false } = SglangInfo.safeParse(told).data ?? {};
    return { ...unknown, dtype, drawsBySeed };
  }
  return unknown;
}

const SglangInfo = z.object({ dtype: z.string(), enable_deterministic_inference: z.boolean().optional() });

const VllmInfo = z.object({
  vllm_config: z.object({ model_config: z.object({ dtype: z.string(), logprobs_mode: z.string().nullish() }) }),
});

/** A call; the answer is its JSON, null where it has none or where a path that may be missing is. */
async function ask(
  server: Sampled,
  path: string,
  body: unknown,
  { mayLack = false }: { readonly mayLack?: boolean } = {},
): Promise<unknown> {
  const address = new URL(path, server.url);
  const limit = AbortSignal.timeout(limitMs);
  const response = await patientFetch(address, {
    method: body === undefined ? "GET" : "POST",
    headers: jsonHeaders(server.apiKey),
    signal: limit,
    body: body === undefined ? null : JSON.stringify(body),
  }).catch((error: unknown) => {
    const cause = error instanceof TypeError ? error.cause : error;
    const how = codeOf(cause) || messageOf(cause);
    throw new UserError(`${address} (\`${server.setting}\`) does not answer: ${how}. Is the server still there?`, {
      cause: error,
    });
  });
  const text = await response.text();
  if (response.status === 404 && mayLack) return null;
  if (!response.ok) throw refused(server, address.pathname, refusalOf(text)?.message ?? excerpt(text), response.status);
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const starts: Record<ServerKind, string> = {
  trainyard: "Start it with `trainyard serve MODEL --allow-reload`",
  vllm: "Start vLLM with VLLM_SERVER_DEV_MODE=1 in its environment, on a machine that sees the run folder under the same path",
  sglang: "Start SGLang on a machine that sees the run folder under the same path",
};

function refused({ url, kind, setting, isUsers }: Sampled, what: string, words: string, status?: number): UserError {
  const code = status === undefined ? "" : ` (${status})`;
  const end = /[.!?]$/.test(words) ? "" : ".";
  const advice = isUsers ? ` ${starts[kind]}, or with a key that OPENAI_API_KEY holds here too.` : "";
  return new UserError(
    `${new URL(url).origin} (\`${setting}\`) refused the new weights at ${what}${code}: ${words}${end}${advice}`,
  );
}
