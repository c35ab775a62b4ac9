"""Bringing what is trained back to a checkpoint, whatever number of ranks wrote it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import structs

from trainers.checkpoint import TrainingState, ensure_space

if TYPE_CHECKING:
    from pathlib import Path

    from trainers.roles.fleet import Fleet
    from trainers.session import Session

log = logging.getLogger("trainers")


def restore(path: Path, saved: TrainingState, here: TrainingState, session: Session, fleet: Fleet) -> TrainingState:
    """Bring learners and critics back to the checkpoint at ``path``; the state to go on from.

    Args:
        path: The checkpoint.
        saved: Its state.
        here: That of a start from nothing, which says what roles there are now.
        session: Is shown what takes long.
        fleet: The roles.

    Raises:
        ValueError: The checkpoint fits other roles only.
        NoSpaceError: Another number of ranks wrote it, and there is no room to reshard it.
    """
    changed = saved.ranks_changed(here)
    if changed:
        ranks = f"{saved.num_learners} learners, resharding it for {here.num_learners}"
        text = f"step {saved.step} has shards of {ranks}"
        session.stages.show("loading", text)
        log.info(text)
        ensure_space(path, 2 * fleet.checkpoint_bytes())
    fleet.restore(str(path), saved.step, changed)
    return structs.replace(
        saved,
        num_learners=here.num_learners,
        zero_stage=here.zero_stage,
        num_critics=here.num_critics,
        critic_zero_stage=here.critic_zero_stage,
    )
