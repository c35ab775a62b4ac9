"""Where on the GPU memory ran out: the frames of the traceback decide which of the memory causes it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.diagnose.frames import frames_of
from rltui.diagnose.signs import Found, Reading, compiled

if TYPE_CHECKING:
    from rltui.diagnose.frames import Frame

_UNIT_GIB = {"B": 1 / 2**30, "bytes": 1 / 2**30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0, "TiB": 1024.0}

SMALL_GIB = 100 / 1024
"""Activations of training come in larger pieces than this; parameters and optimizer steps in smaller ones."""

CHURN_GIB = 0.5
"""Torch holding this much that it does not use has freed as much before: weights are loaded and stay."""


class Place(Struct, frozen=True):
    """A place, recognised by any frame (path, function and code in one string), and the cause it stands for."""

    cause: str
    pattern: str
    unless: str = ""
    """A pattern of frames that speaks against it."""
    fields: dict[str, str] = {}


# In this order: a weight update gathers parameters, an engine's profile run computes logits, and so on; the outer
# purpose is what has to change.
PLACES = (
    Place(
        "oom_weight_sync",
        r"wake_up|backload|onload_|cumem|create_and_map|resume_memory_occupation|memory_saver|update_weights?(?!_decay)\b|"
        r"update_weights_|"
        r"sync_weights?|broadcast_to_vllm|sharding_manager|fsdp_vllm|megatron_vllm|rollout_mode|weight_sync|"
        r"_move_model_to_vllm|gather_whole_model|load_weights_from|update_named_param|ipc_engine|"
        r"get_per_tensor_param|per_tensor_generator",
    ),
    Place(
        "engine_load_oom",
        r"\bvllm/(?:v1|worker|model_executor|engine|entrypoints|executor|attention|compilation|spec_decode|lora)\b|"
        r"sglang/srt/|EngineCore|llm_engine|model_runner",
        unless=r"dp_actor|megatron_actor|update_actor|update_policy|compute_log_prob|\bbackward\b|training_step",
    ),
    Place(
        "cuda_oom_optimizer",
        r"torch/optim/|_multi_tensor_\w+|_single_tensor_adam|\boptimizer\.step|optimizer_step|fused_adam|FusedAdam|"
        r"bitsandbytes/optim|initialize_optimizer_states|init_optimizer_states|_init_group|adamw?\.py|Adam\w*\.step|"
        r"distributed_fused_adam|apex/optimizers|_take_model_step|_optimizer_step|distrib_optimizer|"
        r"_create_fp32_partitions",
    ),
    Place(
        "cuda_oom_zero3_gather",
        r"fetch_sub_module|all_gather_coalesced|GatheredParameters|partition_parameters|partitioned_param_coord|"
        r"__all_gather_params|_all_gather_params|_allgather_params|parameter_offload|_unshard\b|unshard_params|"
        r"_all_gather_flat_param|_alloc_padded_unsharded|fsdp_param_group|summon_full_params|all_gather_into_tensor|"
        r"foreach_all_gather",
    ),
    Place(
        "cuda_oom_logits",
        r"log_softmax|logsumexp|entropy_from_logits|compute_entropy|logprobs_from_logits|log_probs?_from_logits|"
        r"selective_log_softmax|compute_log_?probs?|get_batch_logps|get_per_token_logps|_get_logps|cross_entropy|"
        r"lm_head|logits\.float|logits = |compute_logits|ForCausalLMLoss|vocab_parallel|gather_log_probs|"
        r"fused_linear_cross_entropy|logits_to_logprobs",
    ),
    Place("cuda_oom_logits", r"\bsoftmax\b", unless=r"attention|attn|_sdpa|router|gate|moe"),
    Place("cuda_oom_fwd_bwd", r"reduce_bucket|allreduce_bucket|ipg_bucket|reduce_ipg", fields={"bucket": "yes"}),
    Place("cuda_oom_fwd_bwd", r"forward|backward|training_step|update_actor|update_critic|_call_impl|compute_loss|mlp"),
)


def place_of(frames: tuple[Frame, ...]) -> Place | None:
    """Return the place that ``frames`` speak for, or None where they say nothing."""
    whole = "\n".join(map(str, frames))
    for place in PLACES:
        if compiled(place.pattern).search(whole) and not (place.unless and compiled(place.unless).search(whole)):
            return place
    return None


def memory_numbers(text: str) -> dict[str, float]:
    """Return the GiB that torch's message names: ``asked``, ``total``, ``free``, ``allocated``, ``slack``, ``others``.

    ``slack`` is what torch reserved and does not use; ``others`` sums up the processes the message lists.
    """
    found: dict[str, float] = {}
    for name, pattern in _NUMBERS.items():
        match = compiled(pattern).search(text)
        if match is not None:
            found[name] = float(match[1]) * _UNIT_GIB[match[2]]
    if "reserved" in found:  # wording before torch 2.1: reserved includes what is allocated
        found["own"] = found.pop("reserved")
        found["slack"] = max(0.0, found["own"] - found.get("allocated", 0.0))
    if "free_old" in found:
        found["free"] = found.pop("free_old")
    processes = compiled(_PROCESS).findall(text)
    found["processes"] = float(len(processes))
    found["others"] = sum(float(number) * _UNIT_GIB[unit] for number, unit in processes)
    return found


_SIZE = r"([\d.]+) (bytes|[KMGT]iB)"
_NUMBERS = {
    "asked": rf"[Tt]ried to allocate {_SIZE}",
    "total": rf"(?:total capacity of|;) {_SIZE}(?: total capacity|,| of which)",
    "free": rf"of which {_SIZE} is free",
    "allocated": rf"(?:Of the allocated memory|total capacity;) {_SIZE}",
    "slack": rf"and {_SIZE} is reserved by PyTorch but unallocated",
    "reserved": rf"free; {_SIZE} reserved in total",
    "free_old": rf"already allocated; {_SIZE} free",
    "own": rf"this process has {_SIZE} memory in use",
}
_PROCESS = rf"Process \d+ has {_SIZE} memory in use"


def foreign_gib(numbers: dict[str, float]) -> float:
    """Return the GiB in use on the GPU that are not this process's own, as far as the message tells."""
    if "total" not in numbers:
        return 0.0
    used = numbers["total"] - numbers.get("free", 0.0)
    own = max(numbers.get("own", 0.0), numbers.get("allocated", 0.0) + numbers.get("slack", 0.0))
    return max(0.0, used - own) if "allocated" in numbers else 0.0


