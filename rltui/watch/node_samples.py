"""What a sampler tells of its node: cards, processes, engines; one picture of it."""

from __future__ import annotations

from msgspec import Struct


class GpuSample(Struct, frozen=True, kw_only=True):
    """One GPU of one node at one time."""

    index: int
    name: str
    uuid: str = ""
    utilization_percent: float = 0.0
    memory_used_gib: float = 0.0
    memory_total_gib: float = 0.0
    power_w: float | None = None
    recent_w: float | None = None
    """Mean power over as many lines as the node's histories have; one moment of a step says little."""
    temperature_c: float | None = None
    held_back: tuple[str, ...] = ()
    """Why the hardware lowers its clocks, in words of the sampler."""
    memory_peak_gib: float = 0.0
    """The most that it held in the lines that were read."""
    clock_mhz: float | None = None
    """Of its multiprocessors."""
    clock_most_mhz: float | None = None
    """The most that the card allows."""
    ecc_corrected: int | None = None
    """Errors of its memory since the driver was loaded; None: it does not count them."""
    ecc_uncorrected: int | None = None
    pids: tuple[int, ...] = ()
    answers: bool = True
    """Whether the driver says anything of it; of a card that fell off the bus it does not."""


class ProcessSample(Struct, frozen=True, kw_only=True):
    """One process of the attempt on one node at one time."""

    pid: int
    title: str
    cpu_percent: float = 0.0
    resident_gib: float = 0.0
    state: str = ""
    """Why it does nothing, ``stopped``, ``traced``, ``zombie`` or ``disk wait``; empty where it works."""
    state_s: float = 0.0
    parent: int = 0
    """The process that started it; 0: an older sampler does not say."""


class EngineSample(Struct, frozen=True, kw_only=True):
    """One inference engine on one node, by its own counters; None: it does not tell."""

    name: str
    """Its port; of several engines behind one port, its number there too."""
    pid: int = 0
    running: float | None = None
    """Requests that it works on."""
    waiting: float | None = None
    kv_cache_usage: float | None = None
    """Share of its KV cache that is in use, 0 to 1."""
    preemptions_total: float | None = None
    tokens_per_second: float | None = None
    """Tokens that it generated since the look before."""
    silent_s: float = 0.0
    """For how long it has not answered, after it told its counters; 0: it answers."""

    @property
    def is_silent(self) -> bool:
        """Whether it does not answer now."""
        return self.silent_s > 0


class HostSnapshot(Struct, frozen=True, kw_only=True):
    """One node: the newest line of its sampler, with a short history."""

    host: str
    taken_at: float = 0.0
    cpus: int = 0
    cpu_percent: float = 0.0
    memory_used_gib: float = 0.0
    memory_total_gib: float = 0.0
    shm_used_gib: float = 0.0
    """``/dev/shm``, in which Ray's objects and NCCL's buffers lie."""
    shm_total_gib: float = 0.0
    """0: it is not known."""
    disk_used_gib: float = 0.0
    """The disk of the temporary directory, to which Ray spills."""
    disk_total_gib: float = 0.0
    """0: it is not known."""
    gpus: tuple[GpuSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    processes_at: float = 0.0
    """When they were looked at, epoch seconds: less often than the rest."""
    engines: tuple[EngineSample, ...] = ()
    """Those that serve HTTP, as other systems' do; our own trainers' engines speak through the status endpoint."""
    cpu_history: tuple[float, ...] = ()
    gpu_history: tuple[tuple[float, ...], ...] = ()
    """For each GPU its latest utilisation percentages, oldest first."""
    idle_since: float = 0.0
    """Since when, epoch seconds, no GPU has worked, as far as lines were read; 0: one works, or there is none."""


class RoleMemory(Struct, frozen=True, kw_only=True):
    """What was estimated for each card of a role, before the run, at the moment at which it takes most."""

    letter: str
    """As in ``ROLE_NAMES``."""
    moment: str
    estimated_gib: float
