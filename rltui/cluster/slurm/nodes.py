"""Nodes and partitions as scontrol shows them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.cluster.facts import NodeFacts, PartitionFacts
from rltui.cluster.plain_text import plain
from rltui.cluster.slurm.key_values import read_entities
from rltui.cluster.slurm.nodelist import is_host_name
from rltui.cluster.slurm.records import whole
from rltui.cluster.slurm.times import read_duration_s

if TYPE_CHECKING:
    from collections.abc import Mapping

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

_GPUS = re.compile(r"(?:^|,)gpu(?::([A-Za-z][\w.-]*))?:([0-9]{1,6})")
_ALLOCATED = re.compile(r"(?:^|,)gres/gpu=([0-9]{1,6})")
_WHO = re.compile(r"\s*\[[^\[\]]*@[^\[\]]*\]\s*\Z")
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
        words += [word] if word else []
    base, flag = COMPOUND.get(words[0], (words[0], "")) if words else ("unknown", "")
    return base, tuple(dict.fromkeys(filter(None, [flag, *words[1:], *flags])))


def read_gpus(gres: str) -> tuple[str, int]:
    """Return type and number of the GPUs in a list of generic resources, ``gpu:h100:4(S:0-1),nvme:1``."""
    found = _GPUS.findall(re.sub(r"\([^()]*\)", "", gres))
    return next((kind for kind, _ in found if kind), ""), sum(int(count) for _, count in found)


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
        gpus_used=_gpus_used(pairs),
        cpus=whole(pairs.get("CPUEfctv") or pairs.get("CPUTot", "")) or 0,
        memory_gib=(whole(pairs.get("RealMemory", "")) or 0) / 1024,
        features=_names(pairs.get("ActiveFeatures") or pairs.get("AvailableFeatures", "")),
    )


def _gpus_used(pairs: Mapping[str, str]) -> int | None:
    if "GresUsed" in pairs:
        return read_gpus(pairs["GresUsed"])[1]
    if "AllocTRES" not in pairs:
        return None
    match = _ALLOCATED.search(pairs["AllocTRES"])
    return int(match[1]) if match else 0


def _partition(pairs: Mapping[str, str]) -> PartitionFacts:
    return PartitionFacts(
        name=plain(pairs["PartitionName"]),
        is_default=pairs.get("Default") == "YES",
        is_up=pairs.get("State", "UP").upper() == "UP",
        max_time_s=read_duration_s(pairs.get("MaxTime", "")),
        default_time_s=read_duration_s(pairs.get("DefaultTime", "")),
        max_nodes=whole(pairs.get("MaxNodes", "")),
        accounts=_names(pairs.get("AllowAccounts", "")),
        qos=_names(pairs.get("AllowQos", "")),
    )


def _names(text: str) -> tuple[str, ...]:
    return () if text.strip() in _NO_LIMIT else tuple(plain(name.strip()) for name in text.split(",") if name.strip())
