/**
 * Command lines in the manner of verl's other recipes: GRPO and its relatives, correction of the rollout, Megatron and
 * VeOmni, SFT on the newer engine, generation, evaluation, and 0.9's spellings. Each takes two steps on a small model of
 * the family that it names, or is told by name what is not there; what has no effect is named.
 */
import { writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Recipe, RecipeYard } from "./recipes.ts";

let yard: RecipeYard;
beforeAll(async () => {
  yard = await RecipeYard.make();
});
afterAll(() => yard.remove());

/** Overrides separated by space, each with a branch before its key. */
const below = (branch: string, text: string): string[] =>
  words(text).map((word) => word.replace(/^(\+*)/, (plus) => `${plus}${branch}.`));
const words = (text: string): string[] => text.trim().split(/\s+/);
const actor = (text: string) => below("actor_rollout_ref.actor", text);
const ref = (text: string) => below("actor_rollout_ref.ref", text);
const rollout = (text: string) => below("actor_rollout_ref.rollout", text);
const model = (text: string) => below("actor_rollout_ref.model", text);
const critic = (text: string) => below("critic", text);
const trainer = (text: string) => below("trainer", text);

const gsm8k = below(
  "data",
  "train_files=~/data/gsm8k/train.parquet val_files=~/data/gsm8k/test.parquet train_batch_size=1024 max_prompt_length=512 max_response_length=1024 filter_overlong_prompts=True truncation='error'",
);
const both = below(
  "data",
  "train_files=['~/data/gsm8k/train.parquet','~/data/math/train.parquet'] val_files=['~/data/gsm8k/test.parquet','~/data/math/test.parquet'] return_raw_chat=True",
);
const dapoMath = below(
  "data",
  "train_files=~/data/dapo-math-17k.parquet val_files=~/data/aime-2024.parquet prompt_key=prompt truncation='left' max_prompt_length=2048 max_response_length=8192",
);
const run = trainer(
  `critic_warmup=0 logger=["console","wandb"] project_name='verl_grpo_example_gsm8k' experiment_name='qwen2_7b_function_rm' n_gpus_per_node=8 nnodes=1 save_freq=20 test_freq=5 total_epochs=15`,
);
const vllm = rollout(
  "name=vllm mode=async tensor_model_parallel_size=2 gpu_memory_utilization=0.6 log_prob_micro_batch_size_per_gpu=40",
);
const fsdp = [
  ...model("use_remove_padding=True enable_gradient_checkpointing=True"),
  ...actor("fsdp_config.param_offload=False fsdp_config.optimizer_offload=False ppo_micro_batch_size_per_gpu=40"),
  ...ref("log_prob_micro_batch_size_per_gpu=40 fsdp_config.param_offload=True"),
];
const dynamic = [
  ...actor("use_dynamic_bsz=True ppo_max_token_len_per_gpu=24000 ulysses_sequence_parallel_size=2"),
  ...ref("log_prob_use_dynamic_bsz=True log_prob_max_token_len_per_gpu=24000"),
  ...rollout("log_prob_use_dynamic_bsz=True log_prob_max_token_len_per_gpu=24000"),
];
const klLoss = actor("use_kl_loss=True kl_loss_coef=0.001 kl_loss_type=low_var_kl entropy_coeff=0");
const group = [
  ...rollout("n=5"),
  ...actor("optim.lr=1e-6 ppo_mini_batch_size=256"),
  "algorithm.use_kl_in_reward=False",
];
const parallel =
  "megatron.tensor_model_parallel_size=2 megatron.pipeline_model_parallel_size=2 megatron.virtual_pipeline_model_parallel_size=null megatron.context_parallel_size=1 megatron.expert_model_parallel_size=4 megatron.expert_tensor_parallel_size=1 megatron.param_offload=True megatron.use_mbridge=True megatron.vanilla_mbridge=False";
