"""What a rule about a cluster looks at, and the words it shares with its neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rltui.check.rule import Rule, Subject, registering

if TYPE_CHECKING:
    from rltui.cluster.facts import ClusterFacts, NodeFacts, PartitionFacts
    from rltui.cluster.profile import Profile

LIVE_REGISTRY: dict[str, Rule] = {}
live_rule = registering(LIVE_REGISTRY)

_CARD = re.compile(r"(gh|gb|mi|rtx|[abhlvt])\d+[a-z]?")


class LiveSubject(Subject, frozen=True):
    """A layout on a cluster.

    Attributes:
        profile: The cluster.
        facts: What it offers right now; None where nobody asked.
    """

    profile: Profile
    facts: ClusterFacts | None = None

    @property
    def on_slurm(self) -> bool:
        """Whether jobs go through Slurm there."""
        return self.profile.scheduler == "slurm"

    def setting(self, key: str) -> str:
        """The layout's partition, account or qos, else the profile's."""
        return str(getattr(self.layout.slurm, key) or getattr(self.profile, key))

    @property
    def partition(self) -> PartitionFacts | None:
        """What the partition that the job would go to allows; None where it is not known or not there."""
        return self.facts.partition(self.setting("partition")) if self.facts else None

    @property
    def nodes(self) -> tuple[NodeFacts, ...]:
        """Nodes of the partition; all where the partition is not known."""
        if self.facts is None:
            return ()
        return self.facts.nodes_of(self.partition.name) if self.partition else self.facts.nodes

    @property
    def excluded(self) -> frozenset[str]:
        """Nodes that the job keeps away from: the layout's, and the profile's bad nodes whose time is not over."""
        from rltui.runs.script import excluded_nodes

        return frozenset(excluded_nodes(self.layout, self.profile))


def card_of(name: str) -> str:
    """The model number in a card's name (``h100`` in ``H100-SXM-80GB`` and ``nvidia_h100_80gb_hbm3``); else empty."""
    for piece in re.split(r"[^a-z0-9]+", name.lower()):
        if _CARD.fullmatch(piece):
            return piece
    return ""


def some(names: Iterable[str], most: int = 4) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def duration(seconds: float) -> str:
    """A time limit as Slurm writes it."""
    days, rest = divmod(int(seconds), 86400)
    hours, minutes = rest // 3600, rest % 3600 // 60
    return f"{f'{days}-' if days else ''}{hours:02d}:{minutes:02d}:{rest % 60:02d}"
