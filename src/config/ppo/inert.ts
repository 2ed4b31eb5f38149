/**
 * Keys of verl's PPO tree that have no effect on the embedded engine, with what happens instead.
 *
 * A key covers all keys below it. Values under `same` ask for what happens anyway, so that there is no notice. What would
 * change the result of a run is not here but in `ppo-refused.ts`.
 */
import type { Inert } from "../schema.ts";

/** Keys that share one reason, each with the values that need no mention. */
type Keys = Readonly<Record<string, readonly unknown[]>>;

/** The keys below each of some branches. */
function without(instead: string, branches: readonly string[], keys: Keys): Record<string, Inert> {
  const entries = Object.entries(keys).map(([key, same]) => [key, { instead, same }] as const);
  return Object.fromEntries(
    branches.flatMap((branch) => entries.map(([key, inert]) => [branch === "" ? key : `${branch}.${key}`, inert])),
  );
}

const actor = "actor_rollout_ref.actor";
const rollout = "actor_rollout_ref.rollout";
const ref = "actor_rollout_ref.ref";
const model = "actor_rollout_ref.model";
const models = [model, "critic.model", "reward_model.model"];
const parts = [actor, ref, "critic", "reward_model"];

/** Values that switch a thing off: off, none, one device. */
const off: readonly unknown[] = [false, null, 0, 1, -1, {}, [], ""];

/** Where verl's training engines keep their settings. */
export const engineBranches: readonly string[] = [
  ...[actor, ref].flatMap((part) => ["fsdp_config", "megatron", "veomni", "torchtitan"].map((it) => `${part}.${it}`)),
  "critic.model.fsdp_config",
  "critic.megatron",
  "critic.veomni",
  "critic.torchtitan",
  "reward_model.model.fsdp_config",
  "reward_model.megatron",
];

const oneDevice = "one process on one device of this machine trains and samples";
const ownMemory = "the embedded engine plans its own memory";
const ownGraph = "the embedded engine compiles its own graphs";
const fp32 = "weights and arithmetic are fp32";

const engines: Readonly<Record<string, Inert>> = {
  ...Object.fromEntries(
    engineBranches.map((branch) => [
      branch,
      {
        instead: "the embedded engine runs on one device, plans its own memory and computes in fp32",
        same: [...off, "fp32", "float32"],
      },
    ]),
  ),
  ...without("`trainer.seed` seeds the whole run", engineBranches, { seed: [] }),
  ...without("weights are read from the Hugging Face folder of the model's path", engineBranches, {
    use_dist_checkpointing: [false],
    dist_checkpointing_path: [null],
  }),
};

const modelKeys: Readonly<Record<string, Inert>> = {
  ...without("no code from a model's folder is ever run", [...models, "data"], { trust_remote_code: off }),
  ...without(ownMemory, models, {
    enable_gradient_checkpointing: [],
    enable_activation_offload: off,
    tiled_mlp: off,
    use_shm: off,
  }),
  ...without(ownGraph, models, {
    use_liger: off,
    use_fused_kernels: [...off, "${actor_rollout_ref.model.use_fused_kernels}"],
    fused_kernel_options: [],
    "override_config.attn_implementation": [],
  }),
  ...without("there is no dropout", models, {
    "override_config.attention_dropout": [0],
    "override_config.attn_pdrop": [0],
    "override_config.embd_pdrop": [0],
    "override_config.resid_pdrop": [0],
    "override_config.hidden_dropout": [0],
  }),
  ...without("rows of like length share a pass, so that little is spent on padding; the loss is the same", models, {
    use_remove_padding: [],
  }),
  ...without("no LoRA adapter is trained", models, {
    lora_alpha: [],
    target_modules: [],
    exclude_modules: off,
    lora: off,
  }),
  ...without("no such model is trained", models, { mtp: off }),
  ...without("prompts are templated once, as the actor reads them", ["critic.model"], { custom_chat_template: [null] }),
  ...without("all weights are trained", models, { "override_config.moe_config.freeze_moe_router": [false] }),
};

