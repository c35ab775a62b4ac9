"""Remedies for engines whose numbers come from the evidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rltui.diagnose.verdicts import Change, Remedy

if TYPE_CHECKING:
    from rltui.diagnose.causes import Fields

LEN_STEP = 256
"""max_model_len is rounded down to a multiple of this: block sizes divide it."""

MOST_UTILIZATION = 0.95
HEADROOM = 0.02
"""Share of the card left free when the engine's share is fitted to what is free."""

_RAISE = Remedy(
    id="raise-memory-utilization",
    summary="Raise the engine's share of the card by 0.10.",
    changes=(Change("roles.rollout.memory_utilization", "plus", 0.1, most=MOST_UTILIZATION),),
    safe="auto",
)
_DOUBLE = Remedy(
    id="double-tensor-parallel",
    summary="Double tensor parallelism: half the weights on each GPU.",
    changes=(Change("roles.rollout.tensor_parallel", "times", 2),),
    safe="confirm",
)


def kv_no_blocks(_: Fields) -> tuple[Remedy, ...]:
    """More for the cache: share, then tensor parallelism, then less context and fewer sequences."""
    halve = Remedy(
        id="halve-context",
        summary="Halve max_model_len and max_num_seqs; halving responses changes the experiment.",
        changes=(Change("lengths.response", "times", 0.5, least=1),),
        safe="confirm",
    )
    return (_RAISE, _DOUBLE, halve)


def kv_max_len(fields: Fields) -> tuple[Remedy, ...]:
    """Fit the context into the cache where the numbers are known; else make the cache larger."""
    held = int(fields.get("held", "0"))
    if held < LEN_STEP:
        return (_RAISE, _DOUBLE)
    fitting = held // LEN_STEP * LEN_STEP
    fit = Remedy(
        id="fit-context",
        summary=f"Set max_model_len to {fitting}, if prompt and response together still fit into it.",
        safe="confirm",
    )
    return (fit, _RAISE, _DOUBLE)


def free_memory(fields: Fields) -> tuple[Remedy, ...]:
    """A small gap is closed by a smaller share; a large one means that someone else has the card."""
    try:
        share = float(fields["free_gib"]) / float(fields["total_gib"])
        asked = float(fields["asked_share"])
    except (KeyError, ValueError, ZeroDivisionError):
        share, asked = 0.0, 1.0
    find = Remedy(
        id="find-the-owner",
        summary="Find who holds the card; end it by pid if it is your own orphan, else take another GPU.",
        commands=("nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",),
        safe="confirm",
    )
    if share < max(0.5, asked - 0.10):
        return (find,)
    fitting = math.floor((share - HEADROOM) * 100) / 100
    lower = Remedy(
        id="fit-memory-utilization",
        summary=f"Lower the engine's share of the card to {fitting:.2f}: that much is free.",
        changes=(Change("roles.rollout.memory_utilization", "set", fitting),),
        safe="auto",
    )
    return (lower, find)


def tensor_parallel(fields: Fields) -> tuple[Remedy, ...]:
    """The nearest size that divides the heads, not above a node's eight GPUs."""
    heads, asked = int(fields.get("heads", "0")), int(fields.get("tp", "0"))
    if not heads or not asked or heads > 10_000:
        words = "Choose a tensor parallelism that divides the attention heads and fits into a node."
        return (Remedy(id="divide-heads", summary=words, safe="confirm"),)
    fitting = [size for size in range(1, min(asked, 8) + 1) if heads % size == 0]
    best = fitting[-1]
    return (
        Remedy(
            id="divide-heads",
            summary=f"Set tensor parallelism to {best}, which divides {heads} heads; keep engines × tensor "
            f"parallelism.",
            changes=(Change("roles.rollout.tensor_parallel", "set", best),),
            safe="auto",
        ),
    )


def max_model_len(fields: Fields) -> tuple[Remedy, ...]:
    """Clamp to what the model has."""
    derived = fields.get("derived", "")
    words = f"Set max_model_len to at most {derived}" if derived else "Set max_model_len to the model's own context"
    return (Remedy(id="clamp-context", summary=f"{words}, and shorten prompt or response to fit.", safe="auto"),)


def prompt_too_long(fields: Fields) -> tuple[Remedy, ...]:
    """Filter prompts, or make room for one more token than the longest."""
    prompt = fields.get("prompt", "")
    wanted = f"at least {int(prompt) + 1}" if prompt else "at least one token more than the longest prompt"
    return (
        Remedy(id="filter-prompts", summary="Filter out prompts over the limit before training.", safe="auto"),
        Remedy(
            id="raise-context",
            summary=f"Raise max_model_len to {wanted}, if the model's context allows.",
            safe="confirm",
        ),
    )
