"""Low-rank adapters (Hu et al. 2021): the base stays as it is, and each linear layer learns an update B·A.

Engines know nothing of adapters. They are sent the base with its updates added, one parameter at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltui.layout.schema import Learner

ADAPTER = "policy"
"""peft's name for the adapters."""
ROOT = "base_model.model."
"""What peft puts before the names of a model's parameters."""
DOWN, UP = f".lora_A.{ADAPTER}.", f".lora_B.{ADAPTER}."
"""Between a layer's name and ``weight``: A [rank, in] and B [out, rank]."""
_WRAPPED = ".base_layer."


def with_adapters(model: Any, learner: Learner, seed: int) -> Any:
    """``model`` with adapters on all its linear layers but the head; nothing else of it is trained from here on.

    Args:
        model: A causal language model, whole or in ZeRO-3's shards.
        learner: For rank and scale.
        seed: Of the adapters' first values. A starts random and B at 0, so the policy starts as the base.

    Raises:
        ValueError: It has experts, whose weights transformers keeps in stacks: their updates would reach no engine.
    """
    import torch
    from peft import get_peft_model

    config = adapter_config(learner, "all-linear")
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # all ranks start with the same adapters
        # in the model's own precision: DeepSpeed keeps the float32 copy that the optimizer works on
        found = get_peft_model(model, config, adapter_name=ADAPTER, autocast_adapter_dtype=False)
    if any(getattr(layer, "num_experts", 1) > 1 for layer in adapted_layers(found).values()):
        name = type(model).__name__
        raise ValueError(
            f"roles.learner.lora_rank: {name} has experts, whose adapters engines cannot be sent; set it to 0"
        )
    return found


def adapter_config(learner: Learner, layers: str | list[str]) -> Any:
    """The configuration of the learner's adapters on ``layers``, which are named as peft does."""
    from peft import LoraConfig

    return LoraConfig(
        r=learner.lora_rank,
        lora_alpha=alpha_of(learner),
        target_modules=layers,
        lora_dropout=0.0,  # dropout would make the trainer's log-probs random
        task_type="CAUSAL_LM",
    )


def scale_of(learner: Learner) -> float:
    """What B·A is multiplied by."""
    return alpha_of(learner) / learner.lora_rank


def alpha_of(learner: Learner) -> int:
    """The layout's ``lora_alpha``, or what stands for 0."""
    return learner.lora_alpha or 2 * learner.lora_rank


def adapted_layers(module: Any) -> dict[str, Any]:
    """The layers with adapters by the name of the weight that they update; empty for a model without adapters."""
    if not hasattr(module, "peft_config"):
        return {}
    from peft.tuners.lora import LoraLayer

    layers = ((name, layer) for name, layer in module.named_modules() if isinstance(layer, LoraLayer))
    return {f"{name}{_WRAPPED}weight": layer for name, layer in layers}


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name is part of an adapter."""
    return name.startswith(ROOT) and f".{ADAPTER}." in name


def base_name(name: str) -> str:
    """The name that a parameter has in the model without adapters."""
    return name.removeprefix(ROOT).replace(_WRAPPED, ".") if name.startswith(ROOT) else name


def merged(weight: Any, layer: Any) -> Any:
    """``weight`` with its layer's update, in float32; both must be whole on this rank."""
    down, up = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
    return updated(weight, down.detach(), up.detach(), layer.scaling[ADAPTER])


def updated(weight: Any, down: Any, up: Any, scale: float) -> Any:
    """``weight`` + B·A · ``scale``, computed in float32.

    Args:
        weight: [out, in].
        down: A, [rank, in].
        up: B, [out, rank].
        scale: alpha / rank.
    """
    return weight.float() + (up.float() @ down.float()) * scale
