"""The local queue: first in, first out, no overtaking, and the dead count for nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rltui.onnode import processes
from rltui.onnode.local_queue import RUNNING, WAITING, Capacity, LocalQueue, Ticket, grant


def ticket(uuid: str, sequence: int, cpus: int = 1, gpus: int = 0, state: str = WAITING, held: tuple = ()) -> Ticket:
    return Ticket(uuid, uuid, sequence, cpus, gpus, 1, "1", state, held)


@pytest.mark.parametrize(
    ("tickets", "capacity", "expected"),
    [
        ([], (4, 0), {}),
        ([ticket("a", 1, 2), ticket("b", 2, 2)], (4, 0), {"a": (), "b": ()}),
        ([ticket("b", 2, 2), ticket("a", 1, 3)], (4, 0), {"a": ()}),
        ([ticket("a", 1, 9)], (4, 0), {"a": ()}),  # too large for the machine: alone rather than never
        ([ticket("r", 1, 1, 0, RUNNING), ticket("a", 2, 9)], (4, 0), {}),
        ([ticket("r", 1, 3, 0, RUNNING), ticket("a", 2, 2), ticket("b", 3, 1)], (4, 0), {}),  # no overtaking
        ([ticket("r", 1, 1, 2, RUNNING, (0, 1)), ticket("a", 2, 1, 2)], (8, 4), {"a": (2, 3)}),
        ([ticket("r", 1, 1, 3, RUNNING, (0, 1, 3)), ticket("a", 2, 1, 2)], (8, 4), {}),
    ],
)
def test_who_may_run(tickets: list[Ticket], capacity: tuple[int, int], expected: dict[str, tuple[int, ...]]) -> None:
    assert grant(tickets, Capacity(*capacity)) == expected


def test_a_ticket_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    queue = LocalQueue(str(tmp_path), Capacity(2, 0))
    queue.take("mine", "mine", 2, 0)
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    started = processes.start_time(dead.pid)
    dead.wait()
    queue._write(Ticket("dead", "dead", 0, 2, 0, dead.pid, started or "0", RUNNING))
    assert queue.turn("mine").granted
    assert not (tmp_path / "dead.json").exists()


def test_a_living_ticket_of_another_process_is_waited_for(tmp_path: Path) -> None:
    queue = LocalQueue(str(tmp_path), Capacity(2, 0))
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started = processes.start_time(other.pid)
        queue._write(Ticket("other", "grpo-tiny-1234", 0, 2, 0, other.pid, started or "0", RUNNING))
        queue.take("mine", "mine", 1, 0)
        turn = queue.turn("mine")
        assert not turn.granted
        assert turn.detail == "behind grpo-tiny-1234 for 1 CPU slots"
    finally:
        other.kill()
        other.wait()
    assert queue.turn("mine").granted
    queue.leave("mine")
    queue.leave("mine")


def test_a_recycled_pid_does_not_hold_a_place(tmp_path: Path) -> None:
    queue = LocalQueue(str(tmp_path), Capacity(1, 0))
    queue._write(Ticket("ghost", "ghost", 0, 1, 0, os.getpid(), "1", RUNNING))
    queue.take("mine", "mine", 1, 0)
    assert queue.turn("mine").granted


def test_torn_tickets_are_survived(tmp_path: Path) -> None:
    queue = LocalQueue(str(tmp_path), Capacity(1, 0))
    (tmp_path / "torn.json").write_text('{"uuid": "x"')
    queue.take("mine", "mine", 1, 0)
    assert queue.turn("mine").granted