const training: Readonly<Record<string, Inert>> = {
  ...without("the embedded engine trains; see `trainer.engine`", parts, { strategy: [] }),
  ...without(ownGraph, [actor, ref], { use_torch_compile: off, use_fused_kernels: off }),
  ...without(ownMemory, [actor, ref], {
    entropy_from_logits_with_chunking: off,
    entropy_from_logits_chunk_size: [],
    entropy_checkpointing: off,
    pad_to_length: off,
    use_remove_padding: [],
    load_weight: [],
  }),
  ...without("`actor_rollout_ref.rollout.n` sets it", [actor, ref, "critic"], { rollout_n: [] }),
  ...without("the prompt of a group is shared where that is faster", [actor], { use_prefix_grouper: off }),
  ...without("models read text only", [actor], { freeze_vision_tower: off }),
  ...without("no model is quantized", [actor], { qat: off }),
  ...without("no expert's choices are replayed", [actor, ref], { router_replay: off }),
  ...without("there is no profiler; `metrics.jsonl` has the timings", [...parts, rollout], { profiler: off }),
  ...without("a checkpoint holds the model as a Hugging Face folder, and all of it is read", [actor, "critic"], {
    checkpoint: [...off, true],
  }),
  ...without("the schedule ends at the last step of the run", [actor, "critic"], {
    "optim.total_training_steps": [-1],
    "optim.use_checkpoint_opt_param_scheduler": [false],
  }),
  ...without(ownMemory, [actor, "critic"], {
    "optim.override_optimizer_config.optimizer_cpu_offload": off,
    "optim.override_optimizer_config.optimizer_offload_fraction": off,
    "optim.override_optimizer_config.overlap_cpu_optimizer_d2h_h2d": off,
    "optim.override_optimizer_config.use_precision_aware_optimizer": off,
  }),
  ...without(
    fp32,
    [actor, "critic"].map((part) => `${part}.optim.override_optimizer_config`),
    Object.fromEntries(
      ["main_params_dtype", "main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype", "store_param_remainders"].map(
        (key) => [key, [...off, "fp32", "float32"]],
      ),
    ),
  ),
  ...without(oneDevice, ["critic", "reward_model", "actor_rollout_ref"], { nccl_timeout: [] }),
  ...without("weights are read from the Hugging Face folder of the model's path", ["critic"], { load_weight: [] }),
  ...without(oneDevice, ["reward_model"], { ulysses_sequence_parallel_size: [1] }),
};

const sampling: Readonly<Record<string, Inert>> = {
  ...without("the model that is trained samples, in this process or behind `rollout.base_url`", [rollout], {
    name: [],
    mode: [],
    tensor_model_parallel_size: [1],
    data_parallel_size: [1],
    expert_parallel_size: [1],
    pipeline_model_parallel_size: [1],
    nnodes: [0, 1],
    n_gpus_per_node: [],
    engine_kwargs: off,
    agent: off,
    prometheus: off,
    disable_log_stats: [],
    scheduling_policy: ["fcfs"],
    disaggregation: off,
    skip_tokenizer_init: [],
    limit_images: off,
    full_determinism: off,
    moe_load_balance_metrics_interval: off,
    layer_name_map: [],
  }),
  ...without("the engine plans its own memory and shares the weights", [rollout], {
    gpu_memory_utilization: [],
    enforce_eager: [],
    cudagraph_capture_sizes: off,
    free_cache_engine: [],
    load_format: [],
    layered_summon: off,
    multi_stage_wake_up: off,
    enable_chunked_prefill: [],
    checkpoint_engine: [],
    update_weights_bucket_megabytes: [],
  }),
  ...without(fp32, [rollout], {
    dtype: ["fp32", "float32"],
    quantization: off,
    quantization_config_file: off,
    use_block_quant_rollout: [],
    qat: [...off, "${oc.select:actor_rollout_ref.actor.qat,null}"],
  }),
  ...without("the sampler's log-probs always come with the samples", [rollout], {
    calculate_log_probs: [true],
    logprobs_mode: ["processed_logprobs"],
  }),
  ...without("every response is waited for", [rollout], { over_sample_rate: off }),
  ...without("an episode is one prompt and one response", [rollout], { multi_turn: [...off, "disable"] }),
  ...without("no model predicts several tokens at once", [rollout], { mtp: off }),
  ...without("`trainer.rollout_data_dir` keeps the responses", [rollout], { trace: off }),
  ...without("every step samples again", [rollout], { skip_dump_dir: [] }),
};

