"""What a launch of ``local/grpo-tiny`` costs, process by process, in CPU seconds, and how long its first step takes.

Run as ``python tests/bench/bench_launch.py``; the first time the trainer makes the model: 7 CPU seconds more.
They grow with the machine's load, too (hyperthreads, caches): compare revisions side by side. Most of them are imports,
of which a rank on a cluster has as many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from rltui import paths
from rltui.onnode import processes, rundir

POLL_S = 0.2
DEADLINE_S = 600.0
TICKS = os.sysconf("SC_CLK_TCK")
LAUNCH = [sys.executable, "-m", "rltui", "launch", "local/grpo-tiny", "train.steps=3", "--wait"]
KINDS = {
    "ray::Learner": "learners (2)",
    "ray::EngineActor": "engine",
    "trainers.grpo": "trainer",
    "wandb": "W&B",
    "ray/": "Ray's own",
    "ray-": "Ray's own",
    "ray::": "Ray's own",
    "ray.": "Ray's own",
    "ray_start": "Ray's own",
    "multiprocessing": "Ray's own",
    "rltui": "rltui",
}
"""Whose a process is, by the first of these words in its command line."""


def kind_of(words: str) -> str:
    """Whose the process is that was started by ``words``."""
    return next((kind for word, kind in KINDS.items() if word in words), "others")


def watch(launch: subprocess.Popen[bytes]) -> dict[str, float]:
    """CPU seconds by kind of process, until the launch and what it started, known by its session's HOME, are gone."""
    last: dict[tuple[int, str], tuple[str, float]] = {}
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        alive = [one for one in processes.AttemptScanner(os.environ["HOME"], "HOME").scan() if one[0] != os.getpid()]
        for pid, stat in alive:
            words = " ".join(processes.words_of(pid))
            kind = kind_of(words) if words.strip() else last.get((pid, stat.start_time), ("others", 0.0))[0]
            last[pid, stat.start_time] = kind, stat.cpu_ticks / TICKS
        if launch.poll() is not None and not alive:
            break
        time.sleep(POLL_S)
    found: dict[str, float] = defaultdict(float)
    for kind, cpu_s in last.values():
        found[kind] += cpu_s
    return found


def main() -> None:
    """Launch once and print the table."""
    with tempfile.TemporaryDirectory(prefix="rltui-bench-") as home:
        Path(home, "queue").mkdir()
        os.environ.update(HOME=home, RLTUI_QUEUE=f"{home}/queue", RLTUI_CACHE_DIR=str(paths.cache_dir()))
        began = time.time()
        quiet = subprocess.DEVNULL
        found = watch(subprocess.Popen(LAUNCH, stdout=quiet, stderr=quiet))
        steps = next(Path(home).rglob(rundir.METRICS)).read_text().splitlines()
        print(f"first step after {json.loads(steps[0])['time'] - began:.1f} s, load {os.getloadavg()[0]:.1f}")
    for kind, cpu_s in sorted(found.items(), key=lambda item: -item[1]):
        print(f"{cpu_s:6.1f} CPU s  {kind}")
    print(f"{sum(found.values()):6.1f} CPU s  in all")


if __name__ == "__main__":
    main()
