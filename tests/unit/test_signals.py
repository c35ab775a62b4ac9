"""Signals to runs: which processes get them, what is said before, and whose jobs they are for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_node_shell import ROW, context_of, run_of

from rltui.cluster.hosts import LocalCluster
from rltui.errors import RltuiError, UsageError
from rltui.onnode import pass_on, processes, rundir
from rltui.runs.journal import Journal, actions
from rltui.service.actions import SIGNALS, preview_signal, send_signal, signal_name

WAITS = "import signal, sys; print('up', flush=True); sys.stdin.read()"
LISTENS = (
    "import signal, sys\n"
    "signal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))\n"
    "print('up', flush=True); sys.stdin.read()"
)


class Started:
    """Processes that carry a mark."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.all: list[subprocess.Popen[str]] = []

    def start(self, code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "RLTUI_ATTEMPT": self.mark},
        )  # fmt: skip
        self.all.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process


@pytest.fixture
def started() -> Iterator[Started]:
    processes_here = Started()
    yield processes_here
    for process in processes_here.all:
        process.kill()
        process.communicate()


def events(folder: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (folder / rundir.EVENTS).read_text().splitlines()]


def test_only_what_waits_for_a_signal_gets_it(started: Started, tmp_path: Path) -> None:
    listens, waits = started.start(LISTENS), started.start(WAITS)
    pass_on.pass_on(str(tmp_path), started.mark, signal.SIGUSR1)
    assert listens.stdout is not None
    assert listens.stdout.readline() == "got it\n"
    assert waits.poll() is None, "one without a handler would have ended by it"
    pass_on.pass_on(str(tmp_path), started.mark, signal.SIGQUIT)
    first, second = events(tmp_path)
    assert first.startswith(f"SIGUSR1: passed on to {listens.pid} ")
    assert second == "SIGQUIT: no process of the run has a handler for it, so none got it"
    pass_on.pass_on(str(tmp_path / "away"), started.mark, signal.SIGUSR1)  # a handler that raises ends the driver
    assert listens.stdout.readline() == "got it\n"


def local(tmp_path: Path, process: subprocess.Popen[str], **record: Any) -> tuple[Any, Any]:
    attempt = tmp_path / "attempts" / "01"
    attempt.mkdir(parents=True)
    who = {"pid": process.pid, "start_time": processes.start_time(process.pid), "signals": pass_on.NAMES, **record}
    (attempt / rundir.SUPERVISOR).write_text(json.dumps(who))
    context: Any = SimpleNamespace(
        cluster=LocalCluster(), journal=Journal(tmp_path / "state"), name="local", require_own=lambda _: None
    )
    return context, run_of(cluster="local", path=str(tmp_path), job_id=str(process.pid))


@pytest.fixture
def run_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").mkdir(mode=0o700)
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_a_signal_reaches_exactly_the_supervisor_and_is_journalled(started: Started, run_root: Path) -> None:
    context, run = local(run_root, started.start(LISTENS))
    shown = preview_signal(context, run, "USR1")
    assert shown.commands == ("rltui cancel a-1 --signal USR1",)
    assert any("rltui's own trainers have none" in sentence for sentence in shown.consequences)
    assert send_signal(context, run, "USR1") == "SIGUSR1 was sent to a-1."
    stdout = started.all[0].stdout
    assert stdout is not None
    assert stdout.readline() == "got it\n"
    [told] = actions(context.journal.entries())
    assert (told.action, told.outcome, told.words) == ("signal", "done", ("SIGUSR1",))


def test_a_pid_that_is_another_process_by_now_gets_nothing(started: Started, run_root: Path) -> None:
    context, run = local(run_root, started.start(WAITS), start_time="1")
    assert "nothing was sent" in send_signal(context, run, "KILL")
    assert started.all[0].poll() is None
    assert [entry["phase"] for entry in context.journal.entries()] == ["intent", "failed"]


def test_an_older_driver_is_not_sent_what_would_end_it(started: Started, run_root: Path) -> None:
    context, run = local(run_root, started.start(WAITS))
    path = run_root / "attempts/01" / rundir.SUPERVISOR
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "signals"}))
    with pytest.raises(RltuiError, match="older rltui"):
        send_signal(context, run, "USR1")
    assert "saved" in " ".join(preview_signal_kill(context, run))


def preview_signal_kill(context: Any, run: Any) -> tuple[str, ...]:
    return preview_signal(context, run, "KILL").consequences


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("USR1", ["--batch", "--signal=USR1"]),
        ("USR2", ["--batch", "--signal=USR2"]),
        ("KILL", ["--full", "--signal=KILL"]),
    ],
)
def test_slurm_is_told_once_for_exactly_this_job(tmp_path: Path, name: str, words: list[str]) -> None:
    context = context_of(tmp_path)
    assert context.cluster.signal("/runs/a-1/attempts/01", "7", name)
    assert context.cluster.client.calls[-1] == ["scancel", *words, "7"]
    others = context_of(tmp_path, row={**ROW, "comment": "rltui:of-another-run"})
    assert not others.cluster.signal("/runs/a-1/attempts/01", "7", name)
    assert others.cluster.client.count("scancel") == 0


def test_what_has_no_process_gets_no_signal(tmp_path: Path) -> None:
    for state in ("queued", "failed"):
        with pytest.raises(RltuiError, match="no process"):
            send_signal(context_of(tmp_path), run_of(state=state), "USR1")


def test_signals_are_named_as_people_write_them() -> None:
    assert [signal_name(word) for word in ("usr1", "SIGUSR1", "KILL")] == ["USR1", "USR1", "KILL"]
    with pytest.raises(UsageError, match="no signal") as raised:
        signal_name("HUP")
    assert all(name in raised.value.hint for name in SIGNALS)
