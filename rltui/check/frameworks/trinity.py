"""What verl's trainer refuses of Trinity-RFT's configuration."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, at_least, choice, multiple, never
from rltui.check.frameworks.terms import Constant, Fact, Setting, above, absent, fact, one_of, under

FRAMEWORK = Framework("trinity-rft", "https://github.com/agentscope-ai/Trinity-RFT")

_BUDGET = Setting(
    "trainer.max_token_len_per_gpu", "trainer.trainer_config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
)
_ULYSSES = Setting("trainer.ulysses_sequence_parallel_size", default=1)
_LENGTH = Setting("model.max_model_len")
_VALIDATOR = "trinity/common/config_validator.py"
_ENGINE = "explorer.rollout_model."

_PER_NODE = Setting("cluster.gpu_per_node")
_ENGINES = Setting(f"{_ENGINE}engine_num", default=1)
_ENGINE_GPUS = (
    Setting(f"{_ENGINE}tensor_parallel_size", default=1)
    * Setting(f"{_ENGINE}data_parallel_size", default=1)
    * Setting(f"{_ENGINE}pipeline_parallel_size", default=1)
)
_TRAINER = Fact("trainer_gpus", "GPUs that the engines leave the trainer")
_OTHERS = Fact("other_gpus", "GPUs of auxiliary models")
_BOTH = one_of("mode", "both", default="both")
_HERE = one_of(f"{_ENGINE}engine_type", "vllm", "vllm_async", "sglang", default="vllm")


TABLE = (
    at_least(
        "F161",
        "A pass takes fewer tokens than a sample may have, and one that is longer ends the training.",
        "verl/utils/seqlen_balancing.py, rearrange_micro_batches",
        (_BUDGET * _ULYSSES, _LENGTH),
        change=_BUDGET,
        severity="warning",
    ),
    at_least(
        "F181",
        "Engines and auxiliary models leave the trainer no GPU.",
        f"{_VALIDATOR}, RayClusterConfigValidator",
        (Setting("cluster.node_num") * _PER_NODE, _ENGINE_GPUS * _ENGINES + _OTHERS + Constant(1)),
        change=_ENGINES,
        when=(_BOTH, _HERE, fact("colocated", False)),
    ),
    multiple(
        "F182",
        "A trainer of more than a node takes whole nodes.",
        f"{_VALIDATOR}, RayClusterConfigValidator",
        (_TRAINER, _PER_NODE),
        change=_ENGINES,
        when=(one_of("mode", "both", "train", default="both"), _HERE, above(_TRAINER, _PER_NODE)),
    ),
    multiple(
        "F183",
        "An engine of more than a node takes whole nodes.",
        f"{_VALIDATOR}, RayClusterConfigValidator",
        (_ENGINE_GPUS, _PER_NODE),
        when=(_HERE, above(_ENGINE_GPUS, _PER_NODE)),
    ),
    choice(
        "F184",
        "Trinity-RFT has no such mode.",
        f"{_VALIDATOR}, GlobalConfigValidator",
        Setting("mode"),
        ("both", "explore", "train", "bench", "serve", "colocate"),
    ),
    at_least(
        "F185",
        "Prompt and response together are longer than a sample may be.",
        f"{_VALIDATOR}, ModelConfigValidator",
        (_LENGTH, Setting("model.max_prompt_tokens") + Setting("model.max_response_tokens")),
    ),
    never(
        "F186",
        "SFT and DPO learn from given samples: there is nothing to explore.",
        "trinity/algorithm/algorithm.py, check_config",
        (one_of("algorithm.algorithm_type", "sft", "dpo"), one_of("mode", "both", "explore", default="both")),
        Setting("mode"),
        "train",
    ),
    never(
        "F187",
        "How many samples the trainer takes at once is not said, and nothing else tells it.",
        f"{_VALIDATOR}, BufferConfigValidator",
        (one_of("mode", "train"), under("buffer."), absent("buffer.train_batch_size")),
        Setting("buffer.train_batch_size"),
    ),
)
