"""The queue of one machine for all who use it: tickets in a folder, a lock, no daemon.

Cards are shared among all users, CPU slots among the runs of one: they are a user's own promise to himself. Who holds
the fewest cards comes first, of equals the one who came first, and nobody overtakes. A card on which somebody else's
process is, is nobody's. What asks for more CPU slots than the machine has runs alone, slower, rather than never.
"""

import contextlib
import fcntl
import os
import time
from typing import Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from rltui.onnode import host_tickets, processes
from rltui.onnode.host_cards import process_words
from rltui.onnode.host_tickets import RUNNING, WAITING, Ticket

LOCK_S = 2.0
"""How long one look waits for the lock; it is held for milliseconds."""
LATE_S = 10.0
"""After how long a ticket that does not take its turn (its process is stopped, say) is passed over."""
LASTING_S = 30.0
"""From when on a card with somebody else's process holds up nobody but those who need it."""
KEEP_EVERY_S = 3600.0
"""How often a ticket is touched: what cleans /tmp takes old files away."""


class Capacity(NamedTuple):
    """What the machine has for runs."""

    cpus: int
    gpus: int


class Turn(NamedTuple):
    """Whether a ticket may run, and if not, what it waits for."""

    granted: bool
    gpu_indices: Tuple[int, ...] = ()
    detail: str = ""


def in_order(tickets: Sequence[Ticket], cards: Mapping[int, int]) -> List[Ticket]:
    """Tickets as their turns come, where ``cards`` says how many each user (uid) holds."""
    return sorted(tickets, key=lambda one: (cards.get(one.uid, 0), one.arrived_ns, one.uuid))


def grant(
    tickets: Sequence[Ticket],
    capacity: Capacity,
    busy: FrozenSet[int] = frozenset(),
    lasting: FrozenSet[int] = frozenset(),
) -> Dict[str, Tuple[int, ...]]:
    """Which waiting tickets may run, by uuid, with the indices of the cards that each gets.

    Args:
        tickets: All live ones, in any order.
        capacity: What the machine has.
        busy: Cards that somebody is on, tickets or not.
        lasting: Those of them that somebody without a ticket has been on for long.
    """
    granted: Dict[str, Tuple[int, ...]] = {}
    running = [ticket for ticket in tickets if ticket.state == RUNNING]
    free = set(range(capacity.gpus)).difference(busy, *(ticket.gpu_indices for ticket in running))
    lost = len(lasting.difference(*(ticket.gpu_indices for ticket in running)))
    cards: Dict[int, int] = {}
    cpus: Dict[int, int] = {}
    for ticket in running:
        cards[ticket.uid] = cards.get(ticket.uid, 0) + len(ticket.gpu_indices)
        cpus[ticket.uid] = cpus.get(ticket.uid, 0) + ticket.cpus
    waiting = [ticket for ticket in tickets if ticket.state == WAITING]
    behind = set()  # users whose later tickets must not overtake one of their own
    cards_wanted = False
    while waiting:
        ticket = in_order(waiting, cards)[0]
        waiting.remove(ticket)
        uid, fits = ticket.uid, ticket.gpus <= len(free) and not (ticket.gpus and cards_wanted)
        if uid in behind or capacity.gpus - lost < ticket.gpus <= capacity.gpus:
            continue
        if ticket.gpus > capacity.gpus:  # it is told so as soon as it runs
            granted[ticket.uuid] = ()
            continue
        if not fits or (uid in cpus and cpus[uid] + ticket.cpus > capacity.cpus):
            behind.add(uid)
            cards_wanted = cards_wanted or (ticket.gpus > len(free))
            continue
        chosen = tuple(sorted(free)[: ticket.gpus])
        granted[ticket.uuid] = chosen
        free -= set(chosen)
        cards[uid] = cards.get(uid, 0) + ticket.gpus
        cpus[uid] = cpus.get(uid, 0) + ticket.cpus
    return granted


