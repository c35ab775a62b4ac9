"""What the sampler reads of a node's GPUs, by NVML; nothing where there is no driver, no pynvml or no card."""

import contextlib
import ctypes
import os
from typing import Any, Callable, Dict, List, Tuple

GIB = float(1 << 30)
MOST_XIDS = 64
"""Errors told of in one go; a dying card may report without end."""


HELD_BACK = {"heat": 0x20 | 0x40, "power brake": 0x80, "hardware slowdown": 0x08}
"""Bits of NVML's clock event reasons (nvml.h): software and hardware thermal slowdown, power brake, other slowdown."""


CARDS_VARIABLE = "RLTUI_CARDS"
"""Which cards are the attempt's (``0,2``, or ``none``), where NVML shows those of others too."""


class GpuReader:
    """Reads all GPUs that NVML shows this process, or those of ``RLTUI_CARDS``, again and again.

    A value that a card does not have (memory of a GPU with unified memory, power of a shared slice), or that it cannot
    say at the moment, is left out.
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._events: Any = None
        self._handles: List[Any] = []
        self._numbers: List[int] = []
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            self._numbers = _own_cards(pynvml.nvmlDeviceGetCount())
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in self._numbers]
        except pynvml.NVMLError:
            self._handles = []
        self._nvml = pynvml
        self._events = self._watch_xids()

    def xids(self) -> List[Tuple[int, int]]:
        """(index of the GPU, Xid) of each error that the driver reported since the last call, without waiting."""
        found: List[Tuple[int, int]] = []
        if self._events is None:
            return found
        # What ends the loop is a time-out: there is no more; or the card is gone, which its Xid said before.
        with contextlib.suppress(self._nvml.NVMLError):
            while len(found) < MOST_XIDS:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                found.append((self._index_of(event.device), int(event.eventData)))
        return found

    def _index_of(self, handle: Any) -> int:
        """Index of an event's card, by its address: NVML answers no question about one that fell off the bus."""
        address = ctypes.cast(handle, ctypes.c_void_p).value
        known = [ctypes.cast(one, ctypes.c_void_p).value for one in self._handles]
        return self._numbers[known.index(address)] if address in known else -1

    def bus_id(self, index: int) -> str:
        """Where a GPU sits on the PCI bus, as the kernel's log names it; its index where the driver does not say."""
        with contextlib.suppress(self._nvml.NVMLError, AttributeError):
            if index in self._numbers:
                handle = self._handles[self._numbers.index(index)]
                return _text(self._nvml.nvmlDeviceGetPciInfo(handle).busId)
        return str(max(0, index))

    def _watch_xids(self) -> Any:
        """NVML's set of events, or None where no card or no driver can report Xids."""
        nvml, watched = self._nvml, 0
        if not self._handles or not hasattr(nvml, "nvmlEventSetWait_v2"):
            return None
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return None
        for handle in self._handles:
            with contextlib.suppress(nvml.NVMLError):  # shared slices and some drivers cannot
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
                watched += 1
        return events if watched else None

    def sample(self, slow: bool) -> List[Dict[str, Any]]:
        """One entry a GPU; ``slow`` adds what hardly changes or takes NVML long."""
        return [self._one(self._numbers[place], handle, slow) for place, handle in enumerate(self._handles)]

    def _one(self, index: int, handle: Any, slow: bool) -> Dict[str, Any]:
        nvml = self._nvml
        entry: Dict[str, Any] = {"i": index}
        # the share of a short time in which any kernel ran: a collective that waits for other ranks counts as work
        self._add(entry, "util", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        self._add(entry, "mem", lambda: _memory(nvml.nvmlDeviceGetMemoryInfo(handle)))
        self._add(entry, "w", lambda: round(nvml.nvmlDeviceGetPowerUsage(handle) / 1000))
        if slow:
            self._add(entry, "name", lambda: _text(nvml.nvmlDeviceGetName(handle)))
            self._add(entry, "uuid", lambda: _text(nvml.nvmlDeviceGetUUID(handle)))
            self._add(entry, "c", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            if hasattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons"):
                self._add(entry, "held", lambda: _held_back(nvml, handle))
            self._add(entry, "mhz", lambda: _clocks(nvml, handle))
            self._add(entry, "ecc", lambda: _ecc_errors(nvml, handle))
            self._add(entry, "pids", lambda: [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)])
        return entry

    def _add(self, entry: Dict[str, Any], name: str, ask: Callable[[], Any]) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            entry[name] = ask()


def _held_back(nvml: Any, handle: Any) -> List[str]:
    """Why the hardware lowers this GPU's clocks now; its power cap is none of these, as it is met in all hard work.

    Raises:
        NVMLError: The card or the driver does not say.
    """
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return [words for words, bits in HELD_BACK.items() if reasons & bits]


def _clocks(nvml: Any, handle: Any) -> List[int]:
    """MHz of its multiprocessors, now and at most."""
    kind = nvml.NVML_CLOCK_SM
    return [nvml.nvmlDeviceGetClockInfo(handle, kind), nvml.nvmlDeviceGetMaxClockInfo(handle, kind)]


def _ecc_errors(nvml: Any, handle: Any) -> List[int]:
    """Errors of its memory since the driver was loaded: those that were corrected, and those that were not."""
    kinds = (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    return [nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC) for kind in kinds]


def _own_cards(count: int) -> List[int]:
    """Those of ``count`` cards that are the attempt's."""
    told = os.environ.get(CARDS_VARIABLE, "")
    own = [int(word) for word in told.split(",") if word.isdigit()]
    return [index for index in range(count) if not told or index in own]


def _memory(info: Any) -> List[float]:
    # NVML's first form of the answer: what the driver keeps for itself is in used
    return [round(info.used / GIB, 2), round(info.total / GIB, 2)]


def _text(value: Any) -> str:
    """Old versions of pynvml return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
