/**
 * The messages about verl's other keys with `trainer.engine=ray`. The keys are those of the embedded engine, and so are
 * most reasons; where a reason is about that engine, the one for Ray's workers is here.
 */

import type { AnySchema, Inert, Variant } from "../schema.ts";
import { rayPpo, raySft } from "./ray.ts";

const divides = "PyTorch FSDP2 divides each model layer by layer among the workers, and nothing else is divided";
const inPlace = "weights, gradients and moments stay on the device of their worker";
const asWritten = "workers run models as transformers writes them";
const fp32 =
  "weights, gradients and moments are fp32, and `dtype` of the model's fsdp_config is what passes compute in";

/** Reasons of the embedded engine, each with what is true of the workers. */
const reworded: Readonly<Record<string, string>> = {
  "the embedded engine runs on one device, plans its own memory and computes in fp32": `${divides}; ${inPlace}`,
  "the embedded engine runs on one device of this machine, in one process": divides,
  "one process on one device of this machine trains and samples": divides,
  "the embedded engine plans its own memory": inPlace,
  "the embedded engine compiles its own graphs": asWritten,
  "the embedded engine compiles its own training graph": asWritten,
  "weights and arithmetic are fp32": fp32,
  "the embedded engine trains; see `trainer.engine`": "PyTorch FSDP2 trains",
  "the model that is trained samples, in this process or behind `rollout.base_url`":
    "the workers that train sample too, unless `rollout.base_url` names servers",
  "the engine plans its own memory and shares the weights": "the workers sample from the weights that they train",
  "the prompt of a group is shared where that is faster": "every sequence is computed on its own",
  "a reward model runs in this process and reads prompt and response in one pass; `reward_model.service` asks one that is served":
    "workers run the reward model, which reads prompt and response in one pass; `reward_model.service` asks one that is served",
  "there is no Ray, no Hydra and no profiler here; the run folder is `trainer.default_local_dir`":
    "there is no Hydra and no profiler here; the run folder is `trainer.default_local_dir`",
  "there is no Hydra and no Ray here; the run folder is `trainer.default_local_dir`":
    "there is no Hydra here; the run folder is `trainer.default_local_dir`",
};

const trains: readonly unknown[] = ["fsdp", "fsdp2", "dp"];

function rewordedInert(inert: AnySchema["inert"]): Record<string, Inert> {
  return Object.fromEntries(
    Object.entries(inert).map(([key, { instead, same }]) => [
      key,
      { instead: reworded[instead] ?? instead, same: /(^|\.)strategy$/.test(key) ? trains : same },
    ]),
  );
}

function rewordedGroups(groups: AnySchema["groups"]): AnySchema["groups"] {
  return Object.fromEntries(
    Object.entries(groups).map(([group, choices]) => [
      group,
      Object.fromEntries(
        Object.entries(choices).map(([name, { instead, ...choice }]) => [
          name,
          instead === undefined || trains.includes(name)
            ? choice
            : { ...choice, instead: reworded[instead] ?? instead },
        ]),
      ),
    ]),
  );
}

type Tables = Pick<AnySchema, "inert" | "groups">;

/** `trainyard sft` and `trainyard reward` on Ray. */
export function sftOnRay({ inert, groups }: Tables): Variant {
  const balanced: Inert = { instead: "rows go to the workers by like work", same: [true] };
  return {
    fields: raySft,
    aliases: {},
    inert: {
      ...rewordedInert(inert),
      "trainer.balance_batch": balanced,
      "data.balance_dp_token": balanced,
      "engine.ulysses_sequence_parallel_size": { instead: "no sequence is divided among workers", same: [1] },
      ulysses_sequence_parallel_size: { instead: "no sequence is divided among workers", same: [1] },
    },
    refused: {},
    groups: rewordedGroups(groups),
  };
}

/** `trainyard ppo` on Ray. */
export function ppoOnRay({ inert, groups }: Tables): Variant {
  const others = Object.fromEntries(
    ["critic", "reward_model"].map((part) => [
      `${part}.nccl_timeout`,
      { instead: "`actor_rollout_ref.nccl_timeout` holds for all workers", same: [600] },
    ]),
  );
  const branches = Object.keys(inert).filter((key) => key.endsWith(".fsdp_config"));
  const strategies = branches.map((branch) => [
    `${branch}.strategy`,
    { instead: "PyTorch FSDP2 trains", same: trains },
  ]);
  const critic = Object.keys(rayPpo.critic.model.fsdp_config).map((key) => [
    `critic.fsdp.${key}`,
    `critic.model.fsdp_config.${key}`,
  ]);
  return {
    fields: rayPpo,
    aliases: { ray_init: "ray_kwargs.ray_init", ...Object.fromEntries(critic) },
    inert: { ...rewordedInert(inert), ...others, ...Object.fromEntries(strategies) },
    refused: {},
    groups: rewordedGroups(groups),
  };
}