class HostQueue:
    """This process's place among the tickets of a machine."""

    def __init__(self, folder: str, capacity: Capacity) -> None:
        self.folder = folder
        self.capacity = capacity
        self._mine: Optional[Ticket] = None
        self._due: Dict[str, float] = {}
        self._foreign: Dict[int, float] = {}
        self._kept_at = time.monotonic()

    def take(self, uuid: str, label: str, cpus: int, gpus: int) -> None:
        """Take a ticket for this process; one of the same uuid is replaced."""
        start_time = processes.start_time(os.getpid()) or ""
        self._put(Ticket(uuid, label, cpus, gpus, os.getpid(), start_time, since=time.time()))

    def turn(self, in_use: Optional[Mapping[int, str]] = None) -> Turn:
        """Ask whether this process's ticket may run; a granted ticket is running from here on.

        Args:
            in_use: Cards that somebody is on, and who that is in words.
        """
        assert self._mine is not None, "no ticket was taken"
        mine, in_use = self._mine, in_use or {}
        with self._locked() as holder:
            if holder:
                return Turn(False, (), "waiting for %s, which locks the queue in %s" % (holder, self.folder))
            tickets = host_tickets.living(self.folder)
            if all(one.uuid != mine.uuid for one in tickets):  # somebody cleaned up
                self._put(mine)
                tickets = host_tickets.living(self.folder)
            if mine.state == RUNNING:
                return Turn(True, mine.gpu_indices)
            foreign = self._foreigners(in_use, tickets)
            lasting = frozenset(card for card, at in self._foreign.items() if time.monotonic() - at > LASTING_S)
            tickets = self._without_late(tickets, frozenset(in_use), lasting)
            chosen = grant(tickets, self.capacity, frozenset(in_use), lasting).get(mine.uuid)
            if chosen is None:
                own = next((one for one in tickets if one.uuid == mine.uuid), mine)
                return Turn(False, (), waiting_for(own, tickets, foreign))
            self._put(mine._replace(state=RUNNING, gpu_indices=chosen, since=time.time()))
            return Turn(True, chosen)

    def keep(self) -> None:
        """See to it that the ticket stays while the attempt runs; cheap, so call it often."""
        if self._mine is None or time.monotonic() - self._kept_at < KEEP_EVERY_S:
            return
        self._kept_at = time.monotonic()
        try:
            os.utime(host_tickets.path_of(self.folder, self._mine.uuid))
        except OSError:
            self._put(self._mine)

    def leave(self) -> None:
        """Give the ticket back; harmless where there is none."""
        if self._mine is not None:
            host_tickets.remove(self.folder, self._mine.uuid)
            self._mine = None

    def _put(self, ticket: Ticket) -> None:
        host_tickets.write(self.folder, ticket)
        self._mine = ticket

    def _foreigners(self, in_use: Mapping[int, str], tickets: Sequence[Ticket]) -> Dict[int, str]:
        """Those of ``in_use`` that no ticket holds; since when each is seen is remembered."""
        held = {card for ticket in tickets for card in ticket.gpu_indices if ticket.state == RUNNING}
        foreign = {card: who for card, who in in_use.items() if card not in held}
        self._foreign = {card: self._foreign.get(card, time.monotonic()) for card in foreign}
        return foreign

    def _without_late(self, tickets: List[Ticket], busy: FrozenSet[int], lasting: FrozenSet[int]) -> List[Ticket]:
        """``tickets`` without those of others that could have run for a while, and have not begun to."""
        assert self._mine is not None
        now = time.monotonic()
        could = grant(tickets, self.capacity, busy, lasting)
        self._due = {uuid: self._due.get(uuid, now) for uuid in could if uuid != self._mine.uuid}
        late = {uuid for uuid, since in self._due.items() if now - since > LATE_S}
        return [ticket for ticket in tickets if ticket.uuid not in late]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[str]:
        """The lock of the queue: of its folder itself, which nobody can put another one in the place of.

        Yields:
            Nothing where it is held; else who has it.
        """
        # flock and not a file: the kernel lets it go when the holder dies, however that was
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            deadline = time.monotonic() + LOCK_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        yield _holder(os.fstat(descriptor).st_ino)
                        return
                    # flock(2) has no deadline of its own, and whoever holds it may be stopped
                    time.sleep(0.005)
            yield ""
        finally:
            os.close(descriptor)


def waiting_for(mine: Ticket, tickets: Sequence[Ticket], foreign: Mapping[int, str]) -> str:
    """What a ticket waits for, in words."""
    cards: Dict[int, int] = {}
    for ticket in tickets:
        cards[ticket.uid] = cards.get(ticket.uid, 0) + len(ticket.gpu_indices)
    rivals = [one for one in tickets if one.uid == mine.uid or (mine.gpus and one.gpus)]
    line = in_order([one for one in rivals if one.state == WAITING], cards)
    ahead = next((place for place, one in enumerate(line) if one.uuid == mine.uuid), 0)
    names = [one.label if one.uid == mine.uid else _of_other(one) for one in rivals if one.state == RUNNING]
    asks = "%d GPUs" % mine.gpus if mine.gpus else "%d CPU slots" % mine.cpus
    behind = "behind %s" % ", ".join(names[:3]) if names else "waiting"
    words = "%s for %s%s" % (behind, asks, ", %d ahead" % ahead if ahead else "")
    users = ["GPU %d: %s" % (card, who) for card, who in sorted(foreign.items())] if mine.gpus else []
    return words + ("; in use without a ticket: %s" % "; ".join(users[:4]) if users else "")


def _of_other(ticket: Ticket) -> str:
    return "%s's %s" % (host_tickets.user_name(ticket.uid), ticket.label)


def _holder(inode: int) -> str:
    """Who holds the lock of a file, as the kernel lists it."""
    with contextlib.suppress(OSError, ValueError), open("/proc/locks") as stream:
        for line in stream:
            # number, FLOCK, ADVISORY, WRITE, pid, device:inode (proc(5))
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
                return process_words(int(words[4]))
    return "another process"
