"""When checkpoints are written, and who hears of it."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from trainers.checkpoint import Checkpoints, NoSpaceError

if TYPE_CHECKING:
    from trainers.checkpoint import TrainingState
    from trainers.roles.fleet import Fleet
    from trainers.session import Session

log = logging.getLogger("trainers")


class Saver:
    """Writes the checkpoints of a run.

    Args:
        session: The attempt.
        fleet: The roles.

    Attributes:
        checkpoints: Those of the run.
    """

    def __init__(self, session: Session, fleet: Fleet) -> None:
        self._session, self._fleet, self._layout = session, fleet, session.layout
        self.checkpoints = Checkpoints(str(session.run), session.layout.checkpoint.keep)
        self._needed_bytes = fleet.checkpoint_bytes()

    def save_if_due(self, state: TrainingState) -> float:
        """Save where the step is one of ``checkpoint.every``; the seconds it took. No room is an event, not an end."""
        every, step = self._layout.checkpoint.every, state.step
        if not every or step % every or step == self._layout.train.steps:
            return 0.0
        began = time.monotonic()
        try:
            self.save(state)
        except NoSpaceError as error:
            self._session.event("checkpoint", f"step {step} was not saved: {error}", step=step)
            log.warning("step %d was not saved: %s", step, error)
        return time.monotonic() - began

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint of the state after the last whole step, unless there is one.

        Raises:
            NoSpaceError: There is no room.
        """
        step = state.step
        if not step or self.checkpoints.has(step):
            return
        self._session.board.enter("saving")
        self._session.stages.show("saving", step=step)
        began = time.monotonic()
        path = self.checkpoints.save(state, self._needed_bytes, self._fleet.save)
        text = f"step {step} saved in {time.monotonic() - began:.2f} s"
        self._session.event("checkpoint", text, step=step, path=str(path))
        log.info(text)
