"""What prime-rl's configuration refuses before anything starts."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, at_least, multiple, never
from rltui.check.frameworks.terms import (
    Constant,
    Fact,
    Least,
    Setting,
    absent,
    either,
    fact,
    given,
    off,
    on,
    one_of,
    other_than,
    under,
)

FRAMEWORK = Framework("prime-rl", "https://github.com/PrimeIntellect-ai/prime-rl/tree/559b44772")

_CONFIGS = "packages/prime-rl-configs/src/prime_rl/configs"

_BATCH = Setting("orchestrator.batch_size")
_GROUP = Setting("orchestrator.group_size", "orchestrator.rollouts_per_example")
_TRAIN, _INFER = Setting("deployment.num_train_gpus", default=1), Setting("deployment.num_infer_gpus", default=1)
_NODES = Setting("deployment.num_train_nodes")
_TENSOR = Setting("inference.vllm.tensor_parallel_size", "inference.parallel.tp")
_ONE_NODE = one_of("deployment.type", "single_node", default="single_node")
_SEVERAL = one_of("deployment.type", "multi_node")
_RL = either(fact("algorithm", "grpo"), fact("algorithm", "opd"))
_TRAINER_LENGTH, _LENGTH = Setting("trainer.model.seq_len"), Setting("orchestrator.seq_len")


_INFLIGHT = Setting("orchestrator.concurrency.max_inflight")
_LEAST = Least(*_TENSOR.names, "inference.parallel.dp", "trainer.model.cp", *_GROUP.names)

TABLE = (
    multiple(
        "F601",
        "The batch does not hold whole groups.",
        f"{_CONFIGS}/orchestrator.py, resolve_batching",
        (_BATCH, _GROUP),
        change=_BATCH,
    ),
    never(
        "F602",
        "The batch is counted in samples and in tokens.",
        f"{_CONFIGS}/orchestrator.py, resolve_batching",
        (given("orchestrator.batch_size"), given("orchestrator.token_batch_size")),
        Setting("orchestrator.token_batch_size"),
    ),
    at_least(
        "F603",
        "Trainer and engines take more GPUs than the node has.",
        f"{_CONFIGS}/rl.py, validate_gpu_count",
        (Setting("deployment.gpus_per_node", default=8), _TRAIN + _INFER),
        change=_TRAIN,
        when=(_RL, _ONE_NODE, given("deployment.num_train_gpus", "deployment.num_infer_gpus")),
    ),
    multiple(
        "F604",
        "Tensor parallelism does not divide the engines' GPUs.",
        f"{_CONFIGS}/rl.py, auto_setup_deployment",
        (_INFER, _TENSOR),
        when=(_RL, _ONE_NODE, given("deployment.num_infer_gpus")),
    ),
    multiple(
        "F605",
        "Training nodes do not divide into groups of FSDP.",
        f"{_CONFIGS}/rl.py, auto_setup_deployment",
        (_NODES, Setting("deployment.nodes_per_fsdp_group")),
        change=_NODES,
        when=(_SEVERAL,),
    ),
    never(
        "F606",
        "The optimizer is to be offloaded by FSDP and by the trainer itself.",
        f"{_CONFIGS}/trainer.py, cpu_offload_mutual_exclusion",
        (
            on("trainer.model.fsdp_cpu_offload"),
            either(on("trainer.model.optim_cpu_offload"), on("trainer.model.full_offload")),
        ),
        Setting("trainer.model.optim_cpu_offload"),
        "false",
    ),
    at_least(
        "F607",
        "The trainer takes shorter samples than the orchestrator makes.",
        "prime_rl/utils/validation.py, validate_shared_seq_len",
        (_TRAINER_LENGTH, _LENGTH),
        change=_TRAINER_LENGTH,
        when=(absent("seq_len"),),
    ),
    never(
        "F608",
        "A learning rate that ends at a step needs to know the last one.",
        f"{_CONFIGS}/trainer.py, validate_scheduler",
        (one_of("trainer.scheduler.type", "cosine"), absent("max_steps", "trainer.max_steps")),
        Setting("max_steps"),
    ),
    multiple(
        "F609",
        "Context parallelism does not divide the trainer's GPUs.",
        f"{_CONFIGS}/rl.py, auto_setup_deployment",
        (Fact("trainer_gpus", "GPUs of the trainer"), Setting("trainer.model.cp", default=1)),
        change=Setting("trainer.model.cp"),
    ),
    at_least(
        "F610",
        "Fewer rollouts are allowed than are to begin with.",
        f"{_CONFIGS}/orchestrator.py, validate_bounds",
        (_INFLIGHT, Setting("orchestrator.concurrency.initial_inflight")),
        change=_INFLIGHT,
    ),
    at_least(
        "F611",
        "Fewer rollouts are allowed than there must be.",
        f"{_CONFIGS}/orchestrator.py, validate_bounds",
        (_INFLIGHT, Setting("orchestrator.concurrency.min_inflight")),
        change=_INFLIGHT,
    ),
    never(
        "F612",
        "Caches are to be kept in host memory, and no prefix is kept.",
        f"{_CONFIGS}/inference.py, auto_setup_kv_cache_offload",
        (under("inference.kv_cache_offload."), off("inference.vllm.enable_prefix_caching", default=True)),
        Setting("inference.vllm.enable_prefix_caching"),
        "true",
    ),
    at_least(
        "F613",
        "A size is not above zero.",
        f"{_CONFIGS}/rl.py",
        (_LEAST, Constant(1)),
    ),
    never(
        "F614",
        "Adapters cannot be sent to the engines in memory.",
        f"{_CONFIGS}/rl.py, auto_setup_weight_broadcast",
        (
            under("trainer.model.lora."),
            either(one_of("weight_broadcast.type", "nccl", "nixl"), one_of("trainer.weight_broadcast.type", "nccl")),
        ),
        Setting("weight_broadcast.type"),
        '"filesystem"',
    ),
    never(
        "F615",
        "The optimizer is to be offloaded in two ways.",
        f"{_CONFIGS}/trainer.py, cpu_offload_mutual_exclusion",
        (on("trainer.model.optim_cpu_offload"), on("trainer.model.full_offload")),
        Setting("trainer.model.optim_cpu_offload"),
        "false",
    ),
    *(
        never(
            code,
            f"The trainer's {what} of adapters is not the orchestrator's.",
            f"{_CONFIGS}/rl.py, auto_setup_lora",
            (other_than(Setting(f"trainer.model.lora.{what}"), Setting(f"orchestrator.model.lora.{what}")),),
            Setting(f"orchestrator.model.lora.{what}"),
        )
        for code, what in (("F616", "rank"), ("F617", "alpha"))
    ),
)
