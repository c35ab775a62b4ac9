"""Engine rules."""

from __future__ import annotations

from collections.abc import Iterator

from rltui.check.bundled import unsupported
from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.check.rules.host import is_pre_ampere
from rltui.check.rules.memory_fix import has_room, with_word
from rltui.check.rules.pools import colocated
from rltui.hardware.gpus import find_gpu
from rltui.layout.roles import SERVED


@rule("E301", "error")
def hf_cannot_split(subject: Subject) -> Iterator[Trouble]:
    """The hf engine runs on one GPU only.

    `engine: hf` generates with transformers, where vLLM cannot run. It has no tensor parallelism.
    """
    rollout = subject.layout.roles.rollout
    if rollout.engine == "hf" and rollout.tensor_parallel > 1:
        yield settled_by(
            f"engine hf runs on one slot, not on tensor_parallel {rollout.tensor_parallel}",
            "roles.rollout.tensor_parallel",
            1,
        )


@rule("E302", "warning")
def greedy_engine(subject: Subject) -> Iterator[Trouble]:
    """The engine is to take nearly the whole card.

    vLLM's `memory_utilization` is a share of the card's total. CUDA context, graphs and NCCL buffers live outside it;
    above 0.95 the engine often fails at start or at the first weight sync.
    """
    rollout = subject.layout.roles.rollout
    if rollout.engine == "vllm" and not subject.layout.hardware.on_cpu and rollout.memory_utilization > 0.95:
        yield settled_by(
            f"memory_utilization {rollout.memory_utilization:g} leaves no room for CUDA context and graphs",
            "roles.rollout.memory_utilization",
            0.9,
        )


@rule("E303", "note")
def precision_mismatch(subject: Subject) -> Iterator[Trouble]:
    """Trainer and engine compute in different precisions.

    The same weights then give different log-probs (6e-2 between bf16 and fp32 on a tiny model). Truncated importance
    sampling corrects for it; the parity bound of 1e-4 holds for fp32 on both sides only.
    """
    learner, rollout = subject.layout.roles.learner, subject.layout.roles.rollout
    if learner.precision != rollout.precision:
        yield settled_by(
            f"learner computes in {learner.precision}, engine in {rollout.precision}: log-probs will differ",
            "roles.rollout.precision",
            learner.precision,
        )


@rule("E304", "warning")
def timid_engine(subject: Subject) -> Iterator[Trouble]:
    """An engine on GPUs of its own leaves most of the card unused.

    Lowering `memory_utilization` helps where the engine shares its GPU with the trainer. On GPUs of its own it only
    throws KV cache away: fewer sequences at once, slower generation, no memory gained by anybody.
    """
    layout, rollout = subject.layout, subject.layout.roles.rollout
    if rollout.engine != "vllm" or layout.hardware.on_cpu or rollout.pool or rollout.memory_utilization >= 0.7:
        return
    yield settled_by(
        f"memory_utilization {rollout.memory_utilization:g} on GPUs that nobody else uses throws KV cache away",
        "roles.rollout.memory_utilization",
        0.9,
    )


@rule("E305", "warning")
def greedy_neighbour(subject: Subject) -> Iterator[Trouble]:
    """An engine that shares its GPU with the learner takes too much of it.

    When the engine wakes up, the learner's shards and optimizer states are still there. Trainers that colocate ship
    0.4 to 0.6; above 0.7 the wake-up or the first weight sync runs out of memory. It may take more where all that the
    learner holds is in host memory meanwhile (`offload: all`).
    """
    rollout, learner = subject.layout.roles.rollout, subject.layout.roles.learner
    if rollout.engine != "vllm" or subject.layout.hardware.on_cpu or learner.offload == "all":
        return
    if colocated(subject) and rollout.memory_utilization > 0.7:
        fix = "roles.rollout.memory_utilization=0.5"
        yield Trouble(
            f"memory_utilization {rollout.memory_utilization:g} beside the learner on the same GPU",
            "roles.rollout.memory_utilization",
            (fix,) if has_room(with_word(subject.layout, fix), "rollout") else (),
        )


