/**
 * What becomes of verl's other generation keys: spellings that map to a key of ours, keys without effect here (with what
 * happens instead), and keys that ask for something this version does not do.
 *
 * Covers `generation` of verl 0.7 and, for main_generation_server, the parts of `ppo_trainer` that a command line sets.
 * The keys of a rollout and of its model may stand under `actor_rollout_ref.` as well.
 */
import type { Inert, Refused } from "../schema.ts";

const rolloutKeys = [
  "temperature",
  "top_k",
  "top_p",
  "do_sample",
  "ignore_eos",
  "prompt_length",
  "response_length",
  "seed",
  "max_num_seqs",
  "max_num_batched_tokens",
  "max_model_len",
  "enable_prefix_caching",
];
const modelKeys = ["path", "tokenizer_path", "custom_chat_template"];

const under = (group: string, keys: readonly string[]) =>
  Object.fromEntries(keys.map((key) => [`actor_rollout_ref.${group}.${key}`, `${group}.${key}`]));

/** Other spellings of a key. */
export const generateAliases: Readonly<Record<string, string>> = {
  ...under("rollout", rolloutKeys),
  ...under("model", modelKeys),
  "actor_rollout_ref.rollout.n": "data.n_samples",
  "data.train_files": "data.path",
  "data.max_prompt_length": "rollout.prompt_length",
  "data.max_response_length": "rollout.response_length",
};

/** Keys that share one reason, each with the values that need no mention. */
function without(instead: string, keys: Readonly<Record<string, readonly unknown[]>>): Record<string, Inert> {
  return Object.fromEntries(Object.entries(keys).map(([key, same]) => [key, { instead, same }]));
}

/** The same below `rollout.` or `model.` and below `actor_rollout_ref.`. */
function withoutBoth(
  group: string,
  instead: string,
  keys: Readonly<Record<string, readonly unknown[]>>,
): Record<string, Inert> {
  const prefixed = (prefix: string) =>
    Object.fromEntries(Object.entries(keys).map(([key, same]) => [`${prefix}.${key}`, same]));
  return { ...without(instead, prefixed(group)), ...without(instead, prefixed(`actor_rollout_ref.${group}`)) };
}

const trainerKeys = Object.fromEntries(
  [
    "project_name",
    "experiment_name",
    "logger",
    "log_val_generations",
    "rollout_data_dir",
    "validation_data_dir",
    "total_epochs",
    "total_training_steps",
    "save_freq",
    "test_freq",
    "critic_warmup",
    "balance_batch",
    "val_before_train",
    "val_only",
    "resume_mode",
    "resume_from_path",
    "default_local_dir",
    "default_hdfs_dir",
    "del_local_ckpt_after_load",
    "max_actor_ckpt_to_keep",
    "max_critic_ckpt_to_keep",
    "esi_redundant_time",
    "ray_wait_register_center_timeout",
    "use_legacy_worker_impl",
    "use_v1",
    "v1",
  ].map((key) => [`trainer.${key}`, []]),
);

const untrained = "nothing is trained here";

