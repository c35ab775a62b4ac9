"""How they say it: GPU memory ran out, in the words of torch, CUDA, JAX and Ray."""

from rltui.diagnose.places import read_cuda_oom
from rltui.diagnose.signs import Sign, signs

# Advice ("to avoid …"), source lines of handlers, and errors that the program says it got over.
_NO_OOM = (
    r"(?i)^\s*except |(?:avoid|prevent|in case of|if you (?:see|get|hit|encounter|run into)|"
    r"(?:may|might|could|can) (?:cause|lead|result|run)).{0,60}(?:out of memory|OOM)|"
    r"skipping (?:this )?batch|\btry(?:ing)? batch[ _]size|out of memory (?:events?|errors?|retries|count)\W{0,3}0\b|"
    r"retry(?:ing)? with|\bis(?: not|n't) an? (?:failure|error)\b|out of memory: kill|ray\.exceptions\.OutOfMem|"
    r"shared memory"
)

_OF_TRAINING_OR_ENGINE = tuple(
    Sign(cause="cuda_oom_fwd_bwd", anchor=anchor, pattern=pattern, unless=_NO_OOM, check=read_cuda_oom)
    for anchor, pattern in (
        (
            "out of memory",
            r"(?i)(?:CUDA|HIP|NPU|XPU|MUSA)(?: driver| runtime)?(?: error)?(?: \(2\))?:?\s*out of memory",
        ),
        ("tried to allocate", r"(?i)tried to allocate [\d.]+ [KMGT]iB(?! in| bytes)"),
        ("out of memory", r"(?i)cuda runtime error \(\d+\) ?: out of memory"),
        ("out of memory", r"NCCL WARN Cuda failure.*out of memory"),
        ("alloc_failed", r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"),
        ("cuda_error_out_of_memory", ""),
        ("out of memory", r"(?i)\b(?:cuda|hip|gpu|npu|xpu)\w*\b[^.]{0,60}\bout of memory"),
        ("resource_exhausted", r"RESOURCE_EXHAUSTED: Out of memory"),
        ("cuda oom", r"CUDA OOM\b"),
        ("raytaskerror(outofmemoryerror)", ""),
        ("outofmemoryerror: ", r"(?:^|[\s.])OutOfMemoryError: (?!Task was killed|.{0,80}\bnode\b)"),
    )
)

SIGNS = (
    *_OF_TRAINING_OR_ENGINE,
    # what lets SGLang give its memory back while the trainer has the card; 2 is CUDA's number for "out of memory"
    *signs(
        "oom_weight_sync",
        (
            "torch_memory_saver.cpp",
            r"torch_memory_saver\.cpp\] CU(?:result|DA) error:? +(?:result=)?2\b",
            "curesult cuda",
        ),
        confidence=0.9,
    ),
)
