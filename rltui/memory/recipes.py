"""How known systems train, so that their runs can be estimated: who shards, in what precision, how logits are made.

A recipe is what a system does by default; a run that sets something else replaces that field.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

from rltui.memory import settings as s


class Recipe(Struct, frozen=True, kw_only=True):
    """Defaults of one system.

    Attributes:
        backend: Who gathers and buffers.
        zero_stage: How much is divided among data-parallel ranks.
        states: Bytes of a trained parameter.
        kernels: Whose layers are computed.
        head: How log-probabilities come from logits.
        base_bytes: Bytes of a frozen parameter under LoRA.
        sync: How weights go to engines.
        hpz: ZeRO++ secondary partition.
        trains_on_card: Whether offloaded states come back to the card to train.
        ends_apart: Whether embedding and LM head are units of their own for FSDP.
        gathers_keys: Whether context parallelism gathers keys and values.
        float32_adapters: Whether adapters are float32 beside a 16-bit base.
        pads: Whether the rows of a micro-batch are made equally long; else it has the tokens that they happen to have.
    """

    backend: s.Backend
    zero_stage: Literal[0, 1, 2, 3]
    states: s.States
    kernels: s.Kernels
    head: s.Head
    base_bytes: float = 2.0
    sync: s.WeightSync = s.WeightSync()
    hpz: int = 1
    trains_on_card: bool = False
    ends_apart: bool = False
    gathers_keys: bool = False
    float32_adapters: bool = False
    pads: bool = True

    def sharding(self, gpus: int, tensor: int = 1, pipeline: int = 1, context: int = 1, expert: int = 1) -> s.Sharding:
        """Sharding over ``gpus`` with these degrees of tensor, pipeline, context and expert parallelism."""
        return s.Sharding(
            gpus=gpus,
            backend=self.backend,
            zero_stage=self.zero_stage,
            hpz=self.hpz,
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            context_parallel=context,
            expert_parallel=expert,
            ends_apart=self.ends_apart,
            gathers_keys=self.gathers_keys,
        )

    def adapter(self, rank: int, targets: Literal["attention", "linear", "all"] = "linear") -> s.Adapter:
        """Low-rank adapters on a frozen base, as this system stores it."""
        return s.Adapter(
            rank=rank,
            targets=targets,
            base_bytes=self.base_bytes,
            states=self.states,
            float32=self.float32_adapters,
        )


_PLAIN = Recipe(backend="plain", zero_stage=0, states=s.PURE_BF16_FOREACH, kernels="eager", head="full")
_FSDP = Recipe(backend="fsdp", zero_stage=3, states=s.FSDP_FP32, kernels="fused", head="full", base_bytes=4.0)

_MEGATRON = Recipe(backend="megatron", zero_stage=1, states=s.MEGATRON_BF16, kernels="fused", head="vocab_parallel")

_VERL = Recipe(
    backend="fsdp",
    zero_stage=3,
    states=s.FSDP_FP32_FOREACH,
    kernels="eager",
    head="in_place",
    base_bytes=4.0,
    trains_on_card=True,
    pads=False,
)

RECIPES: dict[str, Recipe] = {
    "rltui": Recipe(backend="deepspeed", zero_stage=2, states=s.DEEPSPEED_BF16, kernels="eager", head="chunked"),
    "open-instruct": Recipe(
        backend="deepspeed",
        zero_stage=0,
        states=s.DEEPSPEED_BF16_FP32_GRADIENTS,
        kernels="eager",
        head="compiled",
        sync=s.WeightSync(gather="clone"),
        hpz=8,
    ),
    "prime-rl": Recipe(
        backend="fsdp", zero_stage=3, states=s.FSDP_FP32, kernels="fused", head="chunked", base_bytes=4.0
    ),
    "prime-rl sft": _FSDP,
    "torchtitan": structs.replace(_FSDP, head="fused", gathers_keys=True),
    "torchtitan 2024": structs.replace(_FSDP, head="freed", gathers_keys=True),
    "verl": _VERL,
    "verl bf16": structs.replace(_VERL, states=s.PURE_BF16_FOREACH, base_bytes=2.0),
    "torchtune": Recipe(
        backend="plain",
        zero_stage=0,
        states=s.BF16_ADAM_8BIT_FUSED,
        kernels="fused",
        head="streamed",
        ends_apart=True,
    ),
    "torchtune distributed": Recipe(
        backend="fsdp", zero_stage=3, states=s.PURE_BF16, kernels="fused", head="streamed", ends_apart=True
    ),
    "litgpt": structs.replace(_PLAIN, kernels="litgpt"),
    "megatron": _MEGATRON,
    "megatron in turns": structs.replace(_MEGATRON, trains_on_card=True),
    "megatron bridge": structs.replace(_MEGATRON, states=s.MEGATRON_BF16_GRADIENTS, head="in_place"),
    "megatron bridge bf16 moments": structs.replace(_MEGATRON, states=s.MEGATRON_BF16_MOMENTS, head="in_place"),
    "transformers": Recipe(backend="deepspeed", zero_stage=3, states=s.DEEPSPEED_BF16, kernels="eager", head="full"),
    "transformers fsdp": Recipe(
        backend="fsdp1", zero_stage=3, states=s.FSDP_FP32_FOREACH, kernels="eager", head="full"
    ),
    "transformers fsdp2": structs.replace(_FSDP, kernels="eager", head="chunked", gathers_keys=True),
    "xtuner": structs.replace(_FSDP, states=s.FSDP_FP32_FOREACH, kernels="eager"),
    "automodel": structs.replace(_FSDP, states=s.PURE_BF16_FOREACH, head="freed", base_bytes=2.0),
    "axolotl": structs.replace(_PLAIN, head="chunked", float32_adapters=True),
    "axolotl fsdp": Recipe(backend="fsdp", zero_stage=3, states=s.BF16_ADAM_8BIT, kernels="eager", head="chunked"),
    "transformers plain": _PLAIN,
}
"""By system. torchtitan compiles its loss since April 2025; NeMo Automodel trains weights in the numbers in which they
were loaded, with Liger's kernels and a masked loss on float32 logits; axolotl's are those of its examples, with their
``CutCrossEntropyPlugin`` and, sharded, 8-bit Adam; litgpt with FSDP has backend ``fsdp`` and ZeRO stage 3.
``transformers plain`` is its Trainer without DeepSpeed and FSDP: weights are trained in the numbers in which they were
loaded, and on several cards without a launcher (``device_map``) layers are spread: a pipeline of one micro-batch."""
