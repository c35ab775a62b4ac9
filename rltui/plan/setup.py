"""One way to divide the GPUs among the roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.memory.estimate import EngineEstimate, RoleEstimate

WHOLE = 0.9
"""Share of a card that an engine takes where nobody else is on it."""

Placement = Literal["apart", "standard", "split"]


class Training(Struct, frozen=True, kw_only=True):
    """One way to train a model.

    Attributes:
        gpus: Bundles, each on a node of its own.
        zero_stage: DeepSpeed's, or what shares as much: 1 for Megatron's distributed optimizer, 3 for FSDP.
        micro_batch: Samples of a pass.
        gradient_checkpointing: Whether activations are computed once more.
        offload: Whether the optimizer's states are in host memory.
        trains_on_card: Whether all that is in host memory comes back to train, and is not stepped there.
        sequence_parallel: GPUs that share one sequence.
        tensor_parallel: GPUs that divide each matrix of attention and of dense feed-forward networks.
        expert_parallel: GPUs that divide the experts of each layer.
        pipeline_parallel: Groups of layers, each on GPUs of its own.
        virtual_stages: Parts of its group of layers that each of those GPUs takes in turn (interleaved).
        packed_tokens: Length of rows in which samples lie one behind the other; 0: a row a sample.
        megatron: Whether Megatron's kernels (Transformer Engine, experts' tokens permuted in one) compute the layers.
        dispatch: How tokens get to experts that ranks divide: by NCCL's all-to-all (``plain``), or by DeepEP's or
            HybridEP's kernels (``fused``).
        routed_evenly: Whether each expert gets as many tokens as the others, as benchmarks force them to.
        loops_experts: Whether experts are computed one after the other.
    """

    gpus: tuple[int, ...]
    zero_stage: Literal[1, 2, 3]
    micro_batch: int
    gradient_checkpointing: bool
    offload: bool = False
    trains_on_card: bool = False
    sequence_parallel: int = 1
    tensor_parallel: int = 1
    expert_parallel: int = 1
    pipeline_parallel: int = 1
    virtual_stages: int = 1
    packed_tokens: int = 0
    megatron: bool = False
    dispatch: Literal["plain", "fused"] = "plain"
    routed_evenly: bool = False
    loops_experts: bool = False

    @property
    def ranks(self) -> int:
        """GPUs in all, one rank each."""
        return sum(self.gpus)

    @property
    def expert_cut(self) -> int:
        """Parts into which a layer's experts are cut: whole ones by expert parallelism, else as all matrices are."""
        return self.expert_parallel if self.expert_parallel > 1 else self.tensor_parallel

    @property
    def sharing(self) -> int:
        """Ranks among which each sample is divided: by its tokens, by matrices, by layers."""
        return self.sequence_parallel * self.tensor_parallel * self.pipeline_parallel

    @property
    def replicas(self) -> int:
        """Ranks, or groups of ranks that share samples, with samples of their own."""
        return max(1, self.ranks // self.sharing)


class LearnerChoice(Training, frozen=True, kw_only=True):
    """One way to train a model on GPUs of its own, and what it takes of each card."""

    memory: RoleEstimate


class EngineChoice(Struct, frozen=True, kw_only=True):
    """One width of an engine, and what it takes of each card."""

    tensor_parallel: int
    engine: EngineEstimate
    memory: RoleEstimate


class Setup(Struct, frozen=True, kw_only=True):
    """Who has which GPUs.

    Attributes:
        learner: How the policy is trained.
        engine: What each engine is like.
        engines: How many there are.
        memories: The estimate of each role, all of them together on their GPUs.
        placement: ``apart``: engines have GPUs of their own. ``standard``: all roles share all GPUs. ``split``: policy
            and engines share one pool, the critic has another.
        utilization: Share of a card that an engine may take.
        sleeps: Whether engines give back their memory while models train on the same GPUs.
        critic: How the critic of PPO is trained.
        teacher: What each teacher of distillation is like.
        teachers: How many there are.
    """

    learner: Training
    engine: EngineChoice
    engines: int
    memories: dict[str, RoleEstimate]
    placement: Placement = "apart"
    utilization: float = WHOLE
    sleeps: bool = False
    critic: Training | None = None
    teacher: EngineChoice | None = None
    teachers: int = 0

    @property
    def verdict(self) -> Literal["fits", "tight", "no"]:
        """The worst verdict of its roles."""
        verdicts = {memory.verdict for memory in self.memories.values()}
        return "no" if "no" in verdicts else "tight" if "tight" in verdicts else "fits"

    @property
    def gpus(self) -> int:
        """GPUs that some role is on."""
        learners = self.learner.ranks
        if self.placement != "apart":
            return learners + (self.critic.ranks if self.placement == "split" and self.critic else 0)
        teachers = self.teachers * self.teacher.tensor_parallel if self.teacher else 0
        return learners + self.engines * self.engine.tensor_parallel + teachers
