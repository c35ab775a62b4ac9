"""Reservations as scontrol shows them: nodes that are kept for some people, or from everybody, for a time."""

from __future__ import annotations

from msgspec import Struct

from rltui.cluster.plain_text import plain
from rltui.cluster.slurm.records import read_entities, whole
from rltui.cluster.slurm.times import NEVER, read_time

RESERVATIONS_ARGV = ("scontrol", "--oneliner", "show", "reservation")


class Reservation(Struct, frozen=True, kw_only=True):
    """One reservation; times are epoch seconds, 0 where it has none.

    Attributes:
        name: As ``slurm.reservation`` takes it.
        nodes: Its nodes, folded; empty where it is of licences or cores alone.
        node_count: How many they are.
        starts_at: When it begins.
        ends_at: When it ends.
        flags: Slurm's words for what is special, such as ``MAINT``.
        users: Who may use it, as Slurm lists them; with ``accounts`` and ``groups`` empty, nobody is named.
        accounts: Whose accounts may.
        groups: Members of which groups may.
    """

    name: str
    nodes: str = ""
    node_count: int = 0
    starts_at: float = 0.0
    ends_at: float = 0.0
    flags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    is_active: bool = False

    @property
    def is_maintenance(self) -> bool:
        """Whether it keeps everybody away."""
        return "MAINT" in self.flags


def read_reservations(text: str) -> tuple[Reservation, ...]:
    """Return the reservations in the output of ``scontrol --oneliner show reservation``, the first to begin first."""
    found = (
        Reservation(
            name=plain(one["ReservationName"]),
            nodes="" if one.get("Nodes", "") in NEVER else plain(one["Nodes"]),
            node_count=whole(one.get("NodeCnt", "")) or 0,
            starts_at=read_time(one.get("StartTime", "")),
            ends_at=read_time(one.get("EndTime", "")),
            flags=_names(one.get("Flags", "")),
            users=_names(one.get("Users", "")),
            accounts=_names(one.get("Accounts", "")),
            groups=_names(one.get("Groups", "")),
            is_active=one.get("State") == "ACTIVE",
        )
        for one in read_entities(text, "ReservationName")
    )
    return tuple(sorted(found, key=lambda one: (one.starts_at, one.name)))


def _names(text: str) -> tuple[str, ...]:
    return () if text.strip() in NEVER else tuple(plain(name) for name in text.split(",") if name)
