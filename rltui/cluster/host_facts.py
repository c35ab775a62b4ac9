"""What a machine without a scheduler has for runs, and who has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rltui.cluster.facts import ClusterFacts, NodeFacts
from rltui.cluster.plain_text import plain
from rltui.cluster.relay_program import program_of, relay_argv
from rltui.errors import ClusterError
from rltui.onnode.host_tickets import RUNNING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rltui.cluster.relay_client import RelayClient

MODULES = (
    "rundir", "processes", "host_tickets", "host_cards", "host_queue", "card_kernels", "preflight", "host_look",
)  # fmt: skip
"""What runs over there to look around; no file is left."""

LOOK_S = 60.0


class HostTicket(Struct, frozen=True):
    """One attempt of anybody's that holds something of the machine, or waits for it."""

    uuid: str
    label: str
    cpus: int
    gpus: int
    pid: int
    state: str
    gpu_indices: tuple[int, ...]
    since: float
    user: str
    is_mine: bool

    @property
    def runs(self) -> bool:
        """Whether it holds something."""
        return self.state == RUNNING


class HostCard(Struct, frozen=True):
    """One card, with pid, user and program of the processes on it."""

    index: int
    name: str
    memory_used_mib: int
    """0 where that is as little as on a card that nobody uses."""
    processes: tuple[tuple[int, str, str], ...]


class HostState(Struct, frozen=True, kw_only=True):
    """All of it at one time."""

    cpus: int
    gpus: int
    memory_gib: float
    cards: tuple[HostCard, ...]
    tickets: tuple[HostTicket, ...]
    """Those that run, then those that wait, the next one first."""
    ends_at_logout: bool = False
    """Whether the machine ends a user's processes when the last session is closed."""
    problem: str = ""
    """Why cards or queue cannot be looked at."""

    @property
    def held(self) -> frozenset[int]:
        """Cards of tickets."""
        return frozenset(index for ticket in self.tickets if ticket.runs for index in ticket.gpu_indices)

    @property
    def foreign(self) -> tuple[HostCard, ...]:
        """Cards that somebody uses without a ticket."""
        used = (card for card in self.cards if card.processes or card.memory_used_mib)
        return tuple(card for card in used if card.index not in self.held)


def host_state(relay: RelayClient, variables: Mapping[str, str], python: str = "python3") -> HostState:
    """Look at the machine of ``relay``.

    Args:
        relay: The relay.
        variables: What supervisors there are started with: where the queue is.
        python: Any Python there from 3.8 on.

    Raises:
        ClusterError: It cannot be reached, or does not answer.
    """
    done = relay.run(relay_argv(python), stdin=program_of(MODULES), env=variables, timeout_s=LOOK_S, idempotent=True)
    try:
        return msgspec.json.decode(done.out, type=HostState)
    except msgspec.MsgspecError as error:
        said = plain((done.err.strip().splitlines() or [str(error)])[-1])[:200]
        raise ClusterError(f"{relay.place} does not say who uses it: {said}") from error


def facts_of(state: HostState, name: str) -> ClusterFacts:
    """The machine as a cluster of one node called ``name``."""
    used = len(state.held | {card.index for card in state.foreign})
    node = NodeFacts(
        name=name,
        state="idle" if not used else "mixed" if used < state.gpus else "allocated",
        reason=state.problem,
        gpu=next((card.name for card in state.cards), ""),
        gpus=state.gpus,
        gpus_used=used,
        cpus=state.cpus,
        memory_gib=state.memory_gib,
    )
    return ClusterFacts(nodes=(node,))
