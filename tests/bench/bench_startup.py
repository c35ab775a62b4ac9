"""How long the headless verbs take as whole processes, beside a Python that does nothing.

Run as ``python tests/bench/bench_startup.py``. The ratio is the figure to compare between machines: the times move
with load and disk, the ratio hardly does. Budget: --check in at most 120 ms on two cores.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROUNDS = 15
SCRIPT = Path(sys.executable).parent / "rltui"
RLTUI = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "rltui"]
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "rltui --help": [*RLTUI, "--help"],
    "rltui --check PRESET": [*RLTUI, "--check", "layouts/local/grpo-tiny.yaml"],
    "rltui ps --json": [*RLTUI, "ps", "--json"],
}


def run_once_ms(command: list[str], environ: dict[str, str]) -> float:
    """Return the wall time of one run of ``command``, which has to succeed."""
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, timeout=60, check=True)
    return (time.perf_counter() - began) * 1000


def main() -> None:
    """Print best and median of ROUNDS runs; the commands take turns, so that load falls on all alike."""
    with tempfile.TemporaryDirectory() as home:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "RLTUI_"))}
        environ["HOME"] = home
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in COMMANDS.values():
            run_once_ms(command, environ)
        times: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(ROUNDS):
            for name, command in COMMANDS.items():
                times[name].append(run_once_ms(command, environ))
    floor = statistics.median(times["python -c pass"])
    print(f"{'command':24}{'best ms':>10}{'median ms':>11}{'ratio':>8}")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:24}{min(values):10.0f}{median:11.0f}{median / floor:8.1f}")


if __name__ == "__main__":
    main()
