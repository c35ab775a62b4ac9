"""What a check costs: a whole process, one preset inside a process, and 300 layouts.

Run as ``python tests/bench/bench_check.py``. Budgets on two cores: 120 ms, 20 ms, 1.5 s. Load moves the times; the
processor time of this process, printed beside the wall time, moves less.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rltui.check.run import check_file
from rltui.layout.presets import preset_files

ROOT = Path(__file__).parents[2]
ROUNDS = 15


def times_ms(work: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Best and median wall time, and median processor time of this process, in ms."""
    walls, cpus = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    return min(walls), statistics.median(walls), statistics.median(cpus)


def process(preset: str) -> None:
    """One run of ``rltui --check``, which has to succeed."""
    command = [sys.executable, "-m", "rltui", "--check", preset]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, check=True, timeout=60)


def main() -> None:
    """Print the figures."""
    presets = list(preset_files())
    many = [path for _ in range(300 // len(presets) + 1) for _, path in presets][:300]
    largest = next(path for name, path in presets if name.endswith("math-20x4-production"))
    process(str(largest))  # so that the compiled modules are there
    print(f"{'what':40}{'best ms':>10}{'median ms':>11}{'cpu ms':>9}{'budget':>9}")
    rows = [
        ("rltui --check PRESET, whole process", lambda: process(str(largest)), ROUNDS, 120),
        ("check of a preset, in process", lambda: check_file(largest), ROUNDS, 20),
        ("check of 300 layouts, in process", lambda: [check_file(path) for path in many], 3, 1500),
    ]
    for words, work, rounds, budget in rows:
        best, median, cpu = times_ms(work, rounds)
        print(f"{words:40}{best:10.1f}{median:11.1f}{cpu:9.1f}{budget:9d}")


if __name__ == "__main__":
    main()
