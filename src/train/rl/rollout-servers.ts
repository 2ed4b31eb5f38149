/**
 * Servers that sample for a run: `trainyard serve`, vLLM or SGLang at addresses that the user gives, or vLLM that the
 * engine starts. After every update, servers of the user load the weights from a new folder. Servers of the engine start
 * from a folder; after that the workers send them the weights.
 */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { samplingSettings } from "../../config/ppo/settings.ts";
import { serverSpec } from "../../config/ray/ray.ts";
import type { Engine, Model, ServerGroup } from "../../engine/contract.ts";
import { EngineLost } from "../../engine/lost.ts";
import { type CanSample, Remote } from "../../rollout/remote.ts";
import type { SampleRequest } from "../../rollout/request.ts";
import { Servers } from "../../rollout/servers.ts";
import { sampleFromSglang } from "../../rollout/sglang.ts";
import {
  factsOf,
  loadWeights,
  type RolloutServer,
  receiveWeights,
  type ServerKind,
  serverKinds,
} from "../../rollout/weight-sync.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { invariant, messageOf, UserError } from "../../util/errors.ts";
import { info } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";

export type RolloutServers = {
  readonly model: CanSample;
  /** It computes in single precision, so its probabilities differ from the trainer's by rounding only. */
  readonly isExact: boolean;
  /** Make it sample from the weights as they are now. */
  push(actor: Model): Promise<void>;
};

type Place = {
  readonly tokenizer: Pick<Tokenizer, "eosId" | "eosIds">;
  /** Where weights are written, on a disk that the servers see too. */
  readonly folder: string;
};

const SETTING = "actor_rollout_ref.rollout.base_url";

/** The servers that a config asks for; null where the actor samples itself. */
export async function openServers(
  config: PpoConfig,
  { engine, ...place }: Place & { readonly engine: Engine },
  context: TrainContext,
): Promise<RolloutServers | null> {
  const { base_url: urls, name } = config.actor_rollout_ref.rollout;
  if (urls.length > 0) return external(config, urls, place, context);
  if (name !== "vllm") return null;
  const group = await engine.serve?.(serverSpec(config));
  if (group === undefined) return null;
  if (group === null) info(missing);
  return group && managed(group, place, context);
}

const missing =
  "`actor_rollout_ref.rollout.name` is vllm, which the workers' Python does not have: the workers sample themselves. " +
  "Install vllm there, or name another Python that has it in TRAINYARD_VLLM_PYTHON (docs/cluster.md).";

/** Servers that the user started. */
async function external(
  config: PpoConfig,
  baseUrls: readonly string[],
  { tokenizer, folder }: Place,
  { signal, env }: TrainContext,
): Promise<RolloutServers> {
  const apiKey = env.OPENAI_API_KEY || undefined;
  const where = { baseUrls, setting: SETTING, apiKey };
  const remote = await Remote.open({ ...where, ...naming, isExplicit: true }, signal);
  const kind = kindOf(remote.owners);
  const servers = baseUrls.map(
    (url): RolloutServer => ({ url: addressOf(url), kind, apiKey, setting: SETTING, isUsers: true }),
  );
  const facts = await Promise.all(servers.map(factsOf));
  const { temperature = 1 } = samplingSettings(config, "train");
  if (temperature !== 1 && facts.some(({ logprobsMode }) => logprobsMode?.startsWith("raw") === true)) {
    throw new UserError(
      `\`${SETTING}\`: vLLM gives log-probs of temperature 1, and \`actor_rollout_ref.rollout.temperature\` is ${temperature}. ` +
        "Start it with `--logprobs-mode processed_logprobs`.",
    );
  }
  const isCoarse = facts.every(({ dtype }) => dtype === "bfloat16");
  const weights = new WeightFolder(folder, { isUntied: kind === "vllm", format: isCoarse ? "BF16" : "F32" });
  const own = kind === "trainyard" ? [] : tokenizer.eosIds;
  const sglang = new Servers(where);
  const usesSeeds = facts.some((one) => one.usesSeeds);
  const sample = (request: SampleRequest) =>
    kind === "sglang" ? sampleFromSglang(sglang, request, usesSeeds) : remote.sample(request);
  return {
    model: { sample: (request) => sample(ending(request, own)) },
    isExact: facts.every(({ dtype }) => dtype === "float32"),
    push: (actor) =>
      weights.renew(actor, async (written) => {
        const given = { ...written, model: remote.model, token: tokenizer.eosId ?? 0 };
        await Promise.all(servers.map((server) => loadWeights(server, given)));
      }),
  };
}

