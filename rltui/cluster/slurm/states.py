"""Slurm's job states, long, short and as flags, of every release, folded into the words of ``rltui.cluster.jobs``."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from rltui.cluster.jobs import JobState

LONG: dict[str, JobState] = {
    "PENDING": "pending",
    "CONFIGURING": "pending",  # nodes are booting: GPUs are allotted, the script does not run yet
    "POWER_UP_NODE": "pending",
    "REQUEUED": "pending",
    "REQUEUE_FED": "pending",
    "REQUEUE_HOLD": "pending",
    "RESV_DEL_HOLD": "pending",
    "SPECIAL_EXIT": "pending",  # requeued and held, because its exit code was on the site's list
    "EXPEDITING": "pending",
    "LAUNCH_FAILED": "pending",
    "RECONFIG_FAIL": "pending",
    "RUNNING": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "SUSPENDED": "suspended",
    "STOPPED": "suspended",
    "COMPLETING": "completing",
    "STAGE_OUT": "completing",
    "UPDATE_DB": "completing",
    "COMPLETED": "completed",
    "BOOT_FAIL": "failed",
    "DEADLINE": "failed",
    "FAILED": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "PREEMPTED": "failed",
    "TIMEOUT": "failed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",  # started on another cluster of the federation
}
"""What each of Slurm's long words means for somebody who waits for the job."""

SHORT: dict[str, str] = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}

FLAGS_FIRST = ("COMPLETING", "STAGE_OUT", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUED", "CONFIGURING")
"""Where several words come together (``COMPLETED+COMPLETING``), these say what is the case now; else the first does."""


class StateWord(Struct, frozen=True):
    """A state as Slurm wrote it, understood."""

    state: JobState
    word: str
    """Slurm's long word, or what it wrote where that is none."""
    cancelled_by: str = ""
    """The uid of ``CANCELLED by <uid>``."""


@lru_cache(256)
def read_state(text: str) -> StateWord:
    """Understand what squeue, sacct or scontrol write for a state; a word that nobody knows is ``unknown``."""
    head, _, rest = text.strip().partition(" ")
    words = [_long(word) for word in head.replace(",", "+").split("+") if word]
    if not words:
        return StateWord("unknown", "")
    word = next((flag for flag in FLAGS_FIRST if flag in words), words[0])
    canceller = rest.removeprefix("by ").strip() if word == "CANCELLED" and rest.startswith("by ") else ""
    return StateWord(LONG.get(word, "unknown"), word, canceller)


def _long(word: str) -> str:
    word = word.upper().rstrip("*")
    return SHORT.get(word, word)
