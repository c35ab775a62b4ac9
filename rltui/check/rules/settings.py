"""Rules about tracking and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.layout.secret_words import SECRET_VALUE

_NOT_IN_WANDB = re.compile(r"[/\\#?%:]")
_HOME = re.compile(r"(?:/home|/Users|/u|/lustre/users)/[^/]+")


@rule("T701", "note")
def wandb_online(subject: Subject) -> Iterator[Trouble]:
    """W&B online needs the internet from where the trainer runs.

    Many compute nodes have none. A failing W&B never stops training, but the run is then only in metrics.jsonl;
    `offline` keeps the files for `wandb sync`.
    """
    if subject.layout.tracking.wandb == "online":
        yield settled_by("W&B online needs internet on the compute node", "tracking.wandb", "offline")


@rule("T702", "error")
def bad_project(subject: Subject) -> Iterator[Trouble]:
    """W&B refuses the name: projects may hold none of / # ? % : and no backslash; entities neither."""
    for key in ("project", "entity"):
        value = getattr(subject.layout.tracking, key)
        if subject.layout.tracking.wandb != "disabled" and _NOT_IN_WANDB.search(value):
            better = _NOT_IN_WANDB.sub("-", value)
            yield settled_by(f"{value!r} is no name for W&B", f"tracking.{key}", better)


@rule("T703", "note")
def untracked(subject: Subject) -> Iterator[Trouble]:
    """W&B is off: the metrics are in the run directory only, and go with it."""
    if subject.layout.tracking.wandb == "disabled":
        yield settled_by("W&B is disabled: metrics.jsonl is the only record", "tracking.wandb", "offline")


@rule("T704", "warning")
def sent_nowhere(subject: Subject) -> Iterator[Trouble]:
    """Answers or the model are to be sent to W&B, which is off."""
    tracking = subject.layout.tracking
    for key in ("samples", "artifact"):
        if getattr(tracking, key) and tracking.wandb == "disabled":
            yield settled_by(f"tracking.{key} with W&B disabled", f"tracking.{key}", "false")


@rule("X802", "note")
def personal_path(subject: Subject) -> Iterator[Trouble]:
    """A path leads into one person's home folder: nobody else can launch this layout as it is."""
    for key, text in _texts("", msgspec.to_builtins(subject.layout)):
        match = _HOME.match(text)
        if match:
            yield Trouble(f"{match.group()} is one person's folder", key)


@rule("X801", "error")
def secret_in_layout(subject: Subject) -> Iterator[Trouble]:
    """A value looks like a key or a password.

    Layouts are copied into run directories, repositories and logs. Keep keys in ~/.netrc, HF_TOKEN_PATH or the
    cluster profile's 0600 environment file.
    """
    for key, text in _texts("", msgspec.to_builtins(subject.layout)):
        if SECRET_VALUE.search(text):
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
