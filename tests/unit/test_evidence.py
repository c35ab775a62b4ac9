"""What each process is doing, taken from real processes: running, stopped, dead, with and without py-spy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from watch_support import await_that

from rltui.cluster.relay_client import RelayClient
from rltui.errors import RltuiError
from rltui.onnode import evidence, processes, progress, rundir
from rltui.onnode.attempt_runner import AttemptRunner
from rltui.onnode.sampler import host_name
from rltui.service.read_evidence import look_at_process, read_evidence
from rltui.service.sampling import _sees_gpus

ROOT = Path(__file__).parents[2]
ROLE = """
import sys, time
from trainers.roles.flight_recorder import RECORD, tell_stacks
tell_stacks()
def waiting_for_the_others():
    with RECORD.during("all learners", "all_reduce", 1, 2, 4096, "a bucket"):
        print("here", flush=True)
        time.sleep(600)
with RECORD.during("all learners", "broadcast", 1, 2, 8):
    pass
waiting_for_the_others()
"""


SLOW_WRITER = """
import ctypes, os, time
from rltui.onnode import rundir
stacks = os.memfd_create(rundir.STACKS_MEMORY)
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def write(number):
    os.write(stacks, b"first half, ")
    time.sleep(5 * {poll_s})
    os.write(stacks, b"second half")
ctypes.CDLL(None).signal(rundir.STACKS_SIGNAL, write)
print("here", flush=True)
while True:
    time.sleep(600)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes of the attempt ``tmp_path.name``, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: str, await_word: bool = True) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), rundir.ATTEMPT_VARIABLE: tmp_path.name}
        started.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        if await_word:
            out = started[-1].stdout
            assert out is not None
            assert out.readline() == b"here\n"
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=60)


def taken(attempt: Path) -> dict[int, dict[str, Any]]:
    """Take evidence; what it says of each process."""
    evidence.folder(str(attempt))
    Path(evidence.folder(str(attempt))).mkdir(exist_ok=True)
    evidence.take(str(attempt), attempt.name, "n1", "17")
    answer = json.loads((attempt / "evidence" / "17-n1.json").read_text())
    assert (answer["id"], answer["host"], answer["versions"]["python"]) == ("17", "n1", sys.version.split()[0])
    return {one["pid"]: one for one in answer["processes"]}


def await_state(process: subprocess.Popen[bytes], state: str) -> None:
    await_that(lambda: (stat := processes.read_stat(process.pid)) and stat.state == state, f"it is in state {state}")


