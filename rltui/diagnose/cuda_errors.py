"""The errors of CUDA's runtime and driver, and of AMD's HIP, by the texts and symbols that their headers give them.

torch, JAX, CuPy, NCCL and the engines all print one or the other: ``CUDA error: unspecified launch failure``,
``cudaErrorLaunchFailure``, ``CUDA_ERROR_LAUNCH_FAILED``, ``HIP error: …``.
"""

from __future__ import annotations

import re

from rltui.diagnose.wording import Wording

_TEXTS = {
    "ecc_uncorrectable": ("uncorrectable ECC error",),
    "xid_nvlink": (
        "uncorrectable NVLink error",
        "Invalid access of peer GPU memory over nvlink",
    ),
    "xid_app_fault": (
        "illegal memory access",
        "unspecified launch failure",
        "misaligned address",
        "an illegal instruction",
        "hardware stack error",
        "operation not supported on global/shared address space",
        "invalid program counter",
        "the launch timed out and was terminated",
    ),
    "gpu_arch_unsupported": ("no kernel image is available", "invalid device function", "kernel image is invalid"),
    "no_gpu_visible": ("no CUDA-capable device", "no ROCm-capable device", "invalid device ordinal"),
}

_SYMBOLS = {
    "ecc_uncorrectable": ("ECCUncorrectable",),
    "xid_nvlink": ("NvlinkUncorrectable",),
    "xid_app_fault": (
        "IllegalAddress", "LaunchFailure", "MisalignedAddress", "IllegalInstruction", "HardwareStackError",
        "InvalidAddressSpace", "InvalidPc", "LaunchTimeout",
    ),
    "gpu_arch_unsupported": (
        "NoKernelImageForDevice", "InvalidDeviceFunction", "InvalidKernelImage", "NoBinaryForGpu",
    ),
    "no_gpu_visible": ("NoDevice",),
}  # fmt: skip


def runtime_errors(cause: str, confidence: float, unless: str = "") -> tuple[Wording, ...]:
    """Return how libraries word the errors of the CUDA or HIP runtime that ``cause`` stands for."""
    texts = tuple(
        Wording(
            anchor=text.lower(),
            pattern=rf"(?i)\b(?:CUDA|HIP)(?: driver| runtime)? (?:error|failure)\b.{{0,60}}\b{re.escape(text)}\b",
            unless=unless,
            confidence=confidence,
        )
        for text in _TEXTS[cause]
    )
    symbols = _SYMBOLS[cause]
    symbol = Wording(
        anchor="",
        words=tuple(f"{runtime}error{name}".lower() for runtime in ("cuda", "hip") for name in symbols),
        pattern=rf"\b(?:cuda|hip)Error(?:{'|'.join(symbols)})\b",
        unless=unless,
        confidence=confidence,
    )
    return (*texts, symbol)
