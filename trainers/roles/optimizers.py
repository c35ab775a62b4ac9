"""The optimizers that learners and critics step with."""

from __future__ import annotations

import math
from typing import Any

from rltui.layout.roles import has_8_bit_moments
from rltui.layout.schema import Critic, Learner
from rltui.layout.settings import Train


def learning_rate_factor(train: Train, step: int) -> float:
    """What the learning rate is multiplied by at optimizer step ``step``, counted from 0.

    It rises linearly over the warm-up, and then stays, or falls linearly or as half a cosine until the last step.
    """
    warmup = max(1, train.warmup_steps)
    last = train.steps * train.optimizer_steps * train.epochs
    done = min(1.0, max(0.0, (step - warmup) / max(1, last - warmup)))
    left = {"constant": 1.0, "linear": 1.0 - done, "cosine": (1.0 + math.cos(math.pi * done)) / 2}[train.schedule]
    floor = train.learning_rate_floor
    return min(1.0, (step + 1) / warmup) * (floor + (1.0 - floor) * left)


def adamw_settings(learning_rate: float, train: Train) -> dict[str, Any]:
    """What AdamW is told; the decay of weights is decoupled, a fraction of them for each unit of the learning rate."""
    return {"lr": learning_rate, "weight_decay": train.weight_decay, "betas": (train.adam_beta1, train.adam_beta2)}


def take_settings(scheduler: Any, learning_rate: float, train: Train) -> None:
    """Let a scheduler and its optimizer, which a checkpoint was loaded into, go on with the layout's settings.

    A checkpoint holds those that it was trained with, and loading puts them back. How many steps were made stays.

    Args:
        scheduler: torch's ``LambdaLR``.
        learning_rate: After warm-up.
        train: As for ``new_optimizer``.
    """
    settings = adamw_settings(learning_rate, train)
    now = learning_rate * learning_rate_factor(train, scheduler.last_epoch)
    for group in scheduler.optimizer.param_groups:
        group.update(settings, lr=now, initial_lr=learning_rate)
    scheduler.base_lrs = [learning_rate for _ in scheduler.base_lrs]
    scheduler._last_lr = [now for _ in scheduler.base_lrs]


def new_optimizer(role: Learner | Critic, parameters: list[Any], learning_rate: float, train: Train) -> Any:
    """AdamW over ``parameters``, as ``role`` wants it; DeepSpeed gives it float32 master weights to step on.

    Args:
        role: The role.
        parameters: What is trained.
        learning_rate: After warm-up.
        train: For the decay of weights and betas.

    Raises:
        ModuleNotFoundError: The role wants 8 bits, and bitsandbytes is not installed.
    """
    settings = adamw_settings(learning_rate, train)
    if has_8_bit_moments(role):
        return _eight_bit(parameters, settings)
    import torch

    # in host memory the fused kernel goes over the states once, with all vector units, instead of a dozen times
    fused = True if role.offload != "none" else None
    return torch.optim.AdamW(parameters, **settings, fused=fused)


def _eight_bit(parameters: list[Any], settings: dict[str, Any]) -> Any:
    """AdamW whose moments are stored in blocks of 256 bytes with a scale each (Dettmers et al. 2022)."""
    try:
        from bitsandbytes.optim import AdamW8bit
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "optimizer adamw_8bit needs bitsandbytes: pip install 'rltui[eight-bit]', or set "
            "roles.learner.optimizer=adamw",
            name="bitsandbytes",
        ) from error
    return AdamW8bit(parameters, **settings)
