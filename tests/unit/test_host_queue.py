"""A machine's queue: fair among users, nobody overtakes, the dead count for nothing, and no ticket can harm others."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from watch_support import await_next_file_time

from rltui.onnode import host_queue, host_tickets, processes
from rltui.onnode.host_cards import read_cards
from rltui.onnode.host_queue import Capacity, HostQueue, grant
from rltui.onnode.host_tickets import RUNNING, WAITING, Ticket

ROOT = Path(__file__).parents[2]


def ticket(
    uuid: str, arrived: int, cpus: int = 1, gpus: int = 0, held: tuple[int, ...] | None = None, uid: int = 1
) -> Ticket:
    """One that waits, or with ``held`` one that runs."""
    state = WAITING if held is None else RUNNING
    return Ticket(uuid, uuid, cpus, gpus, 1, "1", state, held or (), 0.0, uid, arrived)


@pytest.mark.parametrize(
    ("tickets", "capacity", "busy", "lasting", "expected"),
    [
        ([], (4, 0), (), (), {}),
        ([ticket("a", 1, 2), ticket("b", 2, 2)], (4, 0), (), (), {"a": (), "b": ()}),
        ([ticket("b", 2, 2), ticket("a", 1, 3)], (4, 0), (), (), {"a": ()}),
        ([ticket("a", 1, 9)], (4, 0), (), (), {"a": ()}),  # too large for the machine: alone rather than never
        ([ticket("r", 1, 1, 0, ()), ticket("a", 2, 9)], (4, 0), (), (), {}),
        ([ticket("r", 1, 3, 0, ()), ticket("a", 2, 2), ticket("b", 3, 1)], (4, 0), (), (), {}),  # no overtaking
        ([ticket("r", 1, 3, 0, ()), ticket("a", 2, 2, uid=2)], (4, 0), (), (), {"a": ()}),  # slots are a user's own
        ([ticket("r", 1, 1, 2, (0, 1)), ticket("a", 2, 1, 2)], (8, 4), (), (), {"a": (2, 3)}),
        ([ticket("r", 1, 1, 3, (0, 1, 3)), ticket("a", 2, 1, 2)], (8, 4), (), (), {}),
        ([ticket("r", 1, 1, 3, (0, 1, 3), 2), ticket("a", 2, 1, 2), ticket("b", 3, 1, 1, uid=3)], (8, 4), (), (), {}),
        ([ticket("r", 1, 1, 1, (0,)), ticket("a", 2, 1, 1), ticket("b", 3, 1, 1, uid=2)], (8, 2), (), (), {"b": (1,)}),
        ([ticket("a", 1, 1, 1), ticket("b", 2, 1, 1), ticket("c", 3, 1, 1, uid=2)], (8, 2), (), (), {"a": (0,), "c": (1,)}),  # noqa: E501
        ([ticket("a", 1, 1, 2)], (8, 4), (0, 2), (), {"a": (1, 3)}),  # somebody's process is on two cards
        ([ticket("a", 1, 1, 4), ticket("b", 2, 1, 1)], (8, 4), (0,), (), {}),  # it may go at once
        ([ticket("a", 1, 1, 4), ticket("b", 2, 1, 1)], (8, 4), (0,), (0,), {"b": (1,)}),  # and it may stay
        ([ticket("a", 1, 1, 9), ticket("b", 2, 1, 1)], (8, 4), (), (), {"a": (), "b": (0,)}),  # it is told
    ],
)  # fmt: skip
def test_who_may_run(
    tickets: list[Ticket],
    capacity: tuple[int, int],
    busy: tuple[int, ...],
    lasting: tuple[int, ...],
    expected: dict[str, tuple[int, ...]],
) -> None:
    assert grant(tickets, Capacity(*capacity), frozenset(busy), frozenset(lasting)) == expected


@pytest.fixture
def other() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that lives until it is ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def put(folder: Path, pid: int, started: str | None, **changes: object) -> None:
    base = Ticket("other", "grpo-tiny-1234", 2, 0, pid, started or "0", RUNNING)
    host_tickets.write(str(folder), base._replace(**changes))


def test_a_ticket_of_a_dead_process_is_removed_and_a_recycled_pid_holds_no_place(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    started = processes.start_time(dead.pid)
    dead.wait()
    put(tmp_path, dead.pid, started)
    put(tmp_path, os.getpid(), "1", uuid="ghost")
    queue = HostQueue(str(tmp_path), Capacity(2, 0))
    queue.take("mine", "mine", 2, 0)
    assert queue.turn().granted
    assert [path.name for path in tmp_path.iterdir()] == [".rltui-ticket-mine"]


def test_a_living_ticket_is_waited_for_and_a_lost_one_is_taken_again(
    tmp_path: Path, other: "subprocess.Popen[bytes]"
) -> None:
    put(tmp_path, other.pid, processes.start_time(other.pid))
    queue = HostQueue(str(tmp_path), Capacity(2, 0))
    queue.take("mine", "mine", 1, 0)
    (tmp_path / ".rltui-ticket-mine").unlink()  # what cleans /tmp did it
    turn = queue.turn()
    assert not turn.granted
    assert turn.detail == "behind grpo-tiny-1234 for 1 CPU slots"
    other.kill()
    other.wait()
    assert queue.turn().granted
    queue.leave()
    queue.leave()
    assert not list(tmp_path.iterdir())


def test_who_uses_a_card_without_a_ticket_is_said(tmp_path: Path) -> None:
    queue = HostQueue(str(tmp_path), Capacity(2, 2))
    queue.take("mine", "mine", 1, 2)
    detail = queue.turn({1: "bob's process 4242 (python)"}).detail
    assert detail == "waiting for 2 GPUs; in use without a ticket: GPU 1: bob's process 4242 (python)"
    assert queue.turn({}).gpu_indices == (0, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users, which needs root")
def test_tickets_of_others_do_no_harm(tmp_path: Path, other: "subprocess.Popen[bytes]") -> None:
    """Lies, links, pipes, endless files, and a claim for a process that is not its owner's."""
    whose = processes.start_time(other.pid)
    put(tmp_path, other.pid, whose, uuid="stolen", gpus=1, gpu_indices=(0,))
    os.chown(tmp_path / ".rltui-ticket-stolen", 2002, 2002)
    hostile = {
        "torn": b'{"uuid": "x"',
        "list": b"[1]",
        "deep": b"[" * 4000,
        "huge": b" " * 10_000,
        "lies": json.dumps({**Ticket("lies", "\x1b[2J", -1, 1 << 40, 2, "1")._asdict()}).encode(),
        "twin": json.dumps(Ticket("mine", "twin", 1, 1, other.pid, whose or "", RUNNING, (0,))._asdict()).encode(),
    }
    for name, text in hostile.items():
        (tmp_path / f".rltui-ticket-{name}").write_bytes(text)
        os.chown(tmp_path / f".rltui-ticket-{name}", 2002, 2002)
    os.mkfifo(tmp_path / ".rltui-ticket-pipe")
    (tmp_path / ".rltui-ticket-link").symlink_to("/dev/zero")
    queue = HostQueue(str(tmp_path), Capacity(1, 1))
    queue.take("mine", "mine", 1, 1)
    assert queue.turn().gpu_indices == (0,)
    assert (tmp_path / ".rltui-ticket-stolen").exists(), "a file of another user is not ours to remove"


