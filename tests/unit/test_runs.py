"""Run directories, attempts, code snapshots and the journal, through a real relay."""

import json
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec import structs

import trainers
from rltui.cluster.hosts import LocalCluster
from rltui.cluster.relay_client import RelayClient
from rltui.errors import RltuiError
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.layout.schema import Deadlines, Layout
from rltui.onnode import rundir
from rltui.onnode.checkpoints import newest_checkpoint
from rltui.paths import ensure_private
from rltui.runs.code_snapshot import LEFT_OUT, CodeSnapshot, take_snapshot
from rltui.runs.directory import (
    Attempt,
    ClaimedError,
    _reason,
    attempt_numbers,
    job,
    make_attempt,
    make_run,
    plan_attempt,
    stage_code,
    write_run,
)
from rltui.runs.journal import Journal
from rltui.service.submit import attempt_files

LAYOUT = load_layout(resolve("local/grpo-tiny")).layout


def made(client: RelayClient, root: Path, layout: Layout = LAYOUT) -> Attempt:
    """The first attempt of a new run."""
    code = stage_code(client, str(root), take_snapshot())
    attempt = plan_attempt(str(root), "grpo-tiny-0001", 1, code)
    make_run(client, str(root), attempt.run_id)
    write(client, attempt, layout)
    write_run(client, str(root), attempt.run_id, layout, "local")
    return attempt


def write(client: RelayClient, attempt: Attempt, layout: Layout = LAYOUT) -> None:
    files = {"layout.yaml": dump_layout(layout), "job.json": json.dumps(job(layout, attempt, sys.executable))}
    make_attempt(client, attempt, {name: text.encode() for name, text in files.items()})


def test_a_run_has_its_files_and_nobody_else_may_read_them(client: RelayClient, tmp_path: Path) -> None:
    attempt = made(client, tmp_path)
    run = json.loads((tmp_path / attempt.run_id / "run.json").read_text())
    assert (run["name"], run["cluster"], run["gpu"]) == ("grpo-tiny", "local", "cpu")
    job = json.loads(Path(attempt.path, "job.json").read_text())
    assert job["argv"][1:] == ["-m", "trainers.grpo", "--attempt", attempt.path]
    assert job["resources"] == {"cpus": 3, "gpus": 0}
    assert load_layout(Path(attempt.path, "layout.yaml")).layout == LAYOUT
    for path in (tmp_path / attempt.run_id).rglob("*"):
        assert path.is_symlink() or path.stat().st_mode & 0o077 == 0, path


def test_a_layout_says_how_long_ray_may_take(client: RelayClient, tmp_path: Path) -> None:
    patient = structs.replace(LAYOUT, deadlines=Deadlines(ray_s=600))
    attempt = made(client, tmp_path, patient)
    assert json.loads(Path(attempt.path, "job.json").read_text())["deadlines_s"]["ray_up"] == 600


def test_hostile_values_travel_as_data(client: RelayClient, tmp_path: Path) -> None:
    project = "$(touch pwned) `touch pwned` ; \" ' \\ -rf"
    layout = load_layout(resolve("local/grpo-tiny"), [f"tracking.project={json.dumps(project)}"]).layout
    attempt = made(client, tmp_path, layout)
    assert load_layout(Path(attempt.path, "layout.yaml")).layout.tracking.project == project
    assert not list(tmp_path.rglob("pwned"))


def test_code_that_cannot_be_unpacked_names_the_cause_and_leaves_nothing(client: RelayClient, tmp_path: Path) -> None:
    snapshot = CodeSnapshot(digest="d", contents={"a.py": b"1", "b" * 300: b"2"})
    with pytest.raises(RltuiError, match=r"Cannot unpack the code in .*: File name too long"):
        stage_code(client, str(tmp_path), snapshot)
    assert not list((tmp_path / ".code").iterdir()), "where the disk is full, each try would fill it further"


