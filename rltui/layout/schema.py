"""The layout schema: one YAML file says algorithm, models, hardware, roles and training settings.

The same structs are read by rltui (checks, placement, rendering) and by the trainers, so that a layout that
passes the check means the same thing on the cluster. They are frozen; overrides make new ones.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=1, le=10**9)]
CountOrZero = Annotated[int, Meta(ge=0, le=10**9)]
Slots = Annotated[int, Meta(ge=1, le=1024)]
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
PositiveFloat = Annotated[float, Meta(gt=0.0)]
NonNegativeFloat = Annotated[float, Meta(ge=0.0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
Text = Annotated[str, Meta(max_length=500)]
ModelName = Annotated[str, Meta(min_length=1, max_length=500)]

Algorithm = Literal["grpo"]
Precision = Literal["fp32", "bf16", "fp16"]

CPU = "cpu"
"""The value of ``hardware.gpu`` that makes every "GPU" of a layout a CPU slot: same placement, no card."""


class Hardware(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines a layout is meant for."""

    nodes: Annotated[int, Meta(ge=1, le=10_000, description="Number of nodes.")]
    gpus_per_node: Annotated[Slots, Meta(description="GPUs of each node, or CPU slots where gpu is 'cpu'.")]
    gpu: Annotated[str, Meta(description="GPU name, or 'cpu': each slot is then one CPU process.", min_length=1)] = CPU
    cpus_per_node: Annotated[
        CountOrZero, Meta(description="CPU cores that Ray may hand out on each node; 0: one per slot plus one.")
    ] = 0

    @property
    def on_cpu(self) -> bool:
        """Whether the slots of this layout are CPU processes."""
        return self.gpu == CPU

    @property
    def ray_cpus_per_node(self) -> int:
        """CPU cores that Ray is told each node has."""
        return self.cpus_per_node or self.gpus_per_node + 1


class Learner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role that trains the policy with DeepSpeed."""

    model: Annotated[ModelName, Meta(description="Hugging Face name, local path, or 'builtin/tiny-qwen3'.")]
    gpus: Annotated[
        list[Slots],
        Meta(description="GPUs of each learner bundle; each bundle has its own node.", min_length=1, max_length=10_000),
    ]
    zero_stage: Annotated[Literal[0, 1, 2, 3], Meta(description="DeepSpeed ZeRO stage.")] = 2
    precision: Annotated[Precision, Meta(description="Precision of weights and activations.")] = "bf16"
    micro_batch: Annotated[
        CountOrZero, Meta(description="Samples of a rank in one forward pass; 0: all samples of the rank at once.")
    ] = 0
    gradient_checkpointing: Annotated[bool, Meta(description="Recompute activations in the backward pass.")] = False

    @property
    def num_learners(self) -> int:
        """Data-parallel world size."""
        return sum(self.gpus)


class Rollout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role that generates samples."""

    engines: Annotated[int, Meta(ge=1, le=100_000, description="Number of engines.")]
    engine: Annotated[Literal["vllm", "hf"], Meta(description="vLLM, or transformers where vLLM cannot run.")] = "vllm"
    tensor_parallel: Annotated[Slots, Meta(description="GPUs of one engine.")] = 1
    memory_utilization: Annotated[Fraction, Meta(description="Share of the card that the engine may take.")] = 0.9
    precision: Annotated[Precision, Meta(description="Precision the engine computes in.")] = "bf16"


