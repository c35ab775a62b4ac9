"""Where other systems say which settings they know; ``framework_keys.py`` reads their histories."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """Where a framework says what it knows.

    Attributes:
        repository: Owner and name.
        files: Paths of its history, as a pattern.
        roots: Classes whose fields are the top of its configuration; with ``flat``, of all classes there.
        kind: ``tree`` of classes and YAML files, ``flat`` classes and argparse flags.
        only_newest: A pattern of files of which the newest version alone counts.
        unseen: Days (YYMMDD) between which files were split into groups that are not read: no name was gone then.
        dated: Whether the days of its names tell versions: not where classes move among files that are not read, nor of
            something that the framework pins.
    """

    repository: str
    files: str
    kind: str = "tree"
    roots: tuple[str, ...] = ()
    only_newest: str = ""
    dated: bool = True
    unseen: tuple[str, str] = ("", "")


_TRAINING_ARGUMENTS = Source(
    "huggingface/transformers", r"src/transformers/training_args(_seq2seq)?\.py", "flat", dated=False
)
_TRL = Source("huggingface/trl", r"trl/.*\.py|examples/(scripts|research_projects)/.*\.py", "flat", dated=False)

SOURCES: dict[str, tuple[Source, ...]] = {
    "verl": (
        Source(
            "verl-project/verl",
            r"verl/(workers/config|trainer/config|utils/profiler)/.*\.py|verl/trainer/config/[^/]*\.yaml",
            unseen=("250601", "250801"),
        ),
        Source(
            "verl-project/verl",
            r"(recipe|verl/experimental|examples)/[^/]+/(config/)?[^/]*trainer[^/]*\.yaml",
            dated=False,
        ),
        Source("verl-project/verl-recipe", r"[^/]+/config/[^/]*trainer[^/]*\.yaml", dated=False),
    ),
    "openrlhf": (Source("OpenRLHF/OpenRLHF", r"openrlhf/(cli|utils)/.*\.py|examples/train_[^/]*\.py", "flat"),),
    "slime": (
        Source("THUDM/slime", r".*argument.*\.py", "flat", dated=False),
        Source("radixark/miles", r".*argument.*\.py", "flat", dated=False),
        Source(
            "NVIDIA/Megatron-LM",
            r"megatron/(training/(arguments|config/.*|.*args.*|argument_utils)|core/.*config.*)\.py",
            "flat",
            dated=False,
        ),
    ),
    "skyrl": (
        Source(
            "NovaSky-AI/SkyRL",
            r"skyrl(-train/skyrl_train|/train)/config/.*\.(yaml|py)|skyrl-gym/.*\.py",
            roots=("SkyRLTrainConfig",),
            dated=False,
        ),
    ),
    "areal": (
        Source(
            "inclusionAI/AReaL",
            r"areal/(api/cli_args|.*config[^/]*)\.py|examples/.*\.py",
            roots=("GRPOConfig", "PPOConfig", "SFTConfig", "RWConfig", "DPOConfig", "BaseExperimentConfig"),
            dated=False,
        ),
    ),
    "prime-rl": (
        Source(
            "PrimeIntellect-ai/prime-rl",
            r"(src|packages)/.*(config|configs)(/[^/]*)?\.py|src/prime_rl/rl\.py",
            roots=("RLConfig", "RLSLURMConfig", "BaseRLConfig", "SFTConfig", "SFTTrainerConfig", "TrainerConfig",
                   "RLTrainerConfig", "OrchestratorConfig", "InferenceConfig"),
            dated=False,
        ),
    ),
    "nemo-rl": (
        Source(
            "NVIDIA-NeMo/RL",
            r"nemo_rl/(algorithms|data|distributed|evals)/[^/]*\.py|nemo_rl/(environments|utils|models)/.*\.py|examples/.*\.yaml",
            roots=("MasterConfig",),
            only_newest=r".*\.yaml",
            dated=False,
        ),
    ),
    "roll": (
        Source(
            "alibaba/ROLL",
            r"roll/.*config.*\.py|roll/configs/.*\.py|examples/.*\.yaml",
            roots=("RLVRConfig", "AgenticConfig", "DistillConfig", "SFTConfig", "DPOConfig", "RewardFLConfig",
                   "BaseConfig"),
            only_newest=r".*\.yaml",
            dated=False,
        ),
    ),
    "open-instruct": (Source("allenai/open-instruct", r"open_instruct/[^/]*\.py", "flat", dated=False),),
    "trl": (_TRAINING_ARGUMENTS, _TRL),
    "ms-swift": (
        _TRAINING_ARGUMENTS,
        _TRL,
        Source("modelscope/ms-swift", r"swift/.*arg[^/]*(/.*)?\.py", "flat", dated=False),
    ),
    "llama-factory": (
        _TRAINING_ARGUMENTS,
        Source("hiyouga/LLaMA-Factory", r"src/(llamafactory|llmtuner)/(hparams|extras)/.*\.py", "flat", dated=False),
    ),
    "axolotl": (
        Source(
            "axolotl-ai-cloud/axolotl",
            r"src/axolotl/(utils/(schemas|config/models)|integrations)/.*\.py",
            roots=("AxolotlInputConfig", "AxolotlConfigWCapabilities"),
            dated=False,
        ),
    ),
    "sbatch": (Source("SchedMD/slurm", r"src/common/slurm_opt\.c", "flat", dated=False),),
    "accelerate": (Source("huggingface/accelerate", r"src/accelerate/commands/launch\.py", "flat", dated=False),),
    "deepspeed": (Source("deepspeedai/DeepSpeed", r"deepspeed/launcher/runner\.py", "flat", dated=False),),
    "torchrun": (Source("pytorch/pytorch", r"torch/distributed/(run|launch)\.py", "flat", dated=False),),
}  # fmt: skip
"""By system; the last are programs that start others, whose tables are those of their own options."""
