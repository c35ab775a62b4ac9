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
    "driver_mismatch": ("stub library",),
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
    "driver_mismatch": (
        "SystemNotReady", "SystemDriverMismatch", "InsufficientDriver", "CompatNotSupportedOnDevice",
        "UnsupportedPtxVersion", "CallRequiresNewerDriver", "StubLibrary",
    ),
}  # fmt: skip

_OF_DRIVER = {
    "ecc_uncorrectable": ("ecc_uncorrectable",),
    "xid_nvlink": ("nvlink_uncorrectable",),
    "xid_app_fault": (
        "illegal_address", "launch_failed", "launch_timeout", "misaligned_address", "illegal_instruction",
        "hardware_stack_error", "invalid_address_space", "invalid_pc",
    ),
    "gpu_arch_unsupported": ("no_binary_for_gpu",),
    "driver_mismatch": (
        "system_not_ready", "system_driver_mismatch", "compat_not_supported_on_device", "unsupported_ptx_version",
        "stub_library",
    ),
}  # fmt: skip
"""After ``CUDA_ERROR_``; programs for CPUs print the driver's word for no device, and go on."""

_FAILED = "(?:fail|failed|fails|failure)"


def _numbered(numbers: str) -> str:
    """What simulators and engines in C++ print where they do not ask for the text."""
    return (
        rf"\bcu(?:da)?[A-Z]\w+\b.{{0,40}}\b(?:{_FAILED}|returned)\b.{{0,24}}\b(?:{numbers})\b|"
        rf"\b(?:GPU|CUDA)\b.{{0,60}}\b{_FAILED}!* (?:with )?(?:error |code ){{0,2}}(?:{numbers})$"
    )


_FAILURES = {
    "xid_app_fault": (
        _numbered("700|702|71[4-9]"),
        # what is asked after a kernel says that the kernel failed; it is no fault of the call
        rf"\bcu(?:da)?(?:Event|Stream|Memcpy|DeviceSynch|CtxSynch)\w* {_FAILED}\b|"
        rf"\b{_FAILED} to launch (?:\w+ )?kernel",
    ),
    "ecc_uncorrectable": (_numbered("214"),),
    "driver_mismatch": (_numbered("222|80[2-4]"),),
}


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
    driver = tuple(
        Wording(anchor=f"cuda_error_{name}", unless=unless, confidence=confidence) for name in _OF_DRIVER.get(cause, ())
    )
    failed = tuple(
        Wording(
            anchor="",
            words=("fail", "failed", "fails", "failure", "returned"),
            pattern=pattern,
            unless=unless,
            confidence=confidence,
        )
        for pattern in _FAILURES.get(cause, ())
    )
    return (*texts, symbol, *driver, *failed)
