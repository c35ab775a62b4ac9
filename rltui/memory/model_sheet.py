"""What a model takes by itself: its weights, its cache, and the fewest GPUs that train and serve it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from rltui.hardware.architecture import Architecture
from rltui.hardware.gpus import Gpu
from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.models import MXFP4_BYTES, known_model
from rltui.hardware.parameters import count_parameters
from rltui.memory.engine import estimate_engine, vllm_batching, weights_gib
from rltui.memory.estimate import GIB
from rltui.memory.host import checkpoint_gib
from rltui.memory.knobs import valid_tensor_parallel
from rltui.memory.recipes import RECIPES
from rltui.memory.settings import Adapter, EngineSettings, Sharding, Workload
from rltui.memory.training import estimate_training

SCHEMA = 1
TOKENS = 8192
"""Tokens of one packed micro-batch in training, and the longest sequence of the engine."""

MOST_GPUS = 1024
MOST_TENSOR_PARALLEL = 16
LORA_RANK = 16
LENGTHS = (8192, 32768, 131072)
PRECISIONS = {"16 bits": 2.0, "8 bits": 1.0, "4 bits (mxfp4)": MXFP4_BYTES}


class Fit(Struct, frozen=True, kw_only=True):
    """The fewest GPUs of the card on which something fits.

    Attributes:
        what: ``full training``, ``LoRA`` or ``engine``.
        gpus: GPUs that train it, or that one engine has; None: none up to the most that were tried.
        each_gib: What it takes of each, an engine's cache not counted.
        largest: The largest part of it, and its size in GiB; None: it is an engine's weights.
        kv_tokens: Tokens of an engine's cache.
    """

    what: str
    gpus: int | None
    each_gib: float | None = None
    largest: tuple[str, float] | None = None
    kv_tokens: int | None = None


class ModelSheet(Struct, frozen=True, kw_only=True):
    """A model's own figures.

    Attributes:
        model: Its name.
        parameters: All, towers included.
        active: Those of the language model that one token uses.
        weights_gib: By precision, on one GPU.
        token_bytes: Bytes of one more token in the cache, in 16 bits.
        sequence_gib: By length in tokens, what one sequence takes of the cache.
        checkpoint_gib: A checkpoint to resume full training from.
        card: Name of the card of ``fits``.
        fits: Where it fits on that card.
        source: Where the shape is from.
        caveat: What is doubtful about the shape; empty: nothing.
    """

    model: str
    parameters: int
    active: int
    weights_gib: dict[str, float]
    token_bytes: int
    sequence_gib: dict[int, float]
    checkpoint_gib: float
    card: str
    fits: tuple[Fit, ...]
    source: str
    caveat: str = ""


def model_sheet(model: Architecture, gpu: Gpu) -> ModelSheet:
    """The figures of ``model``, and on how many cards like ``gpu`` it fits."""
    count, layers = count_parameters(model), kv_layers(model)
    longest = model.max_position or max(LENGTHS)
    return ModelSheet(
        model=model.name,
        parameters=count.total,
        active=count.active,
        weights_gib={name: weights_gib(model, EngineSettings(weight_bytes=size)) for name, size in PRECISIONS.items()},
        token_bytes=layers.token_bytes,
        sequence_gib={
            length: layers.sequence_bytes(length) / GIB
            for length in [each for each in LENGTHS if each <= longest] or [longest]
        },
        checkpoint_gib=checkpoint_gib(model, RECIPES["rltui"].states),
        card=gpu.name,
        fits=(_trained(model, gpu, lora=False), _trained(model, gpu, lora=True), _served(model, gpu)),
        source=model.source,
        caveat=model.caveat,
    )


def _trained(model: Architecture, gpu: Gpu, *, lora: bool) -> Fit:
    recipe, what = RECIPES["rltui"], "LoRA" if lora else "full training"
    adapter = Adapter(rank=LORA_RANK, states=recipe.states) if lora else None
    workload = Workload(tokens=TOKENS, kernels=recipe.kernels, head=recipe.head)
    gpus = 1
    while gpus <= MOST_GPUS:
        sharding = Sharding(gpus=gpus, buckets_by_width=True)
        found = estimate_training(
            model, sharding, workload, recipe.states, adapter=adapter, capacity_gib=gpu.usable_gib
        )
        if found.verdict == "fits":
            largest = max(found.peak.parts_gib.items(), key=lambda part: part[1])
            return Fit(what=what, gpus=gpus, each_gib=found.peak_gib, largest=largest)
        gpus *= 2
    return Fit(what=what, gpus=None)


def _served(model: Architecture, gpu: Gpu) -> Fit:
    for degree in valid_tensor_parallel(model, MOST_TENSOR_PARALLEL):
        settings = EngineSettings(
            tensor_parallel=degree,
            max_model_len=min(TOKENS, model.max_position or TOKENS),
            max_num_batched_tokens=vllm_batching(gpu, server=True).tokens,
        )
        found = estimate_engine(model, settings, gpu.usable_gib)
        if found.max_concurrency is not None and found.max_concurrency >= 1:
            return Fit(what="engine", gpus=degree, each_gib=found.weights_gib, kv_tokens=found.kv_tokens)
    return Fit(what="engine", gpus=None)


def as_json(sheet: ModelSheet) -> dict[str, Any]:
    """The sheet as builtins, in the form that ``rltui mem hf:ORG/NAME --json`` prints."""
    return {"schema": SCHEMA, **to_builtins(sheet, str_keys=True)}


def lines(sheet: ModelSheet) -> Iterator[str]:
    """The sheet as lines for people: parameters, bytes by precision, KV cache of a token."""
    yield f"{sheet.model}: {sheet.parameters / 1e9:.2f} B parameters, {sheet.active / 1e9:.2f} B for one token"
    weights = ", ".join(f"{size:.1f} GiB in {name}" for name, size in sheet.weights_gib.items())
    yield f"weights       {weights}"
    cache = ", ".join(f"{size:.2f} GiB at {length:,} tokens" for length, size in sheet.sequence_gib.items())
    yield f"cache         {sheet.token_bytes / 1024:.1f} KiB a token; a sequence takes {cache}"
    yield f"checkpoint    {sheet.checkpoint_gib:.1f} GiB to resume full training from"
    for fit in sheet.fits:
        yield f"{fit.what:<13} {_where(fit, sheet.card)}"
    word = layout_word(sheet.model, sheet.source)
    yield f"For lengths, rows and engines of your own: rltui mem PRESET roles.learner.model={word}"
    yield f"The shape is that of {sheet.source}."
    if sheet.caveat:
        yield f"The shape of {sheet.model} is doubtful: {sheet.caveat}."


def layout_word(model: str, source: str) -> str:
    """What a layout calls a model: its name where it is known, else the folder of its ``config.json``."""
    return model if known_model(model) else str(Path(source).parent)


def _where(fit: Fit, card: str) -> str:
    if fit.gpus is None or fit.each_gib is None:
        return f"fits no number of {card} that was tried"
    if fit.kv_tokens is not None:
        cache = f"{fit.kv_tokens:,} tokens of cache"
        return f"from {fit.gpus} {card} an engine: {fit.each_gib:.1f} GiB of weights each, {cache}"
    part = f", {fit.largest[1]:.1f} of it {fit.largest[0]}" if fit.largest else ""
    return f"from {fit.gpus} {card}: {fit.each_gib:.1f} GiB each{part} (ZeRO-3, {TOKENS:,} packed tokens)"
