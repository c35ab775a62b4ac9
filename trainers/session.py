"""What belongs to one attempt besides its roles: directory, layout, the request to stop, and who hears of progress."""

from __future__ import annotations

from pathlib import Path

from rltui.layout.schema import Layout
from rltui.onnode import rundir
from trainers.full_disk import Lines
from trainers.stages import Stages
from trainers.status import StatusBoard, StatusServer
from trainers.stopping import Stop
from trainers.tracking import Tracker

WANDB_FINISH_S = 5.0


class Session:
    """The attempt as the trainer sees it.

    Args:
        attempt: The attempt's directory.
        layout: The layout.
        stop: The request to stop.

    Attributes:
        attempt: The attempt's directory.
        run: The run's directory, shared by its attempts.
        layout: The layout.
        stop: The request to stop.
        stages: Writes ``stage.json``.
        board: What the status endpoint shows.
        tracker: W&B.
    """

    def __init__(self, attempt: Path, layout: Layout, stop: Stop) -> None:
        self.attempt, self.layout, self.stop = attempt.resolve(), layout, stop
        self.run = self.attempt.parent.parent
        self._events = Lines()
        self.stages = Stages(str(self.attempt), layout.train.steps)
        self.board = StatusBoard(layout)
        self.tracker = Tracker(layout, str(self.run), str(self.attempt))
        self._server = StatusServer(str(self.attempt), self.board)
        self._server.start()

    def event(self, kind: str, text: str, **details: object) -> None:
        """Append to the attempt's events."""
        self._events.append(lambda: rundir.log_event(str(self.attempt), kind, text, **details))

    def close(self, exit_code: int) -> None:
        """Finish W&B, whose run succeeded where ``exit_code`` is 0, and stop serving."""
        self.stages.flush()
        self._events.flush()
        sends_model = exit_code == 0 and self.layout.tracking.artifact
        self.tracker.close(exit_code, self.layout.deadlines.push_s if sends_model else WANDB_FINISH_S)
        self._server.close()
