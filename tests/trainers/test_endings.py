"""A process that hangs is ended with all it started, and another that has its number by now is let be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from trainers.roles.endings import end_process, family
from waiting import eventually

pytestmark = pytest.mark.trainers

PARENT = """
import subprocess, time
subprocess.Popen(["sleep", "600"])
time.sleep(600)
"""


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts a process with a child, under the title that is given; nothing is left of it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(title: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([title, "-c", PARENT], executable=sys.executable, start_new_session=True)
        started.append(process)
        eventually(lambda: len(list(family(process.pid))) == 2, "the child")
        return process

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_stopped_process_is_ended_with_its_children(start: Callable[[str], subprocess.Popen[bytes]]) -> None:
    process = start("ray::Engine.generate")
    child = list(family(process.pid))[1]
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(int(child.name), signal.SIGSTOP)
    assert end_process(process.pid, 30.0)
    assert process.poll() == -signal.SIGKILL
    assert not child.exists() or "Z" in (child / "stat").read_text().split()
    assert end_process(process.pid, 0.0)  # it is gone


def test_what_is_not_rays_is_let_be(start: Callable[[str], subprocess.Popen[bytes]]) -> None:
    process = start("others::Engine.generate")
    assert end_process(process.pid, 30.0)
    assert process.poll() is None
    assert len(list(family(process.pid))) == 2
