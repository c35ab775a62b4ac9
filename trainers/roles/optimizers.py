"""The optimizers that learners and critics step with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rltui.layout.roles import has_8_bit_moments

if TYPE_CHECKING:
    from rltui.layout.schema import Critic, Learner


def new_optimizer(role: Learner | Critic, parameters: list[Any], learning_rate: float, weight_decay: float) -> Any:
    """AdamW over ``parameters``, as ``role`` wants it; DeepSpeed gives it float32 master weights to step on.

    Args:
        role: The role.
        parameters: What is trained.
        learning_rate: After warm-up.
        weight_decay: Decoupled, a fraction of the weights for each unit of the learning rate.

    Raises:
        ModuleNotFoundError: The role wants 8 bits, and bitsandbytes is not installed.
    """
    if has_8_bit_moments(role):
        return _eight_bit(parameters, learning_rate, weight_decay)
    import torch

    # in host memory the fused kernel goes over the states once, with all vector units, instead of a dozen times
    fused = True if role.offload != "none" else None
    return torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay, fused=fused)


def _eight_bit(parameters: list[Any], learning_rate: float, weight_decay: float) -> Any:
    """AdamW whose moments are stored in blocks of 256 bytes with a scale each (Dettmers et al. 2022)."""
    try:
        from bitsandbytes.optim import AdamW8bit
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "optimizer adamw_8bit needs bitsandbytes: pip install 'rltui[eight-bit]', or set "
            "roles.learner.optimizer=adamw",
            name="bitsandbytes",
        ) from error
    return AdamW8bit(parameters, lr=learning_rate, weight_decay=weight_decay)
