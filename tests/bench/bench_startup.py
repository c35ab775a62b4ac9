"""How long the headless verbs take as whole processes, beside a Python that does nothing, and the cockpit to paint.

Run as ``python tests/bench/bench_startup.py``. The ratio is the figure to compare between machines: the times move
with load and disk, the ratio hardly does. Budgets on two cores: --check in at most 120 ms, the frame before Textual
in 80 ms, the cockpit's first paint in 300 ms. For the frames the CPU time until then is printed too: it moves less.
"""

from __future__ import annotations

import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

from rltui.service.last_rows import LastRows
from rltui.watch.snapshots import RunsSnapshot, RunSummary

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


def keep_rows(cache: Path, num_runs: int = 200) -> None:
    """Let ``num_runs`` runs be what was last seen."""
    shape = {"algorithm": "grpo", "cluster": "local", "attempt": 1, "nodes": 2, "gpus_per_node": 4, "gpu": "H100"}
    now = time.time()
    rows = [
        RunSummary(run_id=f"run-{index:04d}", name="run", state="finished", created_at=now - index, **shape)
        for index in range(num_runs)
    ]
    LastRows(cache, "local").keep(RunsSnapshot(runs=tuple(rows), taken_at=now))


def cpu_ms(pid: int) -> float:
    """CPU time of all threads of a process so far."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def paint_once(environ: dict[str, str]) -> list[tuple[float, float]]:
    """Open the cockpit in a terminal: (wall, CPU) ms until the frame before Textual, and until Textual's first."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    began, sent, times = time.perf_counter(), "", []
    process = subprocess.Popen(RLTUI, cwd=ROOT, env=environ, stdin=slave, stdout=slave, stderr=slave)
    for words in ("opening the cockpit", "filter"):  # each in the footer, which is drawn last
        while words not in sent:
            sent += os.read(master, 1 << 16).decode(errors="replace")
        times.append(((time.perf_counter() - began) * 1000, cpu_ms(process.pid)))
    process.kill()
    process.wait()
    os.close(master)
    os.close(slave)
    return times


def main() -> None:
    """Print best and median of ROUNDS runs; the commands take turns, so that load falls on all alike."""
    with tempfile.TemporaryDirectory() as home:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "RLTUI_"))}
        environ["HOME"] = home
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in COMMANDS.values():
            run_once_ms(command, environ)
        keep_rows(Path(home) / ".cache/rltui")
        terminal = environ | {"TERM": "xterm-256color"}
        paint_once(terminal)
        times: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(ROUNDS):
            for name, command in COMMANDS.items():
                times[name].append(run_once_ms(command, environ))
        paints = [paint_once(terminal) for _ in range(ROUNDS)]
    floor = statistics.median(times["python -c pass"])
    print(f"{'command':24}{'best ms':>10}{'median ms':>11}{'ratio':>8}")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:24}{min(values):10.0f}{median:11.0f}{median / floor:8.1f}")
    for name, values in zip(("first frame", "Textual's first paint"), zip(*paints, strict=True), strict=True):
        wall, cpu = sorted(wall for wall, _ in values), sorted(cpu for _, cpu in values)
        median = wall[len(wall) // 2]
        print(f"{name:24}{wall[0]:10.0f}{median:11.0f}{median / floor:8.1f}  CPU {cpu[0]:.0f} to {cpu[-1]:.0f} ms")


if __name__ == "__main__":
    main()
