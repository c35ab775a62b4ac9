"""Checkpoints are written while training goes on: what they hold, when they count, and who waits for what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
import torch
from trainer_support import LAYOUT, ROOT, save_checkpoint

from rltui.layout.load import load_layout
from rltui.onnode import rundir
from trainers.checkpoint import Checkpoints, TrainingState
from trainers.roles.calls import RoleDiedError, RoleError
from trainers.roles.checkpoint_writer import CheckpointWriter, Written, host_copy, tensor_bytes
from trainers.saving import Saver
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers


def test_a_copy_has_what_was_there_and_ties_stay_ties() -> None:
    weight = torch.arange(6.0).reshape(2, 3).t()
    state = {"module": {"embed": weight, "head": weight}, "groups": [(torch.empty(0), 7, {"lr": [0.5]})]}
    assert tensor_bytes(state) == 24
    copied = host_copy(state)
    expected = weight.clone()
    weight.zero_()
    state["groups"][0][2]["lr"][0] = 0.1
    assert torch.equal(copied["module"]["embed"], expected)
    assert copied["module"]["embed"].stride() == weight.stride()
    assert copied["module"]["head"] is copied["module"]["embed"]
    assert copied["groups"][0][1:] == (7, {"lr": [0.5]})


@pytest.mark.parametrize(
    ("free", "copying", "at_once"), [(1e12, 0, True), (1e12, 1, False), (900.0, 2, True), (1100.0, 2, False)]
)
def test_what_is_copied_is_written_later_and_only_where_all_ranks_have_room_it_is_copied(
    free: float, copying: int, at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointWriter, "_free_bytes", lambda self: free)
    weight, written = torch.full((100,), 9.0), threading.Event()

    def write(content: Any, path: str) -> None:
        written.set()
        torch.save(content, path)

    writer = CheckpointWriter(write)
    writer.open(copying)
    writer.take({"weight": weight}, str(tmp_path / "part.pt"))
    weight.zero_()
    assert written.is_set() == at_once
    writer.close(lambda: [tmp_path / "part.pt"])
    found = writer.wait()
    assert found.size == (tmp_path / "part.pt").stat().st_size
    assert found.seconds > 0
    assert torch.load(tmp_path / "part.pt")["weight"].mean() == 9.0


KILLED = """
import sys, time
from pathlib import Path
import torch
from trainers.checkpoint import Checkpoints, TrainingState
from trainers.roles.calls import RoleDiedError, RoleError
from trainers.roles.checkpoint_writer import CheckpointWriter

def write(content, path):
    Path(path).write_bytes(bytes(1000))  # and the rest never comes
    print("half", flush=True)
    time.sleep(1000)

