"""How long an estimate takes: ``python tests/bench/bench_memory.py`` (goal: 2 ms, limit 20 ms)."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec

from rltui.hardware.models import known_model
from rltui.layout.schema import Layout
from rltui.memory import Sharding, Workload, estimate_layout, estimate_training

LIMIT_MS = 20.0
ROUNDS = 500

LAYOUT = {
    "layout": 1, "name": "bench", "algorithm": "grpo", "data": {"train": "x"},
    "hardware": {"nodes": 2, "gpus_per_node": 4, "gpu": "H100-SXM-80GB"},
    "roles": {"learner": {"model": "Qwen/Qwen3-30B-A3B", "gpus": [2, 1]}, "rollout": {"engines": 5}},
    "train": {"steps": 1, "prompts_per_step": 32, "samples_per_prompt": 8, "learning_rate": 1e-6},
    "lengths": {"prompt": 2048, "response": 8192},
}  # fmt: skip


def milliseconds(call: object) -> float:
    """Best of five rounds, per call."""
    assert callable(call)
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(ROUNDS):
            call()
        best = min(best, (time.process_time() - began) / ROUNDS * 1000)
    return best


def import_milliseconds(module: str) -> float:
    """Time that importing ``module`` adds to an interpreter which has msgspec."""
    code = f"import msgspec, time; t = time.perf_counter(); import {module}; print((time.perf_counter() - t) * 1000)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def main() -> int:
    """Print the figures; 1 where a limit is broken."""
    layout = msgspec.convert(LAYOUT, Layout)
    model = known_model("Qwen3-30B-A3B")
    assert model is not None
    first = time.perf_counter()
    estimate_layout(layout)
    figures = {
        "first layout": (time.perf_counter() - first) * 1000,
        "layout": milliseconds(lambda: estimate_layout(layout)),
        "training run": milliseconds(lambda: estimate_training(model, Sharding(gpus=8), Workload(tokens=8192))),
        "import rltui.hardware.models": import_milliseconds("rltui.hardware.models"),
        "import rltui.memory": import_milliseconds("rltui.memory"),
    }
    for name, figure in figures.items():
        print(f"{name:<30} {figure:8.3f} ms")
    return 1 if max(figures.values()) > LIMIT_MS else 0


if __name__ == "__main__":
    raise SystemExit(main())