/** Keys of verl that have no effect here. */
export const generateInert: Readonly<Record<string, Inert>> = {
  ...withoutBoth("rollout", "one engine samples in this process, or the servers of `rollout.base_url` do", {
    name: [],
    mode: [],
    tensor_model_parallel_size: [1],
    data_parallel_size: [1],
    expert_parallel_size: [1],
    pipeline_model_parallel_size: [1],
    engine_kwargs: [{}],
    agent: [],
    over_sample_rate: [0],
    prometheus: [],
    disable_log_stats: [true],
    scheduling_policy: ["fcfs"],
  }),
  ...withoutBoth("rollout", "the engine plans its own memory and weights", {
    gpu_memory_utilization: [],
    enforce_eager: [],
    free_cache_engine: [],
    load_format: [],
    layered_summon: [false],
    multi_stage_wake_up: [false],
    enable_chunked_prefill: [true],
    checkpoint_engine: [],
    update_weights_bucket_megabytes: [],
    cudagraph_capture_sizes: [null],
  }),
  ...withoutBoth("rollout", "weights and arithmetic are fp32", { dtype: ["fp32", "float32"], quantization: [null] }),
  ...withoutBoth("rollout", "the file holds the text of the responses only", {
    calculate_log_probs: [false],
    logprobs_mode: [],
    log_prob_micro_batch_size: [null],
    log_prob_micro_batch_size_per_gpu: [],
    log_prob_use_dynamic_bsz: [],
    log_prob_max_token_len_per_gpu: [],
  }),
  ...withoutBoth("rollout", "one turn is sampled, by the keys above", {
    val_kwargs: [],
    trace: [],
    skip_rollout: [false],
    skip_dump_dir: [],
    enable_rollout_routing_replay: [false],
    use_fire_sampling: [false],
    multi_turn: [],
  }),
  ...withoutBoth("model", untrained, {
    enable_gradient_checkpointing: [],
    enable_activation_offload: [false],
    use_remove_padding: [],
    use_liger: [false],
    use_fused_kernels: [false],
    fused_kernel_options: [],
    use_shm: [false],
    tiled_mlp: [],
    mtp: [],
    lora_alpha: [],
    target_modules: [],
    exclude_modules: [null],
    lora: [],
  }),
  ...withoutBoth("model", "no code from a model's folder is ever run", { trust_remote_code: [false] }),
  ...without(untrained, {
    actor: [],
    algorithm: [],
    critic: [],
    reward: [],
    reward_model: [],
    reward_manager: [],
    custom_reward_function: [],
    "actor_rollout_ref.actor": [],
    "actor_rollout_ref.ref": [],
    "actor_rollout_ref.hybrid_engine": [],
    "data.train_batch_size": [],
    "data.gen_batch_size": [],
    "data.val_files": [],
    "data.val_batch_size": [],
    "data.val_max_samples": [-1],
    "data.reward_fn_key": [],
  }),
  ...without("the order of the rows is kept, and each row has its own seed", {
    "data.shuffle": [false],
    "data.validation_shuffle": [false],
    "data.seed": [null],
  }),
  ...without("rows are read in this process", {
    "data.dataloader_num_workers": [0],
    "data.filter_overlong_prompts_workers": [1],
    "data.return_raw_chat": [],
    "data.return_full_prompt": [],
    "data.trust_remote_code": [false],
    "data.use_shm": [false],
    "data.tokenizer": [null],
    "data.custom_cls.name": [null],
    "data.sampler": [],
    "data.datagen": [],
  }),
  ...without("prompts are text", { "data.image_key": [], "data.video_key": [], "data.image_patch_size": [] }),
  ...without("one process runs on one device of this machine", {
    "trainer.nnodes": [1],
    "trainer.n_gpus_per_node": [1],
  }),
  ...without("there is no run and no run folder; the rows go to `data.output_path`", trainerKeys),
  ...without("there is no Hydra, no Ray and no profiler here", {
    hydra: [],
    ray_init: [],
    ray_kwargs: [],
    global_profiler: [],
    transfer_queue: [],
  }),
};

const noPython = { because: "Python modules are not loaded. Leave the key out.", allowed: [null] };
const noAdapter = "LoRA adapters are not loaded by this version. Merge the adapter into the model first.";
const asIs = "config.json is used as it is. Change it in the folder of `model.path` and leave the key out.";

function refusedBoth(group: string, keys: Readonly<Record<string, Refused>>): Record<string, Refused> {
  const entries = Object.entries(keys);
  return Object.fromEntries(
    [group, `actor_rollout_ref.${group}`].flatMap((prefix) =>
      entries.map(([key, refused]) => [`${prefix}.${key}`, refused]),
    ),
  );
}

/** Keys that ask for something this version does not do. */
export const generateRefused: Readonly<Record<string, Refused>> = {
  "rollout.n": { because: "`data.n_samples` is how many responses a prompt gets. Set that instead.", allowed: [1] },
  ...refusedBoth("model", {
    external_lib: noPython,
    hf_config_path: { because: "config.json is read from `model.path`. Put it there.", allowed: [null] },
    override_config: { because: asIs, allowed: [{}, null] },
    lora_rank: { because: noAdapter, allowed: [0] },
    lora_adapter_path: { because: noAdapter, allowed: [null] },
    "lora.rank": { because: noAdapter, allowed: [0] },
    "lora.adapter_path": { because: noAdapter, allowed: [null] },
  }),
  ...refusedBoth("rollout", {
    "multi_turn.enable": {
      because: "`trainyard generate` samples one turn per prompt. Leave the key out.",
      allowed: [false],
    },
  }),
  "data.custom_cls.path": {
    because: "Python dataset classes are not loaded. Convert the rows to parquet or jsonl with a prompt column.",
    allowed: [null],
  },
  "data.filter_overlong_prompts": {
    because: "Every row gets its responses. Cut long prompts with data.truncation, or raise rollout.prompt_length.",
    allowed: [false],
  },
  "data.tool_config_path": { because: "`trainyard generate` calls no tools. Leave the key out.", allowed: [null] },
  "trainer.engine": {
    because: "`trainyard generate` runs on the embedded engine; other models are reached by `rollout.base_url`.",
    allowed: ["embedded"],
  },
};
