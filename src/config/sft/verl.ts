/**
 * What becomes of verl's other SFT keys: spellings that map to a key of ours, keys without effect on the embedded engine
 * (with what happens instead), and keys that ask for something this version does not do.
 *
 * Covers sft_trainer and sft_trainer_engine of verl 0.7 and the additions of 0.9, with their fsdp, megatron and veomni
 * groups. A value under `same` or `allowed` asks for what happens anyway.
 */
import type { GroupChoice, Inert, Refused } from "../schema.ts";

/** Other spellings of a key. */
export const sftAliases: Readonly<Record<string, string>> = {
  "model.partial_pretrain": "model.path",
  "data.micro_batch_size": "data.micro_batch_size_per_gpu",
  "data.multiturn.messages_key": "data.messages_key",
  "data.multiturn.tools_key": "data.tools_key",
  "data.multiturn.enable_thinking_key": "data.enable_thinking_key",
  "data.chat_template": "model.custom_chat_template",
  "optim.lr_scheduler": "optim.lr_scheduler_type",
  "optim.warmup_style": "optim.lr_scheduler_type",
  "optim.lr_decay_style": "optim.lr_scheduler_type",
  "optim.lr_min": "optim.min_lr",
  "trainer.checkpoint.save_contents": "checkpoint.save_contents",
  "trainer.checkpoint.load_contents": "checkpoint.load_contents",
};

/** Keys that share one reason, each with the values that need no mention. */
function without(instead: string, keys: Readonly<Record<string, readonly unknown[]>>): Record<string, Inert> {
  return Object.fromEntries(Object.entries(keys).map(([key, same]) => [key, { instead, same }]));
}

const parallel = without("the embedded engine runs on one device of this machine, in one process", {
  ulysses_sequence_parallel_size: [1],
  "trainer.nnodes": [1],
  "trainer.n_gpus_per_node": [1],
  "trainer.balance_batch": [false],
  "data.balance_dp_token": [false],
  "model.strategy": [],
  "engine.strategy": [],
  "engine.fsdp_size": [-1, 1],
  "engine.ulysses_sequence_parallel_size": [1],
  "engine.reshard_after_forward": [false],
  "engine.forward_prefetch": [false],
  "engine.use_orig_params": [],
  "engine.use_no_sync_for_gradient_accumulation": [],
  "engine.wrap_policy": [],
  "engine.tensor_model_parallel_size": [1],
  "engine.expert_model_parallel_size": [1],
  "engine.expert_tensor_parallel_size": [null, 1],
  "engine.pipeline_model_parallel_size": [1],
  "engine.virtual_pipeline_model_parallel_size": [null, 1],
  "engine.context_parallel_size": [1],
  "engine.sequence_parallel": [false],
  "engine.use_distributed_optimizer": [false],
  "engine.data_parallel_mode": [],
  "engine.data_parallel_size": [1],
  "engine.data_parallel_replicate_size": [1],
  "engine.data_parallel_shard_size": [1],
  "engine.tensor_parallel_size": [1],
  "engine.expert_parallel_size": [1],
  "engine.pipeline_parallel_size": [1],
  "engine.ulysses_parallel_size": [1],
  "engine.enable_full_shard": [false],
  "engine.override_ddp_config": [{}],
  "engine.turbo_config": [],
});

const memory = without("the embedded engine plans its own memory", {
  "model.enable_gradient_checkpointing": [],
  "model.enable_activation_offload": [false],
  "model.tiled_mlp": [],
  "model.use_shm": [false],
  "model.fsdp_config.cpu_offload": [false],
  "model.fsdp_config.offload_params": [false],
  "model.fsdp_config.wrap_policy": [],
  "data.use_shm": [false],
  "engine.param_offload": [false],
  "engine.optimizer_offload": [false],
  "engine.grad_offload": [false],
  "engine.offload_policy": [false],
  "engine.enable_fsdp_offload": [false],
  "engine.activation_gpu_limit": [0],
  "engine.enable_reentrant": [false],
  "engine.init_device": [],
  "engine.entropy_checkpointing": [false],
  "engine.entropy_from_logits_with_chunking": [false],
  "engine.entropy_from_logits_chunk_size": [],
});

const kernels = without("the embedded engine compiles its own training graph", {
  "model.use_liger": [false],
  "model.use_fused_kernels": [false],
  "model.fused_kernel_options": [],
  "engine.use_torch_compile": [false],
  "engine.attn_implementation": [],
  "engine.moe_implementation": [],
  "engine.override_transformer_config": [{}],
  "engine.override_mcore_model_config": [{}],
  "engine.use_mbridge": [false],
  "engine.vanilla_mbridge": [],
  "engine.force_use_huggingface": [],
});

const padding = without("rows of like length share a pass, so that little is spent on padding; the loss is the same", {
  use_remove_padding: [],
  "model.use_remove_padding": [],
  "engine.use_remove_padding": [],
  "engine.pad_to_length": [false],
  "engine.pad_to_length_bucket": [],
  "data.pad_mode": ["no_padding"],
});

const precision = without("weights and arithmetic are fp32", {
  "model.fsdp_config.model_dtype": ["fp32", "float32"],
  "engine.model_dtype": ["fp32", "float32"],
  "engine.dtype": ["fp32", "float32"],
  "engine.mixed_precision": [false, null],
});