def test_stopped_dead_and_waiting_processes_are_told_apart(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    waiting, stopped = start(sys.executable, "-c", ROLE), start(sys.executable, "-c", ROLE)
    dead = start("sleep", "600", await_word=False)
    await_that(lambda: processes.title(dead.pid).startswith("sleep"), "it runs its program")
    stopped.send_signal(signal.SIGSTOP)
    await_state(waiting, "S")  # it has said that it is here, and may still be on its way to sleep
    await_state(dead, "S")
    await_state(stopped, "T")
    found = taken(tmp_path)
    assert [found[one.pid]["state"] for one in (waiting, stopped, dead)] == ["S", "T", "S"]
    for one in (waiting, stopped):  # the record is read from the outside
        assert [(call["seq"], call["op"], bool(call["ended"])) for call in found[one.pid]["collectives"]] == [
            (1, "broadcast", True),
            (2, "all_reduce", False),
        ]
    if evidence.py_spy():
        assert "waiting_for_the_others" in found[stopped.pid]["stack"]
    assert "stack" not in found[dead.pid]
    assert waiting.poll() is None, "looking at a process changes nothing"


def test_without_py_spy_roles_tell_their_stacks_and_others_are_left_alone(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "py_spy", lambda: "")
    role = start(sys.executable, "-c", ROLE)
    other = start(sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)")
    for _ in range(2):  # each time only what is new
        found = taken(tmp_path)
        assert found[role.pid]["stack_by"] == "faulthandler"
        assert found[role.pid]["stack"].count("in waiting_for_the_others") == 1
    assert (found[other.pid]["stack_by"], found[other.pid]["stack"]) == ("", "no stack: py-spy is not installed")
    assert other.poll() is None, "it has no handler for the signal, which would have ended it"
    assert role.poll() is None


def test_a_role_that_was_asked_a_hundred_times_still_tells(
    start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "py_spy", lambda: "")
    told = "tell_stacks()\nfrom trainers.roles import flight_recorder as it\nit.os.write(it._stacks, bytes(5 << 20))"
    role = start(sys.executable, "-c", ROLE.replace("tell_stacks()", told, 1))
    by, stack = evidence._stack(role.pid)
    assert (by, stack.count("most recent call first")) == ("faulthandler", 1)


def test_a_stack_that_is_written_slowly_is_waited_for_to_its_end(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "py_spy", lambda: "")
    monkeypatch.setattr(evidence, "STACK_S", 120.0)
    role = start(sys.executable, "-c", SLOW_WRITER.format(poll_s=evidence.POLL_S))
    assert taken(tmp_path)[role.pid]["stack"] == "first half, second half"


def test_a_request_in_the_attempt_is_answered_by_the_sampler(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    role = start(sys.executable, "-c", ROLE)
    old = evidence.ask(str(tmp_path), "of before the sampler")
    words = ("--attempt", str(tmp_path), "--mark", tmp_path.name, "--interval", "0.1")
    sampler = start(sys.executable, "-m", "rltui.onnode.sampler", *words, await_word=False)
    await_that(lambda: evidence.speaking(str(tmp_path)), "the sampler speaks")
    sampler.send_signal(signal.SIGSTOP)
    await_state(sampler, "T")
    new = evidence.ask(str(tmp_path), "a test")
    assert not evidence.is_answered(str(tmp_path), new)
    sampler.send_signal(signal.SIGCONT)
    await_that(lambda: evidence.is_answered(str(tmp_path), new), "the answer")
    (answer,) = (tmp_path / "evidence").glob(f"{new}-*.json")
    assert role.pid in {one["pid"] for one in json.loads(answer.read_text())["processes"]}
    assert not list((tmp_path / "evidence").glob(f"{old}-*.json"))


def test_one_process_is_looked_at_through_the_relay_or_it_is_said_why_not(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], client: RelayClient
) -> None:
    role, host = start(sys.executable, "-c", ROLE), host_name()
    with pytest.raises(RltuiError, match=f"No sampler speaks on {host}"):
        look_at_process(client, str(tmp_path), host, role.pid)
    words = ("--attempt", str(tmp_path), "--mark", tmp_path.name, "--interval", "0.1")
    start(sys.executable, "-m", "rltui.onnode.sampler", *words, await_word=False)
    await_that(lambda: evidence.speaking(str(tmp_path)), "the sampler speaks")
    seen = look_at_process(client, str(tmp_path), host, role.pid, 60.0)
    assert (seen.pid, seen.host) == (role.pid, host)
    assert seen.stack_by in ("py-spy", "faulthandler")
    assert "waiting_for_the_others" in seen.stack
    assert read_evidence(client, str(tmp_path)) is None, "it is no evidence of the attempt as a whole"
    with pytest.raises(RltuiError, match="is not there any more, or is none of this run's"):
        look_at_process(client, str(tmp_path), host, os.getpid(), 60.0)


class Standing(AttemptRunner):
    """An attempt whose trainer stands still, looked at in a test."""

    def look(self) -> None:
        """Look for a standstill now."""
        self._watched_at = 0.0
        self._watch()


def test_evidence_is_asked_for_once_a_standstill_and_before_hands_off_mode_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = tmp_path / "run" / "attempts" / "01"
    attempt.mkdir(parents=True)
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat >>{tmp_path}/told\n")
    pager.chmod(0o755)
    job = {"uuid": uuid.uuid4().hex, "deadlines_s": {"grace": 5}, "notify": {"command": [str(pager)]}}
    attempt.joinpath("job.json").write_text(json.dumps(job))
    attempt.joinpath("gpu-n1.jsonl").write_text("{}\n")  # a node that speaks, and has not answered
    (tmp_path / "run" / rundir.HANDS_OFF).write_text('{"on": true}')
    runner = Standing(str(attempt))
    request = attempt / "evidence" / "request.json"
    runner.look()
    assert not request.exists(), "nothing stands still"
    monkeypatch.setattr(progress, "standstill", lambda attempt, from_s: "no new step for 700 s, a step takes 2.0 s")
    runner.look()
    asked = json.loads(request.read_text())
    runner.look()
    assert json.loads(request.read_text()) == asked
    assert runner.request is None, "the node has not answered yet"
    answer = {"host": "n1", "at": time.time(), "processes": [{"pid": 7, "rank": "2", "state": "T"}]}
    (attempt / "evidence" / f"{asked['id']}-n1.json").write_text(json.dumps(answer))
    runner.look()
    assert runner.request is not None
    assert runner.hung == asked["reason"]
    for telling in runner.tellings:
        telling.join(60)
    told = (tmp_path / "told").read_text()
    assert told.count("no new step for 700 s, a step takes 2.0 s\nrank 2 (pid 7 on n1) is stopped") == 1, (
        "with no cockpit open, and with whom the others wait for"
    )


class Broken(AttemptRunner):
    """An attempt that ends by a mistake of rltui's own."""

    def preflight(self) -> None:
        """Make the mistake."""
        raise AttributeError("no such thing")


def test_an_attempt_that_rltui_itself_breaks_ends_with_a_word_and_a_traceback(tmp_path: Path) -> None:
    job = {"uuid": uuid.uuid4().hex, "code": str(ROOT), "deadlines_s": {"grace": 5}}
    tmp_path.joinpath("job.json").write_text(json.dumps(job))
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
    code += f"from test_evidence import Broken; sys.exit(Broken({str(tmp_path)!r}).run())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    end = json.loads(tmp_path.joinpath("end.json").read_text())
    assert (done.returncode, end["outcome"]) == (1, "failed"), done.stderr
    assert "a bug: AttributeError: no such thing" in end["reason"]
    assert "in preflight" in tmp_path.joinpath("out.log").read_text()


def test_the_cards_of_a_node_are_told_while_its_sampler_writes() -> None:
    line = json.dumps({"t": 1.0, "host": "n1", "gpus": [{"i": 0}]}).encode()
    client = SimpleNamespace(tail=lambda *_: SimpleNamespace(data=line + b"\n" + line[:20]))
    assert _sees_gpus(client, "attempts/01", "n1")  # type: ignore[arg-type]
