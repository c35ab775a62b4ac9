"""Settings of SkyRL that its assertions ask for, and the conditions that several of them have."""

from __future__ import annotations

from rltui.check.frameworks.terms import Fact, Setting, above, either, fact, given, off, on, one_of

FILE = "skyrl/train/utils/utils.py"
BATCHES, CONFIG = f"{FILE}, validate_batch_sizes", f"{FILE}, validate_cfg"
ENGINE, MEGATRON = "generator.inference_engine", "trainer.policy.megatron_config"

GPUS = Fact("trainer_gpus", "GPUs of the policy")
BATCH, MINI = Setting("trainer.train_batch_size"), Setting("trainer.policy_mini_batch_size")
CRITIC_MINI = Setting("trainer.critic_mini_batch_size")
SAMPLES = Setting("generator.n_samples_per_prompt")
MICRO = Setting("trainer.micro_train_batch_size_per_gpu")
ULYSSES = Setting("trainer.policy.sequence_parallel_size", default=1)
RANKS = GPUS // ULYSSES
CUT = (
    Setting(f"{MEGATRON}.tensor_model_parallel_size", default=1)
    * Setting(f"{MEGATRON}.pipeline_model_parallel_size", default=1)
    * Setting(f"{MEGATRON}.context_parallel_size", default=1)
)
ENGINES = Setting(f"{ENGINE}.num_engines", "generator.num_inference_engines")
ENGINE_GPUS = (
    Setting(f"{ENGINE}.tensor_parallel_size", "generator.inference_engine_tensor_parallel_size")
    * Setting(f"{ENGINE}.pipeline_parallel_size", "generator.inference_engine_pipeline_parallel_size", default=1)
    * Setting(f"{ENGINE}.data_parallel_size", "generator.inference_engine_data_parallel_size", default=1)
)
TENSOR = Setting(f"{ENGINE}.tensor_parallel_size", "generator.inference_engine_tensor_parallel_size")
DATA = Setting(f"{ENGINE}.data_parallel_size", "generator.inference_engine_data_parallel_size", default=1)
EXPERT = Setting(f"{ENGINE}.expert_parallel_size", "generator.inference_engine_expert_parallel_size")
PROMPT, INPUT = Setting("trainer.max_prompt_length"), Setting("generator.max_input_length")
FSDP, ON_MEGATRON = (
    one_of("trainer.strategy", "fsdp", "fsdp2", default="fsdp"),
    one_of("trainer.strategy", "megatron"),
)
RL = fact("algorithm", "grpo")
LOCAL = on(f"{ENGINE}.run_engines_locally", "generator.run_engines_locally", default=True)
CRITIC_RANKS = Setting("trainer.placement.critic_num_nodes", default=1) * Setting(
    "trainer.placement.critic_num_gpus_per_node"
)
HAS_CRITIC = given("trainer.critic.model.path")
SHARED = on("trainer.placement.colocate_all", default=True)
ALGORITHM, OFF_POLICY = "trainer.algorithm", "trainer.algorithm.off_policy_correction"
LOSS, REDUCTION = Setting(f"{ALGORITHM}.policy_loss_type"), Setting(f"{ALGORITHM}.loss_reduction")
STEPWISE = on("generator.step_wise_trajectories")
LORA = above(Setting("trainer.policy.model.lora.rank"), 0)
PADDING = Setting("trainer.remove_microbatch_padding", "trainer.use_sample_packing")
PADDED = off(*PADDING.names, default=True)
EXTERNAL = (f"{ENGINE}.external_proxy_url", f"{ENGINE}.external_server_urls")
EXECUTOR = Setting(f"{ENGINE}.distributed_executor_backend")
ROUTED, REPLAY = Setting(f"{ENGINE}.enable_return_routed_experts"), Setting(f"{MEGATRON}.moe_enable_routing_replay")
SLEEPING = Setting(f"{ENGINE}.offload_kv_for_weight_sync")
ON_SGLANG = either(one_of(f"{ENGINE}.backend", "sglang"), one_of("generator.backend", "sglang"))
SERVERS = f"{FILE}, validate_inference_engine_cfg"
ASYNC_FILE = "skyrl/train/fully_async_trainer.py"
STALENESS = Setting("trainer.fully_async.max_staleness_steps")
WORKERS = Setting("trainer.fully_async.num_parallel_generation_workers")
ASYNC = either(on("trainer.fully_async.enabled"), given(*STALENESS.names), given(*WORKERS.names))
