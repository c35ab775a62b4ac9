"""What the sampler reads of a node's GPUs, by NVML; nothing where there is no driver, no pynvml or no card."""

import contextlib
from typing import Any, Callable, Dict, List

GIB = float(1 << 30)


class GpuReader:
    """Reads all GPUs that NVML shows this process, again and again.

    A value that a card does not have (memory of a GPU with unified memory, power of a shared slice), or that it cannot
    say at the moment, is left out.
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: List[Any] = []
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except pynvml.NVMLError:
            self._handles = []
        self._nvml = pynvml

    def sample(self, slow: bool) -> List[Dict[str, Any]]:
        """One entry a GPU; ``slow`` adds what hardly changes or takes NVML long."""
        return [self._one(index, handle, slow) for index, handle in enumerate(self._handles)]

    def _one(self, index: int, handle: Any, slow: bool) -> Dict[str, Any]:
        nvml = self._nvml
        entry: Dict[str, Any] = {"i": index}
        self._add(entry, "util", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        self._add(entry, "mem", lambda: _memory(nvml.nvmlDeviceGetMemoryInfo(handle)))
        self._add(entry, "w", lambda: round(nvml.nvmlDeviceGetPowerUsage(handle) / 1000))
        if slow:
            self._add(entry, "name", lambda: _text(nvml.nvmlDeviceGetName(handle)))
            self._add(entry, "uuid", lambda: _text(nvml.nvmlDeviceGetUUID(handle)))
            self._add(entry, "c", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            self._add(entry, "pids", lambda: [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)])
        return entry

    def _add(self, entry: Dict[str, Any], name: str, ask: Callable[[], Any]) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            entry[name] = ask()


def _memory(info: Any) -> List[float]:
    return [round(info.used / GIB, 2), round(info.total / GIB, 2)]


def _text(value: Any) -> str:
    """Old versions of pynvml return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
