"""Measured peaks and caches that others published, and what is estimated for each: for the tests and the truth report.

The tables name torch's reserved or allocated memory (grades A and B), or what an author read off nvidia-smi and rounded
(grade C), with the source of every row.
"""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
from model_support import shape_of

from rltui.hardware.architecture import Architecture
from rltui.hardware.models import known_model
from rltui.layout.load import load_text
from rltui.memory import EngineSettings, Workload, estimate_engine, estimate_training
from rltui.memory.estimate import EngineEstimate, RoleEstimate
from rltui.memory.from_layout import learner_training
from rltui.memory.recipes import RECIPES
from rltui.memory.settings import States

FOLDER = Path(__file__).parent
Row = dict[str, str]

OWN_MOMENTS = ("log-probs", "backward", "optimizer step")

STEPS_EACH_MICRO_BATCH = ("torchtune", "litgpt", "transformers fsdp", "xtuner")
"""Systems whose rows have one micro-batch a step, so that no gradients wait; a row of another says it itself."""

RANKS = {"prime-rl": 16, "axolotl": 32}
"""Ranks of adapters where a row does not say its own."""

FAR = (
    *("V01", "V03", "W23", "N308", "Y18", "Y21", "Y22", "Z07", "Z12", "Z13", "Z14", "L09", "L10"),
    *("J09", "J10", "J12", "J13", "J14", "J15", "J16", "J17", "J18", "J23"),
    *("I03", "I39"),
)
"""Runs of well described sources that are further than 15 % off. Of 512 tokens FSDP reserved as much as of 2,048: what
its allocator keeps since the model was loaded (V03 had allocated 8.28 GiB, the estimate is 8.4). torchtitan took 33.7
GiB on eight B200, 39.1 on eight MI300X with the same settings two days before, and 69 in July 2024 where it took 77 in
December (Z07). N308 took 6.3 GiB, and 8.9 are estimated. What a pipeline under FSDP keeps whole (Y18), experts that are
one padded product (Y21, Y22), what selective checkpointing keeps of experts (Z12 to Z14), and
what one graph of them keeps (L09, L10), is not modelled. prime-rl of summer 2026 takes less for each token of 30B-A3B
than that of January, of which the constants were read off (J09 to J14). J15 and J16 are its 0.6B of May 2026, whose
layers' kernels are not known; J17 and J18 are mostly linear layers, J23 is another's FSDP2 beside divided experts.
I03 is not known; in I39 Mamba's layers are not recomputed, and two heads for further tokens have logits."""


def read(name: str) -> list[Row]:
    """The rows of a table beside this file."""
    with (FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file, restval=""))


def shape(name: str) -> Architecture:
    """The shape of a row's model: one that nobody published as such, else a known one."""
    own = msgspec.json.decode((FOLDER / "test_memory_shapes.json").read_bytes(), type=list[Architecture])
    found = next((model for model in own if model.name == name), None) or known_model(name)
    assert found is not None
    return found


RUNS, ENGINES = read("test_memory_points.csv"), read("test_memory_engines.csv")
MEASURED = [row for row in RUNS if row["measured_gib"] != "OOM"]
OUT_OF_MEMORY = [row for row in RUNS if row["measured_gib"] == "OOM"]


def estimate(row: Row) -> RoleEstimate:
    """Estimate the run of a row with its system's recipe."""
    model, recipe = shape(row["model"]), RECIPES[row["system"]]
    fsdp = row["system"] == "litgpt" and int(row["gpus"]) > 1
    sharding = recipe.sharding(*(int(row[key]) for key in ("gpus", "tensor", "pipeline", "context", "expert")))
    changes = {key: int(row[key]) for key in ("zero_stage", "expert_tensor_parallel") if row[key]}
    if row["offload"] or row["defers_sync"] or row["sequence_parallel"] or changes or fsdp:
        extra = {"backend": "fsdp"} if fsdp else {}
        extra |= {"defers_sync": True} if row["defers_sync"] else {}
        extra |= {"sequence_parallel": row["sequence_parallel"] != "no"}
        share = float(row["offload_share"] or 1)
        sharding = msgspec.structs.replace(sharding, **changes, **extra, offload=row["offload"], offload_share=share)
    workload = Workload(
        tokens=int(row["tokens"]),
        head_tokens=int(row["head_tokens"]) if row["head_tokens"] else None,
        sequences=int(row["sequences"] or 1),
        keeps_exchanges=bool(row["keeps_exchanges"]),
        attention=row["attention"] or "fused",  # type: ignore[arg-type]
        checkpointing=row["checkpointing"],  # type: ignore[arg-type]
        kernels=row["kernels"] or recipe.kernels,  # type: ignore[arg-type]
        head=row["head"] or recipe.head,  # type: ignore[arg-type]
        reference=int(row["reference"] or 0),
        pipeline_micro_batches=int(row["pipeline_micro_batches"] or 0),
        layers_at_once=int(row["layers_at_once"] or 1),
        accumulates=row["accumulates"] != "no" and not row["system"].startswith(STEPS_EACH_MICRO_BATCH),
    )
    states = recipe.states
    if row["states"]:
        states = States(**dict(zip(States.__struct_fields__, map(float, row["states"].split("/")), strict=False)))
    adapter = None
    if row["lora"]:
        rank = int(row["rank"] or RANKS.get(row["system"].split()[0], 8))
        adapter = recipe.adapter(rank, row["lora"])  # type: ignore[arg-type]
        changed = {"base_bytes": float(row["base_bytes"]), "states": states, "float32_ends": bool(row["float32_ends"])}
        adapter = msgspec.structs.replace(adapter, **changed)
    card = float(row["capacity_gib"]) if row["capacity_gib"] else None
    return estimate_training(model, sharding, workload, states, adapter=adapter, capacity_gib=card)