checkpoints, state = Checkpoints(sys.argv[1], 1), TrainingState(step=2)
draft = checkpoints.begin(state, 1)
writer = CheckpointWriter(write)
writer.open(1)
writer.take({"weight": torch.zeros(1000)}, str(draft / "part.pt"))
writer.close(lambda: [draft / "part.pt"])
writer.wait()
checkpoints.complete(state)
"""


def test_one_that_is_torn_by_a_kill_is_never_taken(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    older = save_checkpoint(checkpoints, TrainingState(step=1), 1, lambda folder: None)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / rundir.CHECKPOINTS / ".saving-step-000002" / "part.pt").stat().st_size == 1000
    assert checkpoints.newest() == (older, TrainingState(step=1))
    newer = save_checkpoint(checkpoints, TrainingState(step=3), 1, lambda folder: None)
    assert checkpoints.newest() == (newer, TrainingState(step=3))
    assert [path.name for path in newer.parent.iterdir()] == ["step-000003"]


class Ranks:
    """A fleet whose ranks write when they are let."""

    def __init__(self) -> None:
        self.may_write, self.failure = threading.Event(), None
        self.began: list[bool] = []

    def checkpoint_bytes(self) -> int:
        return 1

    def begin_save(self, folder: str, *, in_background: bool) -> Callable[[], Written]:
        self.began.append(in_background)

        def finish() -> Written:
            self.may_write.wait(300)
            if self.failure is not None:
                raise self.failure
            return Written(1000, 0.5)

        return finish


@pytest.fixture
def ranks() -> Ranks:
    return Ranks()


@pytest.fixture
def saver(ranks: Any, tmp_path: Path) -> Saver:
    session = MagicMock(run=tmp_path, layout=load_layout(LAYOUT, ["train.steps=6", "checkpoint.every=2"]).layout)
    session.stop.requested = False
    return Saver(session, ranks)


def events(saver: Saver) -> list[str]:
    return [call.args[1] for call in saver._session.event.call_args_list]  # type: ignore[attr-defined]


def test_training_goes_on_and_the_next_checkpoint_waits_for_the_one_before(saver: Saver, ranks: Ranks) -> None:
    assert saver.save_if_due(TrainingState(step=1)) == {"time/saving": 0.0}
    waited = saver.save_if_due(TrainingState(step=2))
    assert waited["time/saving"] > 0
    assert "checkpoint_bytes_per_second" not in saver.save_if_due(TrainingState(step=3)) | waited
    assert saver.checkpoints.newest() is None
    later = ThreadPoolExecutor(1).submit(saver.save_if_due, TrainingState(step=4))
    eventually(lambda: events(saver) == ["step 4 waits until the checkpoint of step 2 is written"])
    assert not later.done()
    ranks.may_write.set()
    assert later.result(300)["checkpoint_bytes_per_second"] == 2000
    assert saver.checkpoints.has(2)
    saver.save(TrainingState(step=5))
    assert ranks.began == [True, True, False]  # at the end nothing goes on that a copy would be for
    assert saver.checkpoints.has(4)
    assert saver.checkpoints.has(5)
    saved = [text.split(" in ")[0] for text in events(saver) if "saved" in text]
    assert saved == [f"step {step} saved" for step in (2, 4, 5)]


def test_the_end_waits_for_the_step_that_is_being_written(saver: Saver, ranks: Ranks) -> None:
    saver.save_if_due(TrainingState(step=2))
    end = ThreadPoolExecutor(1).submit(saver.save, TrainingState(step=2))
    assert not saver.checkpoints.has(2)
    ranks.may_write.set()
    end.result(300)
    assert saver.checkpoints.has(2)
    assert ranks.began == [True]


def test_what_cannot_be_written_is_told_by_the_wait_and_the_next_is_as_new(tmp_path: Path) -> None:
    writer = CheckpointWriter(torch.save)
    for copying in (0, 1):
        writer.open(copying)
        writer.take({"weight": torch.zeros(10)}, str(tmp_path / "gone" / "part.pt"))
        writer.take({"weight": torch.zeros(10)}, str(tmp_path / "gone" / "other.pt"))
        writer.close(list)
        with pytest.raises(RuntimeError, match="gone"):
            writer.wait()
    writer.open(0)
    writer.take({"weight": torch.zeros(10)}, str(tmp_path / "part.pt"))
    writer.close(lambda: [tmp_path / "part.pt"])
    assert writer.wait().size > 0


def test_a_failed_write_is_told_and_ends_only_the_end(saver: Saver, ranks: Ranks) -> None:
    ranks.failure = RoleError("no such tensor")  # type: ignore[assignment]
    ranks.may_write.set()
    for step in (2, 4):
        saver.save_if_due(TrainingState(step=step))
    with pytest.raises(RoleError, match="no such tensor"):
        saver.save(TrainingState(step=5))
    saver.close()
    told = [text for text in events(saver) if "waits" not in text]
    assert told == [f"step {step} was not saved: no such tensor" for step in (2, 4)]
    assert saver.checkpoints.newest() is None


FULL = RoleError("learner 0 failed: OSError: [Errno 28] No space left on device")


def test_the_last_checkpoint_waits_for_room(saver: Saver, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks.failure = FULL  # type: ignore[assignment]
    ranks.may_write.set()
    looks: list[float] = []

    def pass_by(seconds: float) -> None:
        looks.append(seconds)
        ranks.failure = None if len(looks) > 3 else FULL  # type: ignore[assignment]

    monkeypatch.setattr("trainers.saving.time.sleep", pass_by)
    monkeypatch.setattr("trainers.saving.ROOM_LOOK_S", 1e-3)
    saver.save(TrainingState(step=6))
    assert saver.checkpoints.has(6)
    assert [text for text in events(saver) if "waits" in text] == [f"step 6 waits for room: {FULL}"]


@pytest.mark.parametrize("is_over", [True, False], ids=["time", "stop"])
def test_the_wait_for_room_ends(saver: Saver, ranks: Ranks, monkeypatch: pytest.MonkeyPatch, is_over: bool) -> None:
    ranks.failure = FULL  # type: ignore[assignment]
    ranks.may_write.set()
    if is_over:
        monkeypatch.setattr("trainers.saving.ROOM_WAIT_S", -1.0)
    else:
        monkeypatch.setattr(saver._session.stop, "requested", True)
    with pytest.raises(RoleError, match="Errno 28"):
        saver.save(TrainingState(step=6))
    assert len(ranks.began) == 1


def test_a_rank_that_died_as_it_wrote_is_told_at_once(saver: Saver, ranks: Ranks) -> None:
    ranks.failure = RoleDiedError(MagicMock(), "learner 0 died while writing")  # type: ignore[assignment]
    ranks.may_write.set()
    saver.save_if_due(TrainingState(step=2))
    with pytest.raises(RoleDiedError):
        saver.save_if_due(TrainingState(step=4))


def test_where_no_folder_can_be_made_training_goes_on(saver: Saver) -> None:
    saver.checkpoints.begin = MagicMock(side_effect=OSError(122, "Disk quota exceeded"))  # type: ignore[method-assign]
    saver.save_if_due(TrainingState(step=2))
    assert events(saver) == ["step 2 was not saved: [Errno 122] Disk quota exceeded"]
