import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { mandatory } from "../../util/field.ts";
import { hasInterpolation } from "../interpolate.ts";
import { parseOverride } from "../overrides.ts";
import { ppoSchema } from "../ppo/schema.ts";
import { resolve } from "../resolve.ts";
import { rewardSchema } from "../reward/schema.ts";
import { type AnySchema, allKeys, fieldsOf, find, onEngine } from "../schema.ts";
import { sftSchema } from "../sft/schema.ts";
import { rewardPlace } from "./pool.ts";
import { raySettings, roleSharding, rowSharding, serverSpec } from "./ray.ts";

const surroundings = { home: "/home/me", env: { ENGINE: "ray" } };
const rl = (...overrides: readonly string[]) =>
  resolve(ppoSchema, [["actor_rollout_ref.model.path=m", ...overrides].map(parseOverride)], surroundings);
const sft = (...overrides: readonly string[]) =>
  resolve(sftSchema, [["model.path=m", ...overrides].map(parseOverride)], surroundings);
const onRay = "trainer.engine=ray";
const here = { cores: 8, isJoining: false };
const fsdp = "actor_rollout_ref.actor.fsdp_config";
const rollout = "actor_rollout_ref.rollout";

function problem(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  return "";
}

describe("keys of Ray", () => {
  test("are not in the config of a run on the embedded engine, and are named there", () => {
    const keys = ["trainer.nnodes=2", "trainer.max_restarts=1", `${fsdp}.fsdp_size=2`, "ray_init.address=auto"];
    const { config, notices } = rl(...keys);
    for (const key of keys) expect(notices[0]).toContain(key);
    expect(config).toEqual(rl().config);
    expect(config).not.toHaveProperty("ray_kwargs");
    expect(config.trainer).not.toHaveProperty("nnodes");
  });

  test("count with trainer.engine=ray, under 0.9's spellings too, and nothing is said about them", () => {
    const { config, notices } = rl(
      ...[onRay, "trainer.nnodes=2", "trainer.n_gpus_per_node=4", "trainer.max_restarts=1", "ray_init.num_cpus=16"],
      ...[`${fsdp}.fsdp_size=4`, `${fsdp}.strategy=fsdp2`, "actor_rollout_ref.actor.strategy=fsdp"],
      ...["critic.fsdp.reshard_after_forward=false", "critic.model.enable_gradient_checkpointing=false"],
      ...["ray_kwargs.ray_init.runtime_env.env_vars.A=b", "actor_rollout_ref.nccl_timeout=60"],
    );
    expect(notices).toEqual([]);
    expect(config.trainer).toMatchObject({ nnodes: 2, n_gpus_per_node: 4, max_restarts: 1 });
    expect(roleSharding(config, "actor")).toEqual({
      replicas: 2,
      reshards: true,
      dtype: "float32",
      checkpointing: true,
      offloads: false,
    });
    expect(roleSharding(config, "critic")).toMatchObject({ replicas: 1, reshards: false, checkpointing: false });
    expect(raySettings(config, here)).toEqual({
      nodes: 2,
      workersPerNode: 4,
      device: "cpu",
      cpusPerWorker: 2,
      servers: 0,
      pools: {},
      startMs: 300_000,
      collectiveMs: 60_000,
      init: { num_cpus: 16, runtime_env: { env_vars: { A: "b" } } },
    });
  });

  test("may come from a variable", () => {
    expect(rl("trainer.engine=${oc.env:ENGINE}").config.trainer).toMatchObject({ engine: "ray", nnodes: 1 });
  });

  test.each([
    ["all cores are shared by the workers of a cluster that is started here", [], here, 8],
    ["the workers of one node share them", ["trainer.n_gpus_per_node=3"], here, 2],
    ["num_cpus counts in their place", ["ray_kwargs.ray_init.num_cpus=3"], here, 3],
    ["in a cluster that is there each takes one", [], { ...here, isJoining: true }, 1],
    ["so it is with an address", ["ray_kwargs.ray_init.address=auto"], here, 1],
    ["on a GPU too", ["trainer.device=cuda"], here, 1],
    ["trainer.threads says another number", ["trainer.threads=5", "trainer.device=cuda"], here, 5],
  ])("processors of a worker: %s", (_, overrides, machine, expected) => {
    expect(raySettings(sft(onRay, ...overrides).config, machine).cpusPerWorker).toBe(expected);
  });

  test("ray.init gets neither what is null, as in verl's files, nor the address", () => {
    const { config } = sft(onRay, "ray_kwargs.ray_init={num_cpus: null, address: 'auto', namespace: n}");
    expect(raySettings(config, here)).toMatchObject({ address: "auto", init: { namespace: "n" } });
    expect(raySettings(config, here).init).not.toHaveProperty("num_cpus");
  });

  test("ray.init gets the workers' variables as text", () => {
    const { config } = rl(onRay, "ray_init.runtime_env={env_vars: {A: 1, B: true, C: c}, working_dir: w}");
    expect(raySettings(config, here).init).toEqual({
      runtime_env: { env_vars: { A: "1", B: "true", C: "c" }, working_dir: "w" },
    });
  });

  test("a timeline is written where they say", () => {
    expect(raySettings(rl(onRay, "ray_kwargs.timeline_json_file=~/t.json").config, here).timeline).toBe(
      "/home/me/t.json",
    );
    expect(raySettings(sft(onRay, "ray_kwargs.timeline_json_file=t.json").config, here).timeline).toBe("t.json");
    expect(rl("ray_kwargs.timeline_json_file=t.json").notices.join()).toMatch(/timeline_json_file=t\.json/);
  });

  test("a supervised run has its own place for them", () => {
    const { config, notices } = sft(
      ...[onRay, "engine=fsdp", "engine.fsdp_size=1", "trainer.n_gpus_per_node=2", "engine.dtype=bf16"],
      ...["model.enable_gradient_checkpointing=false", "trainer.balance_batch=true"],
    );
    expect(notices).toEqual([]);
    expect(rowSharding(config)).toEqual({
      replicas: 2,
      reshards: true,
      dtype: "bfloat16",
      checkpointing: false,
      offloads: false,
    });
  });

  test("the reference and the critic compute in the actor's precision unless they have their own", () => {
    const { config } = rl(onRay, `${fsdp}.dtype=bfloat16`, "critic.model.fsdp_config.dtype=float32");
    expect(roleSharding(config, "reference").dtype).toBe("bfloat16");
    expect(roleSharding(config, "critic").dtype).toBe("float32");
  });

  test("in bfloat16 the sampler's log-probs are not taken for the trainer's", () => {
    const { config, notices } = rl(onRay, `${fsdp}.dtype=bfloat16`);
    expect(config.actor_rollout_ref.actor.recompute_old_log_prob).toBe(true);
    expect(notices.join()).toMatch(/computed again in every step/);
    expect(rl(onRay).config.actor_rollout_ref.actor.recompute_old_log_prob).toBe(false);
  });
});