const mcore = [
  ...actor(`${parallel} megatron.optimizer_offload=True megatron.grad_offload=True megatron.seed=42`),
  ...ref(parallel),
  ...actor(
    '+megatron.override_transformer_config.apply_rope_fusion=True +megatron.override_transformer_config.recompute_granularity=full +megatron.override_transformer_config.recompute_num_layers=1 +megatron.override_transformer_config.moe_token_dispatcher_type="flex" +megatron.override_transformer_config.num_layers_in_last_pipeline_stage=6',
  ),
  ...actor(
    "+optim.override_optimizer_config.optimizer_offload_fraction=1 +optim.override_optimizer_config.overlap_cpu_optimizer_d2h_h2d=True +optim.override_optimizer_config.use_precision_aware_optimizer=True +optim.override_optimizer_config.optimizer_cpu_offload=True optim.clip_grad=1.0 optim.lr_warmup_steps=10 optim.weight_decay=0.1 optim.lr_decay_steps=10000000",
  ),
  "actor_rollout_ref.nccl_timeout=1200",
];
const megatron = { "config-path": "config", "config-name": "ppo_megatron_trainer.yaml" };
const drawn = rollout(
  "temperature=1.0 top_p=1.0 top_k=-1 enable_chunked_prefill=True max_num_batched_tokens=10240 val_kwargs.temperature=1.0 val_kwargs.top_p=0.7 val_kwargs.top_k=-1 val_kwargs.do_sample=True val_kwargs.n=1",
);
const overlong = below(
  "reward_model",
  "reward_manager=dapo +reward_kwargs.overlong_buffer_cfg.enable=True +reward_kwargs.overlong_buffer_cfg.len=4096 +reward_kwargs.overlong_buffer_cfg.penalty_factor=1.0 +reward_kwargs.overlong_buffer_cfg.log=False +reward_kwargs.max_resp_len=8192",
);
const higher = actor(
  "clip_ratio_low=0.2 clip_ratio_high=0.28 clip_ratio_c=10.0 loss_agg_mode=token-mean grad_clip=1.0",
);
const qwen = model("path=Qwen/Qwen2-7B-Instruct");
const qwen3 = model("path=Qwen/Qwen3-8B");
const grpo = ["algorithm.adv_estimator=grpo", ...gsm8k, ...group, ...klLoss, ...fsdp, ...vllm, ...run];
const dapo = [
  "algorithm.adv_estimator=grpo",
  ...dapoMath,
  ...group,
  ...higher,
  ...fsdp,
  ...dynamic,
  ...vllm,
  ...drawn,
  ...overlong,
  ...run,
  "algorithm.kl_ctrl.kl_coef=0.0",
];
const estimator = (name: string) => `algorithm.adv_estimator=${name}`;
const loss = (name: string) => actor(`policy_loss.loss_mode=${name}`);

const ppo = "verl.trainer.main_ppo";
const corrected = (text: string) => [...grpo, ...qwen, ...below("algorithm.rollout_correction", text)];

