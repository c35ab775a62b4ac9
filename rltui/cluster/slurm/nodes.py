"""Nodes, partitions and reservations as scontrol shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from rltui.cluster.facts import NodeFacts, PartitionFacts
from rltui.cluster.plain_text import plain
from rltui.cluster.slurm.nodelist import is_host_name
from rltui.cluster.slurm.records import NEVER, read_duration_s, read_entities, read_time, whole

NODES_ARGV = ("scontrol", "--all", "--detail", "--oneliner", "show", "node")
NODES_BYTES = 16 << 20
"""For the answer on all nodes: a node is a thousand bytes, and there are clusters of ten thousand."""

MARKS = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "!": "powering_down",
    "%": "powering_down",
    "$": "maint",
    "@": "reboot_requested",
    "^": "reboot_issued",
    "-": "planned",
}
"""Signs that Slurm writes behind a node's state."""

COMPOUND = {
    "drained": ("idle", "drain"),
    "draining": ("mixed", "drain"),
    "maint": ("idle", "maint"),
    "reserved": ("idle", "reserved"),
    "planned": ("idle", "planned"),
    "alloc": ("allocated", ""),
    "mix": ("mixed", ""),
    "comp": ("completing", ""),
    "completing": ("completing", ""),
    "failing": ("mixed", "fail"),
    "fail": ("down", "fail"),
    "inval": ("down", "invalid_reg"),
}
"""Words of sinfo and of some releases that hold a base state and a flag in one."""

WRITTEN_OUT = {"maintenance": "maint"}
"""Flags that scontrol writes with another word than sinfo."""

# the type may be all digits, as in gpu:3090:4
_GPUS = re.compile(r"gpu(?::([A-Za-z0-9][\w.-]*))?:([0-9]{1,6})")
_SLICE = re.compile(r"(?:^|[_.-])[0-9]+g\.[0-9]+gb")
_ALLOCATED = re.compile(r"(?:^|,)gres/gpu(?::([\w.-]+))?=([0-9]{1,6})")
# who gave the reason and when; in newer releases a comment, a reservation and more may follow
_WHO = re.compile(r"\s*\[[^\[\]@]*@[0-9][^\[\]@\s]*\](?:\s.*)?\Z", re.DOTALL)
_NO_LIMIT = frozenset({"", "ALL", "(null)", "N/A", "NONE"})


def read_nodes(text: str) -> tuple[NodeFacts, ...]:
    """Return the nodes in the output of ``scontrol --detail --oneliner show node``."""
    pairs = read_entities(text, "NodeName")
    return tuple(_node(one) for one in pairs if is_host_name(one["NodeName"]))


def read_partitions(text: str) -> tuple[PartitionFacts, ...]:
    """Return the partitions in the output of ``scontrol --oneliner show partition``."""
    return tuple(_partition(one) for one in read_entities(text, "PartitionName"))


def read_node_state(text: str) -> tuple[str, tuple[str, ...]]:
    """Return base word and flags of a node's state, such as ``IDLE+DRAIN`` or ``mixed*``."""
    words: list[str] = []
    flags: list[str] = []
    for piece in text.strip().lower().split("+"):
        word = piece.rstrip("".join(MARKS))
        flags += [MARKS[sign] for sign in piece[len(word) :]]
        words += [WRITTEN_OUT.get(word, word)] if word else []
    base, flag = COMPOUND.get(words[0], (words[0], "")) if words else ("unknown", "")
    return base, tuple(dict.fromkeys(filter(None, [flag, *words[1:], *flags])))


def read_gpus(gres: str) -> tuple[str, int]:
    """Return type and number of the GPUs in a list of generic resources, ``gpu:h100:4(S:0-1),nvme:1``.

    Of several types it is the one of which there are most, slices of GPUs (MIG) last: a job is given GPUs of one type.
    """
    found = _gpus_by_type(gres)
    kind = max(found, key=lambda one: (found[one] > 0, not _SLICE.search(one), found[one]), default="")
    return kind, found.get(kind, 0)


def _gpus_by_type(gres: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in re.sub(r"\([^()]*\)", "", gres).split(","):
        if match := _GPUS.fullmatch(item.strip()):
            found[match[1] or ""] = found.get(match[1] or "", 0) + int(match[2])
    return found


def _node(pairs: Mapping[str, str]) -> NodeFacts:
    state, flags = read_node_state(pairs.get("State", ""))
    gpu, gpus = read_gpus(pairs.get("Gres", ""))
    reason = _WHO.sub("", plain(pairs.get("Reason", "")))
    return NodeFacts(
        name=pairs["NodeName"],
        partitions=_names(pairs.get("Partitions", "")),
        state=plain(state),
        flags=tuple(plain(flag) for flag in flags),
        reason="" if reason.lower() in ("none", "(null)") else reason,
        gpu=gpu,
        gpus=gpus,
        gpus_used=_gpus_used(pairs, gpu),
        # without the cores that a site keeps for daemons (CoreSpecCount); older releases do not tell them apart
        cpus=whole(pairs.get("CPUEfctv") or pairs.get("CPUTot", "")) or 0,
        memory_gib=(whole(pairs.get("RealMemory", "")) or 0) / 1024,
        features=_names(pairs.get("ActiveFeatures") or pairs.get("AvailableFeatures", "")),
    )


def _gpus_used(pairs: Mapping[str, str], kind: str) -> int | None:
    """How many GPUs of type ``kind`` jobs have; all of them where the node does not tell its types apart."""
    if "GresUsed" in pairs:
        used = _gpus_by_type(pairs["GresUsed"])
    elif "AllocTRES" in pairs:
        used = {name: int(count) for name, count in _ALLOCATED.findall(pairs["AllocTRES"])}
    else:
        return None
    return used.get(kind, used.get("", 0))


def _partition(pairs: Mapping[str, str]) -> PartitionFacts:
    return PartitionFacts(
        name=plain(pairs["PartitionName"]),
        is_default=pairs.get("Default") == "YES",
        is_up=pairs.get("State", "UP").upper() == "UP",
        max_time_s=read_duration_s(pairs.get("MaxTime", "")),
        max_nodes=whole(pairs.get("MaxNodes", "")),
        accounts=_names(pairs.get("AllowAccounts", "")),
        qos=_names(pairs.get("AllowQos", "")),
    )


def _names(text: str) -> tuple[str, ...]:
    return () if text.strip() in _NO_LIMIT else tuple(plain(name.strip()) for name in text.split(",") if name.strip())


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
            flags=_named(one.get("Flags", "")),
            users=_named(one.get("Users", "")),
            accounts=_named(one.get("Accounts", "")),
            groups=_named(one.get("Groups", "")),
            is_active=one.get("State") == "ACTIVE",
        )
        for one in read_entities(text, "ReservationName")
    )
    return tuple(sorted(found, key=lambda one: (one.starts_at, one.name)))


def _named(text: str) -> tuple[str, ...]:
    return () if text.strip() in NEVER else tuple(plain(name) for name in text.split(",") if name)