describe("offloading", () => {
  test.each(["param_offload", "optimizer_offload", "offload_policy"])("is what %s asks for, of that model", (key) => {
    const { config, notices } = rl(onRay, "trainer.device=cuda", `${fsdp}.${key}=true`);
    expect(notices).toEqual([]);
    expect(roleSharding(config, "actor").offloads).toBe(true);
    expect(roleSharding(config, "critic").offloads).toBe(false);
  });

  test("has nowhere to move a model from on a CPU, and says so", () => {
    const said = /param_offload` has no effect: `trainer\.device` is cpu/;
    expect(rl(onRay, `${fsdp}.param_offload=true`).notices.join("\n")).toMatch(said);
    expect(sft(onRay, "engine.param_offload=true").notices.join("\n")).toMatch(said);
  });
});

describe("with trainer.engine=ray it is refused by name, with the way out:", () => {
  test.each([
    ["a device without PyTorch", ["trainer.device=webgpu"], /`trainer\.device` is webgpu.*cpu or cuda/],
    [
      "copies that are no whole number",
      ["trainer.n_gpus_per_node=4", `${fsdp}.fsdp_size=3`],
      /fsdp_size` is 3, which does not divide the 4 workers/,
    ],
    ["a precision that there is not", [`${fsdp}.dtype=float16`], /takes `float32` or `bfloat16`/],
    ["a misspelt key", ["trainer.max_restart=1"], /Nearest: `trainer\.max_restarts`/],
  ])("%s", (_, overrides, message) => {
    expect(problem(() => rl(onRay, ...overrides))).toMatch(message);
  });
});

