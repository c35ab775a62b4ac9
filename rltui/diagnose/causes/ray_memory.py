"""Ray and what it keeps on a node: the memory monitor, the object store, the disk under its folder."""

from __future__ import annotations

import re

from rltui.diagnose.cause import Cause
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Hit, Reading, worded

PLENTY_GIB = 100.0
"""Free space with which a disk that is 95 % full still has room for what Ray spills."""


def read_free_disk(hit: Hit) -> Reading | None:
    """Ray warns at 95 % of any disk and prints what is free, in bytes or GB; an old wording has no number."""
    free = re.match(r"(\d+(?:\.\d+)?)[.]? ?(GB)?", hit.groups.get("available", ""))
    if free is not None and float(free[1]) / (1.0 if free[2] else 2**30) >= PLENTY_GIB:
        return None
    return Reading(0.85)


CAUSES = (
    Cause(
        id="ray_oom_kill",
        tier="site",
        title="Ray's memory monitor killed workers because the node ran out of host memory",
        tell="Ray names its threshold (0.95 of the node's memory) or counts workers killed due to memory pressure.",
        wordings=worded(
            (
                "killed due to memory pressure",
                r"^(?!.*(?<!\d)0 Workers[^,]{0,40}killed due to memory).*killed due to memory pressure",
            ),
            ("memory usage threshold", r"exceeds the memory usage threshold of (?P<threshold>[\d.]+)"),
            ("memory", r"(?i)\bnode\b.{0,20}\b(?:running )?low on memory\b|\bmemory low at node\b"),
            (
                "outofmemoryerror",
                r"ray\.exceptions\.OutOfMemoryError|RayOutOfMemoryError|RayTaskError\(OutOfMemoryError\).*node",
                "outofmemoryerror rayoutofmemoryerror",
            ),
            ("ray-oom-prevention", ""),
            ("memory on the node", r"Memory on the node \(IP: .{0,200}where the (?:task|lease|actor)"),
            ("of the memory on node", r"More than \d+% of the memory on node"),
            confidence=0.95,
        ),
        explains=frozenset(
            {"ray_actor_died", "engine_core_died", "dataloader_killed", "nccl_timeout", "host_oom_slurm"}
        ),
        remedies=(
            Remedy(
                id="more-host-memory",
                summary="Ask for all memory of the node, run fewer rollout and data-loader workers, and offload less.",
                commands=("sbatch --mem=0 …",),
                safe="confirm",
            ),
            Remedy(
                id="threshold-last",
                summary="As a last resort raise Ray's threshold to 0.98; the kernel's own killer is next.",
                commands=("export RAY_memory_usage_threshold=0.98",),
                safe="confirm",
            ),
        ),
        wrong=(
            "A smaller GPU batch: this is host memory.",
            "Switching the monitor off: the kernel then kills something at random.",
        ),
        sources=("https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html",),
    ),
    Cause(
        id="ray_disk_full",
        tier="aside",
        title="The disk under Ray's folder is nearly full",
        detail="{available} free",
        tell="Ray warns at 95 %, which on a large disk may still be plenty: the free bytes decide.",
        wordings=worded(
            (
                "object creation will fail",
                r"(?i)(?:available space: (?P<available>[\d.]+(?: ?GB)?).*)?object creation "
                r"will fail",
            ),
            ("% full", r"is over [\d.]+% full, ?(?:available space: (?P<available>[\d.]+(?: ?GB)?))?"),
            ("outofdiskerror", r"OutOfDiskError"),
            ("local disk", r"(?i)ray.{0,80}local disk .{0,40}full"),
            check=read_free_disk,
        ),
        remedies=(
            Remedy(
                id="clean-own-sessions",
                summary="Remove your own old Ray sessions and put Ray's folder on the node's local scratch.",
                commands=("find /tmp/ray -maxdepth 1 -name 'session_*' -user $USER -mtime +1",),
                safe="confirm",
            ),
        ),
        wrong=("Switching the monitor off.",),
        sources=("https://docs.ray.io/en/latest/ray-core/objects/object-spilling.html",),
    ),
    Cause(
        id="ray_shm_too_small",
        tier="root",
        title="/dev/shm is too small for Ray's object store",
        tell="Ray compares the configured store with /dev/shm, or its store fails to grow. That it takes /tmp instead "
        "is "
        "slow, and no failure.",
        wordings=worded(
            ("exceeds /dev/shm size", ""),
            ("exceeds the capacity of /dev/shm", ""),
            ("in object store because it is full", ""),
            ("plasma", r"(?i)plasma.{0,80}(?:no space left|ENOSPC|failed to (?:allocate|create|mmap|extend|grow))"),
            ("plasma", r"(?i)no space left.{0,80}\bplasma"),
            confidence=0.75,
        ),
        explains=frozenset({"dataloader_killed", "disk_full"}),
        remedies=(
            Remedy(
                id="larger-shm",
                summary="Give the container more shared memory, or Ray a smaller store.",
                commands=("docker run --shm-size=64g …", "ray start --object-store-memory=<bytes> …"),
                safe="auto",
            ),
        ),
        wrong=("RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE=1: it works, and crawls.",),
        sources=("https://docs.ray.io/en/latest/ray-core/scheduling/memory-management.html",),
    ),
)