@rule("E306", "note")
def eager_engine(subject: Subject) -> Iterator[Trouble]:
    """CUDA graphs are off: decoding of small batches is slower, up to a gigabyte or three of memory is saved."""
    rollout = subject.layout.roles.rollout
    if rollout.engine == "vllm" and rollout.enforce_eager and not subject.layout.hardware.on_cpu:
        yield settled_by(
            "enforce_eager is on: for debugging or the last gigabyte only", "roles.rollout.enforce_eager", "false"
        )


@rule("E307", "warning")
def wide_precision(subject: Subject) -> Iterator[Trouble]:
    """The engine computes in fp32 on a GPU: twice the memory, half the KV cache, and a fraction of the speed."""
    roles, key = subject.layout.roles, "roles.rollout.precision"
    if not subject.layout.hardware.on_cpu and roles.rollout.precision == "fp32":
        card = subject.layout.hardware_of("rollout").gpu
        half = "fp16" if roles.learner.precision == "fp16" or is_pre_ampere(card) else "bf16"
        yield settled_by("the engine computes in fp32 on a GPU", key, half)


@rule("E308", "error")
def no_fp8(subject: Subject) -> Iterator[Trouble]:
    """The engine is to compute in fp8, which it, its precision or its card cannot.

    `quantization` and `kv_cache_dtype` are vLLM's; it quantizes from bf16 and fp16. A KV cache in fp8 needs compute
    capability 8.9 or above (Ada, Hopper, Blackwell), weights 7.5 (not Volta).
    """
    rollout, card = subject.layout.roles.rollout, find_gpu(subject.layout.hardware_of("rollout").gpu)
    for key in rollout.fp8_keys:
        usual = f"roles.rollout.{key}={'none' if key == 'quantization' else 'auto'}"
        if rollout.engine != "vllm":
            yield Trouble("engine hf computes in its precision, not in fp8", f"roles.rollout.{key}", (usual,))
        elif key == "quantization" and rollout.precision == "fp32":
            yield settled_by("vLLM does not quantize fp32 to fp8", "roles.rollout.precision", "bf16")
        elif card is not None and not (card.fp8 or (card.bf16 and key == "quantization")):
            yield Trouble(f"{card.name} has no fp8", f"roles.rollout.{key}", (usual,))


@rule("E318", "note")
def fp8_for_memory_only(subject: Subject) -> Iterator[Trouble]:
    """Weights are stored in fp8 on a card that does not compute in it.

    Below compute capability 8.9 (A100, A10, A40 …) vLLM turns them into 16 bits as it uses them: that takes half the
    memory and saves reading time where few sequences decode at once, but products are no faster.
    """
    layout = subject.layout
    card = find_gpu(layout.hardware_of("rollout").gpu)
    if layout.roles.rollout.quantization != "none" and card is not None and card.bf16 and not card.fp8:
        yield settled_by(f"{card.name} stores fp8, but does not compute in it", "roles.rollout.quantization", "none")


@rule("E309", "warning")
def served_on_leftovers(subject: Subject) -> Iterator[Trouble]:
    """The teacher, or judge, may not use most of its own GPUs.

    Weights come out of `memory_utilization` first: 32 billion parameters in bf16 are 61 GiB, and 0.6 of an 80 GB card
    is 47. On GPUs of its own it can have 0.9.
    """
    for name, served in subject.roles(*SERVED):
        on_cpu = subject.layout.hardware.on_cpu
        if served.engine == "vllm" and not on_cpu and not served.pool and served.memory_utilization < 0.7:
            message = f"the {name} may use {served.memory_utilization:.0%} of cards that nobody else uses"
            yield settled_by(message, f"roles.{name}.memory_utilization", 0.9)


@rule("E390", "note")
def not_for_the_bundled_trainers(subject: Subject) -> Iterator[Trouble]:
    """The trainers that come with this version of rltui cannot run this layout.

    They run GRPO, PPO and OPD with every role; the message names what they lack: tensor parallel learners, images
    with a critic, packed rows, LoRA, `sequence_parallel` or `router_replay`, environments in distillation or with
    images, a server on GPUs outside Ray, `quantization` on CPU, `router_replay` by vLLM on CPU or with `train.stop`.
    The layout can be checked, drawn and estimated all the same; a launch is refused.
    """
    reasons = unsupported(subject.layout)
    if reasons:
        yield Trouble(f"the bundled trainers do not run: {', '.join(reasons)}", "algorithm")
