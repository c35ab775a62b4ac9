"""Bringing what is trained back to a checkpoint, whatever number of ranks wrote it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from rltui.layout.schema import Layout
from trainers.checkpoint import Checkpoints, TrainingState, ensure_space
from trainers.roles.fleet import Fleet
from trainers.roles.lora import alpha_of
from trainers.session import Session

log = logging.getLogger("trainers")


def initial_state(layout: Layout) -> TrainingState:
    """The state before the first step."""
    learner, critic = layout.roles.learner, layout.roles.critic
    rank = learner.lora_rank
    return TrainingState(
        prompts_per_step=layout.train.prompts_per_step,
        num_learners=layout.slots_of("learner"),
        zero_stage=learner.zero_stage,
        precision=learner.precision,
        optimizer=learner.optimizer,
        adapters=f"adapters of rank {rank} and alpha {alpha_of(learner)}" if rank else "all weights",
        num_critics=layout.slots_of("critic"),
        critic_zero_stage=critic.zero_stage if critic else 0,
        critic_precision=critic.precision if critic else "",
    )


def check_fits(session: Session) -> int:
    """Look at the run's newest checkpoint before anything is placed or loaded; the step that it goes on from.

    Raises:
        ValueError: It is unreadable, or the layout's roles cannot go on from it.
    """
    found = Checkpoints(str(session.run), session.layout.checkpoint.keep).newest()
    if found is None:
        return 0
    found[1].ranks_changed(initial_state(session.layout))
    return found[1].step


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
        text = f"step {saved.step} has shards of {ranks(saved, changed)}, resharding it for {ranks(here, changed)}"
        session.stages.show("loading", text)
        log.info(text)
        ensure_space(path, 2 * fleet.checkpoint_bytes())
    fleet.restore(str(path), saved.step, changed)
    return structs.replace(
        saved,
        prompts_per_step=here.prompts_per_step,
        num_learners=here.num_learners,
        zero_stage=here.zero_stage,
        precision=here.precision,
        adapters=here.adapters,
        optimizer=here.optimizer,
        num_critics=here.num_critics,
        critic_zero_stage=here.critic_zero_stage,
        critic_precision=here.critic_precision,
    )


def ranks(state: TrainingState, kinds: Sequence[str]) -> str:
    """The ranks of some kinds of roles in words: ``2 learners with ZeRO-3``."""
    found = {kind: state.trained[kind] for kind in kinds}
    return " and ".join(
        f"{count} {kind}{'s' * (count > 1)} with ZeRO-{stage}" for kind, (count, stage) in found.items()
    )
