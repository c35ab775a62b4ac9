"""Weights & Biases, kept at arm's length: a thread of its own, whose every trouble is an event and never a stop."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rltui.layout.schema import Layout
from rltui.onnode import rundir

FOLDER = "wandb"
RUN_ID = "run-id"
MAX_WAITING = 10_000
"""Steps that may wait for W&B before the newest are dropped."""
TABLE_INTERVAL_S = 300.0
"""Between two tables of answers: W&B keeps a file of each."""
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
        self._waiting: queue.Queue[Callable[[Any], Any] | int] = queue.Queue(MAX_WAITING)
        self._next_table = 0.0
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        if layout.tracking.wandb != "disabled":
            self._thread.start()

    def log(self, metrics: Mapping[str, float]) -> None:
        """Hand over one step's metrics; never waits."""
        told = dict(metrics)
        self._put(lambda run: run.log(told))

    def send_samples(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Hand over some answers of a step as a table, where the layout wants it and none was sent just now."""
        if self._layout.tracking.samples and rows and time.monotonic() >= self._next_table:
            self._next_table = time.monotonic() + TABLE_INTERVAL_S
            self._put(lambda run: _log_table(run, rows))

    def send_model(self, folder: Path) -> None:
        """Hand over the model in ``folder`` as an artefact of the run's name; the files stay where they are."""
        self._put(lambda run: _log_model(run, folder, self._run.name))

    def _put(self, deed: Callable[[Any], Any]) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(deed)

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
            while not isinstance(item := self._waiting.get(), int):
                item(run)
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
        # wandb marks settings with x_ as experimental: another version may not have it
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


def _log_table(run: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    import wandb

    columns = list(rows[0])
    table = wandb.Table(columns=columns, data=[[row[name] for name in columns] for row in rows])
    run.log({"step": rows[0]["step"], "samples": table})


def _log_model(run: Any, folder: Path, name: str) -> None:
    import wandb

    model = wandb.Artifact(f"{name}-model", type="model")
    model.add_dir(str(folder), policy="immutable")  # no copy of it in a cache
    run.log_artifact(model, aliases=["latest", folder.name])


def run_id(folder: Path) -> str:
    """The W&B id of the run, made by its first attempt and kept in ``folder``."""
    file = folder / RUN_ID
    known = file.read_text(encoding="ascii").strip() if file.exists() else ""  # a full disk leaves an empty file
    if known:
        return known
    made = secrets.token_hex(4)
    file.write_text(made, encoding="ascii")
    return made
