"""Measured peaks and caches that others published, and what is estimated for each: for the tests and the truth report.

The tables name torch's reserved or allocated memory (grades A and B), or what an author read off nvidia-smi and rounded
(grade C), with the source of every row.
"""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec

from rltui.hardware.models import known_model
from rltui.memory import Workload, estimate_training
from rltui.memory.estimate import RoleEstimate
from rltui.memory.recipes import RECIPES
from rltui.memory.settings import States

FOLDER = Path(__file__).parent
Row = dict[str, str]

RANKS = {"prime-rl": 16, "axolotl": 32}
"""Ranks of adapters where a row does not say its own."""

NEWER_CODE = ("M036", "N308")
"""Runs of 65,536 tokens with prime-rl's code of June 2026: on one card the same took 19.5 GiB five months before. What
changed is not known."""


def read(name: str) -> list[Row]:
    """The rows of a table beside this file."""
    with (FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file, restval=""))


RUNS, ENGINES = read("test_memory_points.csv"), read("test_memory_engines.csv")
MEASURED = [row for row in RUNS if row["measured_gib"] != "OOM" and row["id"] not in NEWER_CODE]
OUT_OF_MEMORY = [row for row in RUNS if row["measured_gib"] == "OOM"]


def estimate(row: Row) -> RoleEstimate:
    """Estimate the run of a row with its system's recipe."""
    model, recipe = known_model(row["model"]), RECIPES[row["system"]]
    assert model is not None
    fsdp = row["system"] == "litgpt" and int(row["gpus"]) > 1
    sharding = recipe.sharding(*(int(row[key]) for key in ("gpus", "tensor", "pipeline", "context", "expert")))
    changes = {"zero_stage": int(row["zero_stage"])} if row["zero_stage"] else {}
    if row["offload"] or changes or fsdp:
        extra = {"backend": "fsdp"} if fsdp else {}
        sharding = msgspec.structs.replace(sharding, **changes, **extra, offload=row["offload"])
    workload = Workload(
        tokens=int(row["tokens"]),
        checkpointing=row["checkpointing"],  # type: ignore[arg-type]
        kernels=row["kernels"] or recipe.kernels,  # type: ignore[arg-type]
        head=row["head"] or recipe.head,  # type: ignore[arg-type]
        reference=int(row["reference"] or 0),
        pipeline_micro_batches=int(row["pipeline_micro_batches"] or 0),
        layers_at_once=int(row["layers_at_once"] or 1),
        accumulates=not row["system"].startswith(("torchtune", "litgpt", "transformers fsdp", "xtuner")),
    )
    states = recipe.states
    if row["states"]:
        states = States(**dict(zip(States.__struct_fields__, map(float, row["states"].split("/")), strict=False)))
    adapter = None
    if row["lora"]:
        rank = int(row["rank"] or RANKS.get(row["system"].split()[0], 8))
        adapter = recipe.adapter(rank, row["lora"])  # type: ignore[arg-type]
        adapter = msgspec.structs.replace(adapter, base_bytes=float(row["base_bytes"]))
    card = float(row["capacity_gib"]) if row["capacity_gib"] else None
    return estimate_training(model, sharding, workload, states, adapter=adapter, capacity_gib=card)


def error(row: Row) -> float:
    """Estimate over measured, less one, at the level that was measured."""
    level = {"torch": "torch_gib", "allocated": "allocated_gib", "nvidia-smi": "total_gib"}[row["level"]]
    return max(getattr(moment, level) for moment in estimate(row).moments) / float(row["measured_gib"]) - 1