def error(row: Row) -> float:
    """Estimate over measured, less one, at the level that was measured."""
    level = {"torch": "torch_gib", "allocated": "allocated_gib", "nvidia-smi": "total_gib"}[row["level"]]
    return max(getattr(moment, level) for moment in estimate(row).moments) / float(row["measured_gib"]) - 1


def covered(row: Row) -> bool:
    """Whether what was measured lies within the range that is printed with the estimate."""
    doubt, measured = estimate(row).error, 1 / (1 + error(row))
    return 1 - doubt.below <= measured <= 1 + doubt.above


LARGE_CARD_GIB = 70
"""From this size on vLLM batches 1,024 sequences and, as a server, 8,192 tokens; not on an A100, whose rows say so."""

OLDER_ENGINES = ("M007", "E01", "E02", "I53", "I54")
"""Logs of vLLM before 0.8, of which it is not known how many sequences and tokens it batched."""


def engine(row: Row, *, from_log: bool = False) -> EngineEstimate:
    """Estimate the engine of a row; with what its log says of weights, activations and the rest, if ``from_log``."""
    model = shape_of(row["model"])
    card = float(row["capacity_gib"]) if row["capacity_gib"] else None
    large = card is None or card >= LARGE_CARD_GIB
    logged = {name: float(row[name]) for name in ("weights_gib", "activation_gib", "non_torch_gib") if row[name]}
    settings = EngineSettings(
        tensor_parallel=int(row["tensor"]),
        memory_utilization=float(row["utilization"] or 0.9),
        max_model_len=int(row["max_model_len"] or 32768),
        max_num_seqs=int(row["sequences"] or (1024 if large else 256)),
        max_num_batched_tokens=int(row["batched_tokens"] or (8192 if large else 2048)),
        weight_bytes=float(row["weight_bytes"] or 2),
        expert_weight_bytes=float(row["expert_weight_bytes"]) if row["expert_weight_bytes"] else None,
        kv_bytes=float(row["kv_bytes"] or 2),
        static_budget=row["system"] == "sglang",
        graphs_in_budget=False,
        **(logged if from_log else {}),
    )
    return estimate_engine(model, settings, card)


def cache_error(row: Row) -> float:
    """Estimated over logged cache, less one, of an engine of which card and share are known."""
    found = engine(row)
    if row["kv_tokens"]:
        return float(found.kv_tokens or 0) / float(row["kv_tokens"]) - 1
    return float(found.kv_gib or 0) / float(row["kv_gib"]) - 1


LOADED = [row for row in ENGINES if row["weights_gib"]]
CACHED = [row for row in ENGINES if row["capacity_gib"] and row["utilization"] and row["id"] not in OLDER_ENGINES]
"""Engines whose cache follows from the card and the share of it that they may take."""

FLASHINFER = ("Q14", "T06", "T07", "T08", "T09", "T10")
"""Logs of vLLM with FlashInfer's sampler, which sorts no logits: up to 1.1 GiB more is left than is estimated. Of
Q14 it is inferred: 1.0 GiB more, of 2.5 for sampling."""

OWN = read("test_memory_own.csv")
"""Allocated peaks of the bundled trainers' own learner, moment by moment, with random weights and rows of full length:
one rank on an H200, torch 2.11, DeepSpeed 0.19.8, transformers 5.17, November 2026."""

_OWN_LAYOUT = """
layout: 1
name: own
algorithm: grpo
hardware: {{nodes: 1, gpus_per_node: 2, gpu: H200}}
roles:
  learner: {{model: Qwen/Qwen3-0.6B, gpus: [1]}}
  rollout: {{engine: vllm, engines: 1}}
train: {{steps: 3, learning_rate: 1.0e-6, prompts_per_step: {prompts}, samples_per_prompt: 2}}
lengths: {{prompt: 128, response: 512}}
data: {{train: builtin/sort-digits, digits: 3, reward: exact}}
"""


def own_model(name: str) -> Architecture:
    """The model of an own row; ``moe`` and ``gpt-oss`` are 8 and 3 layers of published ones."""
    whole = shape_of({"moe": "Qwen3-30B-A3B", "gpt-oss": "gpt-oss-20b"}.get(name, name))
    if whole.experts is None:
        return whole
    replace, layers = msgspec.structs.replace, 8 if name == "moe" else 3
    experts = replace(whole.experts, layers=layers, count=64 if name == "moe" else 32)
    return replace(whole, layers=layers, sliding_layers=min(whole.sliding_layers, 2), experts=experts)


def own_errors(row: Row) -> dict[str, float]:
    """Estimate over allocated, less one, of each moment that was measured, and of the highest as ``peak``."""
    layout = load_text(_OWN_LAYOUT.format(prompts=int(row["rows"]) // 2), "own.yaml", row["words"].split()).layout
    told = learner_training(layout)
    role = estimate_training(
        own_model(row["model"]), told.sharding, told.workload, told.states, adapter=told.adapter, log_probs=True
    )
    names = {moment: f"{moment}_gib".replace(" ", "_").replace("-", "_") for moment in OWN_MOMENTS}
    measured = {moment: float(row[name]) for moment, name in names.items()}
    said = {moment.moment: moment.torch_gib - moment.parts_gib.get("cached blocks", 0.0) for moment in role.moments}
    errors = {moment: said[moment] / size - 1 for moment, size in measured.items()}
    return {**errors, "peak": max(said[moment] for moment in measured) / max(measured.values()) - 1}
