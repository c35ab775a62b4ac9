"""The machines of a cluster without a scheduler: a relay to each, and the first one for what all can tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from rltui.cluster.open_transport import open_transport
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import Prompter
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import ProcessIdentity
from rltui.cluster.transport import Transport
from rltui.errors import ClusterError

PATIENCE_S = 3.0
"""How long a picture of all waits for one machine; one that is off is seen by a connection that does not come."""


class Machines(RelayClient):
    """The relay to the first of several machines that see the same runs, with those to the others.

    Attributes:
        by_name: The relay to each, itself among them.
    """

    def __init__(self, transports: Mapping[str, Transport]) -> None:
        first, *others = transports
        super().__init__(transports[first])
        self._hosts: dict[str, str] = {}
        self.by_name: dict[str, RelayClient] = {first: self}
        self.by_name.update({name: RelayClient(transports[name]) for name in others})

    def of_host(self, host: str) -> RelayClient:
        """The relay to the machine that calls itself ``host``.

        Raises:
            ClusterError: It is none of them, as far as they can be reached.
        """
        found = self._called(host)
        if found is None:  # one that is off costs the whole time, so none is asked where the answer is known
            unknown = [name for name in self.by_name if name not in self._hosts]
            in_time([partial(self._learn, name) for name in unknown])
            found = self._called(host)
        if found is not None:
            return self.by_name[found]
        away = [name for name in self.by_name if name not in self._hosts]
        if away:
            raise ClusterError(f"{host} does not answer: {', '.join(away)} cannot be reached.", "Try again later.")
        raise ClusterError(f"{host} is none of {', '.join(self.by_name)}.")

    def _called(self, host: str) -> str | None:
        return next((name for name, told in dict(self._hosts).items() if told == host), None)

    def _learn(self, name: str) -> None:
        with suppress(ClusterError):
            self._hosts[name] = self.by_name[name].hello().host

    def alive(self, processes: Sequence[ProcessIdentity]) -> tuple[bool | None, ...]:
        """See ``RelayClient``; each is asked of its own machine, and None where that does not answer soon."""
        found = dict(enumerate(super().alive(processes)))

        def ask(host: str) -> None:
            places = [place for place, one in enumerate(processes) if one.host == host]
            with suppress(ClusterError):
                told = self.of_host(host).alive([processes[place] for place in places])
                found.update(zip(places, told, strict=True))

        elsewhere = {one.host for place, one in enumerate(processes) if found[place] is None}
        in_time([partial(ask, host) for host in elsewhere])
        return tuple(found[place] for place in range(len(processes)))

    def close(self) -> None:
        """End the relay to each machine; what runs there goes on."""
        for relay in self.by_name.values():
            RelayClient.close(relay)


def in_time(works: Sequence[Callable[[], None]], patience_s: float = PATIENCE_S) -> None:
    """Do all of ``works`` at once; what takes longer than ``patience_s`` goes on by itself."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def open_relay(profile: Profile, prompter: Prompter, first: Transport | None = None) -> RelayClient:
    """The relay to a cluster; nothing is connected before it is asked.

    Args:
        profile: The cluster.
        prompter: Who answers what the way there asks.
        first: The way to its host, where it was chosen already.

    Raises:
        UsageError: As ``open_transport``.
        ClusterError: As ``open_transport``.
    """
    first = first or open_transport(profile, prompter)
    if len(profile.hosts) < 2:
        relay = RelayClient(first)
        relay.slurm_cluster = profile.slurm_cluster
        return relay
    others = {host: open_transport(replace(profile, host=host), prompter) for host in profile.hosts[1:]}
    return Machines({profile.host: first, **others})


def machines_of(relay: RelayClient, profile: Profile) -> dict[str, RelayClient]:
    """The relay to each machine of ``profile``, by the name that people know it by."""
    return relay.by_name if isinstance(relay, Machines) else {profile.name: relay}
