"""GPUs, their driver and their memory: kernel lines, CUDA's words for hardware faults, diagnostics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.causes import Cause, exclude_node
from rltui.diagnose.verdicts import Change, Remedy
from rltui.diagnose.xids import xid_119_gsp

if TYPE_CHECKING:
    from rltui.diagnose.causes import Fields


_XID_DOC = "https://docs.nvidia.com/deploy/xid-errors/"
_NODE = ("the node's name and GPU address", "dmesg of the node around the first of these lines")
_HARDWARE_WRONG = ("Restarting on the same node.", "nvidia-smi loops on that node: they may hang.")


def _exclude(fields: Fields) -> tuple[Remedy, ...]:
    return (
        exclude_node(
            fields, "Exclude the node for your jobs (for a day), resubmit from the newest checkpoint, and report it."
        ),
    )


def _driver(fields: Fields) -> tuple[Remedy, ...]:
    fitting = Remedy(
        id="fitting-cuda",
        summary="If all nodes say so: use a build for an older CUDA, or nodes with a newer driver.",
        safe="confirm",
    )
    return (*_exclude(fields), fitting)


def _memory(fields: Fields) -> tuple[Remedy, ...]:
    if "news" not in fields:
        return _exclude(fields)
    words = (
        "Nothing now: the row is marked for repair or the error was contained. Restart the process if it died, "
        "and have the GPU reset at the next gap."
    )
    return (Remedy(id="watch-gpu", summary=words, safe="never"),)


CAUSES = (
    Cause(
        id="xid_79_fell_off_bus",
        tier="site",
        title="A GPU fell off the bus",
        detail="GPU {gpu}",
        tell="Xid 79, or 'fallen off the bus' without the word Xid; nvidia-smi then says that the GPU is lost.",
        remedies=_exclude,
        wrong=_HARDWARE_WRONG,
        collect=_NODE,
        explains=frozenset({"xid_nvlink", "xid_119_gsp", "xid_app_fault"}),
        sources=(_XID_DOC,),
    ),
    Cause(
        id="xid_119_gsp",
        tier="site",
        title="The GPU's own firmware (GSP) stopped answering",
        detail="GPU {gpu}",
        tell="Xid 119 or 120, or timeouts of RPC responses. The process the line names only noticed it.",
        remedies=_exclude,
        wrong=_HARDWARE_WRONG,
        collect=_NODE,
        judge=xid_119_gsp,
        sources=(_XID_DOC, "NVIDIA/open-gpu-kernel-modules#1230"),
    ),
    Cause(
        id="xid_memory_ecc",
        tier="site",
        title="The GPU's memory has a fault",
        detail="GPU {gpu}, Xid {xid}",
        tell="Xid 48, 64 and 95 are uncontained; 63 alone is a row marked for repair and 94 is contained in one "
        "process.",
        remedies=_memory,
        wrong=("Excluding a node for correctable errors or a single Xid 63.",),
        collect=_NODE,
        explains=frozenset({"ecc_uncorrectable", "gpu_diag_fail"}),
        sources=(_XID_DOC, "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"),
    ),
    Cause(
        id="xid_nvlink",
        tier="site",
        title="An NVLink between GPUs failed",
        detail="GPU {gpu}",
        tell="Xid 74 or 144 to 150 (not those marked Nonfatal), or a fatal SXid of an NVSwitch; Xid 154 says what is "
        "to "
        "be done, and 45 is what it took down.",
        remedies=_exclude,
        wrong=("NCCL_P2P_DISABLE=1: it hides a broken link.",),
        collect=_NODE,
        sources=(_XID_DOC, "NVIDIA/open-gpu-kernel-modules#1150"),
    ),
    Cause(
        id="xid_app_fault",
        tier="root",
        title="A GPU kernel made an illegal access",
        detail="GPU {gpu}, Xid {xid}",
        tell="Xid 13, 31, 43 or 109, or CUDA's 'illegal memory access': the program, a library or the driver, not the "
        "node, unless the same GPU does it with other code too.",
        remedies=(
            Remedy(
                id="find-kernel",
                summary="Find the kernel and update it (attention, custom operators); CUDA_LAUNCH_BLOCKING=1 shows "
                "the call.",
                commands=("export CUDA_LAUNCH_BLOCKING=1",),
                safe="never",
            ),
        ),
        wrong=("Excluding the node blindly.",),
        collect=_NODE,
        sources=(_XID_DOC,),
    ),
    Cause(
        id="ecc_uncorrectable",
        tier="site",
        title="A GPU's memory gave wrong data (uncorrectable ECC error)",
        tell="CUDA says so, or counters of uncorrectable errors are above zero. Correctable errors are normal.",
        remedies=_exclude,
        wrong=_HARDWARE_WRONG,
        collect=_NODE,
        explains=frozenset({"nccl_timeout"}),
        sources=(_XID_DOC,),
    ),
    Cause(
        id="gpu_diag_fail",
        tier="site",
        title="The GPU's diagnostics failed",
        tell="DCGM or nvidia-smi report a failed test, or row remappings that wait for a reset.",
        remedies=_exclude,
        wrong=_HARDWARE_WRONG,
        collect=_NODE,
        sources=("https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",),
    ),
    Cause(
        id="driver_mismatch",
        tier="site",
        title="The NVIDIA driver does not fit the libraries",
        tell="Library and kernel module differ (an update without reboot), the driver is older than CUDA needs, or it "
        "does not answer.",
        remedies=_driver,
        wrong=("Reinstalling Python packages on a node whose module was not reloaded.",),
        sources=("https://docs.nvidia.com/deploy/cuda-compatibility/",),
    ),
    Cause(
        id="gpu_arch_unsupported",
        tier="root",
        title="The GPU is too old, or too new, for this build",
        tell="No kernel for the card, or bfloat16 and FP8 on cards without them.",
        remedies=(
            Remedy(
                id="half-precision",
                summary="On Volta and Turing use fp16 with loss scaling, which is more fragile; else another GPU type.",
                changes=(Change("roles.rollout.precision", "set", "fp16"),),
                safe="confirm",
            ),
            Remedy(id="fitting-build", summary="Use a build for the card's architecture.", safe="confirm"),
        ),
        wrong=("TORCH_CUDA_ARCH_LIST at run time: it only matters when building.",),
        sources=("vllm-project/vllm#946",),
    ),
)
