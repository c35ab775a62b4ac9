"""The process that agents are forks of, where it hangs: nobody waits for it longer than is said."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import threading
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import ROOT

from trainers.environments import agent_place, agents
from trainers.environments.agent_place import AgentPlace
from waiting import eventually, slowness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.trainers

LEAVES_ONE = """
import os, time

if not os.fork():  # as libraries do that keep a process of their own; it has what its parent has open
    open(os.environ["LEFT"], "w").write(str(os.getpid()))
    time.sleep(600)
    os._exit(0)

def play(task, policy):
    return 1.0
"""


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentPlace]:
    """A place whose process is stopped, and whose module has left another one with its stdout."""
    (tmp_path / "leaves_one.py").write_text(LEAVES_ONE)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    left = tmp_path / "left"
    monkeypatch.setenv("LEFT", str(left))
    monkeypatch.setattr(agents, "END_S", 1.0)
    monkeypatch.setattr(agent_place, "GRACE_S", 1.0)
    place = AgentPlace("leaves_one:play")
    pid = int(eventually(lambda: left.exists() and left.read_text(), "the process that the module left"))
    process = place._process._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    yield place
    os.kill(pid, signal.SIGKILL)
    place._endpoint.close()


def test_a_sample_of_a_process_that_hangs_is_lost_also_where_its_stdout_stays_open(hangs: AgentPlace) -> None:
    found: list[Any] = []
    question = {"task": {"messages": []}, "seed": 1, "limit_s": 0.1}
    playing = threading.Thread(target=lambda: found.append(hangs.play(question, lambda _: {})), daemon=True)
    playing.start()
    playing.join(60 * slowness())
    assert found == [{"error": agents.DIED}]


def test_a_process_that_reads_nothing_is_ended_beside_who_writes_to_it(hangs: AgentPlace) -> None:
    process = hangs._process
    assert process._process is not None
    assert process._process.stdin is not None
    pipe = process._process.stdin.fileno()
    question = {"key": 1, "task": "x" * (1 << 20)}
    threading.Thread(target=process.play, args=(question,), daemon=True).start()

    def is_full() -> bool:
        return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] >= 1 << 16

    eventually(is_full, "a question that finds no room")
    closing = threading.Thread(target=process.close, daemon=True)
    closing.start()
    closing.join(60 * slowness())
    assert not closing.is_alive()
