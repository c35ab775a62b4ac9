"""Checkpoints: complete or not there, the newest kept, and no save begun without room."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
from trainer_support import LAYOUT, save_checkpoint

from rltui.layout.load import load_layout
from rltui.onnode import rundir
from trainers.checkpoint import STATE, Checkpoints, NoSpaceError, TrainingState
from trainers.durable import files_of_rank, flush_to_disk
from trainers.resuming import check_fits, initial_state, restore

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
    path = save_checkpoint(checkpoints, state(7), 10, write_part)
    assert checkpoints.newest() == (path, state(7))
    assert checkpoints.has(7)
    assert not checkpoints.has(8)
    assert (path / "part").read_text() == "weights"


def test_the_marker_is_written_when_all_the_rest_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        marked = list(tmp_path.rglob(rundir.CHECKPOINT_COMPLETE))
        flushed.append(f"{path.relative_to(tmp_path)}{' after the marker' if marked else ''}")

    def write(folder: str) -> None:
        part = Path(folder) / "deepspeed"
        part.mkdir()
        names = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
        for path in (*(part / name for name in names), Path(folder) / "random-state-deepspeed-0000.pt"):
            path.write_text("bytes")
        (part / "zero_pp_rank_1_mp_rank_00_optim_states.pt").write_text("of another node")
        flush_to_disk(files_of_rank(Path(folder), "deepspeed", 0))

    monkeypatch.setattr(os, "fsync", fsync)
    save_checkpoint(Checkpoints(str(tmp_path), keep=1), state(1), 10, write)
    draft = "checkpoints/.saving-step-000001"
    assert flushed == [
        f"{draft}/deepspeed/mp_rank_00_model_states.pt",
        f"{draft}/deepspeed/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        f"{draft}/random-state-deepspeed-0000.pt",
        f"{draft}/deepspeed",
        f"{draft}/state.json",
        draft,
        "checkpoints",
        "checkpoints/step-000001/COMPLETE after the marker",
        "checkpoints/step-000001 after the marker",
    ]


def test_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=2)
    for step in (10, 20, 30, 40):
        save_checkpoint(checkpoints, state(step), 10, write_part)
    assert names(tmp_path) == ["step-000030", "step-000040"]


def test_an_old_one_that_cannot_be_removed_takes_nothing_from_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over NFS while somebody reads in it."""
    checkpoints, remove = Checkpoints(str(tmp_path), keep=1), shutil.rmtree
    save_checkpoint(checkpoints, state(1), 10, write_part)

    def busy(path: Path) -> None:
        if path.name == "step-000001":
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", busy)
        newer = save_checkpoint(checkpoints, state(2), 10, write_part)
    assert checkpoints.newest() == (newer, state(2))
    save_checkpoint(checkpoints, state(3), 10, write_part)
    assert names(tmp_path) == ["step-000003"]


def test_a_failed_write_leaves_the_older_checkpoint_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    older = save_checkpoint(checkpoints, state(1), 10, write_part)

    def fail(folder: str) -> None:
        write_part(folder)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        save_checkpoint(checkpoints, state(2), 10, fail)
    assert checkpoints.newest() == (older, state(1))
    newer = save_checkpoint(checkpoints, state(2), 10, write_part)
    assert checkpoints.newest() == (newer, state(2))
    assert names(tmp_path) == ["step-000002"]


def test_a_checkpoint_without_its_marker_does_not_count_and_is_replaced(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=2)
    for step in (1, 2):
        save_checkpoint(checkpoints, state(step), 10, write_part)
    (checkpoints.path(2) / rundir.CHECKPOINT_COMPLETE).unlink()
    assert checkpoints.newest() == (checkpoints.path(1), state(1))
    assert not checkpoints.has(2)
    save_checkpoint(checkpoints, state(2), 10, write_part)
    assert checkpoints.newest() == (checkpoints.path(2), state(2))


