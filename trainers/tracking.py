"""Weights & Biases, kept at arm's length: a thread of its own, whose every trouble is an event and never a stop."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rltui.onnode import rundir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rltui.layout.schema import Layout

FOLDER = "wandb"
RUN_ID = "run-id"
MAX_WAITING = 10_000
"""Steps that may wait for W&B before the newest are dropped."""
FLUSH_INTERVAL_S = 1.0
"""How often the offline file is written; W&B's own default of 15 s is too slow to watch a run by."""


class Tracker:
    """Sends metrics to W&B as ``tracking.wandb`` says: online, offline or not at all.

    Starting takes a second or more and the network can hang, so all of it happens in a thread.

    Args:
        layout: The layout; stored as the run's configuration.
        run: The run's directory; W&B's files and the run id, which all attempts share, lie in ``wandb`` there.
        attempt: The attempt's directory, for events.
    """

    def __init__(self, layout: Layout, run: str, attempt: str) -> None:
        self._layout, self._run, self._attempt = layout, Path(run), attempt
        self._waiting: queue.Queue[dict[str, float] | int] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        if layout.tracking.wandb != "disabled":
            self._thread.start()

    def log(self, metrics: Mapping[str, float]) -> None:
        """Hand over one step's metrics; never waits."""
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(dict(metrics))

    def close(self, exit_code: int, deadline_s: float) -> None:
        """Finish the W&B run with ``exit_code``; after ``deadline_s`` it is left as it is."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put(exit_code, timeout=deadline_s)
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            self._trouble(f"W&B did not finish within {deadline_s:g} s; `wandb sync` can send what is in its folder")

    def _work(self) -> None:
        try:
            run = self._start()
            while isinstance(item := self._waiting.get(), dict):
                run.log(item)
            run.finish(exit_code=item)
        except Exception as error:  # noqa: BLE001 (the outermost edge of this thread; W&B must never stop training)
            self._trouble(f"W&B failed, the run goes on without it: {type(error).__name__}: {error}")

    def _start(self) -> Any:
        import wandb

        tracking = self._layout.tracking
        # a cluster whose nodes have no internet says so, and its word is stronger than the layout's
        offline = tracking.wandb == "online" and bool(os.environ.get("RLTUI_OFFLINE"))
        mode = "offline" if offline else tracking.wandb
        folder = self._run / FOLDER
        folder.mkdir(exist_ok=True)
        known = getattr(wandb.Settings, "model_fields", {})
        live = {"x_transaction_log_flush_interval": FLUSH_INTERVAL_S}
        run = wandb.init(
            project=tracking.project,
            entity=tracking.entity or None,
            name=self._run.name,
            id=run_id(folder),
            dir=str(self._run),
            mode=mode,
            resume="allow" if mode == "online" else None,
            config=msgspec.to_builtins(self._layout),
            settings=wandb.Settings(
                console="off", silent=True, **{name: value for name, value in live.items() if name in known}
            ),
        )
        # A resumed attempt goes back to its checkpoint's step, and W&B's own step must not decrease.
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        rundir.log_event(self._attempt, "tracking", f"W&B run {run.id} ({mode}) {run.url or ''}".rstrip())
        return run

    def _trouble(self, text: str) -> None:
        rundir.log_event(self._attempt, "tracking", text)


def run_id(folder: Path) -> str:
    """The W&B id of the run, made by its first attempt and kept in ``folder``."""
    file = folder / RUN_ID
    if not file.exists():
        file.write_text(secrets.token_hex(4), encoding="ascii")
    return file.read_text(encoding="ascii").strip()
