"""A trainer whose run's disk is full goes on, and tells what it did once there is room."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rltui.onnode import rundir
from trainers import full_disk
from trainers.full_disk import Lines, unless_full
from trainers.metrics import MetricsLog
from trainers.stages import Stages


@pytest.fixture(autouse=True)
def untold() -> None:
    full_disk._said.clear()


class Disk:
    """A disk that has no room for any file as long as it ``is_full``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = True
        write = os.write

        def write_half(descriptor: int, data: bytes) -> int:
            return write(descriptor, data[: len(data) // 2] if self.is_full else data)

        def refuse(*_: Any, **options: Any) -> tuple[int, str]:
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return make(*_, **options)

        make = rundir.tempfile.mkstemp
        monkeypatch.setattr(os, "write", write_half)
        monkeypatch.setattr(rundir.tempfile, "mkstemp", refuse)


def test_steps_of_a_full_disk_are_written_whole_and_in_order_once_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    metrics = MetricsLog(str(tmp_path), 9, SimpleNamespace(log=lambda _: None))  # type: ignore[arg-type]  # W&B's stand-in
    stages = Stages(str(tmp_path), 9)
    disk = Disk(monkeypatch)
    for step in range(1, 4):
        metrics.write(step, {"reward": step / 10})
        stages.show("training", step=step)
    assert not (tmp_path / rundir.STAGE).exists()
    told = [one for one in caplog.messages if "No space left on device" in one]
    assert len(told) == 1
    disk.is_full = False
    metrics.write(4, {"reward": 0.4})
    stages.show("saving", step=4)
    steps = [line for text in (tmp_path / rundir.METRICS).read_text().splitlines() if (line := parsed(text))]
    assert [(one["step"], one["reward"]) for one in steps] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert json.loads((tmp_path / rundir.STAGE).read_text())["step"] == 4


def test_steps_that_wait_when_a_run_ends_are_written_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = MetricsLog(str(tmp_path), 2, SimpleNamespace(log=lambda _: None))  # type: ignore[arg-type]  # W&B's stand-in
    disk = Disk(monkeypatch)
    for step in (1, 2):
        metrics.write(step, {"reward": step / 10})
    disk.is_full = False
    metrics.close()
    steps = [line["step"] for text in (tmp_path / rundir.METRICS).read_text().splitlines() if (line := parsed(text))]
    assert steps == [1, 2]


def parsed(text: str) -> dict[str, Any] | None:
    """A line of the file; None where the disk was full in the middle of it."""
    try:
        return dict(json.loads(text))
    except ValueError:
        return None


def test_what_has_another_reason_is_no_full_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), unless_full():
        (tmp_path / "nothing").read_text()
    with pytest.raises(FileNotFoundError):
        Lines().append(lambda: rundir.append_line(str(tmp_path / "no/folder"), {}))


def test_a_disk_that_stays_full_costs_the_oldest_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_disk, "MOST_KEPT", 3)
    lines, room, written = Lines(), False, []

    def write(number: int) -> None:
        if not room:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        written.append(number)

    for number in range(5):
        lines.append(lambda number=number: write(number))
    room = True
    lines.append(lambda: write(5))
    assert written == [3, 4, 5]
