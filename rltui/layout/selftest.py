"""The parts of a self-test: what each tries, how long it may take, and what to do where it fails."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

PartName = Literal[
    "versions",
    "clock",
    "disk",
    "card",
    "all-reduce",
    "weights",
    "packing",
    "grpo",
    "resume",
    "half-precision",
    "offload",
    "lora",
    "engine-killed",
    "sleep",
    "tensor-parallel",
    "vllm",
    "plain-loop",
    "divided",
    "vision",
    "agents",
    "judge",
    "router-replay",
    "fp8",
]


class Part(Struct, frozen=True, kw_only=True):
    """One part; it has a process of its own.

    Attributes:
        name: By which it is asked for.
        summary: What it tries.
        deadline_s: After so many seconds its process is ended.
        remedy: What to do where it fails and does not say so itself.
    """

    name: PartName
    summary: str
    deadline_s: float
    remedy: str


PARTS = (
    Part(
        name="versions",
        summary="packages alike on all nodes, and built for the cards",
        deadline_s=90,
        remedy="install the same packages on all nodes, and a torch that was built for the cards",
    ),
    Part(
        name="clock",
        summary="the nodes' clocks agree",
        deadline_s=45,
        remedy="ask for NTP on these nodes: times in logs and the order of files rely on it",
    ),
    Part(
        name="disk",
        summary="the runs' folder: what one node writes another reads, and how fast",
        deadline_s=90,
        remedy="set run_root of the cluster's profile to a shared file system",
    ),
    Part(
        name="card",
        summary="memory bandwidth, matrix products, copies to the host, card by card",
        deadline_s=90,
        remedy="look at the card with nvidia-smi -q: clocks held down, ECC errors, or another process on it",
    ),
    Part(
        name="all-reduce",
        summary="a sum over all cards of a node, and over nodes: right, and how fast",
        deadline_s=120,
        remedy="NCCL_DEBUG=INFO in the profile's env says which links it takes; see docs/multi-node.md",
    ),
    Part(
        name="weights",
        summary="weights to engines of one and two cards, and to one on the learner's card",
        deadline_s=120,
        remedy="NCCL between two processes, or CUDA IPC, does not work here; see docs/multi-node.md",
    ),
    Part(
        name="packing",
        summary="packed rows score as rows of their own, and which attention kernel does it",
        deadline_s=90,
        remedy="set lengths.pack=0, or install flash-attn for this torch",
    ),
    Part(
        name="grpo",
        summary="a short run: do trainer and engine agree, tokens/s, MFU, memory",
        deadline_s=240,
        remedy="`rltui logs RUN` has the output of the part that failed",
    ),
    Part(
        name="resume",
        summary="that run, started again from its checkpoint, takes the same steps",
        deadline_s=240,
        remedy="checkpoints cannot be trusted here: look at the disk first",
    ),
    Part(
        name="half-precision",
        summary="the run in bf16 or fp16: trainer and engine agree",
        deadline_s=240,
        remedy="train in fp32 or the other half precision until engine and trainer agree",
    ),
    Part(
        name="offload",
        summary="the optimizer in host memory",
        deadline_s=240,
        remedy="leave roles.learner.offload at none",
    ),
    Part(
        name="lora",
        summary="adapters, merged for the engine",
        deadline_s=240,
        remedy="leave roles.learner.lora_rank at 0, or install peft",
    ),
    Part(
        name="engine-killed",
        summary="an engine dies while weights are sent: the learner lives on",
        deadline_s=240,
        remedy="runs will not survive the loss of an engine here: use hands-off mode (rltui auto)",
    ),
    Part(
        name="sleep",
        summary="learner and engine take turns on one card",
        deadline_s=240,
        remedy="give learner and engines cards of their own",
    ),
    Part(
        name="tensor-parallel",
        summary="an engine over two cards",
        deadline_s=240,
        remedy="leave roles.rollout.tensor_parallel at 1",
    ),
    Part(
        name="vllm",
        summary="vLLM as the engine, without CUDA graphs (the short run has them)",
        deadline_s=240,
        remedy="`rltui logs RUN` has vLLM's own words; roles.rollout.engine=hf does without it",
    ),
    Part(
        name="plain-loop",
        summary="the same prompts by vLLM alone: what the run's engine loses against it",
        deadline_s=180,
        remedy="`rltui logs RUN` has vLLM's own words",
    ),
    Part(
        name="divided",
        summary="two learners share the tokens of rows, and they and the reference weights by ZeRO-3",
        deadline_s=240,
        remedy="leave roles.learner.sequence_parallel at 1, and zero_stage at 2 (of roles.reference at 0)",
    ),
    Part(
        name="vision",
        summary="a tiny model with images: trainer and engine agree",
        deadline_s=240,
        remedy="leave lengths.images at 0, or set roles.rollout.engine=hf",
    ),
    Part(
        name="agents",
        summary="agents that ask the policy over HTTP: all are answered, and trainer and engine agree",
        deadline_s=240,
        remedy="`rltui logs RUN` has what the agents were told; nothing but loopback is between them and the policy",
    ),
    Part(
        name="judge",
        summary="learner, engine and a judge of its own on one card",
        deadline_s=300,
        remedy="give the judge a card of its own, or set roles.judge.engine=hf",
    ),
    Part(
        name="router-replay",
        summary="a tiny mixture of experts, trained with the experts that the engine took",
        deadline_s=240,
        remedy="leave roles.rollout.router_replay at false, or set roles.rollout.engine=hf",
    ),
    Part(
        name="fp8",
        summary="vLLM that quantizes the weights of each sync, then one whose KV cache is in fp8 too",
        deadline_s=300,
        remedy="leave roles.rollout.quantization and kv_cache_dtype at their defaults",
    ),
)

OFFLOADED = ("roles.learner.offload=optimizer", "roles.learner.zero_stage=1")
"""Overrides that bring the optimizer to host memory; with ZeRO-2 the gradients of each of the self-test's many
micro-batches would go there too, and back (check H409)."""

LONGEST_S = 540.0
"""All parts together: the job has ten minutes."""


class Selftest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a self-test of a cluster tries, in place of training; ``rltui selftest`` writes it."""

    parts: Annotated[list[PartName], Meta(description="Which parts; empty: all.", max_length=len(PARTS))] = field(
        default_factory=list
    )
    seconds: Annotated[float, Meta(description="For all parts together.", ge=10.0, le=36_000.0)] = LONGEST_S
    thorough: Annotated[bool, Meta(description="Larger sizes, as `make gpu` takes them.")] = False

    @property
    def wanted(self) -> tuple[Part, ...]:
        """The parts, in the order in which they are tried."""
        return tuple(part for part in PARTS if not self.parts or part.name in self.parts)
