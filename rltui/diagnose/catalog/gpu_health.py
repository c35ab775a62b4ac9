"""GPUs, their driver and their memory: kernel lines, CUDA's words for hardware faults, diagnostics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.causes import Cause, safe_word
from rltui.diagnose.signs import Sign, signs
from rltui.diagnose.verdicts import Change, Remedy
from rltui.diagnose.xids import read_xid, xid_119_gsp

if TYPE_CHECKING:
    from rltui.diagnose.causes import Fields

_XID = r"Xid \(?(?:PCI:)?(?P<gpu>[0-9A-Fa-f:.]+)\)?: (?P<xid>\d+)"

SIGNS = (
    Sign(cause="xid_app_fault", anchor="xid (", pattern=_XID, check=read_xid),
    *signs(
        "xid_79_fell_off_bus",
        ("fallen off the bus", ""),
        ("gpu is lost", r"(?i)GPU is lost"),
        ("device handle for gpu", r"(?i)unable to determine the device handle for gpu"),
        confidence=0.95,
    ),
    *signs(
        "xid_119_gsp",
        ("waiting for rpc response", r"(?i)timeout after .{0,30} waiting for RPC response from GPU"),
        ("rpc", r"NVRM: GPU\d* (?:GSP )?RPC (?:event )?(?:history|buffer)"),
        (
            "gsp",
            r"(?i)NVRM.{0,80}(?:GSP_LOCKDOWN|_kgsp\w*.{0,60}(?:fail|timeout|error)|gsp.{0,40}heartbeat)",
            "gsp nvrm",
        ),
        ("rminitadapter failed", ""),
        confidence=0.85,
    ),
    *signs(
        "xid_nvlink",
        ("sxid", r"SXid \((?:PCI:)?(?P<gpu>[0-9A-Fa-f:.]+)\): \d+,(?! Non-fatal).*\bFatal\b"),
        ("nvlink", r"(?i)NVRM.{0,120}nvlink.{0,60}(?:fatal|failure|fault|recovery fail|training failed)"),
        ("nvlink", r"(?i)CUDA error: (?:uncorrectable NVLink error|.{0,20}nvlink.{0,40}error)"),
        confidence=0.85,
        unless=r"(?i)non-?fatal",
    ),
    *signs(
        "xid_app_fault",
        ("illegal memory access", r"(?i)(?:CUDA|an) (?:error: )?.{0,20}illegal memory access"),
        ("unspecified launch failure", ""),
        ("cuda_exception", r"(?i)CUDA_EXCEPTION_\d+"),
        ("misaligned address", r"(?i)CUDA error: misaligned address"),
        ("illegal instruction", r"(?i)CUDA error: an illegal instruction"),
        confidence=0.65,
    ),
    *signs(
        "ecc_uncorrectable",
        ("uncorrectable ecc", r"(?i)uncorrectable ECC"),
        "cuda_error_ecc_uncorrectable",
        (
            "uncorr",
            r"(?i)(?:SRAM|DRAM|volatile|aggregate|double.bit).{0,20}uncorr(?:ectable)?\.?(?: ECC| errors?)?\s*:\s*[1-9]\d*",
            "uncorr uncorrectable",
        ),
        ("ecc", r"(?i)double.bit ECC.{0,40}(?:error|detected|: ?[1-9])"),
        confidence=0.95,
        unless=r"(?i)\bXid\b|row remapper|: 0\b",
    ),
    *signs(
        "gpu_diag_fail",
        ("dcgm", r"(?i)dcgm.{0,120}\b(?:fail(?:ed|ure)?|error)\b"),
        (
            "row",
            r"(?i)uncorrectable memory errors and row|row remappings? (?:are|is) pending|remapping failure occurred\s*: *yes",
        ),
        (
            "fail",
            r"^\|\s*(?:Deployment|PCIe|Memory|GPU Memory|Memory Bandwidth|Diagnostic|Targeted \w+|SM Stress|Pulse Test|Denylist|NVML Library|CUDA\b.*|EUD Test|memtest|Hardware|Integration|Stress|Permissions.*|Persistence Mode|Environment.*|Page Retirement.*|Graphics Processes|Inforom)\s*\|\s*Fail",
        ),
        ("diagnostic", r"(?i)(?:gpu|nvidia|dcgmi).{0,60}diagnostics? (?:has )?failed", "diagnostic diagnostics"),
        ("err!", r"\bERR!"),
        confidence=0.85,
    ),
    *signs(
        "driver_mismatch",
        "driver/library version mismatch",
        ("cuda driver version is insufficient", ""),
        ("driver on your system is too old", ""),
        ("api mismatch", r"NVRM: API mismatch"),
        ("unsupported display driver", ""),
        ("forward compatibility was attempted", ""),
        ("unsupported toolchain", ""),
        ("communicate with the nvidia driver", ""),
        ("found no nvidia driver", ""),
        ("system not yet initialized", r"(?i)(?:CUDA|Error 802).{0,80}system not yet initialized"),
        confidence=0.9,
    ),
    *signs(
        "gpu_arch_unsupported",
        ("no kernel image", r"(?i)no kernel image is available"),
        (
            "compute capability",
            r"(?i)(?:only supported on GPUs with|requires?(?: a)?(?: GPU)?(?: with)?|minimum) .{0,40}compute capability",
        ),
        ("cuda capability sm_", r"(?i)CUDA capability sm_\w+ is not compatible"),
        ("ampere gpus or newer", ""),
        ("supports ampere", r"(?i)only supports Ampere"),
        (
            "not supported",
            r"(?i)(?:bf16|bfloat16|fp8|fp8e4nv|sm_?\d+|architecture).{0,40}not supported (?:on|in|by|for) (?:this|your|the current)",
        ),
        ("support bf16", r"(?i)doesn't support bf16"),
        ("device kernel image is invalid", ""),
        confidence=0.9,
    ),
)

_XID_DOC = "https://docs.nvidia.com/deploy/xid-errors/"
_NODE = ("the node's name and GPU address", "dmesg of the node around the first of these lines")
_HARDWARE_WRONG = ("Restarting on the same node.", "nvidia-smi loops on that node: they may hang.")


def _exclude(fields: Fields) -> tuple[Remedy, ...]:
    node = safe_word("node", fields)
    return (
        Remedy(
            id="exclude-node",
            summary="Exclude the node for your jobs (for a day), resubmit from the newest checkpoint, and report it.",
            changes=(Change("slurm.exclude", "plus", node),) if "<" not in node else (),
            commands=(f"sbatch --exclude={node} …",),
            safe="confirm",
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
    words = "Nothing now: the row is marked for repair or the error was contained. Restart the process if it died, and have the GPU reset at the next gap."
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
        tell="Xid 48, 64 and 95 are uncontained; 63 alone is a row marked for repair and 94 is contained in one process.",
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
        tell="Xid 74 or 144 to 150 (not those marked Nonfatal), or a fatal SXid of an NVSwitch; Xid 154 says what is to "
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
                summary="Find the kernel and update it (attention, custom operators); CUDA_LAUNCH_BLOCKING=1 shows the call.",
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
