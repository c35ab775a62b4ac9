"""Signs that an attempt works, where it has not done enough steps to say how long one takes.

A first step may take hours: long answers, a large model that compiles. A collective that never ends keeps its GPUs at
100 % and a core each at work, but at a power that does not change, without a word and without a token.
"""

import json
import os
from typing import Any, Dict, List, Optional, Set

from rltui.onnode import rundir
from rltui.onnode.lost_nodes import is_sampler_file

TAIL_BYTES = 1 << 20
POWER_VARIES = 0.15
"""A GPU whose power differs by more than this share of its most works; one that rests or waits keeps it within 5 %."""
LEAST_W = 20.0
"""And by more than this: the power of a small card at rest is a few watts."""
CPU_PERCENT = 50.0
"""A process that takes so much of a CPU works, unless it holds a GPU: waiting for that in a loop takes a whole one."""
CROWDED_PERCENT = 95.0
"""A node whose CPUs are so busy has none left over for each process that works."""
CROWDED_CPU_PERCENT = 5.0
"""There, a process that takes so much of a CPU works; daemons of Ray and Slurm take less."""
FREE_SHARE = 0.02
"""Of the memory of a GPU that nobody holds, the most that is in use: what the driver keeps for itself."""
LOGS = (".log", ".out", ".err")


def seen(attempt: str, now: float, window_s: float) -> bool:
    """Whether something of the attempt has worked within the last ``window_s`` seconds before ``now``."""
    for entry in os.scandir(attempt):
        if now - rundir.written_at(entry.path) > window_s:
            continue
        if entry.name.endswith(LOGS) or (is_sampler_file(entry.name) and _works(entry.path, window_s)):
            return True
    return False


def _works(path: str, window_s: float) -> bool:
    """Whether the newest samples of a node show work; by the node's own clock, which may differ from this one's."""
    text = "".join(rundir.read_tail(one, limit=TAIL_BYTES) for one in (path + ".1", path))
    told = [line for line in map(_sample_of, text.splitlines()) if line is not None]
    lines = [line for line in told if line["t"] >= told[-1]["t"] - window_s]
    gpus = [gpu for line in lines for gpu in line.get("gpus", ())]
    holders = {pid for gpu in gpus for pid in gpu.get("pids", ())}
    return (
        any(row.get("tokens_per_second") for line in lines for row in line.get("engines", ()))
        or _power_varies(gpus)
        # whoever waits for a GPU is only known where the driver says who holds one, or where nobody does
        or ((bool(holders) or not any(map(_is_held, gpus))) and _computes(lines, holders))
    )


def _sample_of(line: str) -> Optional[Dict[str, Any]]:
    """A line of the sampler; None where it is torn."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("t"), (int, float)) else None


def _power_varies(gpus: List[Dict[str, Any]]) -> bool:
    took: Dict[int, List[float]] = {}
    for gpu in gpus:
        if "w" in gpu:
            took.setdefault(gpu["i"], []).append(gpu["w"])
    return any(max(one) - min(one) > max(LEAST_W, POWER_VARIES * max(one)) for one in took.values())


def _is_held(gpu: Dict[str, Any]) -> bool:
    """Whether a process may hold the GPU: what one computes with takes more memory than the driver for itself."""
    used, total = gpu.get("mem") or (1.0, 1.0)
    return bool(used > FREE_SHARE * total)


def _computes(lines: List[Dict[str, Any]], holders: Set[int]) -> bool:
    """Whether a process that holds no GPU has been at work through most looks."""
    looks = [line for line in lines if line.get("procs") is not None]
    at_work = [line for line in looks if any(_at_work(one, line, holders) for one in line["procs"])]
    return len(at_work) > len(looks) / 2


def _at_work(process: Dict[str, Any], line: Dict[str, Any], holders: Set[int]) -> bool:
    is_crowded = line.get("cpu", 0.0) >= CROWDED_PERCENT
    least = CROWDED_CPU_PERCENT if is_crowded else CPU_PERCENT
    return bool(process["cpu"] >= least) and process["pid"] not in holders
