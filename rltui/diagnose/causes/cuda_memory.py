"""GPU memory ran out: seven causes with one error message, told apart by the frames of the traceback."""

from __future__ import annotations

import re

from rltui.diagnose.cause import Cause, Fields
from rltui.diagnose.frames import frames_of, loose_frames_of
from rltui.diagnose.memory_frames import cause_by_frames
from rltui.diagnose.torch_memory import foreign_gib, is_shared, memory_numbers, size_words
from rltui.diagnose.verdicts import Change, Remedy
from rltui.diagnose.wording import ENDED, Hit, Reading, compiled, worded

# Advice ("to avoid …"), source lines of handlers, and errors that the program says it got over.
_NO_OOM = (
    r"(?i)may not be an issue|^\s*except |(?:avoid|prevent|in case of|if you (?:see|get|hit|encounter|run into)|"
    r"(?:may|might|could|can) (?:cause|lead|result|run)).{0,60}(?:out of memory|OOM)|"
    r"skipping (?:this )?batch|\btry(?:ing)? batch[ _]size|out of memory (?:events?|errors?|retries|count)\W{0,3}0\b|"
    r"retry(?:ing)? with|\bis(?: not|n't) an? (?:failure|error)\b|out of memory: kill|ray\.exceptions\.OutOfMem|"
    r"shared memory"
)
_HALVE_MICRO_BATCH = Remedy(
    id="halve-micro-batch",
    summary="Halve the micro batch and double gradient accumulation: the global batch stays as it is.",
    changes=(Change("roles.learner.micro_batch", "times", 0.5, least=1),),
    safe="auto",
)
_CHECKPOINTING = Remedy(
    id="activation-checkpointing",
    summary="Recompute activations in the backward pass instead of keeping them.",
    changes=(Change("roles.learner.gradient_checkpointing", "set", True),),
    safe="auto",
)
_SHORTEN = Remedy(
    id="shorten-responses",
    summary="Shorten responses (or packs) by a quarter; this changes the experiment.",
    changes=(Change("lengths.response", "times", 0.75, least=1),),
    safe="confirm",
)
_MORE_LEARNERS = Remedy(
    id="more-learner-gpus", summary="Give the learner more GPUs, or sequence parallelism.", safe="confirm"
)
_SEGMENTS = Remedy(
    id="expandable-segments",
    summary="Let torch's allocator grow its segments: much of what it holds is reserved and unused.",
    commands=("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",),
    safe="auto",
)
_BUCKETS = Remedy(
    id="smaller-buckets", summary="Divide DeepSpeed's bucket sizes by four (5e8 → 1e8): it failed.", safe="auto"
)
_UPGRADE_ALLOCATOR = Remedy(
    id="allocator-bug",
    summary="The GPU had far more free memory than was asked for: this is a fault of allocator or driver. Update "
    "vLLM and driver, or run the engine as a server of its own; cutting batches will not help.",
)
_LOWER_UTILIZATION = Remedy(
    id="lower-memory-utilization",
    summary="Lower the engine's share of the card by 0.10: it shares the card with the trainer.",
    changes=(Change("roles.rollout.memory_utilization", "plus", -0.10, least=0.3),),
    safe="auto",
)
_SHARD = Remedy(
    id="shard-optimizer",
    summary="Shard more: ZeRO stage 3 (or FSDP full shard).",
    changes=(Change("roles.learner.zero_stage", "set", 3),),
    safe="confirm",
)
_OFFLOAD = Remedy(
    id="offload-optimizer", summary="Keep optimizer states in host memory: 16 bytes a parameter.", safe="confirm"
)
_TRACEBACK = (
    "the traceback of the first rank that failed: the place decides what helps",
    "nvidia-smi of that node: who else is on the card",
)
_SOURCES = ("https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",)


def _allocator(fields: Fields) -> tuple[Remedy, ...]:
    return (_UPGRADE_ALLOCATOR,) if "allocator" in fields else ()


def _activations(fields: Fields) -> tuple[Remedy, ...]:
    if "allocator" in fields:
        return _allocator(fields)
    segments = (_SEGMENTS,) if "fragmented" in fields else ()
    buckets = (_BUCKETS,) if "bucket" in fields else ()
    return (*buckets, _HALVE_MICRO_BATCH, _CHECKPOINTING, *segments, _SHORTEN, _MORE_LEARNERS)