def test_incomplete_ones_are_swept_but_the_newest_complete_one_never(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    for step in (1, 2):
        checkpoints.path(step).mkdir(parents=True)
    (tmp_path / rundir.CHECKPOINTS / "notes.txt").write_text("mine")
    save_checkpoint(checkpoints, state(3), 10, write_part)
    assert names(tmp_path) == ["notes.txt", "step-000003"]


def test_no_room_is_an_error_with_both_numbers_and_nothing_written(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    with pytest.raises(NoSpaceError, match=r"needs about 9313225\.75 GiB and .* GiB free"):
        save_checkpoint(checkpoints, state(1), 10**16, write_part)
    assert names(tmp_path) == []


def test_an_unreadable_state_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=1)
    path = save_checkpoint(checkpoints, state(1), 10, write_part)
    (path / STATE).write_text("{")
    with pytest.raises(ValueError, match="marked complete"):
        checkpoints.newest()


def test_what_changed_since_the_checkpoint_is_named() -> None:
    assert state(5).ranks_changed(TrainingState(num_learners=2, zero_stage=2)) == ()
    assert state(5).ranks_changed(TrainingState(num_learners=4, zero_stage=2)) == ("learner",)
    assert state(5).ranks_changed(TrainingState(num_learners=2, zero_stage=3)) == ("learner",)
    both = TrainingState(num_learners=2, zero_stage=2, num_critics=2, critic_zero_stage=3)
    assert both.ranks_changed(TrainingState(num_learners=1, zero_stage=2, num_critics=3, critic_zero_stage=3)) == (
        "learner",
        "critic",
    )


def test_while_it_is_resharded_the_stage_says_from_what_to_what(tmp_path: Path) -> None:
    session, fleet = MagicMock(), MagicMock()
    fleet.checkpoint_bytes.return_value = 1
    saved = TrainingState(step=5, num_learners=2, zero_stage=2, num_critics=1, critic_zero_stage=3)
    for words, changes in {
        "2 learners with ZeRO-2, resharding it for 2 learners with ZeRO-3": {"zero_stage": 3},
        "1 critic with ZeRO-3, resharding it for 4 critics with ZeRO-3": {"num_critics": 4},
    }.items():
        here = msgspec.structs.replace(saved, step=0, optimizer="adamw", **changes)
        assert restore(tmp_path, saved, here, session, fleet).optimizer == "adamw"
        session.stages.show.assert_called_with("loading", f"step 5 has shards of {words}")


@pytest.mark.parametrize(("free", "fits"), [(1.9, False), (3.0, True)])
def test_resharding_needs_room_for_two_copies_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, fits: bool
) -> None:
    saved, fleet = state(5), MagicMock()
    here = msgspec.structs.replace(saved, step=0, zero_stage=3)
    fleet.checkpoint_bytes.return_value = size = 10**9
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free * size))
    if fits:
        restore(tmp_path, saved, here, MagicMock(), fleet)
    else:
        with pytest.raises(NoSpaceError, match="a checkpoint needs about"):
            restore(tmp_path, saved, here, MagicMock(), fleet)
    assert fleet.restore.called is fits


@pytest.mark.parametrize(
    "here",
    [
        TrainingState(num_learners=4, zero_stage=0),
        TrainingState(num_learners=2, zero_stage=2, num_critics=2, critic_zero_stage=2),
    ],
)
def test_what_cannot_load_the_checkpoint_is_refused_in_words(here: TrainingState) -> None:
    with pytest.raises(ValueError, match=r"by \d (learners|critics) with ZeRO-\d and fits no others .* roles\."):
        state(5).ranks_changed(here)


def test_the_states_of_an_8_bit_optimizer_fit_only_the_ranks_that_wrote_them() -> None:
    small = TrainingState(step=5, num_learners=2, zero_stage=2, optimizer="adamw_8bit")
    assert small.ranks_changed(msgspec.structs.replace(small, step=0)) == ()
    with pytest.raises(ValueError, match="states of adamw_8bit fit no others"):
        small.ranks_changed(msgspec.structs.replace(small, num_learners=4))
    with pytest.raises(ValueError, match="trained with adamw_8bit, which adamw cannot go on from"):
        small.ranks_changed(msgspec.structs.replace(small, optimizer="adamw"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lora_rank=4"], "with all weights, which adapters of rank 4 and alpha 8 cannot"),
        (["precision=bf16"], "with fp32, which bf16 cannot"),
    ],
)
def test_other_adapters_or_another_precision_are_refused_before_any_role_is_placed(
    tmp_path: Path, words: list[str], said: str
) -> None:
    def session(*changes: str) -> Any:
        layout = load_layout(LAYOUT, [f"roles.learner.{change}" for change in changes]).layout
        return SimpleNamespace(run=tmp_path, layout=layout)

    assert check_fits(session(*words)) == 0, "nothing to go on from"
    saved = msgspec.structs.replace(initial_state(session().layout), step=5)
    save_checkpoint(Checkpoints(str(tmp_path), keep=1), saved, 10, write_part)
    assert check_fits(session()) == 5
    with pytest.raises(ValueError, match=f"step 5 was trained {said} go on from; .* old roles.learner"):
        check_fits(session(*words))


@pytest.mark.parametrize(("precision", "stage", "changed"), [("bf16", 1, ()), ("fp16", 3, ("learner",))])
def test_zero_0_that_was_run_as_1_goes_on_as_1_and_at_other_stages(
    precision: str, stage: int, changed: tuple[str, ...]
) -> None:
    def here(zero_stage: int, precision: str) -> TrainingState:
        words = [f"roles.learner.zero_stage={zero_stage}", f"roles.learner.precision={precision}"]
        return initial_state(load_layout(LAYOUT, words).layout)

    for old, new in ((0, stage), (stage, 0)):
        assert here(old, precision).ranks_changed(here(new, precision)) == changed
    with pytest.raises(ValueError, match=f"ZeRO-0 and fits no others .* with ZeRO-{stage} cannot"):
        here(0, "fp32").ranks_changed(here(stage, "fp32"))


def test_a_checkpoint_that_does_not_say_what_was_trained_is_taken() -> None:
    here = TrainingState(num_learners=2, zero_stage=2, adapters="all weights", precision="bf16")
    assert state(5).ranks_changed(here) == ()


def test_a_step_moves_step_cursor_and_version() -> None:
    assert state(5).after_step(32, 6) == state(6)
