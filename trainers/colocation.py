"""Which roles share cards, and so take turns; which have cards of their own, and work at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.layout.schema import Layout


def concurrent(layout: Layout, kinds: Sequence[str]) -> list[list[str]]:
    """``kinds`` in rounds: roles of one round share no GPU, so they can work at the same time."""
    rounds: list[list[str]] = []
    for kind in kinds:
        pool = pool_of(layout, kind)
        free = [members for members in rounds if all(pool_of(layout, other) != pool for other in members)]
        if free:
            free[0].append(kind)
        else:
            rounds.append([kind])
    return rounds


def begins_early(layout: Layout) -> bool:
    """Whether engines get the prompts of a step while the one before it is still reported, evaluated and saved.

    On cards of their own they do so as soon as they have its weights, unless it is still open who answers.
    """
    is_open = layout.algorithm == "opd" and layout.opd.on_policy_fraction < 1.0
    return layout.train.async_steps > 0 or (are_apart(layout) and not is_open)


def are_apart(layout: Layout) -> bool:
    """Whether engines and learners have cards of their own."""
    return pool_of(layout, "engine") != pool_of(layout, "learner")


def pool_of(layout: Layout, kind: str) -> str:
    """The pool that roles of this kind sit in; guests without one are at the learner's, others have their own GPUs."""
    role = layout.roles.rollout if kind == "engine" else getattr(layout.roles, kind)
    if kind in ("reference", "critic") and not role.pool:
        return pool_of(layout, "learner")
    return f"pool {role.pool}" if role.pool else kind
