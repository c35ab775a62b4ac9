"""The queue of the local cluster: a lock file and one small JSON file a ticket, no daemon.

First in, first out, and no overtaking: a ticket runs when every earlier one runs and its slots are free. One that asks
for more than the machine has runs alone, slower, rather than never. A ticket whose process is gone counts for nothing.
"""

import contextlib
import fcntl
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from rltui.onnode import processes, rundir

WAITING = "waiting"
RUNNING = "running"


class Capacity(NamedTuple):
    """What the machine has for runs."""

    cpus: int
    gpus: int


class Ticket(NamedTuple):
    """One attempt's place in the queue."""

    uuid: str
    label: str
    sequence: int
    cpus: int
    gpus: int
    pid: int
    start_time: str
    state: str = WAITING
    gpu_indices: Tuple[int, ...] = ()


class Turn(NamedTuple):
    """Whether a ticket may run, and if not, what it waits for."""

    granted: bool
    gpu_indices: Tuple[int, ...] = ()
    detail: str = ""


def grant(tickets: Sequence[Ticket], capacity: Capacity) -> Dict[str, Tuple[int, ...]]:
    """Which waiting tickets may run, by uuid, with the GPU indices that each gets.

    ``tickets`` are all live ones, in any order.
    """
    granted: Dict[str, Tuple[int, ...]] = {}
    running = [ticket for ticket in tickets if ticket.state == RUNNING]
    cpus = capacity.cpus - sum(ticket.cpus for ticket in running)
    free = set(range(capacity.gpus)).difference(*(ticket.gpu_indices for ticket in running))
    for ticket in sorted((t for t in tickets if t.state == WAITING), key=lambda t: t.sequence):
        alone = not running and not granted
        if not alone and (ticket.cpus > cpus or ticket.gpus > len(free)):
            break
        chosen = tuple(sorted(free)[: ticket.gpus])
        granted[ticket.uuid] = chosen
        free -= set(chosen)
        cpus -= ticket.cpus
    return granted


class LocalQueue:
    """The tickets of one run root.

    Args:
        root: The folder of lock file and tickets; made if missing.
        capacity: What the machine has.
    """

    def __init__(self, root: str, capacity: Capacity) -> None:
        os.makedirs(root, mode=0o700, exist_ok=True)
        self.root = root
        self.capacity = capacity

    def take(self, uuid: str, label: str, cpus: int, gpus: int) -> None:
        """Take a ticket for this process; tickets of the same uuid are replaced."""
        start_time = processes.start_time(os.getpid()) or ""
        with self._locked():
            sequence = 1 + max([ticket.sequence for ticket in self._tickets()], default=0)
            self._write(Ticket(uuid, label, sequence, cpus, gpus, os.getpid(), start_time))

    def turn(self, uuid: str) -> Turn:
        """Ask whether the ticket ``uuid`` may run; a granted ticket is running from here on."""
        with self._locked():
            tickets = self._tickets()
            mine = next(ticket for ticket in tickets if ticket.uuid == uuid)
            if mine.state == RUNNING:
                return Turn(True, mine.gpu_indices)
            chosen = grant(tickets, self.capacity).get(uuid)
            if chosen is None:
                return Turn(False, (), _waiting_for(mine, tickets))
            self._write(mine._replace(state=RUNNING, gpu_indices=chosen))
            return Turn(True, chosen)

    def leave(self, uuid: str) -> None:
        """Give the ticket back; harmless where there is none."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(uuid))

    def _tickets(self) -> List[Ticket]:
        """Every ticket whose process lives; the files of others are removed. Call with the lock held."""
        live = []
        for name in sorted(os.listdir(self.root)):
            if not name.endswith(".json") or name.startswith("."):
                continue
            ticket = parse_ticket(rundir.read_json(os.path.join(self.root, name)))
            if ticket is not None and processes.alive(ticket.pid, ticket.start_time):
                live.append(ticket)
            else:
                os.unlink(os.path.join(self.root, name))
        return live

    def _write(self, ticket: Ticket) -> None:
        rundir.write_json(self._path(ticket.uuid), ticket._asdict())

    def _path(self, uuid: str) -> str:
        return os.path.join(self.root, uuid + ".json")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(os.path.join(self.root, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def parse_ticket(value: Optional[Dict[str, Any]]) -> Optional[Ticket]:
    """The ticket in an object of its file; None where it is none."""
    try:
        ticket = Ticket(**(value or {}))
    except TypeError:
        return None
    return ticket._replace(gpu_indices=tuple(ticket.gpu_indices))


def _waiting_for(mine: Ticket, tickets: Sequence[Ticket]) -> str:
    ahead = sum(ticket.state == WAITING and ticket.sequence < mine.sequence for ticket in tickets)
    running = [ticket.label for ticket in tickets if ticket.state == RUNNING]
    asks = "%d GPUs" % mine.gpus if mine.gpus else "%d CPU slots" % mine.cpus
    behind = "behind %s" % ", ".join(running[:3]) if running else "waiting for its turn"
    return "%s for %s%s" % (behind, asks, ", %d ahead" % ahead if ahead else "")
