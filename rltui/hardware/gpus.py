"""GPUs by their exact NVML name and memory; a card that is not in the table is unknown, never guessed.

Substrings mislead ("GH200" contains "H200", and "H100" is sold with 80, 94 and 96 GB), so only whole names count.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

MEMORY_TOLERANCE = 0.03
"""Drivers report totals that differ by up to this share (ECC, reserved pages); cards of one name differ by more."""


class Gpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One card.

    Attributes:
        name: How layouts call it, such as ``H100-SXM-80GB``.
        aliases: Other names that layouts may use.
        nvml_names: What NVML and ``nvidia-smi`` call it.
        nvml_mib: Memory that NVML reports, in MiB.
        usable_gib: Memory that CUDA offers to a process (``torch.cuda.mem_get_info``), in GiB.
        peak_flops: Dense bf16 tensor FLOP/s (fp16 on cards without bf16), without sparsity.
        bandwidth: Memory bandwidth in bytes/s.
        bf16: Whether tensor cores compute in bf16.
        fp8: Whether they compute in fp8 (compute capability 8.9 and above).
        measured: Whether ``usable_gib`` was seen on a card; else it is scaled from a like one.
    """

    name: str
    nvml_names: tuple[str, ...]
    nvml_mib: int
    usable_gib: float
    peak_flops: float
    bandwidth: float
    aliases: tuple[str, ...] = ()
    bf16: bool = True
    fp8: bool = True
    measured: bool = True


@lru_cache(maxsize=1)
def gpus() -> tuple[Gpu, ...]:
    """Every card of the table."""
    data = Path(__file__).with_name("gpus.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[Gpu, ...])


@lru_cache(maxsize=1)
def _by_name() -> dict[str, Gpu]:
    names: dict[str, Gpu] = {}
    for gpu in gpus():
        names.update({_normal(name): gpu for name in (gpu.name, *gpu.aliases, *gpu.nvml_names)})
    return names


def _normal(name: str) -> str:
    return name.strip().lower().replace(" ", "-").replace("_", "-")


def find_gpu(name: str) -> Gpu | None:
    """Return the card called ``name`` (a layout's word or an NVML name, any case), or None if it is not known."""
    return _by_name().get(_normal(name))


def gpu_by_nvml(name: str, memory_mib: float) -> Gpu | None:
    """Return the card that NVML calls ``name`` and that has about ``memory_mib``, or None if there is none such."""
    for gpu in gpus():
        if name in gpu.nvml_names and abs(memory_mib / gpu.nvml_mib - 1) <= MEMORY_TOLERANCE:
            return gpu
    return None


def nearest_gpus(name: str) -> list[str]:
    """Three names of cards that ``name`` may mean: those that have its first word, else those spelt alike."""
    import difflib

    wanted = _normal(name)
    words = [gpu.name for gpu in gpus() if wanted.split("-")[0] in _normal(gpu.name).split("-")]
    names = {_normal(gpu.name): gpu.name for gpu in gpus()}
    alike = [names[match] for match in difflib.get_close_matches(wanted, list(names), n=3, cutoff=0.5)]
    return (words or alike)[:3]
