"""Nodes, GPUs and processes of an attempt, from the lines of its samplers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import fmean

from msgspec import Struct, structs

from rltui.cluster.relay_client import RelayClient
from rltui.onnode.lost_nodes import is_sampler_file
from rltui.watch.lines import LineFollower, decode, entries_of
from rltui.watch.node_samples import EngineSample, GpuSample, HostSnapshot, ProcessSample

HISTORY = 60
RESTS_PERCENT = 1.0
"""A GPU that is used no more than this does not work at all; the screen calls idle what does little."""

FIRST_BYTES = 1 << 17
"""Enough for a history of a node with eight GPUs."""
LIST_EVERY_S = 5.0
"""A listing costs the metadata server of a parallel file system a look at each entry, and all jobs share that one."""


class GpuLine(Struct, frozen=True, rename={"temperature_c": "c", "held_back": "held"}):
    """One GPU in a line of the sampler; what is None was not said in this line."""

    i: int
    name: str | None = None
    uuid: str | None = None
    util: float | None = None
    mem: tuple[float, float] | None = None
    w: float | None = None
    temperature_c: float | None = None
    held_back: tuple[str, ...] | None = None
    mhz: tuple[float, float] | None = None
    ecc: tuple[int, int] | None = None
    pids: tuple[int, ...] | None = None


class ProcessLine(Struct, frozen=True, rename={"cpu_percent": "cpu", "resident_gib": "rss", "parent": "ppid"}):
    """One process in a slow line of the sampler: the fields of ``ProcessSample``."""

    pid: int
    title: str = ""
    cpu_percent: float = 0.0
    resident_gib: float = 0.0
    state: str = ""
    state_s: float = 0.0
    parent: int = 0


class SamplerLine(Struct, frozen=True):
    """One line of the sampler."""

    t: float
    host: str
    cpus: int = 0
    cpu: float = 0.0
    mem: tuple[float, float] = (0.0, 0.0)
    gpus: tuple[GpuLine, ...] = ()
    shm: tuple[float, float] | None = None
    disk: tuple[float, float] | None = None
    procs: tuple[ProcessLine, ...] | None = None
    engines: tuple[EngineSample, ...] | None = None


class HostState:
    """What is known of one node after each line: slow fields stay until they are said again."""

    def __init__(self) -> None:
        self._line: SamplerLine | None = None
        self._gpus: dict[int, GpuSample] = {}
        self._processes: tuple[ProcessSample, ...] = ()
        self._processes_at = 0.0
        self._engines: tuple[EngineSample, ...] = ()
        self._shm = self._disk = (0.0, 0.0)
        self._cpu_history: deque[float] = deque(maxlen=HISTORY)
        self._gpu_history: dict[int, deque[float]] = {}
        self._power_history: dict[int, deque[float]] = {}
        self._idle_since = 0.0

    def take(self, lines: list[bytes]) -> None:
        """Take new lines; ones that are none are skipped."""
        for raw in lines:
            line = decode(raw, SamplerLine)
            if line is not None:
                self._apply(line)

    def snapshot(self) -> HostSnapshot | None:
        """The node as of the newest line; None where there was none."""
        line = self._line
        if line is None:
            return None
        indices = sorted(self._gpus)
        return HostSnapshot(
            host=line.host,
            taken_at=line.t,
            cpus=line.cpus,
            cpu_percent=line.cpu,
            memory_used_gib=line.mem[0],
            memory_total_gib=line.mem[1],
            shm_used_gib=self._shm[0],
            shm_total_gib=self._shm[1],
            disk_used_gib=self._disk[0],
            disk_total_gib=self._disk[1],
            gpus=tuple(self._with_recent(index) for index in indices),
            processes=self._processes,
            processes_at=self._processes_at,
            engines=self._engines,
            cpu_history=tuple(self._cpu_history),
            gpu_history=tuple(tuple(self._gpu_history[index]) for index in indices),
            idle_since=self._idle_since,
        )

    def _with_recent(self, index: int) -> GpuSample:
        power = self._power_history[index]
        return structs.replace(self._gpus[index], recent_w=fmean(power) if power else None)

    def _apply(self, line: SamplerLine) -> None:
        self._line = line
        self._cpu_history.append(line.cpu)
        seen = {gpu.i for gpu in line.gpus}
        for index in self._gpus.keys() - seen:
            del self._gpus[index], self._gpu_history[index], self._power_history[index]
        for gpu in line.gpus:
            sample = self._gpus[gpu.i] = merge_gpu(self._gpus.get(gpu.i), gpu)
            self._gpu_history.setdefault(gpu.i, deque(maxlen=HISTORY)).append(sample.utilization_percent)
            power = self._power_history.setdefault(gpu.i, deque(maxlen=HISTORY))
            if gpu.w is not None:
                power.append(gpu.w)
        is_idle = bool(self._gpus) and all(gpu.utilization_percent <= RESTS_PERCENT for gpu in self._gpus.values())
        self._idle_since = (self._idle_since or line.t) if is_idle else 0.0
        self._shm, self._disk = line.shm or self._shm, line.disk or self._disk
        if line.procs is not None:
            self._processes = tuple(ProcessSample(**structs.asdict(one)) for one in line.procs)
            self._processes_at = line.t
            self._engines = line.engines or ()


_SLOW = ("name", "uuid", "temperature_c", "held_back", "pids")
"""What a sampler says of a card in each slow line, and in others not at all."""


def merge_gpu(before: GpuSample | None, line: GpuLine) -> GpuSample:
    """Return what is known of a GPU after ``line``: what it says, and ``before``'s slow fields where it says none."""
    before = before or GpuSample(index=line.i, name="")
    used, total = line.mem or (before.memory_used_gib, before.memory_total_gib)
    clock, most = line.mhz or (before.clock_mhz, before.clock_most_mhz)
    corrected, uncorrected = line.ecc or (before.ecc_corrected, before.ecc_uncorrected)
    said = {name: value for name in _SLOW if (value := getattr(line, name)) is not None}
    return structs.replace(
        before,
        utilization_percent=line.util or 0.0,
        memory_used_gib=used,
        memory_total_gib=total,
        memory_peak_gib=max(before.memory_peak_gib, used),
        clock_mhz=clock,
        clock_most_mhz=most,
        ecc_corrected=corrected,
        ecc_uncorrected=uncorrected,
        power_w=line.w,
        # of a card that fell off the bus NVML answers each question with "GPU is lost", and goes on to list it
        answers=any(told is not None for told in (line.util, line.mem, line.w)),
        **said,
    )


