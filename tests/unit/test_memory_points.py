"""Estimates against what was measured: peaks of training runs, and KV caches of engines.

The tables hold figures that others published, with where they are from: torch's reserved or allocated memory (grades A
and B), or what an author read off nvidia-smi and rounded (grade C). docs/memory.md says which rows constants were read
off; the limits here are the residuals of all of them, so that no change to a formula makes them worse unseen.
"""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import msgspec
import pytest

from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.models import known_model
from rltui.memory import EngineSettings, Workload, estimate_engine, estimate_training
from rltui.memory.engine import weights_gib
from rltui.memory.estimate import GIB, RoleEstimate
from rltui.memory.kv_pool import capacity
from rltui.memory.recipes import RECIPES

FOLDER = Path(__file__).parent
Row = dict[str, str]

NEWER_CODE = "M036"
"""The same run took 19.5 GiB with the code of five months before; what changed is not known."""


def read(name: str) -> list[Row]:
    with (FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file))


RUNS, ENGINES = read("test_memory_points.csv"), read("test_memory_engines.csv")


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
        kernels=recipe.kernels,
        head=row["head"] or recipe.head,  # type: ignore[arg-type]
        reference=int(row["reference"] or 0),
        pipeline_micro_batches=int(row["pipeline_micro_batches"] or 0),
        accumulates=row["system"] not in ("torchtune", "litgpt", "transformers fsdp"),
    )
    adapter = None
    if row["lora"]:
        adapter = recipe.adapter(16 if "prime" in row["system"] else 8, row["lora"])  # type: ignore[arg-type]
        adapter = msgspec.structs.replace(adapter, base_bytes=float(row["base_bytes"]))
    card = float(row["capacity_gib"]) if row["capacity_gib"] else None
    return estimate_training(model, sharding, workload, recipe.states, adapter=adapter, capacity_gib=card)


def error(row: Row) -> float:
    """Estimate over measured, less one, at the level that was measured."""
    peak = estimate(row).peak
    return (peak.torch_gib if row["level"] == "torch" else peak.total_gib) / float(row["measured_gib"]) - 1


MEASURED = [row for row in RUNS if row["measured_gib"] != "OOM" and row["id"] != NEWER_CODE]
OUT_OF_MEMORY = [row for row in RUNS if row["measured_gib"] == "OOM"]


@pytest.mark.parametrize(("grades", "median", "within_15"), [("A", 0.03, 0.9), ("B", 0.11, 0.7), ("ABC", 0.06, 0.75)])
def test_residuals_by_grade(grades: str, median: float, within_15: float, capsys: pytest.CaptureFixture[str]) -> None:
    errors = [error(row) for row in MEASURED if row["grade"] in grades]
    sizes = sorted(abs(e) for e in errors)
    share = sum(size <= 0.15 for size in sizes) / len(sizes)
    with capsys.disabled():
        print(f"\n{grades}: {len(sizes)} runs, median {statistics.median(sizes):.1%}, within 15 %: {share:.0%}", end="")
    assert statistics.median(sizes) <= median
    assert share >= within_15


def test_estimates_of_grade_a_lean_to_no_side() -> None:
    errors = [error(row) for row in MEASURED if row["grade"] == "A"]
    over = sum(e > 0 for e in errors) / len(errors)
    assert 0.35 <= over <= 0.65
    assert abs(statistics.median(errors)) <= 0.02


@pytest.mark.parametrize("source", ["prime-rl", "prime-rl sft", "torchtitan", "torchtitan 2024", "transformers fsdp"])
def test_each_well_described_source_lies_within_15_percent(source: str) -> None:
    errors = {row["id"]: error(row) for row in MEASURED if row["system"] == source}
    assert errors
    assert max(abs(e) for e in errors.values()) <= 0.15, errors


@pytest.mark.parametrize("row", OUT_OF_MEMORY, ids=lambda row: row["id"])
def test_what_ran_out_of_memory_never_fits(row: Row) -> None:
    assert estimate(row).verdict == "no"


@pytest.mark.parametrize(
    "row", [row for row in ENGINES if row["kv_gib"] and row["kv_tokens"]], ids=lambda row: row["id"]
)
def test_logged_cache_holds_the_logged_tokens(row: Row) -> None:
    model = known_model(row["model"])
    assert model is not None
    length = int(row["max_model_len"] or 32768)
    layers = kv_layers(model, int(row["tensor"]))
    tokens = capacity(layers, float(row["kv_gib"]) * GIB, length, 8192, 16).tokens
    assert tokens == pytest.approx(float(row["kv_tokens"]), rel=0.012)


@pytest.mark.parametrize("row", [row for row in ENGINES if row["weights_gib"]], ids=lambda row: row["id"])
def test_loaded_weights_are_the_logged_ones(row: Row) -> None:
    model = known_model(row["model"])
    assert model is not None
    settings = EngineSettings(tensor_parallel=int(row["tensor"]), weight_bytes=float(row["weight_bytes"]))
    assert weights_gib(model, settings) == pytest.approx(float(row["weights_gib"]), rel=0.006)


@pytest.mark.parametrize("given", [True, False], ids=["activation given", "activation estimated"])
@pytest.mark.parametrize("name", ["M005", "M015", "M018", "H83"])
def test_tokens_from_card_and_utilization(name: str, given: bool) -> None:
    row = next(row for row in ENGINES if row["id"] == name)
    model = known_model(row["model"])
    assert model is not None
    known = {key: float(row[key]) for key in ("weights_gib", "activation_gib", "non_torch_gib") if given and row[key]}
    settings = EngineSettings(
        tensor_parallel=int(row["tensor"]),
        memory_utilization=float(row["utilization"]),
        max_model_len=int(row["max_model_len"] or 32768),
        max_num_batched_tokens=2048,
        weight_bytes=float(row["weight_bytes"]),
        static_budget=row["system"] == "sglang",
        graphs_in_budget=False,
        **known,
    )
    engine = estimate_engine(model, settings, float(row["capacity_gib"]))
    assert engine.kv_tokens == pytest.approx(float(row["kv_tokens"]), rel=0.05)
