"""Who a process belongs to: Ray's actors joined with the samplers' processes by node and process id. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.watch.snapshots import ActorSnapshot, HostSnapshot

ROLE_LETTERS: tuple[tuple[str, str], ...] = (
    ("reward", "W"),
    ("learner", "L"),
    ("policytrainer", "L"),
    ("engine", "E"),
    ("llm", "E"),
    ("rollout", "E"),
    ("reference", "R"),
    ("critic", "C"),
    ("value", "C"),
    ("teacher", "T"),
)
"""Part of a Ray actor's class name, in lower case → the letter of its role; the first that fits counts."""

ROLE_NAMES = {"L": "learner", "E": "engine", "R": "reference", "C": "critic", "T": "teacher", "W": "reward"}
"""What the letters of roles stand for, in the order in which roles are listed."""


_RAY_TITLE = re.compile(r"ray::(?:IDLE|(\w+))")


class Owner(NamedTuple):
    """The role of a process, and what it is called."""

    letter: str
    name: str


NOBODY = Owner("", "")


class Owners:
    """Looks up who a process belongs to: by Ray's list of actors, else by the title that it gave itself.

    Args:
        actors: Ray's actors; their node may have another name than the sampler's host.

    Attributes:
        letters: Roles of the actors.
    """

    def __init__(self, actors: Sequence[ActorSnapshot]) -> None:
        self._actors: dict[tuple[str, int], Owner] = {}
        for actor in actors:
            letter = role_letter(actor.class_name)
            if letter and actor.pid:
                owner = Owner(letter, actor.name or actor.class_name)
                self._actors[actor.node, actor.pid] = owner
                self._actors.setdefault(("", actor.pid), owner)
        self.letters = frozenset(owner.letter for owner in self._actors.values())

    def of(self, host: HostSnapshot, pids: Sequence[int]) -> Owner:
        """The owner of the first of ``pids`` that has one."""
        for pid in pids:
            owner = self._actors.get((host.host, pid)) or self._actors.get(("", pid))
            if owner is not None:
                return owner
        if pids:
            for process in host.processes:
                if process.pid in pids and (letter := title_letter(process.title)):
                    return Owner(letter, process.title)
        return NOBODY


_newest: list[tuple[Sequence[ActorSnapshot], Owners]] = []


def owners_of(actors: Sequence[ActorSnapshot]) -> Owners:
    """The owners by these actors; the same object for the same picture of them, as thousands cost milliseconds."""
    if not _newest or _newest[0][0] is not actors:
        _newest[:] = [(actors, Owners(actors))]
    return _newest[0][1]


def title_letter(title: str) -> str:
    """The role letter of a process by its title.

    Titles are such as ``ray::Learner.train``, ``VLLM::EngineCore`` or ``VLLM::teacher 0::EngineCore``.
    """
    match = _RAY_TITLE.match(title)
    if match:
        return role_letter(match[1] or "")
    if not title.startswith("VLLM::"):
        return ""
    return role_letter(title.split("::")[1]) or role_letter(title)


@lru_cache(maxsize=256)
def role_letter(class_name: str) -> str:
    """The role letter of a Ray actor class, or an empty string for helpers such as queues."""
    lowered = class_name.lower()
    return next((letter for part, letter in ROLE_LETTERS if part in lowered), "")