const taken: readonly (Omit<Recipe, "program"> & { readonly program?: string })[] = [
  { name: "grpo", overrides: [...grpo, ...qwen] },
  { name: "grpo, two sets, dynamic batches", overrides: [...grpo, ...both, ...dynamic, ...qwen] },
  { name: "grpo, hsdp", overrides: [...grpo, ...qwen, ...actor("fsdp_config.fsdp_size=4 strategy=fsdp2")] },
  { name: "grpo, megatron", overrides: [...grpo, ...mcore, ...qwen], config: megatron },
  {
    name: "grpo, trtllm",
    overrides: [
      ...grpo,
      ...qwen,
      ...rollout(
        "name=trtllm max_num_seqs=384 calculate_log_probs=True +engine_kwargs.trtllm.batch_wait_timeout_iters=32",
      ),
    ],
    config: megatron,
  },
  {
    name: "grpo, sglang",
    overrides: [
      ...grpo,
      ...qwen3,
      ...rollout(
        'name=sglang +engine_kwargs.sglang.attention_backend="fa3" multi_stage_wake_up=True update_weights_bucket_megabytes=512 free_cache_engine=True enforce_eager=True',
      ),
    ],
  },
  {
    name: "grpo, veomni",
    overrides: [
      ...grpo,
      ...qwen,
      "trainer.use_legacy_worker_impl=disable",
      ...actor("veomni.param_offload=True veomni.data_parallel_size=4 veomni.ulysses_parallel_size=2"),
      ...ref("veomni.param_offload=True use_torch_compile=False"),
    ],
    config: { "config-path": "config", "config-name": "ppo_veomni_trainer.yaml" },
  },
  {
    name: "grpo, profiled",
    overrides: [
      ...grpo,
      ...qwen,
      ...words(
        "global_profiler.tool=npu global_profiler.steps=[2,4] global_profiler.save_path=x global_profiler.global_tool_config.torch_memory.trace_alloc_max_entries=100",
      ),
      ...actor(
        "profiler.enable=True profiler.ranks=[1,2] profiler.all_ranks=False profiler.tool_config.npu.level=level1",
      ),
    ],
  },
  {
    name: "grpo, rewards of one's own",
    overrides: [
      ...grpo,
      ...qwen,
      "reward_model.reward_manager=batch",
      "reward_model.use_reward_loop=False",
      ...below("custom_reward_function", "path=recipe/genrm_remote/reward_function.py name=compute_score_batch"),
    ],
  },
  {
    name: "grpo, a reward model of another family",
    overrides: [
      ...grpo,
      ...model("path=mistralai/Mistral-Nemo-Instruct-2407"),
      ...below(
        "reward_model",
        "enable=True model.path=Skywork/Skywork-Reward-Llama-3.1-8B model.input_tokenizer=mistralai/Mistral-Nemo-Instruct-2407 micro_batch_size_per_gpu=4 model.fsdp_config.param_offload=True use_reward_loop=False",
      ),
    ],
  },
  {
    name: "grpo, shared prompts",
    overrides: [...grpo, ...qwen3, ...actor("use_prefix_grouper=True"), "trainer.balance_batch=False"],
  },
  {
    name: "dr. grpo",
    overrides: [
      ...grpo,
      ...qwen,
      "algorithm.norm_adv_by_std_in_grpo=False",
      ...actor("use_kl_loss=False loss_agg_mode=seq-mean-token-sum-norm"),
    ],
  },
  {
    name: "gspo",
    overrides: [
      ...dapo,
      ...qwen,
      ...loss("gspo"),
      ...actor(
        "clip_ratio_low=3e-4 clip_ratio_high=4e-4 loss_agg_mode=seq-mean-token-mean entropy_checkpointing=true entropy_from_logits_with_chunking=True",
      ),
    ],
  },
  {
    name: "gmpo",
    overrides: [
      ...dapo,
      ...qwen,
      ...loss("geo_mean"),
      ...actor("clip_ratio=0.4 clip_ratio_low=0.4 clip_ratio_high=0.4"),
    ],
  },
  { name: "cispo", overrides: [...dapo, ...qwen, ...loss("cispo"), ...actor("clip_ratio_low=10 clip_ratio_high=0.2")] },
  { name: "sapo", overrides: [...dapo, ...qwen3, ...loss("sapo"), ...actor("tau_pos=1.0 tau_neg=1.05")] },
  {
    name: "clip_cov",
    overrides: [
      ...dapo,
      ...qwen,
      ...loss("clip_cov"),
      ...actor("policy_loss.clip_cov_ratio=0.0002 policy_loss.clip_cov_lb=1.0 policy_loss.clip_cov_ub=5.0"),
    ],
  },
  {
    name: "kl_cov",
    overrides: [
      ...dapo,
      ...qwen,
      ...loss("kl_cov"),
      ...actor("policy_loss.kl_cov_ratio=0.002 policy_loss.ppo_kl_coef=1"),
    ],
  },
  { name: "gpg", overrides: [...grpo, ...qwen, estimator("gpg"), ...loss("gpg")] },
  { name: "opo", overrides: [...grpo, ...qwen, estimator("opo")] },
  {
    name: "reinforce++",
    overrides: [...grpo, ...qwen, estimator("reinforce_plus_plus"), ...actor("kl_loss_type=mse")],
  },
  { name: "reinforce++ with a baseline", overrides: [...grpo, ...qwen, estimator("reinforce_plus_plus_baseline")] },
  {
    name: "remax",
    overrides: [
      ...grpo,
      ...qwen,
      estimator("remax"),
      ...actor("use_kl_loss=False"),
      ...words("algorithm.use_kl_in_reward=True algorithm.kl_penalty=kl algorithm.kl_ctrl.kl_coef=0.001"),
    ],
  },
  {
    name: "optimal token baseline",
    overrides: [
      ...grpo,
      ...qwen,
      estimator("optimal_token_baseline"),
      ...actor("calculate_sum_pi_squared=True use_kl_loss=False"),
    ],
  },
  {
    name: "gdpo",
    overrides: [
      ...grpo,
      ...qwen,
      estimator("gdpo"),
      "algorithm.gdpo_reward_keys=[accuracy,format]",
      "custom_reward_function.path=rlla.py",
    ],
  },
  {
    name: "dapo",
    overrides: [
      ...dapo,
      ...qwen,
      ...words(
        "+data.gen_batch_size=1536 algorithm.filter_groups.enable=True algorithm.filter_groups.metric=seq_reward algorithm.filter_groups.max_num_gen_batches=10",
      ),
      ...words("custom_reward_function.path=my.py reward_model.overlong_buffer.len=4096"),
    ].filter((it) => !it.includes("overlong_buffer_cfg.len")),
  },
  { name: "token weights", overrides: corrected("rollout_is=token rollout_is_threshold=2.0 rollout_rs=null") },
  {
    name: "two kinds of rejection",
    overrides: [
      ...corrected(
        "rollout_is=token rollout_rs='token_k1,seq_max_k2' rollout_rs_threshold='0.6_1.6,2.5' bypass_mode=true loss_type=ppo_clip",
      ),
      "hydra.run.dir=outputs/debug",
    ],
  },
  {
    name: "bypass with reinforce",
    overrides: [
      ...corrected(
        "rollout_is=sequence rollout_is_threshold=2.0 rollout_is_batch_normalize=false bypass_mode=true loss_type=reinforce",
      ),
      ...rollout("calculate_log_probs=True"),
    ],
  },
  {
    name: "ppo on megatron with a critic and a reward model",
    overrides: [
      estimator("gae"),
      ...gsm8k,
      ...group,
      ...klLoss,
      ...fsdp,
      ...vllm,
      ...run,
      ...mcore,
      ...qwen,
      ...actor("optim.lr_warmup_steps=null checkpoint.save_contents=['model','hf_model','optimizer','extra']"),
      ...critic(`optim.lr=2e-5 optim.lr_warmup_steps=null model.path=Qwen/Qwen2-7B-Instruct ${parallel}`),
      ...below(
        "reward_model",
        "enable=True model.path=Qwen/Qwen2.5-0.5B megatron.tensor_model_parallel_size=2 micro_batch_size_per_gpu=2",
      ),
      ...model("lora.rank=0 lora.alpha=0 lora.target_modules=['linear_qkv','linear_proj']"),
      ...rollout("quantization=null"),
    ].filter((it) => !it.includes("lr_warmup_steps=10")),
    config: megatron,
  },
  {
    name: "0.9's spellings",
    overrides: [
      estimator("gae"),
      ...gsm8k,
      ...group,
      ...vllm,
      ...run,
      ...qwen,
      "model_engine=dp",
      ...critic("fsdp.param_offload=True optim.lr=1e-5 ppo_micro_batch_size_per_gpu=4"),
      ...below("reward", "num_workers=2 reward_manager.name=dapo custom_reward_function.path=my.py"),
      ...trainer("use_v1=True v1.trainer_mode=sync v1.sampler.max_off_policy_threshold=8"),
      ...words("distillation.enabled=False transfer_queue.enable=False skip.rollout.enable=False"),
    ],
  },
];