def test_the_staged_code_is_whole_and_runs_on_its_own(client: RelayClient, tmp_path: Path) -> None:
    root = tmp_path / "not/yet/there"
    folder = stage_code(client, str(root), take_snapshot())
    assert root.stat().st_mode & 0o077 == 0, "it will hold the names of runs"
    needed = ["layout.load", "placement.simulate", "hardware.models", "onnode.supervise", "onnode.slurm_job"]
    names = ", ".join(f"rltui.{name}" for name in [*needed, "onnode.ray_nodes", "onnode.node_check"])
    entries = ", ".join(f"trainers.{name}" for name in ("grpo", "ppo", "opd", "evaluate", "export", "memory_log"))
    program = f"import {names}, {entries}; print(rltui.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": folder, "PATH": os.environ["PATH"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(folder)
    assert not Path(folder, "rltui", "tui").exists()


def test_all_that_trainers_import_of_rltui_is_staged() -> None:
    words = re.compile(r"^\s*(?:from|import) rltui\.(\w+)", re.MULTILINE)
    missing = {
        f"{file.name}: {room}"
        for file in Path(trainers.__file__).parent.rglob("*.py")
        for room in words.findall(file.read_text(encoding="utf-8"))
        if room in LEFT_OUT
    }
    assert not missing


def test_the_same_code_is_packed_and_stored_once(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert take_snapshot().digest == take_snapshot().digest
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: stage_code(client, str(tmp_path), take_snapshot()), range(4)))
    assert len(folders) == 1
    assert (Path(folders.pop()) / ".whole").exists()
    assert [path.name for path in (tmp_path / ".code").iterdir()] == [take_snapshot().digest]
    monkeypatch.delattr(CodeSnapshot, "archive")
    assert stage_code(client, str(tmp_path), take_snapshot()) == str(tmp_path / ".code" / take_snapshot().digest)


def test_code_that_a_purge_of_old_files_has_thinned_out_is_stored_anew(client: RelayClient, tmp_path: Path) -> None:
    snapshot = CodeSnapshot(digest="d", contents={"a.py": b"1", "b.py": b"2"})
    folder = Path(stage_code(client, str(tmp_path), snapshot))
    for name in (".whole", "b.py"):
        (folder / name).unlink()
    assert stage_code(client, str(tmp_path), snapshot) == str(folder)
    assert sorted(path.name for path in folder.iterdir()) == [".whole", "a.py", "b.py"]
    assert [path.name for path in folder.parent.iterdir()] == ["d"]


def test_of_many_at_once_exactly_one_gets_the_next_attempt(client: RelayClient, tmp_path: Path) -> None:
    first = made(client, tmp_path)

    def claim(number: int) -> str | None:
        attempt = plan_attempt(str(tmp_path), first.run_id, number, first.code)
        try:
            write(client, attempt)
        except ClaimedError:
            return None
        return attempt.uuid

    with ThreadPoolExecutor(4) as pool:
        for number in range(2, 42):
            [winner] = filter(None, pool.map(claim, [number] * 4))
            attempt = tmp_path / first.run_id / "attempts" / f"{number:02}"
            assert json.loads((attempt / "job.json").read_text())["uuid"] == winner
            assert sorted(path.name for path in attempt.iterdir()) == ["job.json", "layout.yaml"]
    assert attempt_numbers(client, f"{tmp_path}/{first.run_id}") == list(range(1, 42))
    assert not list((tmp_path / first.run_id / "attempts").glob(".new-*"))


def test_a_run_root_that_cannot_be_written_is_named(client: RelayClient, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RltuiError, match="Not a directory") as caught:
        make_run(client, str(tmp_path / "file"), "grpo-tiny-0001")
    assert "RLTUI_RUN_ROOT" in caught.value.hint
    assert "run_root: of the cluster" in caught.value.hint


def test_who_stands_in_a_folder_that_is_gone_can_submit_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(tmp_path / "runs"))
    cluster = LocalCluster()
    assert "layout.yaml" in attempt_files(cluster, LAYOUT, plan_attempt(cluster.run_root, "r-1", 1, "/code"))


def test_the_journal_survives_a_torn_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    journal.write("submit", "intent", run="a")
    with journal.path.open("a") as stream:
        stream.write('{"action": "sub')
    assert [entry["run"] for entry in journal.entries()] == ["a"]
    journal.write("submit", "intent", run="b")
    assert [entry["run"] for entry in journal.entries()] == ["a", "b"]
    assert [entry["run"] for entry in Journal(tmp_path / "state").entries()] == ["a", "b"]
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert journal.path.stat().st_mode & 0o777 == 0o600


