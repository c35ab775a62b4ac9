"""Which of a script's sources is believed about a step: its own file, W&B's, TensorBoard's, or the console.

This module is used on nodes, so it keeps to the standard library and Python 3.8.
"""

import os
import re
import time
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Union

from rltui.onnode import rundir
from rltui.onnode.metric_files import EventFile, JsonFile, Record, WandbFile, event_files, wandb_file
from rltui.onnode.metric_names import canonical

FILE, WANDB, TENSORBOARD, CONSOLE, COUNTED = range(5)
"""What is believed before what of a step: records that name no step of the system's own come last."""

SAID = re.compile(r"\bwandb: Run data is saved locally in (?P<folder>\S.*)")
"""What W&B says of its file, at the start of each run: nothing else tells this run's from others in the same folder."""

MOST_FILES = 16
LOOK_S = 5.0
"""How often files that may have come are looked for."""
ENDED_S = 60.0
"""A W&B run that is silent for so long while the next one is written to has ended."""
KEPT_STEPS = 64
"""Newest steps whose lines may still be written again: a source may be some seconds behind another."""

Reader = Union[JsonFile, WandbFile, EventFile]


class Sources:
    """The files that tell of a run's metrics, as they turn up.

    Args:
        metrics: What the dialect says of them, as plain values.
        file: The system's own file of JSON lines; empty: it has none, or says on the console where it is.
        tensorboard: The folder of TensorBoard's files, this attempt's own; empty: not known.
        since: When the attempt began, epoch seconds.
        folder: Where the system runs: W&B may say where its files are from there on.
    """

    def __init__(
        self, metrics: Dict[str, Any], file: str = "", tensorboard: str = "", since: float = 0.0, folder: str = ""
    ) -> None:
        self._metrics, self._since, self._folder = metrics, since, folder
        self._said = re.compile(metrics["said"]) if metrics.get("said") else None
        self._tensorboard = tensorboard
        self._files: Dict[str, JsonFile] = {}
        self._folders: List[str] = []
        self._wandb: Dict[str, WandbFile] = {}
        self._events: Dict[str, EventFile] = {}
        self._due = 0.0
        if file:
            self._add_file(file)

    def _add_file(self, path: str) -> JsonFile:
        made = JsonFile(path, self._metrics["step"], self._metrics["values"], self._since)
        return self._files.setdefault(path, made)

    def heard(self, text: str) -> None:
        """Take a line of the console, which may say where a file is."""
        match = SAID.search(text) if "saved locally" in text else None
        if match is not None and len(self._folders) < MOST_FILES:
            self._folders.append(os.path.join(self._folder, match.group("folder").strip()))
            self._due = 0.0
        match = self._said.search(text) if self._said is not None else None
        if match is not None and len(self._files) < MOST_FILES:
            self._add_file(match.group("file"))

    def read(self, limit: Optional[int] = None) -> Iterator[Tuple[int, Record]]:
        """Yield what came since the last call, and how far it is to be believed; ``limit`` bytes of each file."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + LOOK_S
            self._look()
        readers: List[Tuple[int, Reader]] = [(FILE, one) for one in self._files.values()]
        readers += [(WANDB, one) for one in self._speaking()]
        readers += [(TENSORBOARD, one) for one in self._events.values()]
        for rank, reader in readers:
            for record in reader.read(limit):
                is_counted = record.is_counted and not self._metrics.get("counted", False)
                yield COUNTED if is_counted else rank, record

    def _speaking(self) -> List[WandbFile]:
        """The W&B run that tells of the training: the first, or the next one when that has ended.

        One that begins beside it is another program's, such as an evaluation's. A run that lives is written to every
        15 s, as W&B samples the machine.
        """
        current: List[WandbFile] = []
        for one in self._wandb.values():
            if not current or rundir.written_at(one.path) - rundir.written_at(current[0].path) > ENDED_S:
                current = [one]
        return current

    def read_all(self) -> Iterator[Tuple[int, Record]]:
        """Yield all that is left, also of files that have come since."""
        self._due = 0.0
        return self.read()

    def _look(self) -> None:
        prefix = self._metrics.get("prefix", "")
        for folder in self._folders:
            path = wandb_file(folder)
            if path is not None and path not in self._wandb:
                self._wandb[path] = WandbFile(path, prefix)
        for path in event_files(self._tensorboard)[:MOST_FILES] if self._tensorboard else ():
            if path not in self._events:
                self._events[path] = EventFile(path, prefix)

    def state(self) -> Dict[str, Any]:
        """What it knows, as plain values from which ``restore`` lets others go on."""
        return {
            "folders": self._folders,
            "files": [one.state() for one in self._files.values()],
            "wandb": [one.state() for one in self._wandb.values()],
            "events": [one.state() for one in self._events.values()],
        }

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on with what those knew that said ``state``."""
        prefix = self._metrics.get("prefix", "")
        self._folders = list(state["folders"])
        for one in state["files"]:
            self._add_file(one["path"]).restore(one)
        self._wandb = {one["path"]: WandbFile(prefix=prefix, **one) for one in state["wandb"]}
        self._events = {one["path"]: EventFile(prefix=prefix, **one) for one in state["events"]}