const sftData = below(
  "data",
  "train_files=~/data/multiturn/train.parquet val_files=~/data/multiturn/test.parquet train_batch_size=256 pad_mode=no_padding truncation=error use_dynamic_bsz=True max_token_len_per_gpu=8192 messages_key=messages num_workers=0",
);
const sftRun = trainer(
  "test_freq=after_each_epoch save_freq=-1 logger=['console','file'] project_name=verl_sft_test experiment_name=gsm8k total_epochs=2 default_local_dir=~/ckpt resume_mode=disable max_ckpt_to_keep=1",
);
const sftOptim = below("optim", "lr=1e-5 lr_warmup_steps_ratio=0.2 weight_decay=0.1 betas=[0.9,0.95] clip_grad=1.0");
const sft = [...sftData, ...sftRun, ...sftOptim];
const supervised: readonly Recipe[] = [
  {
    name: "fsdp",
    overrides: [
      ...sft,
      ...words(
        "model.path=Qwen/Qwen3-0.6B model.use_remove_padding=True engine=fsdp optim=fsdp optim.min_lr_ratio=0.1 optim.lr_scheduler_type=cosine engine.ulysses_sequence_parallel_size=2 engine.strategy=fsdp2 engine.fsdp_size=8 checkpoint.save_contents=[model,optimizer,extra]",
      ),
    ],
  },
  {
    name: "megatron",
    overrides: [
      ...sft,
      ...words(
        "model.path=Qwen/Qwen3-8B engine=megatron optim=megatron optim.lr_warmup_init=0 optim.lr_decay_style=cosine optim.min_lr=1e-6 engine.tensor_model_parallel_size=2 engine.pipeline_model_parallel_size=2 engine.virtual_pipeline_model_parallel_size=null engine.context_parallel_size=1 engine.use_mbridge=True engine.override_transformer_config.recompute_method=uniform",
      ),
    ],
  },
  {
    name: "veomni",
    overrides: [
      ...sft,
      ...words(
        "model.path=Qwen/Qwen3-8B engine=veomni optim=veomni optim.lr_min=1e-6 engine.data_parallel_size=8 engine.enable_full_shard=True",
      ),
    ],
  },
].map((recipe) => ({ program: "verl.trainer.sft_trainer", ...recipe }));

