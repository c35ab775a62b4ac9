"""Checkpoints of rltui's own trainers: what their folders are called, which is the newest, and whether one is whole.

This module is used on nodes, so it keeps to the standard library and Python 3.8.
"""

import os
import time
from typing import Dict, Mapping, Optional

from rltui.onnode import rundir


def step_name(step: int) -> str:
    """What is called after a training step: a checkpoint, an export, the answers of an evaluation."""
    return "step-%06d" % step


def step_of(name: str) -> Optional[int]:
    """The step of the folder ``name``; None where it is none of a checkpoint."""
    number = name[len("step-") :] if name.startswith("step-") else ""
    return int(number) if number.isdigit() else None


def newest_checkpoint(run: str) -> Optional[str]:
    """Return the path of the newest complete checkpoint of the run directory ``run``, or None."""
    folder = os.path.join(run, rundir.CHECKPOINTS)
    try:
        steps = {step: name for name in os.listdir(folder) for step in [step_of(name)] if step is not None}
    except OSError:
        return None
    for step in sorted(steps, reverse=True):
        path = os.path.join(folder, steps[step])
        if os.path.exists(os.path.join(path, rundir.CHECKPOINT_COMPLETE)):
            return path
    return None


def mark_complete(folder: str, step: int) -> str:
    """Write the marker that says that the checkpoint in ``folder`` is complete, and which files it has; its path."""
    marker = os.path.join(folder, rundir.CHECKPOINT_COMPLETE)
    sizes = {}
    for parent, _, names in os.walk(folder):
        for path in (os.path.join(parent, name) for name in names):
            if path != marker:
                sizes[os.path.relpath(path, folder)] = os.path.getsize(path)
    rundir.write_json(marker, {"schema": rundir.SCHEMA, "step": step, "time": time.time(), "files": sizes})
    return marker


def damage(files: Mapping[str, int], found: Mapping[str, int]) -> str:
    """What is wrong with a checkpoint, in words; empty where each of its files has all its bytes.

    Args:
        files: Bytes of each file, as the marker has them.
        found: The same, as they are now.
    """
    for name in sorted(files):
        if name not in found:
            return "%s is missing" % name
        if found[name] != files[name]:
            return "%s has %d bytes of %d" % (name, found[name], files[name])
    return ""


def sizes_in(marker: Optional[Dict[str, object]]) -> Optional[Dict[str, int]]:
    """Bytes of each file as a checkpoint's marker has them; None where it does not say."""
    files = (marker or {}).get("files")
    if not isinstance(files, dict) or not files or not all(isinstance(size, int) for size in files.values()):
        return None
    return {str(name): size for name, size in files.items()}
