"""Finding and ending processes by environment, pid and start time, with real processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from watch_support import await_that

from rltui.onnode import processes
from rltui.onnode.rundir import ATTEMPT_VARIABLE

Start = "Callable[..., subprocess.Popen[bytes]]"


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes, and ends those that are left."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(argv: list[str], attempt: str | None = None) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **({ATTEMPT_VARIABLE: attempt} if attempt else {})}
        started.append(subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def test_start_time_and_alive_name_one_process() -> None:
    mine = processes.start_time(os.getpid())
    assert mine is not None
    assert mine == processes.start_time(os.getpid())
    assert processes.alive(os.getpid(), mine)
    assert not processes.alive(os.getpid(), str(int(mine) + 1))
    assert processes.start_time(2**22 + 1) is None
    assert not processes.alive(2**22 + 1, mine)


def test_a_name_with_parentheses_and_spaces_is_parsed(tmp_path: os.PathLike[str], start: Start) -> None:
    program = os.path.join(tmp_path, "a) R 1 (")
    os.symlink("/bin/sleep", program)
    process = start([program, "600"])
    await_that(lambda: processes.title(process.pid).endswith(" 600"), "it runs its program")
    stat = processes.read_stat(process.pid)
    assert stat is not None
    assert stat.parent == os.getpid()
    assert stat.state in "RSD"


def test_a_zombie_is_dead(start: Start) -> None:
    process = start(["true"])
    await_that(lambda: (processes.read_stat(process.pid) or processes.Stat("", 0, 0, "", 0)).state == "Z", "it ended")
    assert not processes.alive(process.pid, processes.start_time(process.pid) or "")


def test_by_attempt_finds_exactly_the_attempt_s(start: Start) -> None:
    one, other = uuid.uuid4().hex, uuid.uuid4().hex
    mine = [start(["sleep", "600"], one).pid, start(["sleep", "601"], one).pid]
    start(["sleep", "602"], other)
    start(["sleep", "603"], one + "x")
    start(["sleep", "604", one])
    await_that(lambda: len(processes.by_attempt(one)) == 2, "both are found")
    found = processes.by_attempt(one)
    assert [process.pid for process in found] == sorted(mine)
    assert {process.title for process in found} == {"sleep 600", "sleep 601"}
    assert all(process.start_time == processes.start_time(process.pid) for process in found)


def test_a_process_that_overwrote_its_environment_belongs_to_its_parent_s_attempt(start: Start) -> None:
    attempt = uuid.uuid4().hex
    overwrite = (  # as setproctitle does for a long title; proc(5): fields 50 and 51 are where the environment is
        "import ctypes, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "fields = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
        "begin, end = int(fields[47]), int(fields[48])\n"
        "ctypes.memset(begin, 0, end - begin)\n"
        "print('done', flush=True)\n"
        "time.sleep(600)\n"
    )
    script = f'exec 3>&1; {sys.executable} -c "$0" >&3 & exec sleep 600'
    parent = start(["sh", "-c", script, overwrite], attempt)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"done\n"
    found = processes.by_attempt(attempt)
    [hidden] = [one for one in found if one.pid != parent.pid]
    with open(f"/proc/{hidden.pid}/environ", "rb") as stream:
        assert attempt.encode() not in stream.read()
    assert len(processes.end_all(attempt, 0.2)) == 2


def test_titles_keep_ray_s_names_and_lose_folders(start: Start) -> None:
    named = start(["bash", "-c", "exec -a 'ray::Learner.train' sleep 600"])
    await_that(lambda: processes.title(named.pid).startswith("ray::Learner.train"), "it has its name")
    hostile = start(["bash", "-c", "exec -a $'/opt/x/y\\e[31m\\n' sleep 600"])
    await_that(lambda: processes.title(hostile.pid).startswith("y"), "it has its name, without the folders")
    assert processes.title(hostile.pid).isprintable()
    assert processes.title(2**22 + 1) == ""
    ended = subprocess.Popen(["true"])
    await_that(lambda: (stat := processes.read_stat(ended.pid)) is not None and stat.state == "Z", "it is a zombie")
    assert processes.title(ended.pid) == "true"
    ended.wait()


def test_send_wants_the_exact_process(start: Start) -> None:
    process = start(["sleep", "600"])
    started = processes.start_time(process.pid) or ""
    assert processes.send(process.pid, str(int(started) - 1), signal.SIGKILL) is False
    assert process.poll() is None
    assert processes.send(process.pid, started, signal.SIGTERM) is True
    assert process.wait(60) == -signal.SIGTERM
    assert processes.send(process.pid, started, signal.SIGTERM) is False


def test_send_without_pidfd_wants_the_exact_process_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")  # as on Python 3.8
    test_send_wants_the_exact_process(start)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_send_where_the_kernel_or_a_filter_knows_no_pidfd_wants_the_exact_process_too(
    start: Start, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)  # Linux before 5.3 (RHEL 8), a container's seccomp filter
    test_send_wants_the_exact_process(start)


def test_end_all_ends_the_gentle_and_the_stubborn_and_spares_the_excluded(start: Start) -> None:
    attempt = uuid.uuid4().hex
    gentle = start(["sleep", "600"], attempt)
    stubborn = start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], attempt)
    spared, foreign = start(["sleep", "601"], attempt), start(["sleep", "602"])
    assert stubborn.stdout is not None
    assert stubborn.stdout.readline() == b"ready\n"
    ended = processes.end_all(attempt, 1.0, exclude=(spared.pid,))
    assert {gentle.pid, stubborn.pid} <= {process.pid for process in ended}
    assert spared.pid not in {process.pid for process in ended}
    assert gentle.wait(60) == -signal.SIGTERM
    assert stubborn.wait(60) == -signal.SIGKILL
    assert spared.poll() is None
    assert foreign.poll() is None
    assert [process.pid for process in processes.by_attempt(attempt)] == [spared.pid]


def test_end_all_ends_what_is_started_while_it_ends(start: Start) -> None:
    attempt = uuid.uuid4().hex
    # answers SIGTERM by starting another one, in a session of its own
    script = "trap 'setsid sleep 600 & exit' TERM; echo ready; while :; do sleep 0.05; done"
    process = start(["sh", "-c", script], attempt)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    processes.end_all(attempt, 1.0)
    assert processes.by_attempt(attempt) == []


def test_end_all_never_ends_a_process_that_took_over_a_pid(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    bystander = start(["sleep", "600"])
    old = processes.Process(bystander.pid, str(int(processes.start_time(bystander.pid) or "1") - 1), "sleep 600")
    looks = iter([[old], []])
    monkeypatch.setattr(processes, "by_attempt", lambda _: next(looks))
    assert processes.end_all("any", 0.1) == [old]
    assert bystander.poll() is None


def test_end_all_of_nothing_is_quick_and_spares_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=time.monotonic))  # without sleep: no wait
    assert processes.end_all(uuid.uuid4().hex, 30) == []


def test_the_scanner_sees_processes_come_and_go(start: Start) -> None:
    attempt = uuid.uuid4().hex
    scanner = processes.AttemptScanner(attempt)
    for _ in range(3):
        assert scanner.scan() == []
    first = start(["sleep", "600"], attempt)
    await_that(lambda: [pid for pid, _ in scanner.scan()] == [first.pid], "the new one is seen")
    first.kill()
    first.wait()
    assert scanner.scan() == []


def test_the_scanner_does_not_read_an_environment_again_and_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = uuid.uuid4().hex
    process = start(["sleep", "600"], attempt)
    await_that(lambda: processes.by_attempt(attempt), "it is found")
    read: list[int] = []
    original = processes._environment
    monkeypatch.setattr(processes, "_environment", lambda pid: read.append(pid) or original(pid))
    scanner = processes.AttemptScanner(attempt)
    for _ in range(6):
        assert [pid for pid, _ in scanner.scan()] == [process.pid]
    assert read.count(process.pid) == 1
    assert read.count(os.getpid()) == 2
