"""What a job reads and writes on the cluster: models in the cache, checkpoints on the disk, W&B over the network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.check.arithmetic import resolve
from rltui.check.live_subject import LiveSubject, live_rule
from rltui.check.rule import Trouble
from rltui.layout.roles import SERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

_GIB = 2**30
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@live_rule("D520", "error")
def not_in_the_cache(subject: LiveSubject) -> Iterator[Trouble]:
    """The nodes have no internet, and a model is not in their Hugging Face cache.

    Download it once from a machine that sees both the internet and the cache (`hf download NAME`).
    """
    cached = subject.facts.cached_models if subject.facts else None
    if not subject.profile.offline or cached is None:
        return
    there = {name.lower() for name in cached}
    for key, model in _models(subject):
        if model.lower() not in there:
            yield Trouble(f"{model} is not in the cache ({len(there)} models are), and nodes are offline", key)


@live_rule("D521", "error")
def no_room_for_checkpoints(subject: LiveSubject) -> Iterator[Trouble]:
    """The run's folder has no room for the checkpoints that are kept, and the one being written beside them."""
    free = subject.facts.run_root_free_gib if subject.facts else None
    numbers = resolve(subject.layout)
    if free is None or numbers.checkpoint_bytes is None:
        return
    held = min(subject.layout.checkpoint.keep + 1, numbers.checkpoints)
    one = numbers.checkpoint_bytes / _GIB
    if held * one > free:
        fits = int(free / one) - 1
        yield Trouble(
            f"{held} checkpoints of {one:.0f} GiB are {held * one:.0f} GiB; {free:.0f} GiB are free in the run root "
            "or left of a quota there",
            "checkpoint.keep",
            (f"checkpoint.keep={fits}",) if fits >= 1 else (),
        )


@live_rule("T710", "warning")
def tracking_without_a_network(subject: LiveSubject) -> Iterator[Trouble]:
    """W&B is online, and the nodes have no internet: every log call would time out.

    Offline runs are kept in the run directory; `wandb sync` uploads them from a machine with a network.
    """
    if subject.profile.offline and subject.layout.tracking.wandb == "online":
        yield Trouble(
            f"tracking.wandb is online, nodes of {subject.profile.name} are offline",
            "tracking.wandb",
            ("tracking.wandb=offline",),
        )


def _models(subject: LiveSubject) -> Iterator[tuple[str, str]]:
    """Key and name of each model that is loaded from the Hugging Face hub."""
    seen: set[str] = set()
    for role in ("learner", "reference", "critic", *SERVED):
        model = getattr(getattr(subject.layout.roles, role), "model", "")
        if model and model not in seen and _HUB_NAME.fullmatch(model) and not model.startswith("builtin/"):
            seen.add(model)
            yield f"roles.{role}.model", model