def test_nothing_happens_without_a_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").symlink_to("/dev/full")
    with pytest.raises(RltuiError, match="No space left") as caught:
        Journal(tmp_path).write("submit", "intent", run="a")
    assert "Nothing was done" in caught.value.hint


@contextmanager
def room_for(journal: Journal, room: int) -> Iterator[None]:
    """A disk that takes so many bytes more of the journal: the write that meets its end takes a part, as there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_entry_of_which_the_disk_took_only_the_beginning_is_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("submit", "intent", run="a")
    with room_for(journal, 20), pytest.raises(RltuiError, match="No space left"):
        journal.write("submit", "intent", run="b")
    journal.write("submit", "intent", run="c")
    assert [entry["run"] for entry in journal.entries()] == ["a", "c"]


def _refused(journal: Journal) -> None:
    with ExitStack() as full, journal.around("cancel", run="b"):
        full.enter_context(room_for(journal, 20))
        raise RltuiError("Slurm said no")


def test_a_disk_that_fills_up_meanwhile_does_not_make_undone_what_was_done(tmp_path: Path) -> None:
    journal, done = Journal(tmp_path), []
    with ExitStack() as full, journal.around("cancel", run="a"):
        full.enter_context(room_for(journal, 20))
        done.append("a")
    with pytest.raises(RltuiError, match="Slurm said no"):
        _refused(journal)
    with room_for(journal, 20), pytest.raises(RltuiError, match="No space left"), journal.around("cancel", run="c"):
        done.append("c")
    assert done == ["a"]
    assert [(entry["run"], entry["phase"]) for entry in journal.entries()] == [("a", "intent"), ("b", "intent")]


def test_threads_that_read_the_journal_at_once_read_each_entry_once(tmp_path: Path) -> None:
    journal, threads = Journal(tmp_path), 4
    entry = json.dumps({"action": "submit", "phase": "intent", "reason": "x" * 200})
    journal.path.write_text(f"{entry}\n" * 20_000)  # so many that reading them takes several turns of a thread
    at_once = threading.Barrier(threads)
    with ThreadPoolExecutor(threads) as pool:
        for one in [pool.submit(lambda: (at_once.wait(), journal.entries())) for _ in range(threads)]:
            one.result()
    assert len(journal.entries()) == 20_000
    journal.write("cancel", "intent")
    assert journal.entries()[-1]["action"] == "cancel"


def test_private_directories_are_private(tmp_path: Path) -> None:
    assert ensure_private(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(RltuiError, match="can be written by others"):
        ensure_private(shared)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RltuiError, match="Cannot make"):
        ensure_private(blocked / "x")


def test_stages_are_history_once_and_a_reader_never_sees_half(tmp_path: Path) -> None:
    attempt = str(tmp_path)
    for stage in ("preflight", "training", "saving", "training", "saving", "ended"):
        rundir.write_stage(attempt, stage, step=3, steps=9)
    record = rundir.read_json(os.path.join(attempt, rundir.STAGE)) or {}
    assert [entry["stage"] for entry in record["history"]] == ["preflight", "training", "saving", "ended"]
    assert (record["step"], record["steps"]) == (3, 9)
    with pytest.raises(ValueError, match="unknown stage"):
        rundir.write_stage(attempt, "dreaming")
    assert not [name for name in os.listdir(attempt) if name.startswith(".tmp")]


def test_the_newest_complete_checkpoint_counts(tmp_path: Path) -> None:
    assert newest_checkpoint(str(tmp_path)) is None
    for step, complete in ((999_999, True), (1_000_000, True), (1_000_050, False)):
        folder = tmp_path / "checkpoints" / f"step-{step:06d}"
        folder.mkdir(parents=True)
        if complete:
            (folder / "COMPLETE").touch()
    assert str(newest_checkpoint(str(tmp_path))).endswith("step-1000000")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("mkdir: cannot create directory '/x': Permission denied\n", "Permission denied"),
        ("chgrp: invalid group: ‘rlteam’\n", "invalid group: ‘rlteam’"),
        ("tar: a: Cannot open\ntar: Exiting with failure status due to previous errors\n", "Cannot open"),
        ("", "no reason was given"),
    ],
)
def test_the_reason_is_what_a_tool_said_last(said: str, reason: str) -> None:
    assert _reason(said) == reason
