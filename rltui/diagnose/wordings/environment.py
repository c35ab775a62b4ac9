"""How they say it: Loaders and importers."""

from rltui.diagnose.signs import Sign, signs

_OPTIONAL = (
    r"(?i)^\s*except |optional|skipp|fall(?:ing)? ?back|will not be available|(?<!can)not be used|disabled|ignor|"
    r"^\W*(?:INFO|DEBUG|WARN(?:ING)?)\b|warnings?\.warn"
)

SIGNS = (
    *signs(
        "abi_mismatch",
        ("undefined symbol", r"undefined symbol: _Z\w+"),
        ("undefined symbol", r"undefined symbol: (?!p?nccl|_Z)\w+"),
        ("libc10", r"(?i)ImportError:.{0,80}libc10\w*\.so", "libc"),
        ("libtorch", r"(?i)(?:ImportError|OSError):.{0,80}libtorch\w*\.so\S*: cannot open"),
        ("binary incompatibility", ""),
        ("multiarray failed to import", ""),
        ("compiled with different cuda", ""),
        ("compiled with different", r"(?i)compiled with different (?:CUDA|major)|PyTorch and \w+ were compiled with"),
        ("mismatches the version that was used to compile", ""),
        ("compiled using numpy 1", ""),
        ("torchvision::nms does not exist", ""),
        ("does not exist", r"(?i)operator \w+::\w+ does not exist"),
        confidence=0.9,
        # libraries try for symbols that newer drivers have, and do without
        unless=r"(?i)^\s*except |NCCL INFO|\bdlv?sym failed",
    ),
    *signs(
        "env_import_broken",
        ("modulenotfounderror", r"ModuleNotFoundError: No module named ['\"](?P<module>[\w.]+)['\"]"),
        ("importerror", r"ImportError: (?:cannot import name|No module named|attempted relative)"),
        ("no module named", r"^\S*python[\d.]*: (?:No module named|Error while finding module specification) \S+"),
        ("glibc", r"version [`'\"]GLIBC(?:XX)?_[\d.]+'? not found", "glibc glibcxx"),
        ("cxxabi", r"version [`'\"]CXXABI_[\d.]+'? not found"),
        (
            "cannot open shared object file",
            r"(?i)(?:ImportError|OSError|error while loading shared libraries).{0,200}cannot open shared object file",
        ),
        ("packagenotfounderror", ""),
        ("distributionnotfound", ""),
        ("failed to infer device type", ""),
        ("seems to be not installed", ""),
        ("cuda_home", r"(?:Error|Exception): CUDA_HOME (?:environment variable is not set|does not exist)"),
        ("ninja is required to load", ""),
        (
            "no such file or directory",
            r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?:\S*/)?(?:nvcc|ninja|gcc|g\+\+|cc|git)'$",
        ),
        ("normal functioning of this module", r"is required for a normal functioning of this module"),
        (
            "versionconflict",
            r"pkg_resources\.(?:Contextual)?VersionConflict",
            "versionconflict contextualversionconflict",
        ),
        (
            "command not found",
            r"(?i)(?:python\S*|conda|ray|torchrun|accelerate|deepspeed|vllm|module|uv|enroot|singularity|apptainer): "
            r"command not found",
        ),
        confidence=0.85,
        unless=_OPTIONAL + r"|libnccl|libc10|libtorch",
    ),
    # vLLM only warns, and fails when it first needs a kernel; a host without a driver needs none
    Sign(
        cause="env_import_broken",
        anchor="failed to import from vllm._c",
        pattern=r"(?i)failed to import from vllm\._C with (?:ImportError|ModuleNotFoundError)",
        unless=r"libcuda\.so\.1:",
        confidence=0.85,
    ),
    Sign(
        cause="env_import_broken",
        anchor="importerror",
        pattern=r"ImportError: .{0,200}(?:requires|is required|not installed|not found in your environment)",
        unless=_OPTIONAL,
        confidence=0.8,
    ),
)
