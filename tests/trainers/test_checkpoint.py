"""Checkpoints: complete or not there, the newest kept, and no save begun without room."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.onnode import rundir
from trainers.checkpoint import STATE, Checkpoints, NoSpaceError, TrainingState

pytestmark = pytest.mark.trainers


def write_part(folder: str) -> None:
    (Path(folder) / "part").write_text("weights")


def state(step: int) -> TrainingState:
    return TrainingState(step=step, cursor=32 * step, weight_version=step, num_learners=2, zero_stage=2)


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / rundir.CHECKPOINTS).iterdir())


def test_saved_state_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=3)
    assert checkpoints.newest() is None
    path = checkpoints.save(state(7), 10, write_part)
    assert checkpoints.newest() == (path, state(7))
    assert checkpoints.has(7)
    assert not checkpoints.has(8)
    assert (path / "part").read_text() == "weights"


def test_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=2)
    for step in (10, 20, 30, 40):
        checkpoints.save(state(step), 10, write_part)
    assert names(tmp_path) == ["step-000030", "step-000040"]


def test_a_failed_write_leaves_the_older_checkpoint_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    older = checkpoints.save(state(1), 10, write_part)

    def fail(folder: str) -> None:
        write_part(folder)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        checkpoints.save(state(2), 10, fail)
    assert checkpoints.newest() == (older, state(1))
    newer = checkpoints.save(state(2), 10, write_part)
    assert checkpoints.newest() == (newer, state(2))
    assert names(tmp_path) == ["step-000002"]


def test_a_checkpoint_without_its_marker_does_not_count_and_is_replaced(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=2)
    for step in (1, 2):
        checkpoints.save(state(step), 10, write_part)
    (checkpoints.path(2) / rundir.CHECKPOINT_COMPLETE).unlink()
    assert checkpoints.newest() == (checkpoints.path(1), state(1))
    assert not checkpoints.has(2)
    checkpoints.save(state(2), 10, write_part)
    assert checkpoints.newest() == (checkpoints.path(2), state(2))


def test_incomplete_ones_are_swept_but_the_newest_complete_one_never(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    for step in (1, 2):
        checkpoints.path(step).mkdir(parents=True)
    (tmp_path / rundir.CHECKPOINTS / "notes.txt").write_text("mine")
    checkpoints.save(state(3), 10, write_part)
    assert names(tmp_path) == ["notes.txt", "step-000003"]


def test_no_room_is_an_error_with_both_numbers_and_nothing_written(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    with pytest.raises(NoSpaceError, match=r"needs about 9313225\.75 GiB and .* GiB free"):
        checkpoints.save(state(1), 10**16, write_part)
    assert names(tmp_path) == []


def test_an_unreadable_state_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    path = checkpoints.save(state(1), 10, write_part)
    (path / STATE).write_text("{")
    with pytest.raises(ValueError, match="marked complete"):
        checkpoints.newest()


def test_another_number_of_learners_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"2 learners with ZeRO-2 .* the layout has 4 with ZeRO-3"):
        state(5).check_fits(TrainingState(num_learners=4, zero_stage=3))
    state(5).check_fits(TrainingState(num_learners=2, zero_stage=2))


def test_a_step_moves_step_cursor_and_version() -> None:
    assert state(5).after_step(32, 6) == state(6)
