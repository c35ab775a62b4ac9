"""What holds up a run that makes steps, by a log of it and nothing else: steps as its system words them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rltui.diagnose.recent import RunPicture, Step
from rltui.diagnose.run_words import symptom_words
from rltui.diagnose.sources import Source, text_source
from rltui.dialects.load import load_dialects
from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.onnode.metric_names import ALIASES
from rltui.onnode.metric_sources import Sources
from rltui.onnode.script_output import Follower
from rltui.watch.metrics import parse_metrics
from rltui.watch.snapshots import StageSnapshot

READ_AT = 1.0
"""When all steps of a log ended, as far as is known: at one time, which says nothing of what they took."""

_ENDS = re.compile("[\r\n]+")
_KNOWN = frozenset(ALIASES.values())


def words_of(ends: Mapping[str, bytes]) -> list[Source]:
    """What the steps at the ends of logs, by name, say of a run that goes on; none where their system is not known."""
    return [
        text_source(name, "\n".join(lines), has_lines=False)
        for name, text in ends.items()
        if (lines := list(symptom_words(_going_on(steps_in(text.decode("utf-8", "replace"))))))
    ]


def steps_in(text: str) -> tuple[Step, ...]:
    """The steps that a log tells of, by the system whose words tell most that is known here."""
    lines = _ENDS.split(text)
    try:
        dialects = sorted(load_dialects().values(), key=lambda one: one.name == rundir.GENERIC)
    except RltuiError:  # a file of the user's that is no dialect is said where a script is launched
        return ()
    found = [_steps(lines, msgspec.to_builtins(dialect)) for dialect in dialects if dialect.progress or dialect.details]
    return max(found, key=lambda steps: sum(len(_KNOWN & step.values.keys()) for step in steps), default=())


class _NoFiles(Sources):
    """A log may be from anywhere: files that it names are none of its own here."""

    def heard(self, text: str) -> None:
        pass


class _Lines:
    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines

    def read(self, limit: int | None = None) -> Iterator[str]:  # noqa: ARG002 (all at once)
        yield from self._lines

    def unread_end(self) -> list[str]:
        return []


def _steps(lines: Iterable[str], dialect: Mapping[str, Any]) -> tuple[Step, ...]:
    with tempfile.TemporaryDirectory() as folder:
        files = _NoFiles(dialect["metrics"])
        Follower(folder, dict(dialect), _Lines(lines), files, clock=lambda: READ_AT).look(is_last=True)
        written = Path(folder, rundir.METRICS)
        told = written.read_bytes().splitlines() if written.exists() else []
    return tuple(Step(READ_AT, values) for _, values in filter(None, map(parse_metrics, told)))


def _going_on(steps: tuple[Step, ...]) -> RunPicture:
    return RunPicture(now=READ_AT, stage=StageSnapshot(stage="training"), steps=steps)
