"""GPUs, their driver and their memory: kernel lines, CUDA's words for hardware faults, diagnostics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rltui.diagnose.cause import Cause, Fields, exclude_node
from rltui.diagnose.cuda_errors import runtime_errors
from rltui.diagnose.matches import Match, Matches, Verdict, surest
from rltui.diagnose.verdicts import Change, Remedy
from rltui.diagnose.wording import ENDED, Hit, Reading, Wording, worded
from rltui.onnode import xids

_XID = r"Xid \(?(?:PCI:)?(?P<gpu>[0-9A-Fa-f:.]+)\)?: (?P<xid>\d+)(?:, GPU \d+ of (?P<node>[\w.-]+))?"
"""The kernel's words, and those of rltui's own sampler, which names the node too."""
_XID_TOLD = (
    r"(?i)\bXID[ =:]{1,2}(?P<xid>\d+)(?:\.\d+)?\b[^.]{0,90}?(?:\b(?:for|on|at) (?:GPU|device)\b|\bPCI:|\bDevice=)"
)
"""What DCGM, device plugins and monitors make of it."""
_XID_DOC = "https://docs.nvidia.com/deploy/xid-errors/"
_NODE = ("the node's name and GPU address", "dmesg of the node around the first of these lines")
_HARDWARE_WRONG = ("Restarting on the same node.", "nvidia-smi loops on that node: they may hang.")


def _exclude(fields: Fields) -> tuple[Remedy, ...]:
    return (
        exclude_node(fields, "Exclude the node for your jobs, resubmit from the newest checkpoint, and report it."),
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


_CAUSES: tuple[tuple[str, frozenset[int]], ...] = (
    ("xid_79_fell_off_bus", xids.OFF_THE_BUS),
    ("xid_119_gsp", xids.FIRMWARE),
    ("xid_memory_ecc", xids.MEMORY),
    ("xid_nvlink", xids.NVLINK),
    ("xid_app_fault", xids.PROGRAM),
)
XID_CAUSE: Mapping[int, str] = {number: cause for cause, numbers in _CAUSES for number in numbers}


def read_xid(hit: Hit) -> Reading | None:
    """Return the cause of an Xid line, less sure where the number only informs; None for followers and the unknown."""
    number = int(hit.groups["xid"])
    text = hit.context.line.text
    if re.search(r"(?i)non-?fatal", text):
        return None
    if number in xids.FOLLOWING:
        return _caused_by(text)
    if number in xids.HALTED:
        return Reading(0.7, "xid_halted")
    cause = XID_CAUSE.get(number)
    if cause is None:
        return None
    confidence = 0.65 if number in xids.NEWS else 0.95
    return Reading(confidence, cause, {"news": "yes"} if number in xids.NEWS else {})


def xid_119_gsp(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """A firmware that stopped answering; a halt counts as one only where no other Xid came before."""
    if matches:
        return surest(matches)
    halts = all_matches.of("xid_halted")
    others = [one.order for cause, _ in _CAUSES for one in all_matches.of(cause)]
    return surest([halt for halt in halts if not others or halt.order < min(others)])


def _caused_by(text: str) -> Reading | None:
    match = re.search(r"caused by previous Xid (\d+)", text)
    cause = XID_CAUSE.get(int(match[1])) if match else None
    return Reading(0.8, cause) if cause else None


def read_pending_rows(hit: Hit) -> Reading | None:
    """``nvidia-smi -q`` says "Pending" under several headings; only rows to be remapped wait for a reset.

    Rows with nothing but corrected errors gave no wrong data, and are replaced whenever the GPU is next reset.
    """
    above = [line.text.strip() for line in hit.context.before(6)]
    if not any(text.startswith("Remapped Rows") for text in above):
        return None
    return None if any(re.match(r"Uncorrectable Error\s*: 0$", text) for text in above) else Reading(0.8)


CAUSES = (
    Cause(
        id="xid_79_fell_off_bus",
        tier="site",
        recovery="elsewhere",
        title="A GPU fell off the bus",
        detail="GPU {gpu}",
        tell="Xid 79, or 'fallen off the bus' without the word Xid; nvidia-smi then says that the GPU is lost.",
        wordings=worded(
            ("off the bus", r"(?i)\b(?:fallen|fell|dropped) off the bus"),
            ("is", r"(?i)GPU[ _]is[ _]lost"),
            ("device handle for gpu", r"(?i)unable to determine the device handle for gpu"),
            confidence=0.95,
        ),
        explains=frozenset({"xid_nvlink", "xid_119_gsp", "xid_app_fault", "driver_mismatch"}),
        remedies=_exclude,
        wrong=_HARDWARE_WRONG,
        collect=_NODE,
        sources=(_XID_DOC,),
    ),
    Cause(
        id="xid_119_gsp",
        tier="site",
        recovery="elsewhere",
        title="The GPU's own firmware (GSP) stopped answering",
        detail="GPU {gpu}",
        tell="Xid 119 or 120, or timeouts of RPC responses. The process the line names only noticed it.",
        wordings=worded(
            ("waiting for rpc response", r"(?i)timeout after .{0,30} waiting for RPC response from GPU"),
            ("rpc", r"NVRM: GPU\d* (?:GSP )?RPC (?:event )?(?:history|buffer)"),
            (
                "gsp",
                r"(?i)NVRM.{0,80}(?:GSP_LOCKDOWN|_kgsp\w*.{0,60}(?:fail|timeout|error)|gsp.{0,40}heartbeat)",
                "gsp nvrm",
            ),
            ("rminitadapter failed", r"RmInitAdapter failed! \(0x6[0-3]:"),
            (
                "gsp",
                r"NVRM.{0,120}(?:Cannot initialize GSP|GSP(?:-RM)? .{0,40}(?:timed? ?out|not respond|hang|crash|fail))",
                "gsp nvrm",
            ),
            ("gsprmcontrol failed", ""),
            ("gsp", r"(?i)\bGSP(?: firmware|-RM| task)?\b.{0,40}(?:not respond|stopped respond|heartbeat timed out)"),
            ("issuerpcandwait", r"_issueRpcAndWait: .{0,40}fail"),
            (
                "",
                r"_kgspBootGspRm: .*cannot proceed|_kgspIsHeartbeatTimedOut|_kgspLogXid119",
                "kgspbootgsprm kgspisheartbeattimedout kgsplogxid",
            ),
            confidence=0.85,
        ),
        weigh=xid_119_gsp,
        explains=frozenset({"driver_mismatch"}),
        remedies=_exclude,
        wrong=_HARDWARE_WRONG,
        collect=_NODE,
        sources=(_XID_DOC, "NVIDIA/open-gpu-kernel-modules#1230"),
    ),
    Cause(
        id="xid_memory_ecc",
        tier="site",
        recovery="elsewhere",
        title="The GPU's memory has a fault",
        detail="GPU {gpu}, Xid {xid}",
        tell="Xid 48, 64 and 95 are uncontained; 63 alone is a row marked for repair and 94 is contained in one "
        "process.",
        wordings=worded(
            ("nvrm", r"(?i)NVRM: .{0,80}uncorrectable (?:DRAM|SRAM|HBM|ECC|memory) error", "nvrm"),
            ("remap", r"NVRM: .{0,120}row[ -]remap(?:per|ping)? (?:failure|failed)", "remap remapper remapping"),
            confidence=0.85,
            unless=r"Xid",
        ),
        explains=frozenset({"ecc_uncorrectable", "gpu_diag_fail"}),
        remedies=_memory,
        wrong=("Excluding a node for correctable errors or a single Xid 63.",),
        collect=_NODE,
        sources=(_XID_DOC, "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"),
    ),
    Cause(
        id="xid_nvlink",
        tier="site",
        recovery="elsewhere",
        title="An NVLink between GPUs failed",
        detail="GPU {gpu}",
        tell="Xid 74 or 144 to 150 (not those marked Nonfatal), or a fatal SXid of an NVSwitch; Xid 154 says what "
        "is to be done, and 45 is what it took down.",
        wordings=worded(
            ("sxid", r"SXid \((?:PCI:)?(?P<gpu>[0-9A-Fa-f:.]+)\): \d+,(?! Non-fatal).*\bFatal\b"),
            ("nvlink", r"(?i)NVRM.{0,120}nvlink.{0,60}(?:fatal|failure|fault|recovery fail|training failed)"),
            confidence=0.85,
            unless=r"(?i)non-?fatal",
        )
        + runtime_errors("xid_nvlink", 0.85),
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
        tell="Xid 13, 31, 43 or 109, or CUDA's 'illegal memory access'. It is the program, a library or the driver. "
        "It is the node only where the same GPU does it with other code too.",
        wordings=(
            Wording(anchor="xid (", pattern=_XID, check=read_xid),
            Wording(anchor="xid", pattern=_XID_TOLD, unless=r"Xid \(", check=read_xid),
            *worded(
                ("illegal memory access", r"(?i)(?:CUDA|an) (?:error: )?.{0,20}illegal memory access"),
                ("unspecified launch failure", ""),
                ("cuda_exception", r"(?i)CUDA_EXCEPTION_\d+"),
                ("memory access fault by gpu", ""),
                ("hsa_status_error", r"\bHSA_STATUS_ERROR_(?:EXCEPTION|ILLEGAL|MEMORY_(?:APERTURE|FAULT))"),
                confidence=0.65,
            ),
            *runtime_errors("xid_app_fault", 0.65),
            # an index of the program's own most often: what stands above it says of what
            *worded(
                ("device-side assert triggered", r"(?:CUDA error|Triton Error \[CUDA\]): device-side assert triggered"),
                check=lambda _: Reading(0.5, fields={ENDED: "yes"}),
            ),
        ),
        remedies=(
            Remedy(
                id="find-kernel",
                summary="Find the kernel and update it (attention, custom operators); CUDA_LAUNCH_BLOCKING=1 "
                "shows the call.",
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
        recovery="elsewhere",
        title="A GPU's memory gave wrong data (uncorrectable ECC error)",
        tell="CUDA says so, or counters of uncorrectable errors are above zero. Correctable errors are normal.",
        wordings=worded(
            ("uncorrectable ecc", r"(?i)uncorrectable ECC"),
            (
                "uncorr",
                r"(?i)(?:SRAM|DRAM|volatile|aggregate|double.bit).{0,20}uncorr(?:ectable)?\.?(?: ECC| "
                r"errors?)?\s*:\s*[1-9]\d*",
                "uncorr uncorrectable",
            ),
            ("ecc", r"(?i)double.bit ECC.{0,40}(?:error|detected|: ?[1-9])"),
            confidence=0.95,
            unless=r"(?i)\bXid\b|row remapper|: 0\b",
        )
        + runtime_errors("ecc_uncorrectable", 0.95),
        explains=frozenset({"nccl_timeout"}),
        remedies=_exclude,
        wrong=_HARDWARE_WRONG,
        collect=_NODE,
        sources=(_XID_DOC,),
    ),
    Cause(
        id="gpu_diag_fail",
        tier="site",
        recovery="elsewhere",
        title="The GPU's diagnostics failed",
        tell="DCGM or nvidia-smi report a failed test, or row remappings that wait for a reset.",
        wordings=(
            *worded(
                ("dcgm", r"(?i)dcgm.{0,120}\b(?:fail(?:ed|ure)?|error)\b", "dcgm dcgmi"),
                ("row", r"(?i)uncorrectable memory errors and row|row remappings? (?:are|is) pending"),
                (
                    "",
                    r"(?i)\bGPU reset is required|\bGPU requires (?:a )?reset|remapping pending: *yes|"
                    r"\bGPU Recovery Action\s*: *(?:Reset|Reboot|Drain)",
                    "reset pending recovery",
                ),
                ("remapping failure occurred", r"(?i)remapping failure occurred\s*: *yes"),
                ("fail", r"^\| *(?:\w[\w /&]{0,30}\w)? *\| *Fail(?: - (?:All|GPUs?: [\d, ]+))? *\|"),
                (
                    "fail",
                    r"(?i)\b(?:gpu|nvidia|nhc)\b.{0,60}(?:diagnostics?|health[ _-]?check)\W{1,3}"
                    r"(?:has )?(?:failed|failure)\b",
                    "failed failure",
                ),
                (  # what DCGM's tests find, from its table of errors
                    "gpu",
                    r"(?i)\bha[ds] (?:uncorrectable )?memory errors and\b|faulty memory elements on GPU|memory "
                    r"mismatch "
                    r"was detected on GPU|bandwidth of GPU \d+ in direction|running at PCI link|"
                    r"\bin a peer-to-peer test\b|did not reach desired (?:stress|power)|thermal violations totaling",
                ),
                ("err!", r"\bERR!(?! */ *\d)"),  # power alone reads ERR! for a moment
                ("overall health", r"(?i)overall health\s*[|:]\s*failure"),
                confidence=0.85,
            ),
            Wording(anchor="pending", pattern=r"^\s*Pending\s*: *Yes\b", confidence=0.8, check=read_pending_rows),
        ),
        remedies=_exclude,
        wrong=_HARDWARE_WRONG,
        collect=_NODE,
        sources=("https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",),
    ),
    Cause(
        id="driver_mismatch",
        tier="site",
        recovery="elsewhere",
        title="The NVIDIA driver does not fit the libraries",
        tell="Library and kernel module differ (an update without reboot), or the driver is older than CUDA needs. "
        "Or the driver, or the Fabric Manager that goes with it, does not answer.",
        wordings=worded(
            "driver/library version mismatch",
            ("unsatisfied condition", r"requirement error: unsatisfied condition"),  # an image's, of driver and card
            ("cuda driver version", r"(?i)cuda driver version (?:is insufficient|found is \d+\. minimum)"),
            ("driver on your system is too old", ""),
            ("api mismatch", r"NVRM: API mismatch"),
            ("unsupported display driver", ""),
            ("forward compatibility was attempted", ""),
            ("unsupported toolchain", ""),
            ("communicate with the nvidia driver", ""),
            ("found no nvidia driver", ""),
            (
                "system not yet initialized",
                r"(?i)(?:CUDA|Error).{0,80}system not yet initialized|initialized \(error 802\)",
            ),
            ("fabric manager", r"(?i)\b(?:error|fail\w*|not running|stopped)\b.{0,60}\bfabric ?manager"),
            (
                "fabricmanager",
                r"(?i)fabricmanager\b.{0,160}\b(?:failed|not running|status=1/FAILURE|aborting fabric)\b",
            ),
            ("nvls.cc", r"nvls\.cc:\d+ NCCL WARN Cuda failure"),  # a Fabric Manager that was restarted alone
            ("unknown error", r"Cuda failure (?:999 )?'unknown error'|Error: CUDA (?:error: )?unknown error(?!.*lost)"),
            confidence=0.9,
        )
        + runtime_errors("driver_mismatch", 0.9),
        explains=frozenset({"container_start"}),
        remedies=_driver,
        wrong=("Reinstalling Python packages on a node whose module was not reloaded.",),
        sources=("https://docs.nvidia.com/deploy/cuda-compatibility/",),
    ),
    Cause(
        id="gpu_arch_unsupported",
        tier="root",
        title="The GPU is too old, or too new, for this build",
        tell="No kernel for the card, or bfloat16 and FP8 on cards without them.",
        wordings=(
            *worded(
                ("no kernel image", r"(?i)no kernel image is available"),
                ("device code compatible", r"\bno device code compatible with (?:CUDA )?arch"),
                (
                    "compute capability",
                    r"(?i)(?:only supported on (?:GPUs|(?:CUDA )?devices) with|requires?(?: a)?(?: GPU)?(?: with)?|"
                    r"minimum) .{0,40}compute capability|"
                    r"compute capability.{0,80}(?:(?:is|are) not supported|requires? (?:SM|compute)|too (?:low|old))",
                ),
                ("supported for the current gpu", ""),
                ("cuda capability sm_", r"(?i)CUDA capability sm_\w+ is not compatible"),
                ("gpus or newer", r"(?i)(?:Turing|Ampere|Ada|Hopper|Blackwell) GPUs or newer"),
                ("only supports", r"(?i)only supports (?:Turing|Ampere|Ada|Hopper|Blackwell)\b"),
                ("supported on", r"(?i)\bonly supported on (?:NVIDIA )?(?:sm_?\d+|Turing|Ampere|Ada|Hopper|Blackwell)"),
                ("out of resource: shared", r"(?i)\S *\bout of resource: shared memory, required: \d+, hardware limit"),
                (
                    "not supported",
                    r"(?i)(?:bf16|bfloat16|fp8|fp8e4nv|sm_?\d+|architecture).{0,40}not supported (?:on|in|by|for) "
                    r"(?:this|your|the current|CUDA arch|compute capability)",
                ),
                ("support bf16", r"(?i)doesn't support bf16"),
                ("device kernel image is invalid", ""),
                ("minimum capability", r"(?i)minimum capability: \d+\. current capability: \d+"),
                ("unsupported gpu architecture", ""),
                ("gpu-architecture", r"(?i)\b(?:invalid|unsupported|unknown)\b.{0,40}\bgpu-architecture\b"),
                ("ptxas", r"(?i)ptxas fatal.{0,40}sm_\d+"),
                ("gpus with", r"(?i)requires? (?:NVIDIA )?GPUs with (?:sm_?\d+|compute capability)"),
                ("to be true", r"Expected [^,]{0,80}is_sm\w+ .{0,80}to be true, but got false"),
                confidence=0.9,
                # an engine that takes float16 or another kernel instead goes on, and warns
                unless=r"(?i)\bcasting\b|falling back|fall back|\busing (?:the )?default\b|^\W*WARN(?:ING)?\b|"
                r"ignoring this choice|while benchmarking choice|Cannot use FA version|select_algorithm\.py",
            ),
            *worded("no available kernel. aborting execution", confidence=0.6),
            *runtime_errors("gpu_arch_unsupported", 0.85, unless=r"continue parsing remaining modules"),
        ),
        explains=frozenset({"kernel_compile"}),
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
