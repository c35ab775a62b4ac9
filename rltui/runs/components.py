"""A layout as each of its kinds of node has it: what one component of a het job is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from rltui.cluster.profile import Profile, in_partition

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from rltui.runs.script_job import ScriptJob

Work = TypeVar("Work", bound="Layout | ScriptJob")


def components(layout: Work) -> list[Work]:
    """``layout`` itself, and for each further kind of node one whose ``hardware`` and ``slurm`` are that kind's."""
    found = [layout]
    for part, kind in zip(layout.hardware.parts[1:], layout.hardware.more.values(), strict=True):
        slurm = replace(
            layout.slurm,
            partition=kind.partition or layout.slurm.partition,
            constraint=kind.constraint,
            mem_gib=kind.mem_gib,
            licenses="",  # they are the whole job's, so the first component holds them
        )
        found.append(replace(layout, hardware=part, slurm=slurm))
    return found


def profiles(layout: Layout | ScriptJob, profile: Profile) -> list[Profile]:
    """The cluster as it is for each of ``components``: in that one's partition, with its GPUs' name."""
    found = [in_partition(profile, layout.slurm.partition)]
    for kind in layout.hardware.more.values():
        partition = kind.partition or layout.slurm.partition or profile.partition
        there = in_partition(profile, partition)
        if partition not in profile.partitions and (partition != profile.partition or kind.gpu not in ("", there.gpu)):
            # what the profile says of its nodes is not about these
            there = replace(there, gpu="", gpus_per_node=0, cpus_per_node=0, memory_gib=0.0)
        found.append(replace(there, gres=kind.gres or there.gres))
    return found
