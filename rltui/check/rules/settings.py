"""Rules about Slurm settings, tracking and secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from rltui.check.rule import Subject, Trouble, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_SLURM_TIME = re.compile(r"(?:\d+-)?\d{1,3}(?::\d{2}){1,2}|\d+(?:-\d{1,2})?")
_SECRET = re.compile(
    r"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|wandb_v\d_\w{20,}|\b[0-9a-f]{40}\b|AKIA[0-9A-Z]{16}|//[^/@\s]+:[^/@\s]+@"
)


@rule("S601", "error")
def bad_time(subject: Subject) -> Iterator[Trouble]:
    """The time limit is not one that Slurm understands: HH:MM:SS, MM:SS, minutes, D-HH or D-HH:MM:SS."""
    time = subject.layout.slurm.time
    if not _SLURM_TIME.fullmatch(time):
        yield Trouble(f"slurm.time {time!r} is not HH:MM:SS or D-HH:MM:SS", "slurm.time", ("slurm.time=24:00:00",))


@rule("T701", "note")
def wandb_online(subject: Subject) -> Iterator[Trouble]:
    """W&B online needs the internet from where the trainer runs.

    Many compute nodes have none. A failing W&B never stops training, but the run is then only in metrics.jsonl;
    `offline` keeps the files for `wandb sync`.
    """
    if subject.layout.tracking.wandb == "online":
        yield Trouble("W&B online needs internet on the compute node", "tracking.wandb", ("tracking.wandb=offline",))


@rule("X801", "error")
def secret_in_layout(subject: Subject) -> Iterator[Trouble]:
    """A value looks like a key or a password.

    Layouts are copied into run directories, repositories and logs. Keep keys in ~/.netrc, HF_TOKEN_PATH or the
    cluster profile's 0600 environment file.
    """
    for key, text in _texts("", msgspec.to_builtins(subject.layout)):
        if _SECRET.search(text):
            yield Trouble("this looks like a key or password; keep it out of layouts", key)


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(f"{key}.{name}" if key else name, item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(key, item)
    elif isinstance(value, str):
        yield key, value