describe("two steps are taken by reinforcement learning in the manner of", () => {
  test.each(taken.map((recipe) => [recipe.name, { program: ppo, ...recipe }] as const))("%s", (_, recipe) =>
    yard.expectSteps(recipe),
  );
});

describe("two steps are taken by supervised fine-tuning on the engine", () => {
  test.each(supervised.map((recipe) => [recipe.name, recipe] as const))("%s", (_, recipe) => yard.expectSteps(recipe));
});

describe("what is not there is refused by its name", () => {
  const turns = rollout("multi_turn.enable=True multi_turn.max_assistant_turns=5 multi_turn.format=hermes");
  const refused: readonly (readonly [name: string, overrides: readonly string[], message: RegExp])[] = [
    [
      "adapters",
      [
        ...grpo,
        ...qwen,
        ...model("lora_rank=32 lora_alpha=32 target_modules=all-linear"),
        ...rollout("load_format=safetensors layered_summon=True"),
      ],
      /`actor_rollout_ref\.model\.lora_rank` is 32 .* LoRA/,
    ],
    [
      "Megatron's adapters",
      [...grpo, ...qwen, ...model("lora.rank=16 lora.alpha=32")],
      /`actor_rollout_ref\.model\.lora\.rank` is 16 .* LoRA/,
    ],
    [
      "tools",
      [...grpo, ...qwen, ...turns, ...rollout("multi_turn.tool_config_path=tools.yaml")],
      /`actor_rollout_ref\.rollout\.multi_turn\.enable` is true .*tools and further turns/,
    ],
    [
      "a simulated user",
      [...grpo, ...qwen, ...rollout("multi_turn.interaction_config_path=interaction.yaml")],
      /multi_turn\.interaction_config_path` is .*further turns/,
    ],
    [
      "an agent loop",
      [...grpo, ...qwen, ...rollout("agent.default_agent_loop=tool_agent agent.num_workers=8")],
      /agent\.default_agent_loop` is tool_agent .*tools/,
    ],
    [
      "a dataset class",
      [...grpo, ...qwen, "data.custom_cls.path=retool.py", "data.custom_cls.name=CustomRLHFDataset"],
      /`data\.custom_cls\.path` is "retool\.py" .*defineDataset.*Python classes are not loaded/,
    ],
    [
      "a sampler class",
      [...grpo, ...qwen, "data.sampler.class_path=pkg://curriculum", "data.sampler.class_name=Random"],
      /`data\.sampler\.class_path` .*defineSampler.*Python classes are not loaded/,
    ],
    [
      "routing replay",
      [...grpo, ...qwen, ...actor("router_replay.mode=R2")],
      /router_replay\.mode` is R2 .*mixtures of experts/,
    ],
    [
      "multi-token prediction",
      [...grpo, ...qwen, ...model("mtp.enable=True mtp.enable_train=True")],
      /mtp\.enable` is true .*Multi-token prediction/,
    ],
    [
      "rollouts of an earlier run",
      [...grpo, ...qwen, ...rollout("skip_rollout=True skip_dump_dir=/tmp/x")],
      /skip_rollout` is true .*Every step samples again/,
    ],
    [
      "training while sampling",
      [...grpo, ...qwen, "async_training.staleness_threshold=0.1", "rollout.nnodes=1"],
      /`async_training\.staleness_threshold` .*take turns.*\n`rollout\.nnodes` .*take turns/,
    ],
    [
      "an asynchronous trainer",
      [...grpo, ...qwen, "trainer.v1.trainer_mode=separate_async"],
      /trainer_mode` is separate_async .*take turns/,
    ],
    [
      "a sampler of its own",
      [...grpo, ...qwen, "actor_rollout_ref.hybrid_engine=False"],
      /hybrid_engine` is false .*share their weights/,
    ],
    ["a teacher", [...grpo, ...qwen, "distillation.enabled=True"], /distillation\.enabled` is true .*teacher/],
    [
      "an NPU",
      [...grpo, ...qwen, "trainer.device=npu"],
      /`trainer\.device` is "npu" .* it takes `cpu`, `webgpu` or `cuda`/,
    ],
    [
      "images",
      [
        ...grpo,
        ...model("path=Qwen/Qwen2.5-VL-7B-Instruct"),
        "data.image_key=images",
        ...rollout("+engine_kwargs.vllm.disable_mm_preprocessor_cache=True"),
      ],
      /`model_type` is "qwen2_5_vl"/,
    ],
    ["experts", [...dapo, ...model("path=Qwen3-30B-A3B-Base")], /`model_type` is "qwen3_moe"/],
    ["DeepSeek-V3", [...dapo, ...mcore, ...model("path=DeepSeek-V3-config-verl")], /`model_type` is "deepseek_v3"/],
    [
      "GPT-OSS",
      [...grpo, ...model("path=gpt-oss-20b-BF16"), "+data.apply_chat_template_kwargs.reasoning_effort=medium"],
      /`model_type` is "gpt_oss"/,
    ],
    [
      "a misspelt key",
      [...grpo, ...qwen, ...actor("kl_loss_coeff=0.001")],
      /`actor_rollout_ref\.actor\.kl_loss_coeff` .* Nearest: .*`actor_rollout_ref\.actor\.kl_loss_coef`/,
    ],
    [
      "a key of a release before",
      [...grpo, ...qwen, ...actor("tis_imp_ratio_cap=2")],
      /tis_imp_ratio_cap` .* is not a key/,
    ],
    [
      "a config that is not there",
      [...grpo, ...qwen, "--config-name=fully_async_ppo_trainer"],
      /fully_async_ppo_trainer\.yaml.* ppo_trainer/,
    ],
  ];
  test.each(refused)("%s", (name, overrides, message) =>
    yard.expectRefusal({ name, program: ppo, overrides }, message),
  );
});

test("a config file in the manner of verl's multi-turn recipes is read on top of its ppo_trainer", async () => {
  const yaml = (isOn: boolean) => `hydra:
  searchpath:
    - file://verl/trainer/config

defaults:
  - ppo_trainer
  - _self_

data: {max_prompt_length: 1024, return_raw_chat: True}

actor_rollout_ref:
  hybrid_engine: True
  rollout:
    name: sglang
    multi_turn: {enable: ${isOn ? "True" : "False"}, max_assistant_turns: 5}
`;
  await writeFile(yard.path("single.yaml"), yaml(false));
  await writeFile(yard.path("multi.yaml"), yaml(true));
  const config = (name: string) => ({ "config-path": yard.root, "config-name": name });
  const recipe = { name: "from a file", program: ppo, overrides: [...grpo, ...qwen] };
  await yard.expectSteps({ ...recipe, config: config("single") });
  const message = /multi_turn\.enable` is true in .*multi\.yaml:15\. .*further turns/;
  await yard.expectRefusal({ ...recipe, config: config("multi") }, message);
});

describe("a program of verl that does not train has a verb", () => {
  const server = [
    ...trainer("nnodes=1 n_gpus_per_node=4"),
    ...qwen,
    ...model("trust_remote_code=True"),
    ...rollout(
      "temperature=1.0 top_k=50 top_p=0.7 prompt_length=2048 response_length=1024 tensor_model_parallel_size=2 gpu_memory_utilization=0.8 name=vllm n=2",
    ),
    ...below("data", "train_files=~/data/gsm8k/test.parquet prompt_key=prompt +output_path=~/server.parquet"),
  ];
  const batch = [
    ...trainer("nnodes=1 n_gpus_per_node=4"),
    ...below("data", "path=~/data/gsm8k/test.parquet prompt_key=prompt n_samples=1 output_path=~/batch.parquet"),
    ...words(
      "model.path=Qwen/Qwen2.5-0.5B-Instruct +model.trust_remote_code=True rollout.temperature=1.0 rollout.top_k=50 rollout.top_p=0.7 rollout.prompt_length=2048 rollout.response_length=1024 rollout.tensor_model_parallel_size=2 rollout.gpu_memory_utilization=0.8",
    ),
  ];
  const judged = below("data", "path=~/data/gsm8k/responses.parquet prompt_key=prompt response_key=responses");
  test.each([
    ["verl.trainer.main_generation_server", server],
    ["verl.trainer.main_generation", batch],
    ["verl.trainer.main_eval", [...judged, "custom_reward_function.path=my.py"]],
  ])("%s", async (program, overrides) => {
    const { code, said } = await yard.command(...yard.argumentsOf({ name: program, program, overrides }));
    expect(code, said).toBe(0);
  });
});
