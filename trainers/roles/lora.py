"""Low-rank adapters (Hu et al. 2021): the base stays as it is, and each linear layer learns an update B·A.

transformers keeps a layer's experts in stacks, of which each expert has an update of its own. Engines know nothing of
adapters. They are sent the base with its updates added, one parameter at a time.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltui.layout.schema import Learner

ADAPTER = "policy"
"""peft's name for the adapters."""
ROOT = "base_model.model."
"""What peft puts before the names of a model's parameters."""
_WRAPPED = ".base_layer"
"""What peft puts behind the name of a layer with adapters, once for each of its stacks."""


def with_adapters(model: Any, learner: Learner, seed: int) -> Any:
    """``model`` with adapters on all its linear layers but the head; nothing else of it is trained from here on.

    Args:
        model: A causal language model, whole or in ZeRO-3's shards.
        learner: For rank and scale.
        seed: Of the adapters' first values. A starts random and B at 0, so the policy starts as the base.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=learner.lora_rank,
        lora_alpha=alpha_of(learner),
        target_modules="all-linear",
        exclude_modules=_answering_more(model),
        lora_dropout=0.0,  # dropout would make the trainer's log-probs random
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        torch.manual_seed(seed)  # all ranks start with the same adapters
        # peft looks for the ranks of stacks among layers, before it comes to stacks
        warnings.filterwarnings("ignore", r"The following (rank|alpha)_pattern keys", RuntimeWarning)
        # in the model's own precision: DeepSpeed keeps the float32 copy that the optimizer works on
        found = get_peft_model(model, config, adapter_name=ADAPTER, autocast_adapter_dtype=False)
    _gather_stacks_at_once(found)
    return found


def _answering_more(model: Any) -> list[str] | None:
    """Layers that are linear by class and answer with more than a product, as some families' routers do."""
    from torch.nn import Linear

    linear = {name: module for name, module in model.named_modules() if isinstance(module, Linear)}
    return [name for name, module in linear.items() if type(module).forward is not Linear.forward] or None


def _gather_stacks_at_once(model: Any) -> None:
    """Let ZeRO-3 gather a stack together with its adapters: peft adds them up before the layer inside is called."""
    from deepspeed.utils import set_z3_leaf_module
    from peft.tuners.lora.layer import ParamWrapper

    for module in model.modules():
        if isinstance(module, ParamWrapper):
            set_z3_leaf_module(module, True)


def alpha_of(learner: Learner) -> int:
    """The layout's ``lora_alpha``, or what stands for 0."""
    return learner.lora_alpha or 2 * learner.lora_rank


def adapted_layers(module: Any) -> dict[str, Any]:
    """The layers with adapters by the name of the parameter that they update; empty for a model without adapters."""
    if not hasattr(module, "peft_config"):
        return {}
    from peft.tuners.lora import LoraLayer

    def weight_of(name: str, layer: Any) -> str:
        inner = layer
        while isinstance(inner, LoraLayer):  # a module with two stacks is wrapped twice
            inner, name = inner.base_layer, f"{name}{_WRAPPED}"
        return f"{name}.{getattr(layer, 'parameter_name', 'weight')}"

    layers = ((name, layer) for name, layer in module.named_modules() if isinstance(layer, LoraLayer))
    return {weight_of(name, layer): layer for name, layer in layers}


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name is part of an adapter."""
    return name.startswith(ROOT) and f".{ADAPTER}." in name


def base_name(name: str) -> str:
    """The name that a parameter has in the model without adapters."""
    return name.removeprefix(ROOT).replace(_WRAPPED, "") if name.startswith(ROOT) else name


def merged(weight: Any, layer: Any) -> Any:
    """``weight`` with its layer's update, B·A · alpha / rank, in float32; all must be whole on this rank.

    Args:
        weight: [out, in], or a stack of E experts [E, out, in], which some families have transposed.
        layer: Has A [rank, in] and B [out, rank]; of a stack [E · rank, in] and [out, rank · E].
    """
    import torch

    down, up = (part[ADAPTER].weight.detach().float() for part in (layer.lora_A, layer.lora_B))
    scale, experts = layer.scaling[ADAPTER], getattr(layer, "num_experts", 1)
    if experts == 1:
        return weight.float() + (up @ down) * scale
    down, up = down.view(experts, -1, down.shape[1]), up.view(up.shape[0], -1, experts).permute(2, 0, 1)
    if getattr(layer.get_base_layer(), "is_transposed", False):
        down, up = up.mT, down.mT
    return torch.baddbmm(weight.float(), up, down, alpha=scale)