test("what samples is said when another sampler is asked for", () => {
  const { notices } = rl(onRay, `${rollout}.name=sglang`, "actor_rollout_ref.actor.strategy=megatron");
  expect(notices.join("\n")).toMatch(
    /rollout\.name` has no effect: the workers that train sample too.*SGLang.*start it, and set `actor_rollout_ref\.rollout\.base_url`/,
  );
  expect(notices.join("\n")).toMatch(/strategy=megatron: PyTorch FSDP2 trains/);
});

describe("servers of vLLM", () => {
  const keys = [`${rollout}.dtype=bf16`, `${rollout}.engine_kwargs.vllm.swap_space=8`, `${rollout}.enforce_eager=true`];

  test("are made as verl's keys say, and nothing is said about them", () => {
    const { config, notices } = rl(onRay, `${rollout}.name=vllm`, ...keys, `${rollout}.max_model_len=2048`);
    expect(notices).toEqual([]);
    expect(serverSpec(config)).toMatchObject({
      dtype: "bfloat16",
      maxLength: 2048,
      isEager: true,
      options: { swap_space: 8 },
      parallel: 1,
      memoryShare: 0.5,
      maxSequences: 256,
      hasPrefixCache: true,
    });
  });

  test("take prompt and response together unless a length is given", () => {
    const { config } = rl(onRay, `${rollout}.name=vllm`, "data.max_prompt_length=100", "data.max_response_length=20");
    expect(serverSpec(config).maxLength).toBe(120);
  });

  test.each([
    ["without them", [], /the workers that train sample too/],
    ["where others run already", [`${rollout}.name=vllm`, `${rollout}.base_url=a:1`], /names servers that run already/],
  ])("have keys that are said to have no effect %s", (_, more, message) => {
    const { notices } = rl(onRay, ...keys, ...more);
    expect(notices.join("\n")).toMatch(message);
    expect(notices.join("\n")).toMatch(/rollout\.enforce_eager/);
  });

  test("share a node's GPUs evenly, or are refused", () => {
    const gpus = ["trainer.device=cuda", "trainer.n_gpus_per_node=4", `${rollout}.tensor_model_parallel_size=3`];
    expect(() => rl(onRay, `${rollout}.name=vllm`, ...gpus)).toThrow(/is 3, which does not divide the 4 GPUs/);
    const own = [`${rollout}.nnodes=2`, `${rollout}.n_gpus_per_node=6`];
    expect(() => rl(onRay, `${rollout}.name=vllm`, ...gpus, ...own)).not.toThrow();
    expect(() => rl(onRay, ...gpus)).not.toThrow();
  });

  test("may have nodes of their own, for which a cluster that is started here has room", () => {
    const vllm = [onRay, `${rollout}.name=vllm`];
    expect(serverSpec(rl(...vllm).config).own).toBeNull();
    const own = [
      ...vllm,
      `${rollout}.nnodes=2`,
      "trainer.n_gpus_per_node=2",
      `${rollout}.tensor_model_parallel_size=2`,
    ];
    const onCpus = rl(...own).config;
    expect(serverSpec(onCpus).own).toEqual({ nodes: 2, perNode: 2 });
    expect(raySettings(onCpus, here)).toMatchObject({ servers: 4, cpusPerWorker: 1 });
    const onGpus = rl(...own, "trainer.device=cuda").config;
    expect(raySettings(onGpus, here).servers).toBe(2);
    const elsewhere = rl(...own, `${rollout}.base_url=a:1`).config;
    expect(raySettings(elsewhere, here).servers).toBe(0);
  });

  test.each(["tensor-parallel-size", "data_parallel_size", "worker_extension_cls"])(
    "cannot be given %s, by which their weights find them",
    (option) => {
      const given = `${rollout}.engine_kwargs.vllm={${option}: 2}`;
      expect(problem(() => rl(onRay, `${rollout}.name=vllm`, given))).toMatch(`engine_kwargs.vllm.${option}\``);
      expect(() => rl(onRay, given)).not.toThrow();
    },
  );
});

