"""What a machine without a scheduler has for runs, and who has it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec import Struct

from rltui.cluster.facts import ClusterFacts, NodeFacts
from rltui.cluster.machines import in_time, machines_of
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import Profile, job_variables
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_program import program_of, relay_argv
from rltui.errors import ClusterError
from rltui.hardware.gpus import find_gpu
from rltui.onnode.host_tickets import RUNNING

MODULES = (
    "rundir", "processes", "host_tickets", "host_cards", "host_queue", "card_kernels", "preflight", "host_look",
)  # fmt: skip
"""What runs over there to look around; no file is left."""

LOOK_S = 60.0
PATIENCE_S = 10.0
"""How long a look at several machines waits for one of them."""


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
        """Whether it holds slots and cards, or else waits for them."""
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
        """Indices of the cards that running tickets hold, busy at this moment or not."""
        return frozenset(index for ticket in self.tickets if ticket.runs for index in ticket.gpu_indices)

    @property
    def free(self) -> int:
        """Number of cards that no ticket holds and no process of anybody's is on."""
        return self.gpus - len(self.held | {card.index for card in self.foreign})

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


def host_states(
    relay: RelayClient, profile: Profile, here: Mapping[str, str] | None = None
) -> dict[str, HostState | ClusterError]:
    """Look at all machines of a profile at once; of one that cannot be looked at, the reason.

    Args:
        relay: To the first of them.
        profile: Their profile.
        here: Further variables of supervisors there.

    Raises:
        ClusterError: None of them can be looked at.
    """
    variables = {**(here or {}), **job_variables(profile)}
    python = profile.python if profile.scheduler == "local" else "python3"

    machines = machines_of(relay, profile)
    found: dict[str, HostState | ClusterError] = {
        name: ClusterError(f"{name} has not answered within {PATIENCE_S:.0f} s.") for name in machines
    }

    def look(name: str) -> None:
        try:
            found[name] = host_state(machines[name], variables, python)
        except ClusterError as error:
            found[name] = error

    in_time([partial(look, name) for name in machines], PATIENCE_S if len(machines) > 1 else LOOK_S)
    away = [state for state in found.values() if isinstance(state, ClusterError)]
    if len(away) == len(found):
        raise away[0]
    return dict(found)


def facts_of(states: Mapping[str, HostState | ClusterError]) -> ClusterFacts:
    """The machines as nodes of a cluster."""
    return ClusterFacts(nodes=tuple(_node(name, state) for name, state in states.items()))


def _node(name: str, state: HostState | ClusterError) -> NodeFacts:
    if isinstance(state, ClusterError):
        return NodeFacts(name=name, state="down", reason=state.message)
    card = state.cards[0].name if state.cards else ""
    known = find_gpu(card)
    used = state.gpus - state.free
    return NodeFacts(
        name=name,
        state="idle" if not used else "mixed" if state.free else "allocated",
        reason=state.problem,
        gpu=known.name if known else card,
        gpus=state.gpus,
        gpus_used=used,
        cpus=state.cpus,
        memory_gib=state.memory_gib,
    )


def best_host(states: Mapping[str, HostState | ClusterError], gpus: int) -> str:
    """The machine on which a run of ``gpus`` cards starts first, as far as one can tell now; empty: none has so many.

    First those where it need not wait, then those with the fewest that wait; of equals the one with most cards free.
    """
    known = {name: state for name, state in states.items() if isinstance(state, HostState)}
    fitting = {name: state for name, state in known.items() if state.gpus >= gpus and not state.problem}

    def weight(name: str) -> tuple[bool, int, int]:
        state = fitting[name]
        rivals = [one for one in state.tickets if not one.runs and (one.gpus > 0) == (gpus > 0)]
        slots = state.cpus - sum(one.cpus for one in state.tickets if one.is_mine)
        return (state.free >= gpus and not rivals), -len(rivals), state.free if gpus else slots

    return max(fitting, key=weight, default="")
