"""What verl asserts before its first step: batch arithmetic, parallel sizes and lengths."""

from __future__ import annotations

from rltui.check.frameworks import shared, verl_roles
from rltui.check.frameworks.assertion import Framework, at_least, choice, equal, multiple, never
from rltui.check.frameworks.terms import (
    HEADS,
    Constant,
    Fact,
    Least,
    Setting,
    above,
    absent,
    either,
    exactly,
    given,
    neither,
    off,
    on,
    one_of,
    under,
)

FRAMEWORK = Framework("verl", "https://github.com/volcengine/verl/tree/b178a3cd5")

_ACTOR, _ROLLOUT, _CRITIC = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "critic"
_VALIDATE = "verl/utils/config.py, validate_config"
_CONFIGS = "verl/workers/config/actor.py, ActorConfig"
_CRITICS = "verl/workers/config/critic.py, CriticConfig"
_ROLLOUTS = "verl/workers/config/rollout.py, RolloutConfig"
_WORKERS = "verl/workers/fsdp_workers.py, ActorRolloutRefWorker"

_GPUS = Fact("trainer_gpus", "GPUs of the trainer")
_BATCH = Setting("data.train_batch_size")
_SAMPLES = Setting(f"{_ROLLOUT}.n", default=1)
_MINI = Setting(f"{_ACTOR}.ppo_mini_batch_size", default=256)
_MICRO = Setting(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
_OLD_MICRO = Setting(f"{_ACTOR}.ppo_micro_batch_size")
_ULYSSES = Setting(
    f"{_ACTOR}.ulysses_sequence_parallel_size", f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size", default=1
)
_CRITIC_ULYSSES = Setting(
    f"{_CRITIC}.ulysses_sequence_parallel_size", f"{_CRITIC}.fsdp.ulysses_sequence_parallel_size", default=1
)
_CRITIC_MINI = Setting(f"{_CRITIC}.ppo_mini_batch_size")
_TENSOR = Setting(f"{_ROLLOUT}.tensor_model_parallel_size", default=2)
_DATA = Setting(f"{_ROLLOUT}.data_parallel_size", default=1)
_EXPERT = Setting(f"{_ROLLOUT}.expert_parallel_size")
_PROMPT, _RESPONSE = Setting("data.max_prompt_length"), Setting("data.max_response_length")
_MODEL_LENGTH = Setting(f"{_ROLLOUT}.max_model_len")
_STAGES = Setting(f"{_ROLLOUT}.pipeline_model_parallel_size")
_RANK = Setting("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank")
_MEGATRON_STAGES = Setting(f"{_ACTOR}.megatron.pipeline_model_parallel_size", default=1)
_CUT = (
    Setting(f"{_ACTOR}.megatron.tensor_model_parallel_size", default=1)
    * _MEGATRON_STAGES
    * Setting(f"{_ACTOR}.megatron.context_parallel_size", default=1)
)
_EXPERTS = Setting(f"{_ACTOR}.megatron.expert_model_parallel_size", default=1)
_EXPERT_TENSOR = Setting(f"{_ACTOR}.megatron.expert_tensor_parallel_size")
_BUDGET = Setting(f"{_ACTOR}.ppo_max_token_len_per_gpu")
_BATCHED_TOKENS = Setting(f"{_ROLLOUT}.max_num_batched_tokens", default=8192)
_VALIDATED = Setting("data.val_batch_size")
_LEAST = Least(
    *_MICRO.names,
    *_OLD_MICRO.names,
    f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    f"{_CRITIC}.ppo_micro_batch_size_per_gpu",
    *_TENSOR.names,
)

_ROWS = off(f"{_ACTOR}.use_dynamic_bsz")
_CRITIC_ROWS = off(f"{_CRITIC}.use_dynamic_bsz", f"{_ACTOR}.use_dynamic_bsz")
_MEGATRON = either(one_of(f"{_ACTOR}.strategy", "megatron", default="fsdp"), under(f"{_ACTOR}.megatron."))
_FSDP = either(one_of(f"{_ACTOR}.strategy", "fsdp", "fsdp2"), neither(given(f"{_ACTOR}.strategy"), _MEGATRON))
_COUNTED = given("trainer.n_gpus_per_node")  # programs with a configuration of their own count cards by other keys
_BATCHED = above(_BATCH, 0)  # asynchronous programs set it to 0, where it means something else

TABLE = (
    multiple(
        "F101",
        "The samples of a step do not divide over verl's GPUs.",
        _VALIDATE,
        (_BATCH * _SAMPLES, _GPUS),
        when=(_ROWS, _FSDP, _BATCHED),
    ),
    at_least(
        "F102",
        "The mini-batch is larger than the batch.",
        f"{_CONFIGS}.validate",
        (_BATCH, _MINI),
        # programs that are built on a verl from before this assertion still have the elder name of the micro-batch
        # verl-agent's multiply the batch by the copies of an environment before they take mini-batches of it
        when=(_ROWS, _BATCHED, neither(given(*_OLD_MICRO.names, "env.rollout.n"))),
    ),
    at_least(
        "F103",
        "The mini-batch leaves a rank without a sample.",
        _WORKERS,
        (_MINI * _SAMPLES // (_GPUS // _ULYSSES), Constant(1)),
        when=(_ROWS, _FSDP, _COUNTED),
    ),
    multiple(
        "F104",
        "A rank's share of the mini-batch is no multiple of its micro-batch.",
        _WORKERS,
        (_MINI * _SAMPLES // (_GPUS // _ULYSSES), _MICRO),
        when=(_ROWS, _FSDP, _COUNTED),
    ),
    multiple(
        "F105",
        "The actor's Ulysses size does not divide the model's attention heads.",
        "verl/models/transformers/monkey_patch.py, apply_monkey_patch",
        (HEADS, _ULYSSES),
    ),
    multiple(
        "F106",
        "The actor's Ulysses size does not divide the trainer's GPUs.",
        _WORKERS,
        (_GPUS, _ULYSSES),
        when=(_FSDP,),
    ),
    never(
        "F107",
        "Ulysses sequence parallelism is on while padding is kept.",
        "verl/workers/config/actor.py, FSDPActorConfig",
        (above(_ULYSSES, 1), off("actor_rollout_ref.model.use_remove_padding", default=True), _FSDP),
        Setting("actor_rollout_ref.model.use_remove_padding"),
        "True",
    ),
    never(
        "F108",
        "The micro-batch is set under its old name and its new one.",
        _CONFIGS,
        (given(*_OLD_MICRO.names), given(*_MICRO.names), _ROWS),
        _OLD_MICRO,
        "null",
    ),
    multiple(
        "F109",
        "The mini-batch is no multiple of the micro-batch of all GPUs.",
        f"{_CONFIGS}.validate",
        (_MINI, _OLD_MICRO),
        when=(_ROWS,),
    ),
    at_least(
        "F110",
        "The micro-batch of all GPUs leaves a GPU without a row.",
        f"{_CONFIGS}.validate",
        (_OLD_MICRO * _ULYSSES, _GPUS),
        when=(_ROWS,),
    ),
    multiple(
        "F111",
        "Tensor parallelism of the engines does not divide the GPUs that they share with the trainer.",
        f"{_WORKERS}._build_rollout",
        (_GPUS, _TENSOR * _DATA),
        change=_TENSOR,
        when=(on("actor_rollout_ref.hybrid_engine", default=True),),
    ),
    multiple(
        "F112",
        "Megatron's parallel sizes do not divide the trainer's GPUs.",
        _VALIDATE,
        (_GPUS, _CUT),
        change=Setting("trainer.n_gpus_per_node"),
        when=(_MEGATRON,),
    ),
    multiple(
        "F113",
        "The samples of a step do not divide over Megatron's replicas and micro-batches.",
        _VALIDATE,
        (_BATCH * _SAMPLES, _GPUS // _CUT * _MICRO),
        when=(_ROWS, _MEGATRON, _BATCHED),
    ),
    at_least(
        "F114",
        "The engine's length is below prompt and response together.",
        "verl/workers/rollout, the engines' own limit",
        (_MODEL_LENGTH, _PROMPT + _RESPONSE),
        severity="warning",
    ),
    equal(
        "F115",
        "Expert parallelism of the engines is not tensor times data parallelism.",
        "verl/workers/config/rollout.py, RolloutConfig",
        (_EXPERT, _TENSOR * _DATA),
        when=(above(_EXPERT, 1), neither(one_of(f"{_ROLLOUT}.name", "trtllm", default="vllm"))),
    ),
    at_least(
        "F116",
        "The critic's mini-batch is larger than the batch.",
        "verl/workers/config/critic.py, CriticConfig.validate",
        (_BATCH, _CRITIC_MINI),
        when=(
            off(f"{_CRITIC}.use_dynamic_bsz", f"{_ACTOR}.use_dynamic_bsz"),
            _BATCHED,
            one_of("algorithm.adv_estimator", "gae", default="gae"),
        ),
    ),
    never(
        "F117",
        "Validation is to sample at a temperature of zero.",
        _VALIDATE,
        (on(f"{_ROLLOUT}.val_kwargs.do_sample"), exactly(Setting(f"{_ROLLOUT}.temperature"), 0)),
        Setting(f"{_ROLLOUT}.val_kwargs.do_sample"),
        "False",
    ),
    multiple(
        "F118",
        "The critic's Ulysses size does not divide the model's attention heads.",
        "verl/models/transformers/monkey_patch.py, apply_monkey_patch",
        (HEADS, _CRITIC_ULYSSES),
        when=(one_of("algorithm.adv_estimator", "gae", default="gae"), absent("critic.model.path")),
    ),
    never(
        "F119",
        "With one sample a prompt, verl's GRPO takes the raw score as the advantage, without a baseline.",
        "verl/trainer/ppo/core_algos.py, compute_grpo_outcome_advantage",
        (
            one_of("algorithm.adv_estimator", "grpo"),
            exactly(_SAMPLES, 1),
            absent("env.rollout.n", "actor_rollout_ref.rollout.n_agent"),
            off("distillation.enabled"),
        ),
        _SAMPLES,
        8,
        severity="warning",
    ),
    never(
        "F120",
        "KL is penalized in the reward and in the loss.",
        "verl/utils/config.py, a notice there too",
        (on("algorithm.use_kl_in_reward"), on(f"{_ACTOR}.use_kl_loss")),
        Setting(f"{_ACTOR}.use_kl_loss"),
        "False",
        severity="warning",
    ),
    choice(
        "F121",
        "The loss is to be averaged in no way that verl knows.",
        _CONFIGS,
        Setting(f"{_ACTOR}.loss_agg_mode"),
        ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm", "token-sum"),
        (_COUNTED,),
        severity="warning",
    ),
    never(
        "F122",
        "Engines are to be cut into pipeline stages, which verl has none of.",
        _ROLLOUTS,
        (above(_STAGES, 1), one_of(f"{_ROLLOUT}.name", "vllm", "sglang", "trtllm", default="vllm")),
        _STAGES,
        1,
    ),
    never(
        "F123",
        "Rollouts in batches are gone from verl since 0.7.",
        _ROLLOUTS,
        (one_of(f"{_ROLLOUT}.mode", "sync"),),
        Setting(f"{_ROLLOUT}.mode"),
        "async",
        severity="warning",
    ),
    never(
        "F124",
        "The critic's micro-batch is set under its old name and its new one.",
        _CRITICS,
        (given(f"{_CRITIC}.ppo_micro_batch_size"), given(f"{_CRITIC}.ppo_micro_batch_size_per_gpu"), _CRITIC_ROWS),
        Setting(f"{_CRITIC}.ppo_micro_batch_size"),
        "null",
    ),
    multiple(
        "F125",
        "The critic's mini-batch is no multiple of the micro-batch of all GPUs.",
        _CRITICS,
        (_CRITIC_MINI, Setting(f"{_CRITIC}.ppo_micro_batch_size")),
        when=(_CRITIC_ROWS, one_of("algorithm.adv_estimator", "gae", default="gae")),
    ),
    never(
        "F126",
        "The rows of a pass for log-probs are set under their old name and their new one.",
        _VALIDATE,
        (
            given(f"{_ROLLOUT}.log_prob_micro_batch_size"),
            given(f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
            _ROWS,
        ),
        Setting(f"{_ROLLOUT}.log_prob_micro_batch_size"),
        "null",
    ),
    choice(
        "F127",
        "KL is to be estimated in no way that verl knows.",
        "verl/trainer/ppo/core_algos.py, kl_penalty",
        Setting(f"{_ACTOR}.kl_loss_type"),
        ("low_var_kl", "kl", "k1", "k2", "k3", "mse", "abs", "full", "k1+", "k2+", "k3+", "low_var_kl+", "kl+"),
        (on(f"{_ACTOR}.use_kl_loss"), _COUNTED),
        severity="warning",
    ),
    at_least(
        "F128",
        "The LoRA rank is above what vLLM takes.",
        f"{_VALIDATE}, get_vllm_max_lora_rank",
        (Constant(512), _RANK),
        when=(one_of(f"{_ROLLOUT}.name", "vllm", default="vllm"), off("actor_rollout_ref.model.lora.merge")),
    ),
    at_least(
        "F129",
        "A pass takes fewer tokens than one sample may have.",
        "verl/utils/seqlen_balancing.py, rearrange_micro_batches",
        (_BUDGET * _ULYSSES, _PROMPT + _RESPONSE),
        when=(on(f"{_ACTOR}.use_dynamic_bsz"), _FSDP, absent("model_engine")),
        severity="warning",
    ),
    at_least(
        "F130",
        "A prompt is to be read in one pass, and the engine's passes are shorter than a sample; verl of September 2026 "
        "makes them longer by itself.",
        "vLLM, SchedulerConfig.verify_max_model_len",
        (_BATCHED_TOKENS, _PROMPT + _RESPONSE),
        when=(off(f"{_ROLLOUT}.enable_chunked_prefill", default=True), absent(*_MODEL_LENGTH.names)),
        severity="warning",
    ),
    at_least(
        "F131",
        "A size is not above zero.",
        _VALIDATE,
        (_LEAST, Constant(1)),
    ),
    never(
        "F132",
        "verl has no such setting since 0.3: gradients are not moved to host memory by themselves.",
        "verl/trainer/config/ppo_trainer.yaml",
        (given(f"{_ACTOR}.fsdp_config.grad_offload"), absent(*_OLD_MICRO.names, *_VALIDATED.names)),
        Setting(f"{_ACTOR}.fsdp_config.grad_offload"),
        severity="warning",
    ),
    at_least(
        "F133",
        "A validation has fewer samples than there are GPUs, which elder versions refuse.",
        "verl/protocol.py, DataProto.chunk",
        (_VALIDATED, _GPUS),
        when=(given(*_OLD_MICRO.names),),
        severity="warning",
    ),
    never(
        "F134",
        "Transformers generates one sample of a prompt in verl, whatever is asked for.",
        "verl/workers/rollout/hf_rollout.py",
        (one_of(f"{_ROLLOUT}.name", "hf"), above(_SAMPLES, 1)),
        Setting(f"{_ROLLOUT}.name"),
        "vllm",
        severity="warning",
    ),
    shared.visible("F135", "verl/trainer/ppo/ray_trainer.py, ResourcePoolManager", Setting("trainer.n_gpus_per_node")),
    shared.experts("F136", _GPUS, (_EXPERTS, _EXPERT_TENSOR, _MEGATRON_STAGES), (_MEGATRON,)),
    shared.layers("F137", _MEGATRON_STAGES, f"{_ACTOR}.megatron.override_transformer_config.", (_MEGATRON,)),
    *verl_roles.TABLE,
)
