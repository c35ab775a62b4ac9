"""The sections of a layout that say where things run: hardware, pools and roles."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from rltui.layout.scalars import (
    CPU,
    Count,
    CountOrZero,
    Fraction,
    GuestPoolName,
    ModelName,
    Name,
    NonNegativeFloat,
    PoolName,
    PositiveFloat,
    Precision,
    Slots,
    Text,
)


class NodeKind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further kind of node, which holds the roles that it names; on Slurm it is a component of a het job."""

    roles: Annotated[
        list[Name],
        Meta(description="Roles on these nodes: learner, rollout, reference, critic, teacher, judge or reward_model."),
    ]
    nodes: Annotated[int, Meta(ge=1, le=10_000, description="Number of nodes of this kind.")]
    gpus_per_node: Annotated[Slots, Meta(description="GPUs of each node, or CPU slots where gpu is 'cpu'.")]
    gpu: Annotated[str, Meta(description="GPU name; empty: the first kind's.", max_length=200)] = ""
    cpus_per_node: Annotated[
        CountOrZero, Meta(description="CPU cores that Ray may hand out on each node; 0: one per slot plus one.")
    ] = 0
    memory_gib_per_node: Annotated[
        NonNegativeFloat, Meta(description="Host memory of each node in GiB; 0: not known, so not checked.")
    ] = 0.0
    partition: Annotated[Text, Meta(description="Slurm partition; empty: the job's.")] = ""
    constraint: Annotated[Text, Meta(description="Node features; empty: those of the cluster's profile.")] = ""
    gres: Annotated[Text, Meta(description="What the GPUs are called, such as 'gpu:l40s'; empty: the cluster's.")] = ""
    mem_gib: Annotated[
        CountOrZero, Meta(description="Memory of each node, GiB; 0: all of a whole node, else the partition's default.")
    ] = 0


