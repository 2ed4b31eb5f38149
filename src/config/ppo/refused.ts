/**
 * Keys of verl's PPO tree that ask for something this version does not do and that would change the result of a run: each
 * with the values that switch it off, why, and the way out.
 */

import type { Refused } from "../schema.ts";
import { sftRefused } from "../sft/verl.ts";
import { engineBranches } from "./inert.ts";

const none = [null, {}, [], ""];

/** The same reason below each of some branches. */
function below(branches: readonly string[], keys: Readonly<Record<string, Refused>>): Record<string, Refused> {
  return Object.fromEntries(
    branches.flatMap((branch) => Object.entries(keys).map(([key, refused]) => [`${branch}.${key}`, refused])),
  );
}

/** What supervised fine-tuning refuses below its own branch. */
function fromSft(branch: string): Record<string, Refused> {
  const own = Object.entries(sftRefused).filter(([key]) => key.startsWith(`${branch}.`));
  return Object.fromEntries(own.map(([key, refused]) => [key.slice(branch.length + 1), refused]));
}

/** The actor and the critic may have another config.json. */
const { hf_config_path: _path, override_config: _fields, ...otherModelKeys } = fromSft("model");
const ofConfig: Refused = {
  because: "The config.json of a reward model is used as it is. Change it in its folder and leave the key out.",
  allowed: none,
};

const oneTurn =
  "An episode is one prompt and one response; tools and further turns are not supported by this version. Leave the key out.";
const noReplay =
  "Experts' choices cannot be replayed: mixtures of experts are not supported by this version. Leave the key out.";
const noPython = "Python classes are not loaded.";
const takesTurns = "Sampling and training take turns in this version.";

const replayModes: Refused = { because: noReplay, allowed: ["disabled", null] };

/** Keys that ask for something this version does not do. */
export const ppoRefused: Readonly<Record<string, Refused>> = {
  ...below(["actor_rollout_ref.model", "critic.model"], otherModelKeys),
  ...below(["reward_model.model"], { hf_config_path: ofConfig, override_config: ofConfig }),
  ...below(["critic.model", "reward_model.model"], {
    external_lib: {
      because: "Python modules are not loaded. Leave the key out.",
      allowed: [
        null,
        "${actor_rollout_ref.model.external_lib}",
        "${oc.select:actor_rollout_ref.model.external_lib,null}",
      ],
    },
  }),
  ...below(["actor_rollout_ref.actor", "critic"], fromSftOptimizer()),
  ...below(engineBranches, { "router_replay.mode": replayModes, ...fromSft("engine") }),
  ...below(["actor_rollout_ref.actor", "actor_rollout_ref.ref"], { "router_replay.mode": replayModes }),
  "actor_rollout_ref.actor.qat.enable": {
    because: "Quantization-aware training is not supported by this version. Leave the key out.",
    allowed: [false],
  },
  "actor_rollout_ref.ref.model": {
    because: "The reference is the actor's own model as it was at the start. Leave the key out.",
    allowed: none,
  },
  "actor_rollout_ref.hybrid_engine": {
    because: "Actor and sampler share their weights, as in verl's hybrid engine. Leave the key out.",
    allowed: [true],
  },
  ...below(["actor_rollout_ref.rollout"], {
    "multi_turn.enable": { because: oneTurn, allowed: [false, null] },
    "multi_turn.tool_config_path": { because: oneTurn, allowed: none },
    "multi_turn.function_tool_path": { because: oneTurn, allowed: none },
    "multi_turn.interaction_config_path": { because: oneTurn, allowed: none },
    "agent.default_agent_loop": { because: oneTurn, allowed: ["single_turn_agent", null] },
    "agent.agent_loop_config_path": { because: oneTurn, allowed: none },
    enable_rollout_routing_replay: { because: noReplay, allowed: [false] },
    skip_rollout: { because: "Every step samples again. Leave the key out.", allowed: [false] },
  }),
  ...below(["data"], {
    tool_config_path: {
      because: oneTurn,
      allowed: [...none, "${oc.select:actor_rollout_ref.rollout.multi_turn.tool_config_path, null}"],
    },
    function_tool_path: {
      because: oneTurn,
      allowed: [...none, "${oc.select:actor_rollout_ref.rollout.multi_turn.function_tool_path, null}"],
    },
  }),
  "reward_model.reward_loop_source": {
    because: `${noPython} Choose a manager by reward_manager.name, or write one in TypeScript: reward_manager.source=importlib and reward_manager.module.path=manager.ts.`,
    allowed: ["register", null],
  },
  "reward_model.reward_loop_module_path": {
    because: `${noPython} Choose a manager by reward_manager.name, or write one in TypeScript: reward_manager.source=importlib and reward_manager.module.path=manager.ts.`,
    allowed: [null],
  },
  "trainer.default_hdfs_dir": {
    because: "HDFS is not supported. Leave the key out; checkpoints are in `trainer.default_local_dir`.",
    allowed: [null],
  },
  "trainer.v1.trainer_mode": { because: `${takesTurns} Set trainer.v1.trainer_mode=sync.`, allowed: ["sync"] },
  "trainer.v1.sampler.custom_sampler.path": { because: `${noPython} Leave the key out.`, allowed: [null] },
  async_training: { because: `${takesTurns} Leave the key out.`, allowed: [] },
  rollout: {
    because: `The sampler of verl's asynchronous trainers is set by it. ${takesTurns} Leave the key out.`,
    allowed: [],
  },
  "trainer.remove_previous_ckpt_in_save": {
    because: "Set trainer.max_actor_ckpt_to_keep=1 instead.",
    allowed: [false],
  },
  "distillation.enabled": {
    because: "Distillation from a teacher is not supported by this version. Leave the key out.",
    allowed: [false],
  },
  ...below(["skip.rollout", "skip.rollout_tq", "skip.async_rollout"], {
    enable: { because: "Every step samples again. Leave the key out.", allowed: [false] },
  }),
};

function fromSftOptimizer(): Record<string, Refused> {
  return Object.fromEntries(Object.entries(fromSft("optim")).map(([key, refused]) => [`optim.${key}`, refused]));
}
