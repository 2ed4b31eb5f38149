/** What answers the prompts of a run and scores the answers: the actor itself, or servers that get its weights. */
import { rm } from "node:fs/promises";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import type { Engine, Model } from "../../engine/contract.ts";
import type { CanSample } from "../../rollout/remote.ts";
import { rolloutWeightsPath } from "../../run/names.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { TrainContext } from "../context.ts";
import type { Roles } from "./roles.ts";
import { openServers } from "./rollout-servers.ts";
import { openScoring, type Scoring } from "./scoring.ts";

export type RolloutClient = AsyncDisposable & {
  readonly config: PpoConfig;
  readonly tokenizer: Tokenizer;
  readonly model: CanSample;
  readonly scoring: Scoring;
  /** The actor itself samples, so the sampler's weights are the trainer's at every moment. */
  readonly isActor: boolean;
  /** A server samples in single precision, so its probabilities differ from the trainer's by rounding only. */
  readonly isExact: boolean;
  /** Make it sample from the actor's weights as they are now. */
  push(actor: Model): Promise<void>;
};

type Needs = {
  readonly roles: Roles;
  readonly tokenizer: Tokenizer;
  readonly engine: Engine;
  /** The run folder, where weights for servers are written. */
  readonly dir: string;
};

/** Open what the config says that samples and scores. */
export async function openRolloutClient(
  config: PpoConfig,
  { roles, tokenizer, engine, dir }: Needs,
  context: TrainContext,
): Promise<RolloutClient> {
  const weights = rolloutWeightsPath(dir);
  const servers = await openServers(config, { engine, tokenizer, folder: weights }, context);
  const scoring = await openScoring({ config, tokenizer, rewardModels: roles.rewardModels, context });
  return {
    config,
    tokenizer,
    scoring,
    model: servers?.model ?? roles.actor,
    isActor: servers === null,
    isExact: servers?.isExact ?? false,
    push: async (actor) => servers?.push(actor),
    [Symbol.asyncDispose]: async () => {
      await scoring.close();
      if (servers !== null) await rm(weights, { recursive: true, force: true });
    },
  };
}
