"""What NeMo-RL asserts in its set-up and when it shards the first batch."""

from __future__ import annotations

from rltui.check.frameworks import nemo_rl_loss, nemo_rl_sequences, shared
from rltui.check.frameworks.assertion import Framework, at_least, equal, multiple, never
from rltui.check.frameworks.terms import (
    Constant,
    Fact,
    Setting,
    above,
    absent,
    at_most,
    either,
    exactly,
    fact,
    given,
    neither,
    off,
    on,
    one_of,
)

FRAMEWORK = Framework("nemo-rl", "https://github.com/NVIDIA-NeMo/RL/tree/7ea279abf")

_SETUP, _SHARDS = "nemo_rl/algorithms/grpo.py, setup", "nemo_rl/distributed/batched_data_dict.py, shard_by_batch_size"
_POLICY, _VLLM = (
    "nemo_rl/models/policy/lm_policy.py, Policy.__init__",
    "nemo_rl/models/generation/vllm/vllm_generation.py",
)
_GENERATION = "policy.generation"
_RESOURCES = f"{_GENERATION}.colocated.resources"

_GPUS = Fact("trainer_gpus", "GPUs of the policy")
_ONE = Constant(1)
_PROMPTS = Setting("grpo.num_prompts_per_step", "distillation.num_prompts_per_step", "ppo.num_prompts_per_step")
_SAMPLES = Setting(
    "grpo.num_generations_per_prompt", "distillation.num_generations_per_prompt", "ppo.num_generations_per_prompt"
)
_GLOBAL, _MICRO = Setting("policy.train_global_batch_size"), Setting("policy.train_micro_batch_size")
_NODES, _PER_NODE = Setting("cluster.num_nodes"), Setting("cluster.gpus_per_node")
_OWN_NODES, _OWN_GPUS = Setting(f"{_RESOURCES}.num_nodes"), Setting(f"{_RESOURCES}.gpus_per_node")
_TENSOR = Setting(f"{_GENERATION}.vllm_cfg.tensor_parallel_size", default=1)
_PIPELINE = Setting(f"{_GENERATION}.vllm_cfg.pipeline_parallel_size", default=1)
_MODEL_LENGTH = Setting(f"{_GENERATION}.vllm_cfg.max_model_len")
_STAGES = Setting("policy.megatron_cfg.pipeline_model_parallel_size", default=1)
_EXPERTS = Setting("policy.megatron_cfg.expert_model_parallel_size", default=1)
_EXPERT_TENSOR = Setting("policy.megatron_cfg.expert_tensor_parallel_size")
_DTENSOR_CONTEXT = Setting("policy.dtensor_cfg.context_parallel_size", default=1)
_CUT_DTENSOR = Setting("policy.dtensor_cfg.tensor_parallel_size", default=1) * _DTENSOR_CONTEXT
_CUT_MEGATRON = (
    Setting("policy.megatron_cfg.tensor_model_parallel_size", default=1)
    * _STAGES
    * Setting("policy.megatron_cfg.context_parallel_size", default=1)
)
_ON_MEGATRON, _ON_DTENSOR = on("policy.megatron_cfg.enabled"), on("policy.dtensor_cfg.enabled")
_ROWS = (off("policy.dynamic_batching.enabled"), off("policy.sequence_packing.enabled"))
_RL = either(fact("algorithm", "grpo"), fact("algorithm", "opd"), fact("algorithm", "ppo"))
_APART = off(f"{_GENERATION}.colocated.enabled", default=None)
_ON_VLLM = one_of(f"{_GENERATION}.backend", "vllm")
_ALONE = fact("other_gpus", 0)  # whether a gym's nodes are among the cluster's or beside them is the launcher's choice
_ASYNC = on("grpo.async_grpo.enabled")
_STOP = Setting("grpo.stop_at_validation_metric")
_VALIDATIONS = Setting("grpo.val_num_generations_per_prompt")
_PACKED, _DRAFT = on("policy.sequence_packing.enabled"), on("policy.draft.enabled")
_EXPERT = Setting(f"{_GENERATION}.vllm_cfg.expert_parallel_size")
_TOP_P = Setting(f"{_GENERATION}.top_p")
_LOGPROBS = Setting("policy.logprob_batch_size")
_LEARNER_TENSOR = (
    Setting("policy.megatron_cfg.tensor_model_parallel_size"),
    Setting("policy.dtensor_cfg.tensor_parallel_size"),
)
_WIDE = either(
    *(
        lambda asked, enabled=enabled, size=size: enabled(asked) and above(size, 3)(asked)
        for enabled, size in zip((_ON_MEGATRON, _ON_DTENSOR), _LEARNER_TENSOR, strict=True)
    )
)

