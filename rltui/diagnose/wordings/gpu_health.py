"""How they say it: The NVIDIA driver, CUDA and DCGM."""

from rltui.diagnose.signs import Sign, signs
from rltui.diagnose.xids import read_pending_rows, read_xid

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
            r"(?i)(?:SRAM|DRAM|volatile|aggregate|double.bit).{0,20}uncorr(?:ectable)?\.?(?: ECC| "
            r"errors?)?\s*:\s*[1-9]\d*",
            "uncorr uncorrectable",
        ),
        ("ecc", r"(?i)double.bit ECC.{0,40}(?:error|detected|: ?[1-9])"),
        confidence=0.95,
        unless=r"(?i)\bXid\b|row remapper|: 0\b",
    ),
    *signs(
        "gpu_diag_fail",
        ("dcgm", r"(?i)dcgm.{0,120}\b(?:fail(?:ed|ure)?|error)\b", "dcgm dcgmi"),
        (
            "row",
            r"(?i)uncorrectable memory errors and row|row remappings? (?:are|is) pending",
        ),
        ("remapping failure occurred", r"(?i)remapping failure occurred\s*: *yes"),
        (
            "fail",
            r"^\|\s*(?:Deployment|PCIe|Memory|GPU Memory|Memory Bandwidth|Diagnostic|Targeted \w+|SM Stress|Pulse "
            r"Test|Denylist|NVML Library|CUDA\b.*|EUD Test|memtest|Hardware|Integration|Stress|Permissions.*|"
            r"Persistence Mode|Environment.*|Page Retirement.*|Graphics Processes|Inforom)\s*\|\s*Fail",
        ),
        ("fail", r"^\|[^|]*\|\s*Fail - GPUs?: \d"),
        ("diagnostic", r"(?i)(?:gpu|nvidia|dcgmi).{0,60}diagnostics? (?:has )?failed", "diagnostic diagnostics"),
        ("err!", r"\bERR!"),
        ("overall health", r"(?i)overall health\s*[|:]\s*failure"),
        confidence=0.85,
    ),
    Sign(
        cause="gpu_diag_fail",
        anchor="pending",
        pattern=r"^\s*Pending\s*: *Yes\b",
        confidence=0.8,
        check=read_pending_rows,
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
            r"(?i)(?:only supported on (?:GPUs|(?:CUDA )?devices) with|requires?(?: a)?(?: GPU)?(?: with)?|minimum) "
            r".{0,40}compute capability|compute capability.{0,80}(?:(?:is|are) not supported|requires? (?:SM|compute)|"
            r"too (?:low|old))",
        ),
        ("supported for the current gpu", ""),
        ("cuda capability sm_", r"(?i)CUDA capability sm_\w+ is not compatible"),
        ("ampere gpus or newer", ""),
        ("supports ampere", r"(?i)only supports Ampere"),
        (
            "not supported",
            r"(?i)(?:bf16|bfloat16|fp8|fp8e4nv|sm_?\d+|architecture).{0,40}not supported (?:on|in|by|for) (?:this|"
            r"your|the current)",
        ),
        ("support bf16", r"(?i)doesn't support bf16"),
        ("device kernel image is invalid", ""),
        ("minimum capability", r"(?i)minimum capability: \d+\. current capability: \d+"),
        ("unsupported gpu architecture", ""),
        ("ptxas", r"(?i)ptxas fatal.{0,40}sm_\d+"),
        ("to be true", r"Expected [^,]{0,80}is_sm\w+ .{0,80}to be true, but got false"),
        confidence=0.9,
        # an engine that takes float16 or another kernel instead goes on, and warns
        unless=r"(?i)\bcasting\b|falling back|fall back|\busing (?:the )?default\b|^\W*WARN(?:ING)?\b",
    ),
    *signs(
        "gpu_arch_unsupported",
        ("no available kernel. aborting execution", ""),
        confidence=0.6,
    ),
)
