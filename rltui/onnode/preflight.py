"""What can be known about this machine before Ray and GPUs are touched."""

import os
import shutil
import subprocess
import tempfile
from typing import Any, Dict, List, Tuple

from rltui.onnode import card_kernels, processes
from rltui.onnode.host_queue import Capacity

GIB = 1 << 30
LEAST_FREE_GIB = 1.0
PROBE_S = 60.0
"""Longest that the trainer's Python may take to start and to look for its packages."""

_PROBE = "import importlib.util as u, sys; print(' '.join(n for n in sys.argv[1:] if u.find_spec(n) is None))"


def capacity() -> Capacity:
    """CPU cores and GPUs for runs; ``RLTUI_LOCAL_CPUS`` and ``RLTUI_LOCAL_GPUS`` say otherwise."""
    # os.cpu_count() counts CPUs too that a job or a container is kept off
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own_cpus, own_gpus = os.environ.get("RLTUI_LOCAL_CPUS", ""), os.environ.get("RLTUI_LOCAL_GPUS", "")
    return Capacity(
        int(own_cpus) if own_cpus.isdigit() else cpus, int(own_gpus) if own_gpus.isdigit() else count_gpus()
    )


def count_gpus() -> int:
    """GPUs that the driver lists, 0 where there is none."""
    return list_gpus()[0]


def list_gpus() -> Tuple[int, str]:
    """How many GPUs the driver lists, and what it complains about: a lost one ends the list."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0, "there is no nvidia-smi"
    try:
        listing = subprocess.run([program, "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    except OSError as error:
        return 0, "nvidia-smi: %s" % error.strerror
    except subprocess.TimeoutExpired:
        return 0, "nvidia-smi does not answer"
    lines = listing.stdout.decode("utf-8", "replace").splitlines()
    listed = [line for line in lines if line.startswith("GPU ")]
    said = [line.strip() for line in lines if line not in listed and line.strip()]
    return len(listed), said[-1][:200] if listing.returncode and said else ""


def compute_capabilities() -> List[str]:
    """Those of the GPUs that the driver lists, such as ``9.0``; none where it does not say."""
    return (processes.said_by(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], 20) or "").split()


def missing_gpus(wanted: int, there: int) -> List[str]:
    """Say what stops an attempt for more GPUs than this machine has; Ray would believe in all that it is told of."""
    if wanted <= there:
        return []
    return [
        "it is for nodes of %d GPU%s, this machine has %s: launch it on another cluster, ask for fewer (a layout by "
        "hardware.gpus_per_node, a script by --gpus-per-node), or take a layout for CPU, such as local/grpo-tiny"
        % (wanted, "s" * (wanted > 1), there or "none")
    ]


def problems(attempt: str, job: Dict[str, Any]) -> List[str]:
    """Everything that would stop the attempt later, each in one sentence that says what to do."""
    found = []
    for what, path in (("the run directory", attempt), ("the temporary directory", tempfile.gettempdir())):
        free_gib = shutil.disk_usage(path).free / GIB
        if free_gib < LEAST_FREE_GIB:
            found.append("%s (%s) has %.1f GiB free, %.0f are needed" % (what, path, free_gib, LEAST_FREE_GIB))
    missing = missing_modules(job["argv"][0], job.get("modules", []), job["code"])
    if missing:
        found.append(
            "%s cannot import %s; install the trainers extra: pip install 'rltui[trainers]'"
            % (job["argv"][0], ", ".join(missing))
        )
    elif trains_on_cards(job):
        found.extend(card_kernels.problems(compute_capabilities(), job["argv"][0]))
    return found


def trains_on_cards(job: Dict[str, Any]) -> bool:
    """Whether the attempt's own trainer works on GPUs; a script of another system brings its own torch."""
    return "torch" in job.get("modules", []) and bool((job.get("ray") or {}).get("gpus"))


def missing_modules(python: str, names: List[str], code: str) -> List[str]:
    """Which of ``names`` the interpreter ``python`` does not find (found, not imported: that takes seconds)."""
    environment = {**os.environ, "PYTHONPATH": code}
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE, *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=PROBE_S,
        )
    except subprocess.TimeoutExpired:
        return ["anything (it did not start within %.0f s: its disk is slow, or away)" % PROBE_S]
    if answer.returncode:
        return ["anything (%s)" % answer.stderr.decode("utf-8", "replace").strip()[-200:]]
    return answer.stdout.decode().split()