TABLE = (
    never(
        "F773",
        "Engines have GPUs of their own, and how many of a node is left out; NeMo-RL since October 2025 wants it said.",
        _SETUP,
        (_APART, _RL, absent(*_OWN_GPUS.names)),
        _OWN_GPUS,
        severity="warning",
    ),
    multiple(
        "F701",
        "The samples of a step are no multiple of the global batch.",
        _SHARDS,
        (_PROMPTS * _SAMPLES, _GLOBAL),
        when=(_RL, off("grpo.use_dynamic_sampling"), off("env.nemo_gym.enabled")),
    ),
    multiple(
        "F702",
        "The global batch does not divide over DTensor's data-parallel ranks.",
        _SHARDS,
        (_GLOBAL, _GPUS // _CUT_DTENSOR),
        when=(_RL, _ON_DTENSOR, off("policy.megatron_cfg.enabled"), *_ROWS),
    ),
    multiple(
        "F703",
        "The global batch does not divide over Megatron's data-parallel ranks and their micro-batches.",
        _SHARDS,
        (_GLOBAL, _GPUS // _CUT_MEGATRON * _MICRO),
        when=(_RL, _ON_MEGATRON, *_ROWS),
    ),
    multiple(
        "F704",
        "DTensor's parallel sizes do not divide the policy's GPUs.",
        _POLICY,
        (_GPUS, _CUT_DTENSOR),
        change=_PER_NODE,
        when=(_ON_DTENSOR, off("policy.megatron_cfg.enabled"), _ALONE),
    ),
    multiple(
        "F705",
        "Megatron's parallel sizes do not divide the policy's GPUs.",
        _POLICY,
        (_GPUS, _CUT_MEGATRON),
        change=_PER_NODE,
        when=(_ON_MEGATRON, _ALONE),
    ),
    never(
        "F706",
        "Two training backends are enabled.",
        _POLICY,
        (_ON_MEGATRON, _ON_DTENSOR),
        Setting("policy.dtensor_cfg.enabled"),
        "false",
    ),
    multiple(
        "F707",
        "The engines' GPUs are no multiple of an engine's.",
        _VLLM,
        (Fact("rollout_gpus", "GPUs of the engines"), _TENSOR * _PIPELINE),
        change=Setting(f"{_GENERATION}.vllm_cfg.tensor_parallel_size"),
        when=(_RL, _ON_VLLM),
    ),
    never(
        "F708",
        "Pipeline parallelism of the engines needs the asynchronous engine.",
        _VLLM,
        (_RL, _ON_VLLM, above(_PIPELINE, 1), off(f"{_GENERATION}.vllm_cfg.async_engine")),
        Setting(f"{_GENERATION}.vllm_cfg.async_engine"),
        "true",
    ),
    never(
        "F709",
        "Asynchronous training needs the asynchronous engine.",
        "nemo_rl/algorithms/grpo.py, async_grpo_train",
        (_ASYNC, _ON_VLLM, off(f"{_GENERATION}.vllm_cfg.async_engine")),
        Setting(f"{_GENERATION}.vllm_cfg.async_engine"),
        "true",
    ),
    never(
        "F710",
        "Asynchronous training needs the correction of importance sampling.",
        "nemo_rl/algorithms/grpo.py, async_grpo_train",
        (_ASYNC, off("loss_fn.use_importance_sampling_correction", default=None)),
        Setting("loss_fn.use_importance_sampling_correction"),
        "true",
    ),
    equal(
        "F711",
        "The ratio is to be exactly that of the policy, which takes one optimizer step a rollout.",
        _SETUP,
        (_GLOBAL, _PROMPTS * _SAMPLES),
        when=(_RL, on("loss_fn.force_on_policy_ratio")),
    ),
    equal(
        "F712",
        "Engines with nodes of their own must take them whole.",
        _SETUP,
        (_OWN_GPUS, _PER_NODE),
        change=_OWN_GPUS,
        when=(_RL, _APART, above(_NODES, 1)),
    ),
    at_least(
        "F713",
        "Engines take all GPUs of the node, and leave none to the policy.",
        _SETUP,
        (_PER_NODE, _OWN_GPUS + _ONE),
        change=_OWN_GPUS,
        when=(_RL, _APART, exactly(_NODES, 1)),
    ),
    at_least(
        "F714",
        "Engines take all nodes, and leave none to the policy.",
        _SETUP,
        (_NODES, _OWN_NODES + _ONE),
        change=_OWN_NODES,
        when=(_RL, _APART, above(_NODES, 1)),
    ),
    never(
        "F715",
        "Rows are to be packed and batched by length at once.",
        _SHARDS,
        (on("policy.sequence_packing.enabled"), on("policy.dynamic_batching.enabled")),
        Setting("policy.dynamic_batching.enabled"),
        "false",
    ),
    never(
        "F716",
        "A multiplied batch needs dynamic sampling.",
        _SETUP,
        (above(Setting("grpo.batch_multiplier"), 1), off("grpo.use_dynamic_sampling")),
        Setting("grpo.batch_multiplier"),
        1,
    ),
    at_least(
        "F717",
        "The engine's length is below that of a whole sample.",
        "nemo_rl/experience/rollouts.py, a warning there too",
        (_MODEL_LENGTH, Setting("policy.max_total_sequence_length")),
        change=_MODEL_LENGTH,
        when=(_RL, _ON_VLLM),
        severity="warning",
    ),
    at_least(
        "F718",
        "Validation has no sample of a prompt.",
        _SETUP,
        (_VALIDATIONS, _ONE),
    ),
    at_least(
        "F719",
        "Training is to stop by the best of several samples of a validation, which has one.",
        _SETUP,
        (_VALIDATIONS, Constant(2)),
        when=(one_of(_STOP.names[0], "pass_k"),),
    ),
    never(
        "F720",
        "Training is to stop by a validation, and no threshold is given.",
        _SETUP,
        (given(*_STOP.names), absent("grpo.stop_at_validation_threshold")),
        Setting("grpo.stop_at_validation_threshold"),
    ),
    never(
        "F721",
        "The head is to be fused with its log-probs, and rows to be packed.",
        _SETUP,
        (_ON_MEGATRON, on("policy.megatron_cfg.use_fused_linear_logprobs"), _PACKED),
        Setting("policy.megatron_cfg.use_fused_linear_logprobs"),
        "false",
    ),
    never(
        "F722",
        "A KL penalty compares with a reference whose log-probs are left out.",
        _SETUP,
        (
            on("grpo.skip_reference_policy_logprobs_calculation"),
            above(Setting("loss_fn.reference_policy_kl_penalty"), 0),
        ),
        Setting("loss_fn.reference_policy_kl_penalty"),
        0,
    ),
    never(
        "F723",
        "Asynchronous training is for engines with GPUs of their own.",
        "nemo_rl/algorithms/grpo.py, async_grpo_train",
        (_ASYNC, _ON_VLLM, on(f"{_GENERATION}.colocated.enabled")),
        Setting(f"{_GENERATION}.colocated.enabled"),
        "false",
    ),
    never(
        "F724",
        "Only Megatron trains a draft model.",
        _POLICY,
        (_DRAFT, _ON_DTENSOR, neither(_ON_MEGATRON)),
        Setting("policy.draft.enabled"),
        "false",
    ),
    never(
        "F725",
        "A draft model is trained without packed rows.",
        _POLICY,
        (_DRAFT, _PACKED),
        Setting("policy.sequence_packing.enabled"),
        "false",
    ),
    never(
        "F726",
        "No training backend is enabled; elder versions then took another.",
        _POLICY,
        (
            off("policy.megatron_cfg.enabled", default=None),
            off("policy.dtensor_cfg.enabled", default=None),
            neither(on("policy.automodel_cfg.enabled")),
        ),
        Setting("policy.dtensor_cfg.enabled"),
        "true",
        severity="warning",
    ),
    never(
        "F727",
        "The elder DTensor backend trains no LoRA.",
        _POLICY,
        (_ON_DTENSOR, on("policy.dtensor_cfg.lora_cfg.enabled"), off("policy.dtensor_cfg._v2", default=None)),
        Setting("policy.dtensor_cfg._v2"),
        "true",
    ),
    never(
        "F728",
        "The elder DTensor backend keeps one copy of the model.",
        _POLICY,
        (
            _ON_DTENSOR,
            above(Setting("policy.dtensor_cfg.dp_replicate_size"), 1),
            off("policy.dtensor_cfg._v2", default=None),
        ),
        Setting("policy.dtensor_cfg._v2"),
        "true",
    ),
    never(
        "F729",
        "Batches by length are for one pipeline stage.",
        _POLICY,
        (
            _ON_MEGATRON,
            on("policy.dynamic_batching.enabled"),
            above(Setting("policy.megatron_cfg.pipeline_model_parallel_size"), 1),
        ),
        Setting("policy.dynamic_batching.enabled"),
        "false",
    ),
    multiple(
        "F730",
        "Expert parallelism of the engines is no multiple of their tensor parallelism.",
        _VLLM,
        (_EXPERT, _TENSOR),
        change=_EXPERT,
        when=(_RL, _ON_VLLM, above(_EXPERT, 1)),
    ),
    equal(
        "F731",
        "The asynchronous engine has no data parallelism of its own: expert is tensor parallelism.",
        _VLLM,
        (_EXPERT, _TENSOR),
        change=_EXPERT,
        when=(_RL, _ON_VLLM, above(_EXPERT, 1), on(f"{_GENERATION}.vllm_cfg.async_engine")),
    ),
    never("F732", "top_p is above 1.", _VLLM, (_ON_VLLM, above(_TOP_P, 1)), _TOP_P, 1.0),
    never("F733", "top_p leaves no token.", _VLLM, (_ON_VLLM, at_most(_TOP_P, 0)), _TOP_P, 1.0),
    equal(
        "F734",
        "With tensor parallelism of four or more, passes of training and of log-probs must have the same rows.",
        f"{_POLICY}, unless NRL_IGNORE_TP_ACCURACY_CHECK is set",
        (_MICRO, _LOGPROBS),
        when=(_RL, _WIDE, off("loss_fn.force_on_policy_ratio")),
        severity="warning",
    ),
    multiple(
        "F735",
        "The prompts of a step are no multiple of those of a loader.",
        _SETUP,
        (_PROMPTS, Setting("data.num_prompts_per_dataloader")),
        when=(on("data.use_multiple_dataloader"), off("grpo.use_dynamic_sampling")),
    ),
    never(
        "F766",
        "Asynchronous training draws its prompts from one loader.",
        "examples/run_grpo.py, main",
        (_ASYNC, on("data.use_multiple_dataloader")),
        Setting("data.use_multiple_dataloader"),
        "false",
    ),
    shared.experts("F768", _GPUS, (_EXPERTS, _EXPERT_TENSOR, _STAGES), (_RL, _ON_MEGATRON, _ALONE)),
    shared.layers("F769", _STAGES, "policy.megatron_cfg.", (_ON_MEGATRON,)),
    *nemo_rl_loss.TABLE,
    *nemo_rl_sequences.TABLE,
)
