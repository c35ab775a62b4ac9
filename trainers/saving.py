"""When checkpoints are written, what training waits for of it, and who hears of it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from trainers.checkpoint import Checkpoints, NoSpaceError, TrainingState
from trainers.full_disk import FULL
from trainers.roles.calls import RoleDiedError, RoleError
from trainers.roles.checkpoint_writer import Written
from trainers.roles.fleet import Fleet
from trainers.session import Session

log = logging.getLogger("trainers")

ROOM_WAIT_S = 600.0
"""How long the last checkpoint of a run that is asked for nothing else waits for room on the disk: its training is
done, and with it would go every step since the checkpoint before."""

ROOM_LOOK_S = 5.0

_FULL_SAID = re.compile(rf"\[Errno (?:{'|'.join(map(str, FULL))})\]|PytorchStreamWriter")
"""In what a rank says of a disk that is full; torch names no error number."""


@dataclass(frozen=True)
class _Pending:
    """A checkpoint that is being written; ``written`` once it is complete."""

    step: int
    written: Future[Written]


class Saver:
    """Writes the checkpoints of a run: training waits for a copy in the ranks' host memory, not for the disk.

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
        self._pending: _Pending | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._rates: dict[str, float] = {}

    def save_if_due(self, state: TrainingState) -> dict[str, float]:
        """Begin to save where the step is one of ``checkpoint.every``; what could not be written is told, not an end.

        Returns:
            ``time/saving``, the seconds that training waited, and ``checkpoint_bytes_per_second`` where a checkpoint
            has become complete since the last call.

        Raises:
            RoleError: Ranks could not begin to save together, or one died.
        """
        every, step = self._layout.checkpoint.every, state.step
        began = time.monotonic()
        # the last step's is written by save, which waits for it
        if every and step % every == 0 and step != self._layout.train.steps:
            self._settle(step)
            try:
                self._begin(state, waits=False)
            except (NoSpaceError, OSError) as error:
                self._miss(step, error)
            waited_s = time.monotonic() - began
        else:
            waited_s = 0.0
            if self._pending is not None and self._pending.written.done():
                self._settle(step)
        rates, self._rates = self._rates, {}
        return {"time/saving": waited_s, **rates}

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint of the state after the last whole step, unless there is one; returns when it is complete.

        Where the disk does not take it, the attempt waits for that, ``ROOM_WAIT_S`` at most and until it is to stop.

        Raises:
            NoSpaceError: There is no room.
            RoleError: It could not be written, or a rank died.
        """
        if self._pending is not None:
            self._show(self._pending.step)
        self._settle(state.step)
        until = time.monotonic() + ROOM_WAIT_S
        is_first = True
        while state.step and not self.checkpoints.has(state.step):
            self._try(state, until, is_first)
            is_first = False

    def _try(self, state: TrainingState, until: float, is_first: bool) -> None:
        """Write the last checkpoint, or wait until it is worth another try."""
        try:
            self._begin(state, waits=True)
            self._wait(state.step)
        except (NoSpaceError, OSError, RoleError) as error:
            self._wait_for_room(state.step, error, until, is_first)

    def _wait_for_room(self, step: int, error: Exception, until: float, is_first: bool) -> None:
        """Let the disk have some time; raises ``error`` where that cannot help, or is over."""
        if not _is_full(error) or time.monotonic() > until:
            raise error
        text = f"waits for room: {error}"
        if is_first:
            self._session.event("checkpoint", f"step {step} {text}", step=step)
            log.warning("step %d %s", step, text)
        self._session.stages.show("saving", text, step=step)
        looked_at = time.monotonic()
        while time.monotonic() - looked_at < ROOM_LOOK_S:
            if self._session.stop.requested:
                raise error
            time.sleep(0.2)

    def close(self) -> None:
        """Let a checkpoint that is being written become complete, also where the run has failed."""
        try:
            self._wait(0)
        except Exception:  # the run ends for a reason of its own, which must not be hidden by this one
            log.exception("a checkpoint that was being written did not become complete")

    def _begin(self, state: TrainingState, *, waits: bool) -> None:
        """Begin a checkpoint; ``waits``: training goes on when it is written, so that nothing need be copied."""
        self._show(state.step)
        began = time.monotonic()
        draft = self.checkpoints.begin(state, self._needed_bytes)
        finish = self._fleet.begin_save(str(draft), in_background=not waits)
        waited_s = time.monotonic() - began
        self._pending = _Pending(state.step, self._thread.submit(self._complete, state, finish, began, waited_s))

    def _complete(self, state: TrainingState, finish: Callable[[], Written], began: float, waited_s: float) -> Written:
        """Wait until all ranks have written, and mark the checkpoint complete; in a thread of its own."""
        written = finish()
        path = self.checkpoints.complete(state)
        text = f"step {state.step} saved in {time.monotonic() - began:.2f} s, training waited {waited_s:.2f} s"
        self._session.event("checkpoint", text, step=state.step, path=str(path))
        log.info(text)
        return written

    def _settle(self, step: int) -> None:
        """As ``_wait``, but what could not be written is only told: its ranks live on, and the next one may be."""
        pending = self._pending
        try:
            self._wait(step)
        except RoleDiedError:
            raise
        except (RoleError, OSError) as error:
            assert pending is not None
            self._miss(pending.step, error)

    def _miss(self, step: int, error: Exception) -> None:
        self._session.event("checkpoint", f"step {step} was not saved: {error}", step=step)
        log.warning("step %d was not saved: %s", step, error)

    def _wait(self, step: int) -> None:
        """Wait for a checkpoint that is being written, so that there is never more than one; say so where it takes."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if not pending.written.done() and pending.step < step:
            text = f"step {step} waits until the checkpoint of step {pending.step} is written"
            self._session.event("checkpoint", text, step=step)
            log.info(text)
        written = pending.written.result()
        self._rates = {"checkpoint_bytes_per_second": written.size / max(written.seconds, 1e-9)}

    def _show(self, step: int) -> None:
        self._session.board.enter("saving")
        self._session.stages.show("saving", step=step)


def _is_full(error: Exception) -> bool:
    """Whether a checkpoint could not be written for want of room, and all ranks live on."""
    if isinstance(error, RoleError):
        return not isinstance(error, RoleDiedError) and _FULL_SAID.search(str(error)) is not None
    return isinstance(error, NoSpaceError) or (isinstance(error, OSError) and error.errno in FULL)