/** Servers of the engine, which start with the first weights they get. */
function managed(group: ServerGroup, { tokenizer, folder }: Place, { signal }: TrainContext): RolloutServers {
  const { apiKey, format, lost } = group;
  const setting = "actor_rollout_ref.rollout.name";
  let open: { readonly remote: Remote; readonly servers: readonly RolloutServer[] } | null = null;
  let updates = 0;
  const start = async (actor: Model) => {
    await actor.save(folder, format);
    await group.verify(folder);
    info("Starting vLLM.");
    const baseUrls = await group.start(folder);
    await rm(folder, { recursive: true });
    const until = AbortSignal.any([signal, lost]);
    const remote = await Remote.open({ ...naming, baseUrls, setting, apiKey, isExplicit: true }, until);
    return {
      remote,
      servers: baseUrls.map((url): RolloutServer => ({ url, kind: "vllm", apiKey, setting, isUsers: false })),
    };
  };
  return {
    model: {
      async sample(request) {
        invariant(open !== null, "servers have weights before they sample");
        const until = request.signal === undefined ? lost : AbortSignal.any([request.signal, lost]);
        return open.remote.sample(ending({ ...request, signal: until }, tokenizer.eosIds));
      },
    },
    isExact: format === "F32",
    async push(actor) {
      if (open === null) {
        open = await start(actor);
        return;
      }
      const { remote, servers } = open;
      const named = { version: String(++updates), model: remote.model, token: tokenizer.eosId ?? 0 };
      const received = servers.map((server) => receiveWeights(server, named));
      await orLost(lost, Promise.all([group.send(actor), ...received]));
    },
  };
}

const naming = { model: null, modelSetting: "actor_rollout_ref.model.path" };

/**
 * The result of calls to servers of an engine, or the loss of one of them: a call may fail before the loss is known, or
 * never end. A server that did not take the weights counts as lost, since it would sample from unknown weights.
 */
async function orLost<T>(lost: AbortSignal, work: Promise<T>): Promise<T> {
  const settled = new AbortController();
  const loss = lost.aborted ? Promise.resolve() : once(lost, "abort", { signal: settled.signal });
  try {
    return await Promise.race([work, loss.then(() => Promise.reject(lost.reason))]);
  } catch (error) {
    await sleep(5000, undefined, { signal: lost }).catch(() => {});
    lost.throwIfAborted();
    throw new EngineLost(messageOf(error), { cause: error });
  } finally {
    settled.abort();
  }
}

/** The tokens that end a response are those of this tokenizer, not those of the server's folder. */
function ending(request: SampleRequest, eosIds: readonly number[]): SampleRequest {
  return request.ignoreEos === true || eosIds.length === 0 ? request : { ...request, stopIds: eosIds };
}

const isKind = (owner: string): owner is ServerKind => serverKinds.some((kind) => kind === owner);

function kindOf(owners: ReadonlySet<string>): ServerKind {
  const [only, ...others] = owners;
  if (only !== undefined && others.length === 0 && isKind(only)) return only;
  const found = owners.size === 0 ? "do not say what they run" : `run ${[...owners].map((it) => it || "?").join(", ")}`;
  throw new UserError(
    `The servers of \`${SETTING}\` ${found} (\`owned_by\` in their lists of models). Weights can be sent to ` +
      "`trainyard serve`, vLLM or SGLang, and all servers have to run the same program.",
  );
}

/** With `http://` where it was left out. */
const addressOf = (url: string): string => (/^[a-z][a-z0-9+.-]*:\/\//i.test(url) ? url : `http://${url}`);

type Layout = { readonly isUntied: boolean; readonly format: "F32" | "BF16" };
type Written = { readonly folder: string; readonly version: string };

/** Weights of one version after the other, each in a new folder, so that no server reads a half-written one. */
class WeightFolder {
  readonly #folder: string;
  readonly #layout: Layout;
  readonly #run = randomBytes(4).toString("hex");
  #count = 0;

  constructor(folder: string, layout: Layout) {
    this.#folder = folder;
    this.#layout = layout;
  }

  /** Write the weights, let the servers load them, and remove the earlier ones. */
  async renew(actor: Model, take: (written: Written) => Promise<void>): Promise<void> {
    const { format, isUntied } = this.#layout;
    const old = join(this.#folder, String(this.#count));
    this.#count++;
    const folder = join(this.#folder, String(this.#count));
    await actor.save(folder, format, { isUntied });
    await take({ folder, version: `${this.#run}-${this.#count}` });
    await rm(old, { recursive: true, force: true });
  }
}