const checkpoints = without(
  "a checkpoint always holds the model as a Hugging Face folder, the optimizer and the run's state",
  {
    "checkpoint.save_contents": [
      ["model", "optimizer", "extra"],
      ["model", "optimizer", "extra", "hf_model"],
    ],
    "checkpoint.load_contents": [
      ["model", "optimizer", "extra"],
      "${checkpoint.save_contents}",
      "${trainer.checkpoint.save_contents}",
    ],
    "checkpoint.async_save": [false],
    "engine.ckpt_manager": [],
    "engine.use_dist_checkpointing": [false],
    "engine.dist_checkpointing_path": [null],
    "engine.dist_checkpointing_prefix": [""],
  },
);

const adapters = without("no LoRA adapter is trained", {
  "model.lora_alpha": [],
  "model.target_modules": [],
  "model.exclude_modules": [null],
  "model.lora": [],
});

/** Keys of verl that have no effect here. */
export const sftInert: Readonly<Record<string, Inert>> = {
  ...parallel,
  ...memory,
  ...kernels,
  ...padding,
  ...precision,
  ...checkpoints,
  ...adapters,
  ...without("`trainer.seed` seeds the whole run", { "engine.seed": [], "engine.full_determinism": [true] }),
  ...without("no code from a model's folder is ever run", { "model.trust_remote_code": [false] }),
  ...without("rows are read in this process", { "data.num_workers": [0] }),
  ...without("the schedule ends at the last step of the run", {
    "optim.total_training_steps": [-1],
    "optim.use_checkpoint_opt_param_scheduler": [false],
  }),
  ...without("there is no profiler; `metrics.jsonl` has the timings", {
    profiler: [],
    "trainer.profile_interval": [[-1, -1]],
  }),
  ...without("no such model is trained", { "model.mtp": [], "engine.qat": [], "engine.forward_only": [false] }),
  ...without("there are no workers that could be lost; see `trainer.engine`", { "trainer.max_restarts": [] }),
  ...without("there is no Hydra and no Ray here; the run folder is `trainer.default_local_dir`", {
    hydra: [],
    ray_kwargs: [],
  }),
};

const fullTraining = "LoRA is not supported by this version. Leave the key out to train all weights.";
const schedule =
  "The schedules are set by optim.lr_scheduler_type, optim.lr_warmup_steps, optim.lr_warmup_steps_ratio and optim.min_lr_ratio. Use those.";

/** Keys that ask for something this version does not do. */
export const sftRefused: Readonly<Record<string, Refused>> = {
  "model.lora_rank": { because: fullTraining, allowed: [0] },
  "model.lora_adapter_path": { because: fullTraining, allowed: [null] },
  "model.lora.rank": { because: fullTraining, allowed: [0] },
  "model.lora.adapter_path": { because: fullTraining, allowed: [null] },
  "model.mtp.enable": {
    because: "Multi-token prediction is not supported by this version. Leave the key out.",
    allowed: [false],
  },
  "engine.qat.enable": {
    because: "Quantization-aware training is not supported by this version. Leave the key out.",
    allowed: [false],
  },
  "model.external_lib": { because: "Python modules are not loaded. Leave the key out.", allowed: [null] },
  "model.hf_config_path": {
    because: "config.json is read from `model.path`. Put it there and leave the key out.",
    allowed: [null],
  },
  "model.override_config": {
    because: "config.json is used as it is. Change it in the folder of `model.path` and leave the key out.",
    allowed: [{}, null],
  },
  ...Object.fromEntries(
    ["data.max_prompt_length", "data.max_response_length"].map((key) => [
      key,
      { because: "A row is limited as a whole: set data.max_length and leave the key out.", allowed: [null] },
    ]),
  ),
  "data.enable_thinking_default": {
    because: "Use data.apply_chat_template_kwargs.enable_thinking=true or =false instead.",
    allowed: ["none", null],
  },
  "trainer.default_hdfs_dir": {
    because: "HDFS is not supported. Leave the key out; checkpoints are in `trainer.default_local_dir`.",
    allowed: [null],
  },
  "optim.optimizer": {
    because: "The optimizer is AdamW. Leave the key out, or set optim.optimizer=AdamW.",
    allowed: ["AdamW", "adamw", "adam"],
  },
  "optim.optimizer_impl": {
    because: "The optimizer is AdamW as in torch.optim. Leave the key out.",
    allowed: ["torch.optim"],
  },
  "optim.override_optimizer_config": {
    because: "AdamW is set by optim.lr, optim.betas and optim.weight_decay. Leave the key out.",
    allowed: [null, {}],
  },
  "optim.lr_warmup_init": { because: schedule, allowed: [0] },
  "optim.lr_start": { because: schedule, allowed: [0] },
  "optim.lr_decay_ratio": { because: schedule, allowed: [1] },
  "optim.lr_wsd_decay_style": { because: schedule, allowed: ["exponential"] },
  "optim.lr_wsd_decay_steps": { because: schedule, allowed: [null] },
  "optim.weight_decay_incr_style": {
    because: "The weight decay is constant. Leave the key out.",
    allowed: ["constant"],
  },
  "optim.zero_indexed_step": { because: "The schedule counts steps from zero. Leave the key out.", allowed: [true] },
};

const embedded: GroupChoice = { instead: "the embedded engine trains; see `trainer.engine`" };

/** Config groups of verl that a command line or a defaults list may choose from. */
export const sftGroups: Readonly<Record<string, Readonly<Record<string, GroupChoice>>>> = {
  engine: { fsdp: embedded, megatron: embedded, veomni: embedded, torchtitan: embedded, automodel: embedded },
  optim: {
    fsdp: {},
    megatron: {},
    torchtitan: {},
    automodel: {},
    veomni: { defaults: { "optim.lr_scheduler_type": "cosine" } },
  },
  model: { hf_model: {} },
};