class Hardware(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines a layout is meant for."""

    nodes: Annotated[int, Meta(ge=1, le=10_000, description="Number of nodes.")]
    gpus_per_node: Annotated[Slots, Meta(description="GPUs of each node, or CPU slots where gpu is 'cpu'.")]
    gpu: Annotated[str, Meta(description="GPU name, or 'cpu': each slot is then one CPU process.", min_length=1)] = CPU
    cpus_per_node: Annotated[
        CountOrZero, Meta(description="CPU cores that Ray may hand out on each node; 0: one per slot plus one.")
    ] = 0

    memory_gib_per_node: Annotated[
        NonNegativeFloat, Meta(description="Host memory of each node in GiB; 0: not known, so not checked.")
    ] = 0.0
    gpus_outside_ray: Annotated[
        int, Meta(ge=0, le=1024, description="GPUs of each node that a server outside Ray holds, such as a teacher's.")
    ] = 0
    more: Annotated[
        dict[Name, NodeKind], Meta(description="Further kinds of node, by a name; other roles stay on the first.")
    ] = field(default_factory=dict)

    @property
    def parts(self) -> "tuple[Hardware, ...]":
        """Each kind of node by itself, the first one first; nodes are numbered in this order."""
        further = (
            Hardware(
                nodes=kind.nodes,
                gpus_per_node=kind.gpus_per_node,
                gpu=kind.gpu or self.gpu,
                cpus_per_node=kind.cpus_per_node,
                memory_gib_per_node=kind.memory_gib_per_node,
            )
            for kind in self.more.values()
        )
        return (replace(self, more={}) if self.more else self, *further)

    @property
    def all_nodes(self) -> int:
        """Nodes of all kinds together."""
        return self.nodes + sum(kind.nodes for kind in self.more.values())

    @property
    def all_gpus(self) -> int:
        """GPUs (or CPU slots) of all nodes together."""
        return sum(part.nodes * part.gpus_per_node for part in self.parts)

    @property
    def mean_gpus_per_node(self) -> int:
        """GPUs (or CPU slots) of a node, rounded up: times ``all_nodes`` it is never less than ``all_gpus``."""
        return -(-self.all_gpus // self.all_nodes)

    @property
    def unlike_kinds(self) -> tuple[tuple[int, int], ...]:
        """Nodes of each kind and the GPUs of each of them, where not all nodes have as many; else nothing."""
        kinds = tuple((part.nodes, part.gpus_per_node) for part in self.parts)
        return kinds if len({gpus for _, gpus in kinds}) > 1 else ()

    def part_of(self, role: str) -> int:
        """The number of the kind of node, as in ``parts``, that holds ``role``, a key under ``roles``."""
        return next((number for number, kind in enumerate(self.more.values(), 1) if role in kind.roles), 0)

    @property
    def ray_gpus_per_node(self) -> int:
        """GPUs (or CPU slots) of each node that Ray may hand out."""
        return max(0, self.gpus_per_node - self.gpus_outside_ray)

    @property
    def on_cpu(self) -> bool:
        """Whether the slots of this layout are CPU processes."""
        return self.gpu == CPU

    @property
    def ray_cpus_per_node(self) -> int:
        """CPU cores that Ray is told each node has."""
        return self.cpus_per_node or self.gpus_per_node + 1


class Pool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named group of GPUs; the roles in one pool are colocated and share it in time."""

    gpus: Annotated[
        list[Slots], Meta(description="GPUs on each node, one entry a node.", min_length=1, max_length=10_000)
    ]

    @property
    def total(self) -> int:
        """GPUs of the pool in all."""
        return sum(self.gpus)


class Learner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role that trains the policy with DeepSpeed."""

    model: Annotated[ModelName, Meta(description="Hugging Face name, local path, or 'builtin/tiny-qwen3'.")]
    gpus: Annotated[
        list[Slots],
        Meta(description="GPUs of each learner bundle; each bundle has its own node.", max_length=10_000),
    ] = field(default_factory=list)
    pool: PoolName = ""
    tensor_parallel: Annotated[Slots, Meta(description="GPUs that share one copy of each layer.")] = 1
    sequence_parallel: Annotated[
        Slots, Meta(description="GPUs that share the tokens of each row: Ulysses, or Megatron's context parallelism.")
    ] = 1
    pipeline_parallel: Annotated[
        Slots, Meta(description="Groups of layers, each on GPUs of its own; Megatron's trainers alone have them.")
    ] = 1
    expert_parallel: Annotated[
        Slots, Meta(description="GPUs that divide the experts of each layer; not the bundled trainers.")
    ] = 1
    zero_stage: Annotated[
        Literal[0, 1, 2, 3], Meta(description="DeepSpeed ZeRO stage; in fp16 and bf16, 0 is run as 1.")
    ] = 2
    hpz_partition: Annotated[
        CountOrZero, Meta(description="ZeRO++ secondary partition size; 0 or 1: off. Costs 2 B/parameter over it.")
    ] = 0
    offload: Annotated[
        Literal["none", "optimizer", "all"], Meta(description="What lives in host memory instead of on the card.")
    ] = "none"
    optimizer: Annotated[Literal["adamw", "adamw_8bit"], Meta(description="Optimizer.")] = "adamw"
    lora_rank: Annotated[CountOrZero, Meta(description="Rank of LoRA adapters; 0: all weights are trained.")] = 0
    lora_alpha: Annotated[
        CountOrZero, Meta(description="LoRA updates are scaled by lora_alpha / lora_rank; 0: twice the rank.")
    ] = 0
    precision: Annotated[Precision, Meta(description="Precision of weights and activations.")] = "bf16"
    micro_batch: Annotated[
        CountOrZero,
        Meta(description="Samples (packed rows) of a rank in one forward pass; 0: all of the rank at once."),
    ] = 0
    gradient_checkpointing: Annotated[bool, Meta(description="Recompute activations in the backward pass.")] = False
    freeze_vision: Annotated[
        bool, Meta(description="Train the language model only, not the vision tower and what joins it to the model.")
    ] = False
    chunked_logits: Annotated[bool, Meta(description="Never hold the logits of all tokens at once.")] = True
    gather_whole_model: Annotated[
        bool, Meta(description="At a weight sync, gather all parameters at once instead of layer by layer.")
    ] = False

    @property
    def ranks_of_a_row(self) -> int:
        """Ranks that work on the same row together: on its tokens, on each matrix, on groups of layers."""
        return self.tensor_parallel * self.sequence_parallel * self.pipeline_parallel

    @property
    def num_learners(self) -> int:
        """GPUs of its own; 0 where it shares a pool."""
        return sum(self.gpus)


class Rollout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role that generates samples."""

    engines: Annotated[int, Meta(ge=0, le=100_000, description="Number of engines; 0: as many as its pool holds.")] = 0
    pool: PoolName = ""
    engine: Annotated[Literal["vllm", "hf"], Meta(description="vLLM, or transformers where vLLM cannot run.")] = "vllm"
    tensor_parallel: Annotated[Slots, Meta(description="GPUs of one engine.")] = 1
    memory_utilization: Annotated[Fraction, Meta(description="Share of the card that the engine may take.")] = 0.9
    sleep_while_training: Annotated[
        bool, Meta(description="Free weights and KV cache while the learner trains on the same GPUs.")
    ] = False
    enforce_eager: Annotated[bool, Meta(description="No CUDA graphs: slower decoding, less memory.")] = False
    precision: Annotated[Precision, Meta(description="Precision the engine computes in.")] = "bf16"
    quantization: Annotated[
        Literal["none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"],
        Meta(description="What vLLM makes of the linear layers' weights at each weight sync, in its own words."),
    ] = "none"
    kv_cache_dtype: Annotated[
        Literal["auto", "fp8"], Meta(description="What vLLM's KV cache holds; auto: numbers of the precision.")
    ] = "auto"
    max_concurrency: Annotated[CountOrZero, Meta(description="Sequences in flight per engine; 0: vLLM's own.")] = 0
    router_replay: Annotated[
        bool, Meta(description="Train each token with the experts that it had when it was sampled (R3).")
    ] = False
    engine_args: Annotated[
        dict[Name, bool | int | float | str],
        Meta(description="Arguments of vLLM passed on as they are, such as max_num_batched_tokens: 8192."),
    ] = field(default_factory=dict)

    @property
    def fp8_keys(self) -> tuple[str, ...]:
        """Keys of the role that make its engines compute with 8 bits."""
        is_set = {"quantization": self.quantization != "none", "kv_cache_dtype": self.kv_cache_dtype != "auto"}
        return tuple(key for key, is_so in is_set.items() if is_so)


class Reference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen copy of the policy that the KL penalty compares with."""

    model: Annotated[str, Meta(description="Model; empty: the learner's.", max_length=500)] = ""
    pool: GuestPoolName = ""
    zero_stage: Annotated[
        Literal[0, 3], Meta(description="3: its weights are divided over its GPUs; 0: each has the whole model.")
    ] = 3
    precision: Precision = "bf16"


class Critic(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value model of PPO."""

    model: Annotated[str, Meta(description="Model; empty: the learner's.", max_length=500)] = ""
    pool: GuestPoolName = ""
    zero_stage: Literal[0, 1, 2, 3] = 3
    offload: Literal["none", "optimizer", "all"] = "none"
    precision: Precision = "bf16"
    micro_batch: CountOrZero = 0
    gradient_checkpointing: bool = False
    learning_rate: PositiveFloat = 1e-5


def has_8_bit_moments(role: Learner | Critic) -> bool:
    """Whether the optimizer keeps its moments in a byte each; a critic has no choice of optimizer."""
    return isinstance(role, Learner) and role.optimizer == "adamw_8bit"


def effective_stage(role: Learner | Critic) -> Literal[0, 1, 2, 3]:
    """The ZeRO stage that a role is run with: in fp16 and bf16 at least 1.

    DeepSpeed 0.19 without ZeRO divides fp16's gradients by a scale that it did not multiply the loss by. ZeRO-1 makes
    the same steps, scaled, from float32 weights that are shared out instead of kept on every rank.
    """
    return stage_as_run(role.zero_stage, role.precision)


def stage_as_run(zero_stage: int, precision: str) -> Literal[0, 1, 2, 3]:
    """The ZeRO stage that ``zero_stage`` comes to in ``precision``, see ``effective_stage``; an unknown one is kept."""
    stages: tuple[Literal[0, 1, 2, 3], ...] = (0, 1, 2, 3)
    return stages[zero_stage or int(precision in ("fp16", "bf16"))]


def accumulates_in_float32(role: Learner | Critic) -> bool:
    """Whether the gradients of a step's passes add up in float32 beside a model in bf16.

    So they do where DeepSpeed shares gradients out over the ranks: at ZeRO-3, and at ZeRO-2 unless the optimizer is
    offloaded, for which it would hold them on the card after all.
    """
    shares_out = role.zero_stage == 3 or (role.zero_stage == 2 and role.offload == "none")
    return role.precision == "bf16" and shares_out


SERVED = ("teacher", "judge", "reward_model")
"""Roles whose model replicas of their own serve as it is."""


class Served(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that engines of its own serve; its weights never change."""

    model: ModelName
    engines: Annotated[int, Meta(ge=1, le=1000, description="Replicas.")] = 1
    engine: Annotated[Literal["vllm", "hf"], Meta(description="vLLM, or transformers where vLLM cannot run.")] = "vllm"
    pool: PoolName = ""
    tensor_parallel: Slots = 1
    memory_utilization: Fraction = 0.9
    precision: Precision = "bf16"


class Teacher(Served, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that on-policy distillation learns from; it scores the student's tokens."""


class Judge(Served, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A language model that grades answers; what it is asked, and how it is understood, is in ``data.judge``."""

    context: Annotated[
        int, Meta(ge=2, le=10_000_000, description="Longest question to it with its verdict, in tokens.")
    ] = 8192
    max_concurrency: Annotated[CountOrZero, Meta(description="Questions in flight per engine; 0: 256.")] = 0


class RewardModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sequence classifier with one output that scores answers; what its scores are worth is in ``data.scoring``.

    Transformers run it, each replica on one GPU, or all GPUs one model together.
    """

    engine: ClassVar[Literal["hf"]] = "hf"
    tensor_parallel: ClassVar[int] = 1
    memory_utilization: ClassVar[float] = 1.0

    model: ModelName
    engines: Annotated[int, Meta(ge=1, le=1000, description="Replicas, or the GPUs that divide the weights.")] = 1
    pool: PoolName = ""
    zero_stage: Annotated[
        Literal[0, 3], Meta(description="3: its weights are divided over its GPUs; 0: each has the whole model.")
    ] = 0
    precision: Precision = "bf16"
    context: Annotated[
        int, Meta(ge=2, le=10_000_000, description="Longest conversation that it scores, in its own tokens.")
    ] = 8192
    micro_batch: Annotated[Count, Meta(description="Answers that pass through it at once.")] = 16


class Reward(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Processes that compute rewards on CPUs."""

    workers: Annotated[CountOrZero, Meta(description="Processes; 0: in the trainer itself.")] = 0
    cpus_per_worker: Annotated[Count, Meta(description="CPU cores of each.")] = 1
    timeout_s: Annotated[PositiveFloat, Meta(description="Longest time for one sample.")] = 10.0


class Roles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who runs on the GPUs."""

    learner: Learner
    rollout: Rollout
    reference: Reference | None = None
    critic: Critic | None = None
    teacher: Teacher | None = None
    judge: Judge | None = None
    reward_model: RewardModel | None = None
    reward: Reward | None = None
