"""The nodes themselves: card, GPUs, cores and host memory of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.live_subject import LiveSubject, card_of, live_rule, some
from rltui.check.rule import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator


@live_rule("H410", "error")
def another_card(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout is made for another card than the cluster has: memory and speed would not be those checked here."""
    wanted, has = card_of(subject.layout.hardware.gpu), card_of(subject.profile.gpu)
    if subject.layout.hardware.on_cpu or not wanted:
        return
    if has and wanted != has:
        yield Trouble(
            f"the layout is for {subject.layout.hardware.gpu}; {subject.profile.name} has {subject.profile.gpu}",
            "hardware.gpu",
            (f"hardware.gpu={subject.profile.gpu}",),
        )
        return
    cards = {card_of(node.gpu) for node in subject.nodes if node.gpus}
    if cards and "" not in cards and wanted not in cards:
        where = f"partition {subject.partition.name}" if subject.partition else subject.profile.name
        yield Trouble(
            f"the layout is for {subject.layout.hardware.gpu}; {where} has {some(sorted(cards))}", "hardware.gpu"
        )


@live_rule("H411", "error")
def more_gpus_than_a_node_has(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout wants more GPUs of each node than the cluster's nodes have."""
    hardware = subject.layout.hardware
    if hardware.on_cpu:
        return
    counted = [node.gpus for node in subject.nodes]
    most = max(counted) if counted else subject.profile.gpus_per_node
    if (counted or most) and hardware.gpus_per_node > most:
        nodes = f"partition {subject.partition.name}" if subject.partition else subject.profile.name
        yield Trouble(f"{hardware.gpus_per_node} GPUs a node; nodes of {nodes} have {most}", "hardware.gpus_per_node")


@live_rule("H412", "error")
def more_cores_than_a_node_has(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout wants more CPU cores of each node than the cluster's nodes have."""
    cores = subject.layout.hardware.cpus_per_node
    counted = [node.cpus for node in subject.nodes if node.cpus]
    most = max(counted) if counted else subject.profile.cpus_per_node
    if most and cores > most:
        yield Trouble(
            f"{cores} cores a node; nodes of {subject.profile.name} have {most}",
            "hardware.cpus_per_node",
            (f"hardware.cpus_per_node={most}",),
        )


@live_rule("H413", "error")
def more_memory_than_a_node_has(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout counts on more host memory than the cluster's nodes have."""
    memory = subject.layout.hardware.memory_gib_per_node
    counted = [node.memory_gib for node in subject.nodes if node.memory_gib]
    most = max(counted) if counted else subject.profile.memory_gib
    if most and memory > most * 1.01:
        yield Trouble(
            f"{memory:g} GiB of host memory a node; nodes of {subject.profile.name} have {most:.0f}",
            "hardware.memory_gib_per_node",
            (f"hardware.memory_gib_per_node={most:.0f}",),
        )
