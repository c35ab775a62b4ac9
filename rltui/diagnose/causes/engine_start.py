"""Inference engines (vLLM, SGLang) that do not start: KV cache, context, tensor parallelism."""

from __future__ import annotations

import math

from rltui.diagnose.cause import Cause, Fields
from rltui.diagnose.frames import LOADS_WEIGHTS
from rltui.diagnose.verdicts import Change, Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_CONSERVING = "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html"
_FRAMES_ABOVE = 8
LEN_STEP = 256
"""max_model_len is rounded down to a multiple of this: block sizes divide it."""
MOST_UTILIZATION = 0.95
HEADROOM = 0.02
"""Share of the card left free when the engine's share is fitted to what is free."""
_RAISE = Remedy(
    id="raise-memory-utilization",
    summary="Raise the engine's share of the card by 0.10.",
    changes=(Change("roles.rollout.memory_utilization", "plus", 0.1, most=MOST_UTILIZATION),),
    safe="auto",
)
_DOUBLE = Remedy(
    id="double-tensor-parallel",
    summary="Double tensor parallelism: half the weights on each GPU.",
    changes=(Change("roles.rollout.tensor_parallel", "times", 2),),
    safe="confirm",
)


def kv_no_blocks(_: Fields) -> tuple[Remedy, ...]:
    """More for the cache: share, then tensor parallelism, then less context and fewer sequences."""
    halve = Remedy(
        id="halve-context",
        summary="Halve max_model_len and max_num_seqs; halving responses changes the experiment.",
        changes=(Change("lengths.response", "times", 0.5, least=1),),
        safe="confirm",
    )
    return (_RAISE, _DOUBLE, halve)


def kv_max_len(fields: Fields) -> tuple[Remedy, ...]:
    """Fit the context into the cache where the numbers are known; else make the cache larger."""
    held = int(fields.get("held", "0"))
    if held < LEN_STEP:
        return (_RAISE, _DOUBLE)
    fitting = held // LEN_STEP * LEN_STEP
    fit = Remedy(
        id="fit-context",
        summary=f"Set max_model_len to {fitting}, if prompt and response together still fit into it.",
        safe="confirm",
    )
    return (fit, _RAISE, _DOUBLE)


def free_memory(fields: Fields) -> tuple[Remedy, ...]:
    """A small gap is closed by a smaller share; a large one means that someone else has the card."""
    try:
        share = float(fields["free_gib"]) / float(fields["total_gib"])
        asked = float(fields["asked_share"])
    except (KeyError, ValueError, ZeroDivisionError):
        share, asked = 0.0, 1.0
    find = Remedy(
        id="find-the-owner",
        summary="Find who holds the card; end it by pid if it is your own orphan, else take another GPU.",
        commands=("nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",),
        safe="confirm",
    )
    if share < max(0.5, asked - 0.10):
        return (find,)
    fitting = math.floor((share - HEADROOM) * 100) / 100
    lower = Remedy(
        id="fit-memory-utilization",
        summary=f"Lower the engine's share of the card to {fitting:.2f}: that much is free.",
        changes=(Change("roles.rollout.memory_utilization", "set", fitting),),
        safe="auto",
    )
    return (lower, find)


def tensor_parallel(fields: Fields) -> tuple[Remedy, ...]:
    """The largest size up to eight GPUs that divides the heads and the old size, so that more engines take the rest."""
    heads, asked = int(fields.get("heads", "0")), int(fields.get("tp", "0"))
    if not heads or not asked or heads > 10_000:
        words = "Choose a tensor parallelism that divides the attention heads and fits into a node."
        return (Remedy(id="divide-heads", summary=words, safe="confirm"),)
    best = max(size for size in range(1, 9) if heads % size == 0 and asked % size == 0)
    return (
        Remedy(
            id="divide-heads",
            summary=f"Set tensor parallelism to {best}, which divides {heads} heads; keep engines × tensor "
            f"parallelism.",
            changes=(Change("roles.rollout.tensor_parallel", "set", best),),
            safe="auto",
        ),
    )


def max_model_len(fields: Fields) -> tuple[Remedy, ...]:
    """Clamp to what the model has."""
    derived = fields.get("derived", "")
    words = f"Set max_model_len to at most {derived}" if derived else "Set max_model_len to the model's own context"
    return (Remedy(id="clamp-context", summary=f"{words}, and shorten prompt or response to fit.", safe="auto"),)


def read_while_taking_weights(hit: Hit) -> Reading | None:
    """A tensor that the engine's model has no place for, or another shape for."""
    above = hit.context.above(_FRAMES_ABOVE)
    return Reading(0.75) if LOADS_WEIGHTS.search(above) else None