def test_one_that_does_not_take_its_turn_is_passed_over(
    tmp_path: Path, other: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    started = processes.start_time(other.pid)
    put(tmp_path, other.pid, started, state=WAITING, cpus=1, gpus=1)
    queue = HostQueue(str(tmp_path), Capacity(4, 1))
    await_next_file_time(tmp_path)
    queue.take("mine", "mine", 1, 1)
    assert queue.turn().detail == "waiting for 1 GPUs, 1 ahead"
    monkeypatch.setattr(host_queue, "LATE_S", -1.0)
    assert queue.turn().gpu_indices == (0,)


def test_who_keeps_the_lock_is_named_and_nobody_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_queue, "LOCK_S", 0.05)
    queue = HostQueue(str(tmp_path), Capacity(1, 0))
    queue.take("mine", "mine", 1, 0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    assert f" {os.getpid()} (" in queue.turn().detail
    os.close(descriptor)
    assert queue.turn().granted


def test_a_folder_that_others_could_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(host_tickets.FOLDER_VARIABLE, str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(OSError, match=r"chmod \+t"):
        host_tickets.folder_of_tickets()
    tmp_path.chmod(0o1777)
    assert host_tickets.folder_of_tickets() == str(tmp_path)
    monkeypatch.setenv(host_tickets.FOLDER_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(OSError, match="none, which RLTUI_QUEUE names, is not there"):
        host_tickets.folder_of_tickets()


RACER = """
import json, os, sys, time
uid, folder, number = int(sys.argv[1]), sys.argv[2], sys.argv[3]
from rltui.onnode.host_queue import Capacity, HostQueue
os.setuid(uid)  # after the imports: the checkout may be closed to others
queue = HostQueue(folder, Capacity(64, 8))
queue.take("%d-%s" % (uid, number), "race", 1, 1 + int(number) % 2)
while not (turn := queue.turn()).granted:
    time.sleep(0.01)
began = time.time()
print(json.dumps([began, time.time() + 0.3, uid, turn.gpu_indices]), flush=True)
time.sleep(0.35)
queue.leave()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="is two users, which needs root")
def test_two_users_at_once_never_get_the_same_card() -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rltui-race-") as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o1777)
        racers = [
            subprocess.Popen(
                [sys.executable, "-S", "-c", RACER, str(uid), folder, str(number)],
                stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            for number in range(12) for uid in (2001, 2002)
        ]  # fmt: skip
        held = [json.loads(one.communicate(timeout=60)[0]) for one in racers]
    assert len(held) == 24
    assert {uid for _, _, uid, _ in held} == {2001, 2002}
    for place, (began, ended, _, cards) in enumerate(held):
        for other_began, other_ended, _, other_cards in held[:place]:
            overlap = began < other_ended and other_began < ended
            assert not (overlap and set(cards) & set(other_cards)), (cards, other_cards)


def test_nvidia_smi_is_read_with_all_its_gaps() -> None:
    gpus = "0, GPU-a, 4, 81559, 0, NVIDIA H100 80GB HBM3\n1, GPU-b, 30000, 81559, 97, NVIDIA H100 80GB HBM3\n"
    gpus += "2, GPU-c, [N/A], [N/A], [N/A], NVIDIA GB10\n3, GPU-d, 2000, 81559, 0, X\nnonsense\n"
    cards = read_cards(gpus, f"GPU-b, {2**22 - 1}, 29000\nGPU-b, [N/A], [N/A]\n")
    assert [card.in_use for card in cards] == ["", f"process {2**22 - 1}", "", "2000 MiB of its memory in use"]
