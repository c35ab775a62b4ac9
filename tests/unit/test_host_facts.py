"""Machines without a scheduler: which one a run takes, what a new profile says of one, and what doctor makes of it."""

from __future__ import annotations

import pytest

from rltui.cluster.cluster import Attempt, SubmitUnknownError
from rltui.cluster.host_facts import HostCard, HostState, HostTicket, best_host, facts_of
from rltui.cluster.hosts import HostsCluster
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.machines import Machines
from rltui.cluster.profile import Profile
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import Completed, ProcessIdentity
from rltui.cluster.transport import ByteStream
from rltui.errors import ClusterError
from rltui.onnode.host_tickets import RUNNING, WAITING
from rltui.service.setup_cluster import Site, propose

AWAY = ClusterError("gpu9 cannot be reached.")


def ticket(gpus: int, *cards: int, state: str = RUNNING) -> HostTicket:
    return HostTicket("u", "run", 1, gpus, 1, state, cards, 0.0, "alice", True)


def host(gpus: int, *tickets: HostTicket, foreign: tuple[int, ...] = (), **keys: object) -> HostState:
    cards = tuple(
        HostCard(index, "NVIDIA H100 80GB HBM3", 0, ((7, "bob", "python"),) if index in foreign else ())
        for index in range(gpus)
    )
    return HostState(cpus=64, gpus=gpus, memory_gib=511.7, cards=cards, tickets=tickets, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("states", "gpus", "expected"),
    [
        ({"a": host(4, ticket(3, 0, 1, 2)), "b": host(4, ticket(2, 0, 1))}, 1, "b"),  # the one with most free
        ({"a": host(4), "b": host(8, ticket(6, 0, 1, 2, 3, 4, 5))}, 8, "b"),  # the only one that has so many
        ({"a": host(4, foreign=(0, 1)), "b": host(4, ticket(1, 0))}, 3, "b"),  # somebody else's process counts
        ({"a": host(2, ticket(1, 1), ticket(2, state=WAITING)), "b": host(2, ticket(2, 0, 1))}, 2, "b"),
        ({"a": host(2, ticket(2, state=WAITING)), "b": host(2, ticket(1, 0))}, 1, "b"),  # nobody is overtaken
        ({"a": AWAY, "b": host(2, ticket(2, 0, 1))}, 1, "b"),
        ({"a": host(4, problem="nvidia-smi does not answer"), "b": host(2)}, 4, ""),
        ({"a": host(0), "b": host(0, ticket(0))}, 0, "a"),  # most CPU slots left
    ],
)
def test_which_machine_a_run_takes(states: dict[str, HostState | ClusterError], gpus: int, expected: str) -> None:
    assert best_host(states, gpus) == expected


def test_machines_are_nodes_and_one_that_is_away_is_down() -> None:
    busy, away = facts_of({"a": host(4, ticket(2, 0, 1), foreign=(1, 3)), "gpu9": AWAY}).nodes
    assert (busy.state, busy.gpu, busy.gpus, busy.gpus_used) == ("mixed", "H100-SXM-80GB", 4, 3)
    assert (away.is_usable, away.reason) == (False, "gpu9 cannot be reached.")


def test_a_new_profile_of_a_box_has_what_its_driver_says() -> None:
    proposal = propose(Site(host=host(8)), {"host": "gpu1"})
    assert proposal.values == {
        "host": "gpu1", "scheduler": "hosts", "gpus_per_node": 8, "cpus_per_node": 64, "memory_gib": 511.0,
        "gpu": "H100-SXM-80GB",
    }  # fmt: skip
    assert "no Slurm on that machine, but 8 × NVIDIA H100 80GB HBM3" in proposal.notes[0]


class NoWay:
    place = "gpu9"
    tries = 0

    def open(self) -> ByteStream:
        self.tries += 1
        raise AWAY


def test_of_a_machine_that_is_away_nobody_says_that_a_process_died() -> None:
    relay = Machines({"here": LocalTransport(), "gpu9": NoWay()})
    here = relay.hello()
    gone, elsewhere = ProcessIdentity(here.pid, "1", here.host), ProcessIdentity(1, "1", "gpu9")
    assert relay.alive([gone, elsewhere]) == (False, None)
    with pytest.raises(ClusterError, match="gpu9 cannot"):
        relay.of_host("gpu9")
    relay.close()


def test_a_machine_that_is_known_is_not_waited_for_because_another_is_away() -> None:
    away = NoWay()
    relay = Machines({"here": LocalTransport(), "gpu9": away})
    host = relay.hello().host
    assert relay.of_host(host) is relay
    tried = away.tries
    relay.by_name["gpu9"].close()  # what failed before is not remembered
    assert relay.of_host(host) is relay
    assert away.tries == tried
    relay.close()


def test_a_supervisor_that_started_and_cannot_be_seen_yet_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = HostsCluster(Profile(name="box", scheduler="hosts"), RelayClient(LocalTransport()))
    monkeypatch.setattr(cluster.client, "run", lambda *_, **__: Completed(0, "", ""))
    with pytest.raises(SubmitUnknownError, match="has started"):
        cluster.submit(Attempt(run_id="r-1", number=1, uuid="u", path="/nowhere/attempts/01", code="/nowhere"))
    cluster.close()