TOLD_STEPS = 8
"""As many of them are handed on to whoever reads on later."""


class StepLines:
    """The lines of an attempt's ``metrics.jsonl``: each metric of a step as the best of its sources tells it.

    A source that knows more may be behind one that knows less. A step of which more becomes known is written again,
    and with it those behind it, as a reader takes a step that comes again for the steps from there on done again.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._steps: Dict[int, Dict[int, Dict[str, float]]] = {}
        self._last: Dict[int, int] = {}
        self._changed: Optional[int] = None
        self._gone = -1

    def add(self, rank: int, step: int, values: Dict[str, float], at: float) -> None:
        """Add numbers of ``step`` that the source of this ``rank`` tells, as of ``at`` (epoch seconds)."""
        if step < self._last.get(rank, -1) and self._is_done_again(rank, step, values):
            self.write()
            self.forget(step)
        # reserved names go last: a metric of the system that is called "time" is not when the step ended
        self._steps.setdefault(step, {}).setdefault(rank, {}).update({**values, "time": at})
        self._last[rank] = step
        self._changed = step if self._changed is None else min(step, self._changed)
        if len(self._steps) > 2 * KEPT_STEPS:
            self.write()

    def _is_done_again(self, rank: int, step: int, values: Dict[str, float]) -> bool:
        """Whether the run went back to ``step``; else another process of it, which is behind, tells of that step too.

        Two processes of one system share some names, such as how long their step took, and not most of them.
        """
        told = self._steps.get(step, {}).get(rank, {})
        return step <= self._gone or 2 * sum(name in told for name in values) > len(values)

    def forget(self, step: int, rank: Optional[int] = None) -> None:
        """Forget the steps from ``step`` on; of one source only where ``rank`` is given."""
        for later in [one for one in self._steps if one >= step]:
            if rank is not None:
                self._steps[later].pop(rank, None)
            if rank is None or not self._steps[later]:
                del self._steps[later]

    def write(self) -> None:
        """Write the steps of which something became known, and those behind them."""
        if self._changed is None:
            return
        for step in sorted(one for one in self._steps if one >= self._changed):
            rundir.append_line(self._path, {**_best(self._steps[step]), "step": step})
        self._changed = None
        self._drop(KEPT_STEPS)

    def _drop(self, kept: int) -> None:
        for old in sorted(self._steps)[:-kept]:
            del self._steps[old]
            self._gone = old

    def state(self) -> Dict[str, Any]:
        """What it knows, as plain values from which ``restore`` lets others go on."""
        self._drop(TOLD_STEPS)
        steps = [[step, [list(one) for one in told.items()]] for step, told in self._steps.items()]
        return {"steps": steps, "last": list(self._last.items()), "gone": self._gone}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on with what those knew that said ``state``."""
        self._steps = {step: dict(told) for step, told in state["steps"]}
        self._last, self._gone = dict(state["last"]), state["gone"]


def _best(told: Dict[int, Dict[str, float]]) -> Dict[str, float]:
    """Each metric as the best of those says it that know it, by whatever name."""
    line: Dict[str, float] = {}
    known: Set[str] = set()
    for rank in sorted(told):
        line.update((name, value) for name, value in told[rank].items() if canonical(name) not in known)
        known.update(map(canonical, told[rank]))
    return line