CAUSES = (
    Cause(
        id="engine_kv_no_blocks",
        tier="root",
        recovery="change",
        title="Nothing was left for the engine's KV cache after weights and activations",
        tell="The engine says so before it starts, or counts 0 GPU blocks.",
        wordings=worded(
            "no available memory for the cache blocks",
            ("gpu blocks: 0", r"(?i)gpu blocks: 0\b"),
            # a count of the cache goes below zero where the weights alone are above the engine's share
            (
                "-",
                r"(?i)\b(?:kv cache|cache blocks|profiled|avail(?:able)? (?:mem\w*|blocks|tokens))\b"
                r"[\w ]{0,20}[ :=]+-\d",
                "cache profiled avail available",
            ),
            ("mem-fraction-static", r"(?i)(?:memory|increase).*mem-fraction-static(?! to avoid)"),
            ("memory for the kv cache", r"(?i)\b(?:no|not enough|insufficient)\b.{0,24} memory for the kv cache"),
            ("memory for kv cache", r"(?i)\b(?:no|not enough|insufficient)\b.{0,24} memory for kv cache"),
            "not enough gpu memory available to serve even a single token",
            confidence=0.95,
        ),
        explains=frozenset({"engine_kv_max_len", "engine_core_died"}),
        remedies=kv_no_blocks,
        wrong=(
            "A lower memory utilization: the cache gets what is left of that share, so it has to rise. "
            "In one thread 0.03 to 0.4 all failed and 0.5 worked.",
        ),
        sources=(_CONSERVING, "vllm-project/vllm#10439"),
    ),
    Cause(
        id="engine_kv_max_len",
        tier="root",
        recovery="change",
        title="One sequence of the full context does not fit into the engine's KV cache",
        detail="{asked} tokens wanted, {held} fit",
        tell="The engine names both numbers, or the memory that one request would need.",
        wordings=worded(
            (
                "that can be stored in kv cache",
                r"max seq len \((?P<asked>\d+)\) is larger than the maximum number of tokens that can be stored in KV "
                r"cache \((?P<held>\d+)\)",
            ),
            (
                "larger than the available kv cache memory",
                r"max seq len \((?P<asked>\d+)\).*larger than the available KV cache memory"
                r"(?:.*estimated maximum model length is (?P<held>\d+))?",
            ),
            # the sentence is long: terminals and reports break it before or after
            (
                "larger than the available kv cache memory",
                r"larger than the available KV cache memory \([\d.]+ "
                r"[KMGT]iB\)",
            ),
            confidence=0.95,
        ),
        explains=frozenset({"engine_core_died"}),
        remedies=kv_max_len,
        wrong=("Fewer concurrent requests: not even one fits.",),
        sources=(_CONSERVING,),
    ),
    Cause(
        id="engine_free_mem_lt_util",
        tier="root",
        title="The GPU had less free memory than the engine was told to take",
        detail="{free_gib} of {total_gib} GiB free, share asked for {asked_share}",
        tell="The engine compares free and wanted memory at start; a small gap is a leftover, a large one another "
        "process.",
        wordings=worded(
            (
                "less than desired",
                r"Free memory on device(?: \S+)? \((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\).*"
                r"desired [GC]PU memory utilization \((?P<asked_share>[\d.]+)",
            ),
            (
                "less than the engine's budget",
                r"Free memory on device(?: \S+)? \((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\).*engine's budget",
            ),
            ("externally held weights on device", r"exceed the desired GPU memory utilization"),
            ("not properly cleaned up before initializing the vllm instance", ""),
            ("error in memory profiling", ""),
            ("memory capacity is unbalanced", ""),  # SGLang's ranks compare what is free on their cards
        ),
        explains=frozenset({"engine_core_died"}),
        remedies=free_memory,
        wrong=("Lowering the utilization where next to nothing is free: the card belongs to someone else.",),
        sources=(_CONSERVING,),
    ),
    Cause(
        id="engine_tp_heads",
        tier="root",
        title="A parallel size does not divide the model or the GPUs",
        detail="{heads} attention heads, tensor parallelism {tp}",
        tell="The engine refuses before it loads anything, and names the numbers.",
        wordings=worded(
            (
                "divisible by tensor parallel",
                r"attention heads \((?P<heads>\d+)\) must be divisible by tensor[ _]parallel[ _]size \((?P<tp>\d+)\)",
            ),
            ("divisible by", r"number of GPUs per node is not divisible by the number of tensor parallel"),
            (
                "divisible by",
                r"(?i)num(?:ber of )?_?(?:kv |key.value |attention )?heads.{0,80}divisible by.{0,40}(?:tp|mp_size|"
                r"tensor|"
                r"world|model.parallel)",
            ),
            (
                "divisible by",
                r"(?i)AssertionError: \d+ is not divisible by \d+|(?:hidden|vocab|intermediate)[ "
                r"_]size.{0,60}divisible "
                r"by.{0,20}tensor",
            ),
            (
                "divisible by",
                r"(?i)must be divisible by (?:[tpe]p|tensor|pipeline|expert|world)[_ ](?:parallel[_ "
                r"])?size",
            ),
            (
                "must be a multiple of",
                r"(?i)(?:heads|query_groups|(?:hidden|ffn|vocab|intermediate)\w*size)\b.{0,40}must be a multiple of "
                r"(?:tensor|context|expert|model)\w*parallel",
            ),
            (
                "divisible by",
                r"(?i)(?:number of layers|num_layers|dimension of the tensor|world[_ ]size \(\d+\)).{0,40}"
                r"divisible by .{0,60}(?:parallel[-_ ]|parallel$)",
            ),
            (
                "tp world size",
                r"(?i)(?:multiple of|divisible by) TP world size",
            ),
            ("weight quantization block", r"not divisible by weight quantization block"),
            ("reducing tensor_parallel_size", r"not divisible by .{0,80}[Cc]onsider reducing tensor_parallel_size"),
            ("% tp_size", r"(?:assert|AssertionError).*% tp_size == 0"),
        ),
        explains=frozenset({"engine_core_died"}),
        remedies=tensor_parallel,
        wrong=("Odd sizes such as 3, 5 or 6 to use up GPUs: heads come in powers of two times a small factor.",),
        sources=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",),
    ),
    Cause(
        id="engine_unfit_model",
        tier="root",
        title="The engine cannot take this model or adapter as it is told to",
        tell="It refuses a head size, a quantization, an attention backend or a LoRA. Or it finds tensors in the "
        "checkpoint that it has no place for. The engine is older than the model, or the copy was quantised for "
        "another engine.",
        wordings=(
            Wording(
                anchor="keyerror: ",
                pattern=r"KeyError: ['\"][\w.]*(?:weight|bias|scale|zeros|absmax|lora_[AB]|layers\.\d)[\w.]*['\"]$",
                check=read_while_taking_weights,
            ),
            Wording(anchor="assertionerror", pattern=r"^AssertionError:?$", check=read_while_taking_weights),
            *worded(
                ("head", r"(?i)\bhead[_ ]size:? ?\(?\d*\)? is not supported|\bunsupported head[_ ]size", "head"),
                ("headdim", r"does not support headdim"),
                (
                    "attention backend",
                    r"(?i)(?:no valid|unknown|invalid|unsupported) attention backend|selected (?:attention )?backend "
                    r"\S{1,80} is not valid",
                ),
                ("unsupported lora weight", ""),
                ("max_lora_rank", r"LoRA rank \d+ is greater than max_lora_rank"),
                ("does not support lora", ""),
                ("expected target modules in", ""),
                ("loading lora", r"Error: .{0,60}Loading lora \S{1,200} failed"),
                ("quantization method", r"(?i)(?:unknown|unsupported|invalid) quantization method"),
                ("does not match the quantization method", ""),
                ("quantized weight shape", r"input size is not aligned with the quantized weight shape"),
                ("no module or parameter named", ""),
                (
                    "failed to update",
                    r"(?i)failed to update (?:parameters?|weights?) online: (?!.*(?:timed? ?out|connect))",
                ),
                ("not initialized from checkpoint", r"Error: Following weights were not initialized from checkpoint"),
                ("pipeline parallel", r"(?i)Error: .{0,80}(?:not support|unsupported).{0,40}pipeline parallel"),
                ("pipeline parallelism is not supported", ""),
                confidence=0.85,
            ),
        ),
        explains=frozenset({"engine_core_died", "ckpt_broken", "tensors_unfit"}),
        remedies=(
            Remedy(
                id="match-the-engine",
                summary="Give the engine what its error names (max_lora_rank, an attention backend, the quantization "
                "of the checkpoint), or take an engine that knows this model.",
                safe="never",
            ),
            Remedy(
                id="try-alone",
                summary="Start the engine alone on the checkpoint first: it fails in a minute, without a trainer.",
                commands=("vllm serve <model> --max-model-len 2048 --enforce-eager",),
                safe="never",
            ),
        ),
        wrong=("Renaming tensors in the checkpoint until it loads: it answers nonsense then.",),
        sources=("vllm-project/vllm#22193", "vllm-project/vllm#2847"),
    ),
    Cause(
        id="engine_max_model_len",
        tier="root",
        title="max_model_len is larger than the model's own context",
        detail="{asked} asked for, the model has {derived}",
        tell="The engine derives the limit from config.json and refuses more.",
        wordings=worded(
            (
                "greater than the derived max_model_len",
                r"max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len"
                r"(?: \((?:[a-z_]+=(?P<derived>\d+))?)?",
            ),
            (
                "greater than the derived context_length",
                r"context_length \((?P<asked>\d+)\) is greater than the derived context_length \((?P<derived>\d+)",
            ),
            ("model context length should be greater than total sequence length", ""),  # verl's rollout
            confidence=0.95,
            # so vLLM warns where it was told to take the length; where it refuses, it says first how to tell it
            unless=r"config\.json\)\. VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used",
        ),
        explains=frozenset({"engine_core_died"}),
        remedies=max_model_len,
        wrong=("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1: positions the model never saw give NaN or nonsense.",),
        sources=("https://docs.vllm.ai/en/latest/configuration/env_vars.html",),
    ),
)