def _weight_sync(fields: Fields) -> tuple[Remedy, ...]:
    stage = Remedy(
        id="staged-wake-up",
        summary="Wake the weights first, gather a bucket at a time, and offload the trainer during rollout.",
        safe="confirm",
    )
    return _allocator(fields) or (_LOWER_UTILIZATION, stage)


SMALL_GIB = 100 / 1024
"""Activations of training come in larger pieces than this; parameters and optimizer steps in smaller ones."""
CHURN_GIB = 0.5
"""Torch holding this much that it does not use has freed as much before: weights are loaded and stay."""


# A server that passes on an engine's error names the call and shows no frames.
_WAKING = compiled(r"\b(?:wake_up|resume_memory_occupation)\b.{0,40}\b(?:failed|error)")


def read_cuda_oom(hit: Hit) -> Reading | None:
    """Decide which memory cause an out-of-memory line of CUDA is."""
    text = hit.context.line.text + " " + " ".join(line.text for line in hit.context.after(2))
    numbers = memory_numbers(text)
    fields = {name: size_words(gib) for name, gib in numbers.items() if name in ("asked", "total", "free")}
    if "free" in numbers and "asked" in numbers and numbers["free"] > 2 * numbers["asked"] + 1:
        fields["allocator"] = "yes"
    if numbers.get("slack", 0.0) > max(2.0, 0.05 * numbers.get("total", 40.0)):
        fields["fragmented"] = "yes"
    if is_shared(numbers):
        foreign = foreign_gib(numbers)
        return Reading(0.85, "cuda_oom_gpu_shared", {**fields, "foreign": f"{foreign:.1f} GiB"})
    if re.search(r"(?i)warming up|profil|graph capture|capture cuda graph|dummy requests", hit.context.line.text):
        return Reading(0.9, "engine_load_oom", fields)
    if "cumem" in text or _WAKING.search(hit.context.line.text):
        return Reading(0.9, "oom_weight_sync", fields)
    row = cause_by_frames(frames_of(hit.context)) or cause_by_frames(loose_frames_of(hit.context))
    if row is not None:
        sure = 0.8 if row.pattern.startswith("forward") else 0.9
        return Reading(sure, row.cause, {**fields, **row.fields})
    return _without_frames(hit, numbers, fields)


_RAISED = re.compile(r"(?:OutOfMemory|Runtime)Error: (?:CUDA|HIP) (?:error: )?out of memory", re.IGNORECASE)
_ENGINES = r"EngineCore|VllmWorker|RayWorkerWrapper|Worker_[TD]P|vLLM|LLM(?:Ray)?Actor|sglang"
_ENGINE_ACTORS = re.compile(_ENGINES, re.IGNORECASE)
_ENGINE_PREFIX = re.compile(rf"\([^()]{{0,80}}(?:{_ENGINES})[^()]{{0,80}}\bpid=".encode(), re.IGNORECASE)
"""Of several prefixes the outermost is the line's actor, and any of them may be the engine's."""

_ENGINE_FAILED = compiled(
    r"Engine core initialization failed|Engine ?Core failed to start|WorkerProc initialization failed"
)
"""What the side that waits for an engine says a few lines below: it did not come up."""

_TRAINS = compiled(r"(?i)\b(?:global_?)?step[ :=#]+\d|\d+/\d+ \[\d.{0,40}(?:it/s|s/it)|'(?:loss|grad_norm)': ")
"""What a training loop says of its steps."""

LINES_TO_STEP = 12
"""So close above an error, a step tells what the program was at."""


def _without_frames(hit: Hit, numbers: dict[str, float], fields: dict[str, str]) -> Reading | None:
    line = hit.context.line
    prefix = _ENGINE_PREFIX.search(hit.context.raw, hit.context.start, hit.context.end)
    below = " ".join(one.text for one in hit.context.after(LINES_TO_STEP))
    if prefix or any(_ENGINE_ACTORS.search(text) for text in (line.actor, line.text)) or _ENGINE_FAILED.search(below):
        return Reading(0.65, "engine_load_oom", fields)
    if "asked" not in numbers:
        # NCCL says it where it happens, whatever the others make of it
        return Reading(0.7 if "NCCL WARN" in line.text else 0.5, "cuda_oom_fwd_bwd", fields)
    # Without frames only the size speaks: a card that has not even this little left was filled with weights.
    if numbers["asked"] <= SMALL_GIB and numbers.get("slack", 0.0) < CHURN_GIB:
        return Reading(0.5, "engine_load_oom", fields)
    # Which memory it was, only the work before it tells: models are loaded and optimizers made with the same words.
    if not _RAISED.search(line.text):
        return Reading(0.5, "cuda_oom_fwd_bwd", fields)
    is_told = _TRAINS.search(hit.context.above(LINES_TO_STEP))
    return Reading(0.65 if is_told else 0.5, "cuda_oom_fwd_bwd", {**fields, ENDED: "yes"})


