"""What SkyRL's ``validate_cfg`` asserts before the first step."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, at_least, equal, multiple, never
from rltui.check.frameworks.terms import Constant, Fact, Setting, above, absent, exactly, fact, given, off, on, one_of

FRAMEWORK = Framework("skyrl", "https://github.com/NovaSky-AI/SkyRL/tree/a9564572e")

_FILE = "skyrl/train/utils/utils.py"
_BATCHES, _CONFIG = f"{_FILE}, validate_batch_sizes", f"{_FILE}, validate_cfg"
_ENGINE, _MEGATRON = "generator.inference_engine", "trainer.policy.megatron_config"

_GPUS = Fact("trainer_gpus", "GPUs of the policy")
_BATCH, _MINI = Setting("trainer.train_batch_size"), Setting("trainer.policy_mini_batch_size")
_CRITIC_MINI = Setting("trainer.critic_mini_batch_size")
_SAMPLES = Setting("generator.n_samples_per_prompt")
_MICRO = Setting("trainer.micro_train_batch_size_per_gpu")
_ULYSSES = Setting("trainer.policy.sequence_parallel_size", default=1)
_RANKS = _GPUS // _ULYSSES
_CUT = (
    Setting(f"{_MEGATRON}.tensor_model_parallel_size", default=1)
    * Setting(f"{_MEGATRON}.pipeline_model_parallel_size", default=1)
    * Setting(f"{_MEGATRON}.context_parallel_size", default=1)
)
_ENGINES = Setting(f"{_ENGINE}.num_engines", "generator.num_inference_engines")
_ENGINE_GPUS = (
    Setting(f"{_ENGINE}.tensor_parallel_size", "generator.inference_engine_tensor_parallel_size")
    * Setting(f"{_ENGINE}.pipeline_parallel_size", "generator.inference_engine_pipeline_parallel_size", default=1)
    * Setting(f"{_ENGINE}.data_parallel_size", "generator.inference_engine_data_parallel_size", default=1)
)
_TENSOR = Setting(f"{_ENGINE}.tensor_parallel_size", "generator.inference_engine_tensor_parallel_size")
_DATA = Setting(f"{_ENGINE}.data_parallel_size", "generator.inference_engine_data_parallel_size", default=1)
_EXPERT = Setting(f"{_ENGINE}.expert_parallel_size", "generator.inference_engine_expert_parallel_size")
_PROMPT, _INPUT = Setting("trainer.max_prompt_length"), Setting("generator.max_input_length")
_FSDP, _ON_MEGATRON = (
    one_of("trainer.strategy", "fsdp", "fsdp2", default="fsdp"),
    one_of("trainer.strategy", "megatron"),
)
_RL = fact("algorithm", "grpo")
_LOCAL = on(f"{_ENGINE}.run_engines_locally", "generator.run_engines_locally", default=True)

TABLE = (
    at_least("F501", "The mini-batch is larger than the batch.", _BATCHES, (_BATCH, _MINI), _MINI),
    multiple("F502", "The batch is no multiple of the mini-batch.", _BATCHES, (_BATCH, _MINI), _MINI),
    at_least(
        "F503",
        "The mini-batch leaves a rank without a sample.",
        _BATCHES,
        (_MINI * _SAMPLES // _RANKS, Constant(1)),
        _MINI,
        (_FSDP,),
    ),
    multiple(
        "F504",
        "A rank's share of the mini-batch is no multiple of its micro-batch.",
        _BATCHES,
        (_MINI * _SAMPLES // _RANKS, _MICRO),
        _MICRO,
        (_FSDP,),
    ),
    multiple(
        "F505",
        "A rank's share of the mini-batch is no multiple of its micro-batch.",
        _BATCHES,
        (_MINI * _SAMPLES // (_GPUS // _CUT), _MICRO),
        _MICRO,
        (_ON_MEGATRON,),
    ),
    at_least(
        "F506",
        "The critic's mini-batch is larger than the batch.",
        _BATCHES,
        (_BATCH, _CRITIC_MINI),
        _CRITIC_MINI,
        (given("trainer.critic.model.path"),),
    ),
    multiple(
        "F507",
        "The batch is no multiple of the critic's mini-batch.",
        _BATCHES,
        (_BATCH, _CRITIC_MINI),
        _CRITIC_MINI,
        (given("trainer.critic.model.path"),),
    ),
    multiple(
        "F508",
        "Megatron's parallel sizes do not divide the policy's GPUs.",
        _BATCHES,
        (_GPUS, _CUT),
        Setting("trainer.placement.policy_num_gpus_per_node"),
        (_ON_MEGATRON,),
    ),
    equal(
        "F509",
        "All models share their GPUs, but engines and policy have different numbers of them.",
        _CONFIG,
        (_ENGINES * _ENGINE_GPUS, _GPUS),
        _ENGINES,
        (
            on("trainer.placement.colocate_all", default=True),
            _LOCAL,
            given("trainer.placement.policy_num_gpus_per_node"),
        ),
    ),
    never(
        "F510",
        "Advantages are to come from a critic, and there is none.",
        _CONFIG,
        (one_of("trainer.algorithm.advantage_estimator", "gae"), absent("trainer.critic.model.path")),
        Setting("trainer.critic.model.path"),
    ),
    never(
        "F511",
        "KL is penalized in the reward and in the loss.",
        _CONFIG,
        (on("trainer.algorithm.use_kl_in_reward"), on("trainer.algorithm.use_kl_loss", default=True)),
        Setting("trainer.algorithm.use_kl_loss"),
        "false",
    ),
    multiple(
        "F512",
        "Expert parallelism of the engines is not tensor times data parallelism.",
        _CONFIG,
        (_TENSOR * _DATA, _EXPERT),
        _EXPERT,
        (above(_EXPERT, 1),),
    ),
    equal(
        "F513",
        "A single turn's input has another length than its prompt.",
        f"{_FILE}, validate_generator_cfg",
        (_INPUT, _PROMPT),
        _INPUT,
        (exactly(Setting("generator.max_turns", default=1), 1),),
    ),
    at_least(
        "F514",
        "Inputs of several turns are cut before the first prompt ends.",
        f"{_FILE}, validate_generator_cfg",
        (_INPUT, _PROMPT),
        _INPUT,
        (above(Setting("generator.max_turns", default=1), 1),),
    ),
    never(
        "F515",
        "Ulysses sequence parallelism is not Megatron's.",
        f"{_FILE}, validate_megatron_cfg",
        (_ON_MEGATRON, above(_ULYSSES, 1)),
        _ULYSSES,
        1,
    ),
    multiple(
        "F516",
        "The Ulysses size does not divide the policy's GPUs.",
        "skyrl/backends/skyrl_train/workers/fsdp",
        (_GPUS, _ULYSSES),
        _ULYSSES,
        (_FSDP, given("trainer.placement.policy_num_gpus_per_node"), off("trainer.offline"), _RL),
    ),
    never(
        "F517",
        "With one sample a prompt, SkyRL's GRPO takes the raw score as the advantage, without a baseline.",
        "skyrl/backends/skyrl_train/utils/ppo_utils.py, compute_grpo_outcome_advantage",
        (one_of("trainer.algorithm.advantage_estimator", "grpo", default="grpo"), exactly(_SAMPLES, 1)),
        _SAMPLES,
        8,
        severity="warning",
    ),
    multiple(
        "F518",
        "A rank's share of the batch is no multiple of its share of the mini-batch.",
        _BATCHES,
        (_BATCH * _SAMPLES // _RANKS, _MINI * _SAMPLES // _RANKS),
        _MINI,
        (_FSDP,),
    ),
)