# A server that passes on an engine's error names the call and shows no frames.
_WAKING = compiled(r"\b(?:wake_up|resume_memory_occupation)\b.{0,40}\b(?:failed|error)")


def read_cuda_oom(found: Found) -> Reading | None:
    """Decide which memory cause an out-of-memory line of CUDA is."""
    text = found.spot.line.text + " " + " ".join(line.text for line in found.spot.after(2))
    numbers = memory_numbers(text)
    fields = {name: f"{value:.1f} GiB" for name, value in numbers.items() if name in ("asked", "total", "free")}
    if "free" in numbers and "asked" in numbers and numbers["free"] > 2 * numbers["asked"] + 1:
        fields["allocator"] = "yes"
    if numbers.get("slack", 0.0) > max(2.0, 0.05 * numbers.get("total", 40.0)):
        fields["fragmented"] = "yes"
    foreign = foreign_gib(numbers)
    if _is_shared(numbers, foreign):
        return Reading(0.85, "cuda_oom_gpu_shared", {**fields, "foreign": f"{foreign:.1f} GiB"})
    if re.search(r"(?i)warming up|profil|graph capture|capture cuda graph|dummy requests", found.spot.line.text):
        return Reading(0.9, "engine_load_oom", fields)
    if "cumem" in text or _WAKING.search(found.spot.line.text):
        return Reading(0.9, "oom_weight_sync", fields)
    place = place_of(frames_of(found.spot))
    if place is not None:
        sure = 0.8 if place.pattern.startswith("forward") else 0.9
        return Reading(sure, place.cause, {**fields, **place.fields})
    return _placeless(found, numbers, fields)


def _is_shared(numbers: dict[str, float], foreign: float) -> bool:
    """Two ranks on one card show as processes that hold memory besides this one; one listed process may be this one.

    In a container no process is listed, and old torch lists none: then what this one holds is all there is to go by.
    """
    total = numbers.get("total", float("inf"))
    if "allocated" not in numbers:
        return numbers["processes"] >= 3 and numbers["others"] > 0.5 * total
    if numbers["processes"] >= 2:
        return foreign > 0.1 * total
    return (numbers["processes"] >= 1 or "own" in numbers) and foreign > 0.5 * total


_RAISED = re.compile(r"(?:OutOfMemory|Runtime)Error: (?:CUDA|HIP) (?:error: )?out of memory", re.IGNORECASE)
_ENGINE_ACTORS = re.compile(
    r"EngineCore|VllmWorker|Worker_TP|Worker_DP|vLLM|LLMActor|LLMRayActor|sglang", re.IGNORECASE
)


def _placeless(found: Found, numbers: dict[str, float], fields: dict[str, str]) -> Reading | None:
    line = found.spot.line
    if _ENGINE_ACTORS.search(line.actor) or _ENGINE_ACTORS.search(line.text):
        return Reading(0.65, "engine_load_oom", fields)
    if "asked" not in numbers:
        return Reading(0.5, "cuda_oom_fwd_bwd", fields)
    # Without frames only the size speaks: a card that has not even this little left was filled with weights.
    if numbers["asked"] <= SMALL_GIB and numbers.get("slack", 0.0) < CHURN_GIB:
        return Reading(0.5, "engine_load_oom", fields)
    # which memory it was is a guess; that the process ended of it is none where it was raised
    return Reading(0.65 if _RAISED.search(line.text) else 0.6, "cuda_oom_fwd_bwd", fields)
