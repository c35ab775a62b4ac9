"""What the sampler reads of a node: its processors and memory, within the limits that the job was given."""

import os
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from rltui.onnode.processes import contents

GIB = float(1 << 30)
CGROUPS = "/sys/fs/cgroup"
SHARED_MEMORY = "/dev/shm"


class MemoryLimit(NamedTuple):
    """The tightest memory limit above this process."""

    limit_bytes: int
    usage_file: str
    stat_file: str
    cache_field: bytes
    """The line of ``stat_file`` with pages that the kernel gives back when asked."""


class HostReader:
    """Reads processors and memory of this node, again and again; what cannot be read is zero.

    Where the job is bound to some CPUs (Slurm, containers) only those count, and where its memory is limited, the
    limit is the total, so that a full bar means what it says to the job.
    """

    def __init__(self) -> None:
        self._stat = _open("/proc/stat")
        self._memory = _open("/proc/meminfo")
        everything = os.cpu_count() or 1
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(everything))
        self.cpus = len(allowed)
        self._allowed: Optional[Set[bytes]] = None
        if self.cpus < everything:
            self._allowed = {b"cpu%d" % cpu for cpu in allowed}
        self._limit = memory_limit()
        self._before = self._cpu_ticks()

    def cpu_percent(self) -> float:
        """Share of this job's CPUs that was busy since the last call, 0 to 100."""
        before, self._before = self._before, self._cpu_ticks()
        total = self._before[1] - before[1]
        return round(100.0 * (self._before[0] - before[0]) / total, 1) if total > 0 else 0.0

    def memory_gib(self) -> Tuple[float, float]:
        """Used and total memory; used is what cannot be had by dropping caches."""
        fields = _fields(_read(self._memory, 4096))
        total = fields.get(b"MemTotal:", 0) * 1024
        used = total - fields.get(b"MemAvailable:", 0) * 1024
        if self._limit is not None and self._limit.limit_bytes < total:
            total = self._limit.limit_bytes
            cache = _fields(contents(self._limit.stat_file)).get(self._limit.cache_field, 0)
            used = max(0, _number(self._limit.usage_file) - cache)
        return round(used / GIB, 2), round(total / GIB, 2)

    def room(self) -> Dict[str, Tuple[float, float]]:
        """Used and total GiB of shared memory and of the temporary directory's disk, as far as they can be read."""
        found = {}
        for name, path in (("shm", SHARED_MEMORY), ("disk", os.environ.get("TMPDIR") or "/tmp")):
            try:
                disk = os.statvfs(path)
            except OSError:
                continue
            used = disk.f_blocks - disk.f_bfree
            # what only root may fill is no room
            found[name] = tuple(round(blocks * disk.f_frsize / GIB, 2) for blocks in (used, used + disk.f_bavail))
        return found  # type: ignore[return-value]

    def _cpu_ticks(self) -> Tuple[int, int]:
        """Busy and all clock ticks of the allowed CPUs since boot (proc(5): waiting for a disk is idle)."""
        # with 1024 CPUs their lines are 70 kB; without a binding the first line is all that is needed
        lines = _read(self._stat, 512 if self._allowed is None else 1 << 17).split(b"\n")
        chosen = lines[:1] if self._allowed is None else _of(lines, self._allowed)
        busy = total = 0
        for line in chosen:
            # user to steal: the times of guests behind them are in user and nice already (proc(5))
            ticks = [int(word) for word in line.split()[1:9]]
            if len(ticks) >= 5:
                total += sum(ticks)
                busy += sum(ticks) - ticks[3] - ticks[4]
        return busy, total


def memory_limit() -> Optional[MemoryLimit]:
    """The tightest memory limit that control groups set above this process, or None."""
    limits: List[MemoryLimit] = []
    for line in contents("/proc/self/cgroup").decode("utf-8", "replace").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        # 0 is the one hierarchy of version 2; where both are mounted, a controller is in one of them only
        if number == "0":
            names = ("memory.max", "memory.current", "memory.stat")
            limits += _limits(CGROUPS, path, names, b"inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
            # total_: with the groups below it, as usage_in_bytes counts; without that only the group's own pages
            limits += _limits(os.path.join(CGROUPS, "memory"), path, names, b"total_inactive_file")
    return min(limits, default=None)


def _limits(root: str, path: str, names: Tuple[str, str, str], cache_field: bytes) -> List[MemoryLimit]:
    """Every limit from the group ``path`` up to ``root``; within a container the path may lead nowhere."""
    found = []
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        folder = os.path.join(root, *parts[:depth])
        limit = _number(os.path.join(folder, names[0]))
        # no limit is "max" in version 2, and in version 1 a number beyond any machine
        if limit > 0:
            usage, stat = (os.path.join(folder, name) for name in names[1:])
            found.append(MemoryLimit(limit, usage, stat, cache_field))
    return found


def _of(lines: List[bytes], names: Set[bytes]) -> List[bytes]:
    return [line for line in lines if line.split(b" ", 1)[0] in names]


def _fields(content: bytes) -> Dict[bytes, int]:
    """``name number`` lines as a table."""
    pairs = (line.split() for line in content.splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) >= 2 and words[1].isdigit()}


def _open(path: str) -> int:
    """A descriptor that is read again and again from its start, which spares the kernel the look-up; -1 for none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _read(descriptor: int, size: int) -> bytes:
    try:
        return os.pread(descriptor, size, 0) if descriptor >= 0 else b""
    except OSError:
        return b""


def _number(path: str) -> int:
    content = contents(path).strip()
    return int(content) if content.isdigit() else 0
