"""The software itself: libraries that do not fit each other, or are not there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.diagnose.cause import Cause
from rltui.diagnose.cuda_errors import runtime_errors
from rltui.diagnose.first_exception import STATE, exception_order
from rltui.diagnose.matches import Match, Matches, Verdict, surest
from rltui.diagnose.shells import NOT_FOUND
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_OPTIONAL = (
    r"(?i)^\s*except |optional|skipp|fall(?:ing)? ?back|will not be available|(?<!can)not be used|disabled|ignor|"
    r"^\W*(?:INFO|DEBUG|WARN(?:ING)?)\b|warnings?\.warn|"
    r"\b(?:using|use|with) .{0,40}\b(?:instead|own|native|default|bundled)\b|fallback"
)

GUESS = 0.5
"""Confidence where code may as well be wrong by itself as be called by code of another version."""


def read_compiler(hit: Hit) -> Reading:
    """Whoever called the compiler does not say why it failed; nvcc itself does where it is the card."""
    around = hit.context.around(60, 60)
    if "nsupported gpu architecture" in around:
        return Reading(0.85, "gpu_arch_unsupported")
    # a library that compiles kernels while it runs, other than one that is being installed
    return Reading(0.85, "kernel_compile" if re.search(r'File "\S*/(?:jit|deep_gemm|tilelang)/', around) else "")


def env_import_broken(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """A guess is news only where nothing else says why; programs try imports, print why one failed, and do without."""
    caught = {exception_order(one) for one in all_matches.of(STATE) if one.fields.get("survived") == "said"}
    verdict = surest([match for match in matches if match.order not in caught])
    if verdict is None or verdict.confidence > GUESS:
        return verdict
    return None if all_matches.causes - {"env_import_broken", "ray_actor_died", "engine_core_died"} else verdict


CAUSES = (
    Cause(
        id="abi_mismatch",
        tier="root",
        title="A compiled extension does not fit this torch (or CUDA, or NumPy)",
        tell="An undefined symbol such as _ZN3c10…, or versions that differ between build and run.",
        wordings=worded(
            ("undefined symbol", r"undefined symbol: _Z\w+"),
            (
                "undefined symbol",
                r"(?<!libbitsandbytes_cpu\.so: )undefined symbol: (?!p?nccl|_Z)\w+|\.so[\w.]*: undefined symbol:\W*$",
            ),
            (  # torch's own libraries, which its wheels bring: another torch than the extension was built for
                "",
                r"(?i)(?:ImportError:.{0,80}libc10\w*\.so|"
                r"(?:ImportError|OSError):.{0,80}libtorch(?:_\w+)?\.so\S*: cannot open(?!.*Stale))",
                "libc libtorch",
            ),
            ("binary incompatibility", ""),
            ("multiarray failed to import", ""),
            ("compiled with different cuda", ""),
            ("compiled against", r"(?i)\bcompiled against\b.{0,80}\bversion\b"),
            (
                "compiled with different",
                r"(?i)compiled with different (?:CUDA|major)|PyTorch and \w+ were compiled "
                r"with",
            ),
            ("mismatches the version that was used to compile", ""),
            ("does not match the version torch was compiled with", ""),
            ("compiled using numpy 1", ""),
            ("torchvision::nms does not exist", ""),
            ("does not exist", r"(?i)operator \w+::\w+ does not exist"),
            confidence=0.9,
            # libraries try for symbols that newer drivers have, and do without
            unless=r"(?i)^\s*except |NCCL INFO|\bdlv?sym failed|APIs are compatible",
        ),
        explains=frozenset({"env_import_broken"}),
        remedies=(
            Remedy(
                id="matching-wheel",
                summary="Install the wheel built for this torch, CUDA and C++ ABI, or build it again in this "
                "environment.",
                commands=(
                    "python -c 'import torch; print(torch.__version__, torch.version.cuda, "
                    "torch._C._GLIBCXX_USE_CXX11_ABI)'",
                ),
                safe="never",
            ),
        ),
        wrong=("LD_PRELOAD of another libtorch.",),
        sources=("Dao-AILab/flash-attention#853",),
    ),
    Cause(
        id="no_gpu_visible",
        tier="root",
        title="A process sees no GPU, or fewer than it was told to use",
        tell="The job holds no card, CUDA_VISIBLE_DEVICES hides them, or the installed torch is built for the CPU.",
        wordings=worded(
            ("gpus are available", r"(?:Error|Exception)\b.{0,80}No (?:CUDA|HIP) GPUs are available"),
            ("invalid device ordinal", r"(?i)CUDA.{0,80}invalid device ordinal"),
            ("torch not compiled with cuda enabled", ""),
            ("failed to initialize nvml", r"NVML: (?:Unknown Error|No supported GPUs|Insufficient Permissions)"),
            ("attempting to deserialize object on", r"deserialize object on (?:a )?CUDA device"),
            # the one assertion of that file
            (
                "internal assert failed",
                r"INTERNAL ASSERT FAILED.{0,200}(?:\bCUDAContext\.cpp\b|\bdevice=.{0,8}\bnum_gpus=)",
            ),
            ("exceeds available gpus in", r"local_rank \d+ exceeds available GPUs in \w+_VISIBLE_DEVICES"),
            ("have nccl built in", r"Distributed package doesn't have NCCL built in"),
            ("only supported with gpus", r"ProcessGroupNCCL is only supported with GPUs, no GPUs found"),
            ("attempting to start raylet with", r"to start raylet with \d+ \S+, but \w+_VISIBLE_DEVICES contains"),
            confidence=0.85,
        )
        + runtime_errors("no_gpu_visible", 0.85),
        remedies=(
            Remedy(
                id="look-for-gpus",
                summary="See what the job holds, and what torch is built for (None: the CPU).",
                commands=(
                    "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
                    'python -c "import torch; print(torch.version.cuda)"',
                ),
                safe="never",
            ),
            Remedy(
                id="ask-for-gpus",
                summary="Ask for as many GPUs as the command uses (--gpus-per-node, the profile's gres), or install "
                "the build for CUDA.",
                safe="never",
            ),
        ),
        wrong=("Setting CUDA_VISIBLE_DEVICES by hand to cards that the job does not hold.",),
        sources=("seen with verl 0.9.1, Ray 2.60 and torch 2.13 for CPUs", "https://pytorch.org/get-started/locally/"),
    ),
    Cause(
        id="env_import_broken",
        tier="root",
        title="The environment on this node lacks something, or has a version that does not fit",
        detail="no module {module}",
        tell="A missing module, command or library, or one that is older or newer than the code which calls it; often "
        "on some nodes only.",
        wordings=(
            *worded(
                ("modulenotfounderror", r"ModuleNotFoundError: No module named ['\"](?P<module>[\w.]+)['\"]"),
                ("no module named", r"RaySystemError: System error: No module named ['\"](?P<module>[\w.]+)['\"]"),
                ("importerror", r"ImportError: (?:cannot import name|No module named|attempted relative)"),
                (
                    "no module named",
                    r"^\S*python[\d.]*: (?:No module named|Error while finding module specification) "
                    r"\S+",
                ),
                ("glibc", r"version [`'\"]GLIBC(?:XX)?_[\d.]+'? not found", "glibc glibcxx"),
                ("cxxabi", r"version [`'\"]CXXABI_[\d.]+'? not found"),
                (
                    "cannot open shared object file",
                    r"(?i)(?:ImportError|OSError|error while loading shared libraries).{0,200}cannot open shared "
                    r"object file",
                ),
                # TensorFlow looks for a driver as it starts, and says so as information
                ("unable to find", r"(?i)^(?!.*\bI \S+\.cc:\d).*\bunable to find ['\"`]?[\w./-]*\blib[\w-]+\.so\b"),
                ("could not load library", r"^Could not load library \S+\.so"),  # cuDNN's word, before it aborts
                ("failed with exit", r"^error: command '\S*(?:nvcc|gcc|g\+\+|clang|cmake|ninja)\S*' failed with exit"),
                ("packagenotfounderror", ""),
                ("distributionnotfound", ""),
                ("failed to infer device type", ""),
                ("seems to be not installed", ""),
                ("cuda setup: ", r"(?i)CUDA SETUP: (?:setup|CUDA detection) failed"),
                ("cuda_home", r"(?:Error|Exception): CUDA_HOME (?:environment variable is not set|does not exist)"),
                ("ninja is required to load", ""),
                (
                    "compiler",
                    r"(?i)failed to find C compiler|no working C(?:\+\+)? compiler (?:found|was found)",
                ),
                (
                    "nvcc",
                    r"(?i)(?:could not|cannot|can't|failed to|unable to) (?:find|locate) (?:\S+ )?nvcc|nvcc was not "
                    r"found",
                ),
                # somebody installed into the environment of a run, or removed from it
                (
                    "site-packages",
                    r"(?:FileNotFoundError|OSError|ImportError): (?=.{0,300}/site-packages/)"
                    r".{0,300}(?:No such file or directory|Stale file handle)",
                    "site",
                ),
                ("invalidcxxcompiler", ""),
                ("compile error", r"\bC\w*CompileError: C\+\+ compile error"),
                (  # compilers and linkers themselves
                    "",
                    r"fatal error: [\w./-]+\.(?:h|hpp|cuh): No such file or directory|"
                    r"\bld(?:\.\w+)?: cannot find -l(?!aio\b|cufile\b)\w+|"
                    r"\b(?:cc1(?:plus)?|gcc|g\+\+|clang|nvcc)\b.{0,12}: unrecogni[sz]ed command",
                    "fatal cannot unrecognized unrecognised",
                ),
                (
                    "not found",
                    r"\bsh: (?:line )?\d+: (?:\S*/)?(?:gcc|g\+\+|cc|nvcc|ninja|make|cmake|git|python\d?|ray|torchrun|"
                    r"uv): not found",
                ),
                ("partially initialized module", r"(?:Attribute|Import)Error: .{0,80}partially initialized module"),
                ("library dependencies are not installed", ""),
                ("future feature", r"SyntaxError: future feature \w+ is not defined"),
                ("bad magic number in", r"ImportError: bad magic number in"),
                (
                    "no such file or directory",
                    r"(?:Error|error): \[Errno 2\] No such file or directory: '(?:\S*/)?(?:nvcc|ninja|gcc|g\+\+|cc|"
                    r"git|make|cmake|ldconfig|ptxas|nvidia-smi|numactl|ray|ffmpeg)'$",
                ),
                ("no such file or directory", r"\benv: ['‘`]?[\w.+-]+['’]?: No such file or directory"),
                ("execve()", r"execve\(\): [^\s/:]+: No such file"),
                ("because of the following error", r"Error: Failed to import .{1,200} because of the following error"),
                # the installer that a script starts with
                ("conflicting dependencies", r"^ERROR: Cannot install .{1,200} have conflicting dependencies"),
                ("no solution found when resolving", ""),
                # a model that is newer than the library
                ("does not recognize this architecture", ""),
                ("unrecognized configuration class", r"Error: Unrecognized configuration class"),
                ("config_mapping", r"^\s*config_class = CONFIG_MAPPING\["),
                (
                    "model architectures",
                    r"Model architectures \[.{1,200}\] (?:are not supported for|failed to be inspected)",
                ),
                ("instantiate the backend tokenizer", ""),
                ("normal functioning of this module", r"is required for a normal functioning of this module"),
                (
                    "versionconflict",
                    r"pkg_resources\.(?:Contextual)?VersionConflict",
                    "versionconflict contextualversionconflict",
                ),
                (
                    "",
                    r"(?i)(?:python[\d.]*|conda|ray|torchrun|accelerate|deepspeed|vllm|uv|enroot|singularity|"
                    rf"apptainer|orted|mpirun|mpiexec|nvcc|ninja): {NOT_FOUND}",
                    "python conda ray torchrun accelerate deepspeed vllm uv enroot singularity apptainer orted mpirun "
                    "mpiexec nvcc ninja",
                ),
                confidence=0.85,
                unless=_OPTIONAL + r"|libnccl|libc10|libtorch\S*: cannot open shared object file: No such",
            ),
            *worded(
                (
                    "calledprocesserror",
                    r"Command '?\['(?:[\w./-]*/)?(?:gcc|g\+\+|cc|c\+\+|clang|ninja|nvcc)'.* non-zero exit",
                ),
                ("error building extension", r"Error: Error building extension '"),
                unless=_OPTIONAL,
                check=read_compiler,
            ),
            # vLLM only warns, and fails when it first needs a kernel; a host without a driver needs none
            Wording(
                anchor="failed to import from vllm._c",
                pattern=r"(?i)failed to import from vllm\._C with (?:ImportError|ModuleNotFoundError)",
                unless=r"libcuda\.so\.1:",
                confidence=0.85,
            ),
            Wording(
                anchor="importerror",
                pattern=r"ImportError: .{0,200}(?:requires|is required|not installed|not found in your environment)",
                unless=_OPTIONAL,
                confidence=0.8,
            ),
            # called by code that was written for another version
            *worded(
                ("unexpected keyword argument", r"TypeError: [\w.]+\(\) got an unexpected keyword argument '\w+'"),
                ("has no attribute", r"AttributeError: module '[\w.]+' has no attribute '\w+'"),
                # classes of engines and tokenizers are the libraries' own
                (
                    "has no attribute",
                    r"AttributeError: (?:'\w*(?:LLM|EngineCore|Tokenizer)\w*' object|\w*(?:Tokenizer|Processor)\w*) "
                    r"has no attribute '?\w+",
                ),
                confidence=0.6,
                unless=_OPTIONAL,
            ),
            *worded(
                ("has no attribute", r"^AttributeError: (?:type object )?'\w+' (?:object )?has no attribute '\w+'"),
                ("typeerror: ", r"^TypeError: [\w.]+\(\) (?:missing \d+ required|takes .{1,30} positional argument)"),
                ("is not defined", r"^NameError: name '\w+' is not defined"),
                confidence=GUESS,
                # Ray cannot rebuild every exception that it carries; the one that it names is the real one
                unless=_OPTIONAL + r"|(?:Error|Exception)\.__init__\(\) missing|reward\w*\(\) (?:missing|takes)|"
                r"'(?:NoneType|str|list|dict|int|float|bool|tuple|bytes|set)' object has",
            ),
            *worded(("install the trainers extra", r"cannot import .{1,200}; install the trainers extra")),
        ),
        explains=frozenset({"kernel_compile"}),
        weigh=env_import_broken,
        remedies=(
            Remedy(
                id="same-environment",
                summary="Activate (or install into) the same environment on every node, in the script or by "
                "setup_lines of the cluster's profile; for GLIBC use a container or a fitting build.",
                commands=("which python; python -V; python -m pip list | sha256sum",),
                safe="never",
            ),
        ),
        wrong=("pip install --user: it leaks into every other environment.",),
        sources=("vllm-project/vllm#6464",),
    ),
    Cause(
        id="kernel_compile",
        tier="root",
        title="A kernel could not be compiled while the run started or trained",
        tell="The error is raised by torch.compile (Inductor), Triton, or what builds CUDA code at run time "
        "(FlashInfer, DeepGEMM, DeepSpeed's operators). Their versions, nvcc and the card have to fit.",
        wordings=worded(
            ("inductorerror", r"_inductor\.exc\.InductorError: "),
            ("backendcompilerfailed", r"BackendCompilerFailed: "),
            ("lowering", r"_inductor\.exc\.LoweringException: ", "loweringexception"),
            ("triton.compiler", r"triton\.compiler\.errors\.\w+: ", "triton"),
            ("ninja build failed", r"RuntimeError: Ninja build failed"),
            ("ptxas", r"^ptxas (?:fatal +|.{0,120}; error +): "),
            (
                "calledprocesserror",
                r"CalledProcessError: Command '\[?'?(?:/\S{1,300}/)?(?:ptxas|cicc)\b"
                r".{0,3000}returned non-zero exit status",
            ),
            confidence=0.7,
            unless=_OPTIONAL,
        ),
        remedies=(
            Remedy(
                id="without-compiling",
                summary="See whether it runs without: the engine with enforce_eager, the learner without "
                "torch.compile. Then install the Triton that this torch names, and an nvcc that knows the card.",
                commands=(
                    "nvcc --version; python -c 'import torch, triton; print(torch.version.cuda, triton.__version__)'",
                ),
                safe="never",
            ),
            Remedy(
                id="empty-kernel-caches",
                summary="Delete the caches of compiled kernels once, if it ran before: they are of other versions.",
                commands=("rm -r ~/.triton/cache ~/.cache/vllm/torch_compile_cache ~/.cache/torch_extensions",),
                safe="confirm",
            ),
        ),
        wrong=("A smaller batch: the kernel is the same one.",),
        sources=("pytorch/pytorch#150980", "vllm-project/vllm#50705"),
    ),
    Cause(
        id="path_missing",
        tier="root",
        title="A model, data set or script that the run was told to use is not there",
        detail="{path}",
        tell="A path that does not exist on the node, or a folder without the file that makes it a model. The hub's "
        "client takes such a path for a name and complains of its form.",
        wordings=(
            *worded(
                ("repo id must", r"Repo id must (?:be in the form|use).{0,200}: '(?P<path>[^']*)'"),
                (
                    "does not appear to have a file named",
                    r"(?:^|[\s:])(?P<path>[/.~]\S*) does not appear to have (?:a file|files) named",
                ),
                # diffusers asks for another form of the weights then
                (
                    "no file named",
                    r"^(?!An error occurred).*Error no file named .{1,200} in directory (?P<path>\S+?)\.?$",
                ),
                (
                    "local directory specified",
                    r"Invalid repository ID or local directory specified: '(?P<path>[^']*)'",
                ),
                ("can't open file", r"python[\d.]*: can't open file '(?P<path>[^']+)': \[Errno 2\]"),
                # a folder or a program that the launch named, as this product's own runner says it
                (
                    "script cannot be started",
                    r"the script cannot be started: \[Errno (?:2|20)\] [^:]{1,80}: '(?P<path>[^']+)'",
                ),
                ("unable to find", r"FileNotFoundError: Unable to find '(?P<path>[^']+)'"),
                ("can't load", r"OSError: Can't load .{0,80} (?:of|for) '(?P<path>(?:[/.~]|[A-Za-z]:\\)[^']*)'"),
                # sentencepiece, of a folder without tokenizer.model
                ("not a string", r"^TypeError: not a string$"),
                (
                    "no such file or directory",
                    r"(?:FileNotFoundError|OSError): (?:\[Errno 2\] )?No such file or directory: "
                    r"'(?P<path>[^']+(?:\.(?:parquet|jsonl?|arrow|csv)|/config\.json|/tokenizer\.json))'",
                ),
                confidence=0.8,
            ),
            # the job goes on in another folder, and may not need this one
            *worded(("couldn't chdir to", r"couldn't chdir to [`'](?P<path>[^']+)'"), confidence=0.55),
        ),
        remedies=(
            Remedy(
                id="look-from-the-node",
                summary="Look for the path from a compute node: it may be misspelt, on a disk of another machine, or "
                "still to be made (converted, downloaded).",
                commands=("srun -N1 ls -l {path}",),
                safe="never",
            ),
        ),
        wrong=("Logging in to the hub: nothing was asked of it.",),
        sources=("verl-project/verl#3048", "huggingface/trl#3604"),
    ),
)