class HostsReader:
    """Finds and reads the samplers' files of one attempt.

    Args:
        client: The relay of the cluster.
        attempt_path: The attempt's directory.
        clock: Monotonic seconds.
    """

    def __init__(self, client: RelayClient, attempt_path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._attempt_path = attempt_path
        self._clock = clock
        self._listed_at: float | None = None
        self._states: dict[str, HostState] = {}
        self._followers: dict[str, LineFollower] = {}

    def followers(self) -> list[LineFollower]:
        """The files to read; new ones are looked for every few seconds, as nodes come by and by."""
        now = self._clock()
        if self._listed_at is None or now - self._listed_at >= LIST_EVERY_S:
            self._listed_at = now
            self._look()
        return list(self._followers.values())

    def snapshots(self) -> tuple[HostSnapshot, ...]:
        """The nodes that have spoken, by name."""
        found = [state.snapshot() for state in self._states.values()]
        return tuple(sorted((one for one in found if one is not None), key=lambda one: one.host))

    def _look(self) -> None:
        for entry in entries_of(self._client, self._attempt_path):
            if is_sampler_file(entry.name) and entry.name not in self._states:
                state = self._states[entry.name] = HostState()
                path = f"{self._attempt_path}/{entry.name}"
                self._followers[entry.name] = LineFollower(path, state.take, first_bytes=FIRST_BYTES)