describe("workers of the reward model", () => {
  const scored = ["reward_model.enable=true", "reward_model.model.path=r"];
  const pool = (branch: string) =>
    ["enable_resource_pool=true", "nnodes=2", "n_gpus_per_node=3"].map((key) => `${branch}.${key}`);

  test.each(["reward_model", "reward.reward_model"])("are asked for below %s, with room in a new cluster", (branch) => {
    const { config, notices } = rl(onRay, ...scored, ...pool(branch));
    expect(notices).toEqual([]);
    expect(rewardPlace(config)).toEqual({ pool: "reward model" });
    const pools = { "reward model": { nodes: 2, perNode: 3 } };
    expect(raySettings(config, { ...here, cores: 14 })).toMatchObject({ pools, cpusPerWorker: 2 });
  });

  test("are as many on each node as train there, unless their number is given", () => {
    const asked = ["trainer.n_gpus_per_node=4", "reward_model.enable_resource_pool=true", "reward_model.nnodes=1"];
    const { pools } = raySettings(rl(onRay, ...scored, ...asked).config, here);
    expect(pools).toEqual({ "reward model": { nodes: 1, perNode: 4 } });
  });

  test("hold the reward models of a tree too", () => {
    const tree = ["reward.sources={a: [{use: model, name: r}]}", "reward.models.r.model.path=r"];
    expect(rewardPlace(rl(onRay, ...tree, ...pool("reward_model")).config)).toEqual({ pool: "reward model" });
    const rules = ["reward.sources={'*': [{use: scorer}]}", ...pool("reward_model")];
    expect(rewardPlace(rl(onRay, ...rules).config)).toEqual({});
  });

  test("need a number of nodes, as in verl", () => {
    const asked = "reward_model.enable_resource_pool=true";
    expect(problem(() => rl(onRay, ...scored, asked))).toMatch(/`reward_model\.nnodes` is 0.*Set reward_model\.nnodes/);
  });

  test.each<[string, readonly string[], RegExp]>([
    ["without a reward model", pool("reward_model"), /have no effect: no reward model scores \(`reward_model\.enable`/],
    [
      "by the number of nodes alone",
      [...scored, "reward_model.nnodes=2"],
      /`reward_model\.enable_resource_pool` is false/,
    ],
  ])("are not there %s, and that is said", (_, overrides, message) => {
    const { config, notices } = rl(onRay, ...overrides);
    expect(notices.join("\n")).toMatch(message);
    expect(rewardPlace(config)).toEqual({});
    expect(raySettings(config, here).pools).toEqual({});
  });

  test("are not there on the embedded engine, and that is said", () => {
    const { config, notices } = rl(...scored, ...pool("reward_model"));
    expect(notices.join("\n")).toMatch(
      /reward_model\.nnodes=2.*with `trainer\.engine`=ray it can have workers of its own/,
    );
    expect(config.reward_model).not.toHaveProperty("nnodes");
  });

  test("are no server, and that is said", () => {
    const asked = [...scored, "reward_model.rollout.gpu_memory_utilization=0.8"];
    expect(rl(onRay, ...asked).notices.join()).toMatch(/workers run the reward model.*`reward_model\.service` asks/);
    expect(rl(...asked).notices.join()).toMatch(/runs in this process.*`reward_model\.service` asks/);
  });
});

describe.each([ppoSchema, sftSchema, rewardSchema].map((it): [string, AnySchema] => [it.verb, it]))(
  "%s",
  (_, schema) => {
    const ray = onEngine(schema, "ray");

    test("has every key on both engines", () => {
      for (const key of allKeys(schema)) expect(find(ray, key).kind, key).not.toBe("unknown");
      for (const key of fieldsOf(ray.fields).keys()) expect(find(schema, key).kind, key).not.toBe("unknown");
    });

    test("gives no reason that is only true of the embedded engine", () => {
      for (const [key, { instead }] of Object.entries(ray.inert))
        if (find(ray, key).kind === "inert") expect(instead, key).not.toMatch(/embedded|one device|one process|no Ray/);
      for (const choices of Object.values(ray.groups))
        for (const { instead } of Object.values(choices)) expect(instead ?? "").not.toMatch(/embedded/);
    });

    test("has defaults of the right type, and says what each key means", () => {
      for (const [key, { type, default: value, doc }] of fieldsOf(ray.fields)) {
        if (value !== mandatory && !hasInterpolation(value))
          expect(type.schema.safeParse(value).success, key).toBe(true);
        expect(doc, key).toMatch(/^[A-Z].*\.$/);
      }
    });
  },
);

test("the commands of docs/cluster.md set keys that count on Ray", () => {
  const page = readFileSync(new URL("../../../docs/cluster.md", import.meta.url), "utf8").replaceAll("\\\n", " ");
  const commands = [...page.matchAll(/npx trainyard (ppo|sft) (.*trainer\.engine=ray.*)$/gm)];
  expect(commands).toHaveLength(8);
  for (const [, verb, args = ""] of commands) {
    const schema = onEngine(verb === "ppo" ? ppoSchema : sftSchema, "ray");
    const keys = [...args.matchAll(/([\w.]+)=/g)].map(([, key = ""]) => key);
    expect(keys.filter((key) => find(schema, key).kind !== "field")).toEqual([]);
  }
});