class Roles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who runs on the GPUs."""

    learner: Learner
    rollout: Rollout


class Train(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how fast to train."""

    steps: Annotated[CountOrZero, Meta(description="Training steps of the run.")]
    prompts_per_step: Annotated[Count, Meta(description="Distinct prompts of one step.")]
    samples_per_prompt: Annotated[Count, Meta(description="Samples drawn for each prompt (the group size).")]
    learning_rate: Annotated[PositiveFloat, Meta(description="Learning rate after warm-up.")]
    warmup_steps: Annotated[CountOrZero, Meta(description="Steps over which the learning rate rises.")] = 0
    weight_decay: Annotated[NonNegativeFloat, Meta(description="AdamW weight decay.")] = 0.0
    gradient_clip: Annotated[PositiveFloat, Meta(description="Largest gradient norm.")] = 1.0
    temperature: Annotated[PositiveFloat, Meta(description="Sampling temperature.")] = 1.0
    seed: Annotated[CountOrZero, Meta(description="Seed of prompts, sampling and initial weights.")] = 0

    @property
    def samples_per_step(self) -> int:
        """Samples that one step trains on."""
        return self.prompts_per_step * self.samples_per_prompt


class Lengths(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token limits."""

    prompt: Annotated[Count, Meta(description="Longest prompt, in tokens.")]
    response: Annotated[Count, Meta(description="Longest response, in tokens.")]


class Grpo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of group relative policy optimisation (Shao et al. 2024)."""

    advantage: Annotated[
        Literal["standard", "centered"], Meta(description="Divide group advantages by their deviation, or not.")
    ] = "standard"
    aggregation: Annotated[
        Literal["token", "sequence"], Meta(description="Mean over all tokens, or over samples of their token means.")
    ] = "token"
    clip_low: Annotated[Fraction, Meta(description="The ratio is clipped below 1 - clip_low.")] = 0.2
    clip_high: Annotated[PositiveFloat, Meta(description="The ratio is clipped above 1 + clip_high.")] = 0.272
    importance_cap: Annotated[
        PositiveFloat, Meta(description="Cap of the truncated importance weight trainer/engine.")
    ] = 2.0
    filter_zero_std: Annotated[bool, Meta(description="Leave out groups whose samples all earn the same.")] = True


class Data(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained on, and what is rewarded."""

    train: Annotated[Text, Meta(description="Training task; 'builtin/sort-digits' is the one bundled so far.")]
    reward: Annotated[
        Literal["exact", "coin"],
        Meta(description="'exact': the answer is right. 'coin': a coin flip, the control that must not learn."),
    ] = "exact"
    digits: Annotated[int, Meta(description="Digits to sort in 'builtin/sort-digits'.", ge=2, le=8)] = 3


class Checkpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When checkpoints are written and how many are kept."""

    every: Annotated[CountOrZero, Meta(description="Steps between checkpoints; 0: only at the end.")] = 25
    keep: Annotated[Count, Meta(description="Newest complete checkpoints to keep.")] = 3


class Tracking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where metrics go besides metrics.jsonl."""

    wandb: Annotated[Literal["online", "offline", "disabled"], Meta(description="W&B mode.")] = "offline"
    project: Annotated[Text, Meta(description="W&B project.", min_length=1)] = "rltui"
    entity: Annotated[Text, Meta(description="W&B entity; empty: the account's default.")] = ""


class Slurm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the Slurm job; clusters that are not Slurm ignore them."""

    partition: Text = ""
    account: Text = ""
    qos: Text = ""
    time: Annotated[str, Meta(description="Time limit, as HH:MM:SS or D-HH:MM:SS.", max_length=20)] = "24:00:00"
    exclude: list[Name] = field(default_factory=list)


class Layout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layout, as loaded: every default filled in, every value typed."""

    layout: Annotated[Literal[1], Meta(description="Version of this schema.")]
    name: Annotated[Name, Meta(description="Letters, digits, dot, dash and underscore, at most 64.")]
    summary: Annotated[Text, Meta(description="One line for the list of layouts.")] = ""
    algorithm: Algorithm
    hardware: Hardware
    roles: Roles
    train: Train
    lengths: Lengths
    grpo: Grpo = field(default_factory=Grpo)
    data: Data
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    tracking: Tracking = field(default_factory=Tracking)
    slurm: Slurm = field(default_factory=Slurm)
