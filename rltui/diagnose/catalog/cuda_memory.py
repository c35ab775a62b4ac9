"""GPU memory ran out: seven causes with one error message, told apart by the place (see ``rltui.diagnose.places``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Change, Remedy

if TYPE_CHECKING:
    from rltui.diagnose.causes import Fields


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
    id="smaller-buckets",
    summary="Divide DeepSpeed's reduce_bucket_size and allgather_bucket_size by four (5e8 → 1e8): the bucket failed.",
    safe="auto",
)
_UPGRADE_ALLOCATOR = Remedy(
    id="allocator-bug",
    summary="The GPU had far more free memory than was asked for: this is a fault of allocator or driver. "
    "Update vLLM and driver, or run the engine as a server of its own; cutting batches will not help.",
    safe="never",
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
    id="offload-optimizer",
    summary="Keep optimizer states in host memory; it needs 16 bytes a parameter, spread over the nodes.",
    safe="confirm",
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
        summary="Wake weights first and the KV cache after the transfer, gather one bucket at a time instead of the "
        "whole model, and offload the trainer during rollout.",
        safe="confirm",
    )
    return _allocator(fields) or (_LOWER_UTILIZATION, stage)


CAUSES = (
    Cause(
        id="cuda_oom_fwd_bwd",
        tier="root",
        title="The training pass ran out of GPU memory (activations or gradient buckets)",
        detail="{asked} asked for, {free} free of {total}",
        tell="The traceback ends in forward, backward or update_actor, and the piece asked for is large (over 100 "
        "MiB).",
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
        title="Log-probabilities over the whole vocabulary ran out of GPU memory",
        detail="{asked} asked for, {free} free of {total}",
        tell="Frames such as log_softmax, logsumexp, entropy_from_logits or compute_log_prob; one allocation of about "
        "tokens × vocabulary × 4 bytes.",
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
        explains=frozenset({"cuda_oom_fwd_bwd", "cuda_oom_optimizer", "engine_load_oom", "engine_free_mem_lt_util"}),
        sources=_SOURCES,
    ),
    Cause(
        id="oom_weight_sync",
        tier="root",
        title="Memory ran out when the engine woke up or took new weights",
        detail="{asked} asked for, {free} free of {total}",
        tell="Frames such as wake_up, cumem_allocator, update_weight or a sharding manager: engine and trainer hold "
        "the "
        "card at the same time.",
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
        title="The engine's weights and profile run did not fit on the GPU",
        detail="{asked} asked for, {free} free of {total}",
        tell="The engine fails while loading, profiling or capturing graphs, before it serves anything.",
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