_OF_TRAINING_OR_ENGINE = worded(
    (
        "out of memory",
        r"(?i)(?:CUDA|HIP|NPU|XPU|MUSA)(?: driver| runtime)?(?: error)?(?: \(2\))?:?\s*out of memory",
    ),
    ("tried to allocate", r"(?i)tried to allocate [\d.]+ [KMGT]iB(?! in| bytes)"),
    ("out of memory", r"(?i)cuda runtime error \(\d+\) ?: out of memory"),
    ("out of memory", r"NCCL WARN Cuda failure.*out of memory"),
    ("alloc_failed", r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"),
    ("handle", r"(?i)\b(?:could not|cannot|failed to|unable to) create cu(?:dnn|blas)\w* handle"),
    ("cuda_error_out_of_memory", ""),
    ("out of memory", r"(?i)\b(?:cuda|hip|gpu|npu|xpu)\w*\b[^.]{0,60}\bout of memory"),
    ("resource_exhausted", r"RESOURCE_EXHAUSTED: Out of memory"),
    ("oom when allocating tensor", ""),
    ("cuda oom", r"CUDA OOM\b"),
    ("raytaskerror(outofmemoryerror)", ""),
    ("outofmemoryerror: ", r"(?:^|[\s.])OutOfMemoryError: (?!Task was killed|.{0,80}\bnode\b)"),
    unless=_NO_OOM,
    check=read_cuda_oom,
)

CAUSES = (
    Cause(
        id="cuda_oom_fwd_bwd",
        tier="root",
        recovery="change",
        title="The training pass ran out of GPU memory (activations or gradient buckets)",
        detail="{asked} asked for, {free} free of {total}",
        tell="The traceback ends in forward, backward or update_actor, and the piece asked for is large (over 100 "
        "MiB).",
        wordings=_OF_TRAINING_OR_ENGINE,
        remedies=_activations,
        wrong=(
            "A smaller global or rollout batch: one micro batch is what has to fit.",
            "expandable_segments where little is reserved but unused: there is nothing to gain.",
            "A lower memory utilization of engines on other cards: they do not share this one.",
        ),
        collect=_TRACEBACK,
        sources=_SOURCES,
    ),
    Cause(
        id="cuda_oom_optimizer",
        tier="root",
        recovery="change",
        title="Optimizer states did not fit on the GPU",
        detail="{asked} asked for, {free} free of {total}",
        tell="Frames of torch/optim or of optimizer.step in one of the first steps: Adam allocates then.",
        remedies=(
            _SHARD,
            _OFFLOAD,
            Remedy(id="8-bit-optimizer", summary="Use an 8-bit optimizer; this changes the numerics.", safe="confirm"),
            _MORE_LEARNERS,
        ),
        wrong=("A smaller micro batch: Adam's 12 to 16 bytes a parameter do not depend on it.",),
        collect=_TRACEBACK,
        sources=("https://www.deepspeed.ai/docs/config-json/", *_SOURCES),
    ),
    Cause(
        id="cuda_oom_zero3_gather",
        tier="root",
        recovery="change",
        title="Gathering sharded parameters ran out of GPU memory",
        detail="{asked} asked for, {free} free of {total}",
        tell="Frames such as fetch_sub_module, all_gather_coalesced, GatheredParameters or FSDP's unshard.",
        remedies=(
            Remedy(
                id="fewer-live-parameters",
                summary="Halve DeepSpeed's stage3_max_live_parameters and stage3_prefetch_bucket_size.",
                safe="auto",
            ),
            Remedy(id="offload-parameters", summary="Keep parameters in host memory.", safe="confirm"),
            _MORE_LEARNERS,
        ),
        wrong=("Blaming the layer: one layer of a 32B model is 1 GB; logits and whole-model gathers are far larger.",),
        collect=_TRACEBACK,
        sources=("https://www.deepspeed.ai/docs/config-json/",),
    ),
    Cause(
        id="cuda_oom_logits",
        tier="root",
        recovery="change",
        title="Log-probabilities over the whole vocabulary ran out of GPU memory",
        detail="{asked} asked for, {free} free of {total}",
        tell="Frames such as log_softmax, logsumexp, entropy_from_logits or compute_log_prob; one allocation of "
        "about tokens × vocabulary × 4 bytes.",
        remedies=(
            Remedy(
                id="chunk-log-probs",
                summary="Compute log-probs and entropy in chunks or with a fused kernel (verl: use_fused_kernels, "
                "entropy_from_logits_with_chunking; slime: --log-probs-chunk-size; NeMo RL: logprob_chunk_size; "
                "TRL: Liger).",
                safe="auto",
            ),
            _HALVE_MICRO_BATCH,
            Remedy(
                id="fewer-tokens-per-gpu", summary="Halve the cap of tokens per GPU in the log-prob pass.", safe="auto"
            ),
        ),
        wrong=("Optimizer offload or a higher ZeRO stage first: the logits are not sharded by them.",),
        collect=_TRACEBACK,
        sources=_SOURCES,
    ),
    Cause(
        id="cuda_oom_gpu_shared",
        tier="root",
        title="The GPU was already taken by other processes",
        detail="{foreign} in use by others, of {total}",
        tell="The message lists other processes with memory on this GPU, and torch itself holds only a small part.",
        explains=frozenset({"cuda_oom_fwd_bwd", "cuda_oom_optimizer", "engine_load_oom", "engine_free_mem_lt_util"}),
        remedies=(
            Remedy(
                id="bind-devices",
                summary="Give every rank its own device: several ranks (or an engine and a rank) sit on the same card.",
                safe="confirm",
            ),
            Remedy(
                id="end-own-orphans",
                summary="End what is left of your own earlier runs on that node, by pid; never other people's.",
                commands=("nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",),
                safe="confirm",
            ),
        ),
        wrong=(
            "Smaller batches: the memory is gone before this process starts.",
            "pkill python: it ends healthy runs.",
        ),
        collect=_TRACEBACK,
        sources=_SOURCES,
    ),
    Cause(
        id="oom_weight_sync",
        tier="root",
        recovery="change",
        title="Memory ran out when the engine woke up or took new weights",
        detail="{asked} asked for, {free} free of {total}",
        tell="Frames such as wake_up, cumem_allocator, update_weight or a sharding manager: engine and trainer "
        "hold the card at the same time.",
        # what lets SGLang give its memory back while the trainer has the card; 2 is CUDA's "out of memory"
        wordings=worded(
            (
                "torch_memory_saver.cpp",
                r"torch_memory_saver\.cpp\] (?:CUresult|CUDA|cudaError) error:? +(?:result=)?2\b",
                "curesult cuda cudaerror",
            ),
            confidence=0.9,
        ),
        remedies=_weight_sync,
        wrong=(
            "A higher memory utilization: that helps a dedicated engine, and makes this one worse.",
            "A smaller training batch: the training pass is over at that moment.",
        ),
        collect=_TRACEBACK,
        sources=("https://docs.vllm.ai/en/latest/features/sleep_mode.html",),
    ),
    Cause(
        id="engine_load_oom",
        tier="root",
        recovery="change",
        title="The engine's weights and profile run did not fit on the GPU",
        detail="{asked} asked for, {free} free of {total}",
        tell="The engine fails while loading, profiling or capturing graphs, before it serves anything.",
        wordings=worded(
            (
                "model",
                r"(?i)\b(?:error|fail\w*|unable|not) (?:to )?load(?:ing)? (?:\w+ )?model\b.{0,80}"
                r"\b(?:allocate|memory)\b",
            ),
            confidence=0.7,
            unless=r"(?i)\bDefaultCPU|\bRAM\b|host memory",
        ),
        remedies=(
            Remedy(
                id="double-tensor-parallel",
                summary="Double tensor parallelism; it has to divide the attention heads and fit into a node.",
                changes=(Change("roles.rollout.tensor_parallel", "times", 2),),
                safe="confirm",
            ),
            Remedy(
                id="smaller-profile-run",
                summary="Lower max_num_batched_tokens and max_num_seqs, or start with enforce_eager.",
                safe="confirm",
            ),
            Remedy(id="quantise", summary="Serve a quantised model.", safe="confirm"),
        ),
        wrong=("Fewer GPUs for each replica: that is more memory on each GPU, not less.",),
        collect=_TRACEBACK,
        sources=("https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",),
    ),
)