const rewards: Readonly<Record<string, Inert>> = {
  ...without(
    "a reward model runs in this process and reads prompt and response in one pass; `reward_model.service` asks one that is served",
    ["reward_model"],
    { rollout: off },
  ),
  ...without(
    "a reward model runs in this process; with `trainer.engine`=ray it can have workers of its own",
    ["reward_model"],
    {
      enable_resource_pool: off,
      n_gpus_per_node: [],
      nnodes: [],
    },
  ),
  ...without("responses are scored as they finish, in processes of their own", ["reward_model"], {
    use_reward_loop: [true],
    launch_reward_fn_async: [],
    reward_loop_class_name: [null],
  }),
  ...without("responses are scored as they finish, in processes of their own", ["reward"], {
    max_concurrency_per_worker: [],
  }),
  ...without("`reward_manager.name` is the name of the manager", [""], { "reward_manager.module.name": [] }),
};

const reading: Readonly<Record<string, Inert>> = {
  ...without("rows are read in this process and keep their messages", ["data"], {
    dataloader_num_workers: [0],
    filter_overlong_prompts_workers: [1],
    return_raw_input_ids: [],
    return_raw_chat: [true],
    return_full_prompt: [false],
    use_shm: off,
  }),
  ...without("all validation prompts go to the sampler together", ["data"], { val_batch_size: [null] }),
  ...without("the tokenizer is that of `actor_rollout_ref.model`", ["data"], { tokenizer: [null] }),
  ...without("prompts are text", ["data"], {
    image_key: ["images"],
    video_key: ["videos"],
    audio_key: ["audios"],
    image_patch_size: [14],
    return_multi_modal_inputs: [],
    mm_processor_kwargs: off,
  }),
};

const running: Readonly<Record<string, Inert>> = {
  ...without(oneDevice, ["trainer"], { nnodes: [1], n_gpus_per_node: [1] }),
  ...without("there are no workers that could be lost; see `trainer.engine`", ["trainer"], { max_restarts: [] }),
  ...without("there is one trainer, and sampling and training take turns", ["trainer"], {
    use_legacy_worker_impl: ["auto"],
    use_v1: [],
    v1: off,
  }),
  ...without("one round of sampling is under way at a time", ["algorithm"], {
    "filter_groups.max_inflight_gen_batches": [1],
  }),
  ...without(
    "checkpoints stay where they are, as in verl, which deletes local copies of those on HDFS only",
    ["trainer"],
    {
      del_local_ckpt_after_load: off,
    },
  ),
  ...without("there is no Ray, no Hydra and no profiler here; the run folder is `trainer.default_local_dir`", [""], {
    "trainer.ray_wait_register_center_timeout": [],
    "trainer.profile_steps": off,
    "trainer.npu_profile": off,
    "trainer.controller_nsight_options": [],
    "trainer.worker_nsight_options": [],
    hydra: [],
    ray_init: off,
    ray_kwargs: off,
    global_profiler: off,
    profile: off,
    transfer_queue: off,
  }),
  ...without("the embedded engine trains; see `trainer.engine`", [""], { model_engine: [] }),
  ...without("no response is taken from an earlier run, and no teacher is followed", [""], {
    skip: off,
    distillation: [],
  }),
};

/** Keys of verl that have no effect here. */
export const ppoInert: Readonly<Record<string, Inert>> = {
  ...engines,
  ...modelKeys,
  ...training,
  ...sampling,
  ...rewards,
  ...reading,
  ...running,
};
