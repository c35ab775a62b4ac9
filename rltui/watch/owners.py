"""Who a process belongs to: Ray's actors joined with the samplers' processes by node and process id. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import Struct

from rltui.errors import RltuiError

if TYPE_CHECKING:
    from rltui.watch.node_samples import HostSnapshot

ROLE_LETTERS: tuple[tuple[str, str], ...] = (
    ("rewardmodel", "M"),
    ("reward_model", "M"),
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
    ("judge", "J"),
)
"""Part of a Ray actor's class name, in lower case → the letter of its role; the first that fits counts."""

ROLE_NAMES = {
    "L": "learner",
    "E": "engine",
    "R": "reference",
    "C": "critic",
    "T": "teacher",
    "J": "judge",
    "M": "reward_model",
    "W": "reward",
}
"""What the letters of roles stand for, in the order in which roles are listed."""


Patterns = tuple[tuple[str, str], ...]
"""Regular expressions for what processes call themselves, and the letter of the role; the first that fits counts."""

OUR_PATTERNS: Patterns = tuple((f"(?i){part}", letter) for part, letter in ROLE_LETTERS)
_ENGINE_TITLE = re.compile(r"(VLLM|sglang)::")


class ActorSnapshot(Struct, frozen=True, kw_only=True):
    """One Ray actor: its class, process and node, by which cards get their role."""

    actor_id: str
    class_name: str
    name: str
    state: str
    node: str = ""
    pid: int = 0
    restarts: int = 0
    death_cause: str = ""


class Owner(NamedTuple):
    """The role of a process, what it is called, and which of the processes asked for it is."""

    letter: str
    name: str
    pid: int = 0


NOBODY = Owner("", "")


class Owners:
    """Looks up who a process belongs to: by Ray's list of actors, else by the title that it gave itself.

    Args:
        actors: Ray's actors; their node may have another name than the sampler's host.
        patterns: What the run's system calls its roles (``patterns_of``).

    Attributes:
        letters: Roles of the actors.
    """

    def __init__(self, actors: Sequence[ActorSnapshot], patterns: Patterns = OUR_PATTERNS) -> None:
        self._patterns = patterns
        self._actors: dict[tuple[str, int], Owner] = {}
        for actor in actors:
            letter = actor_letter(actor, patterns)
            if letter and actor.pid:
                owner = Owner(letter, actor.name or actor.class_name)
                self._actors[actor.node, actor.pid] = owner
                self._actors.setdefault(("", actor.pid), owner)
        self._named = {node for node, _ in self._actors if node}
        self.letters = frozenset(owner.letter for owner in self._actors.values())

    def of(self, host: HostSnapshot, pids: Sequence[int]) -> Owner:
        """The owner of the first of ``pids`` that has one; what an actor's process started is the actor's."""
        for pid in pids:
            if (owner := self._actor(host, pid)) is not None:
                return owner._replace(pid=pid)
        for pid in pids:
            for above in ancestors(host, pid):
                if (owner := self._actor(host, above)) is not None:
                    return owner._replace(pid=pid)
        if pids:
            for process in host.processes:
                if process.pid in pids and (letter := title_letter(process.title, self._patterns)):
                    return Owner(letter, process.title, process.pid)
        return NOBODY

    def _actor(self, host: HostSnapshot, pid: int) -> Owner | None:
        if host.host in self._named:  # in containers, processes of all nodes have the same few numbers
            return self._actors.get((host.host, pid))
        return self._actors.get(("", pid))


def ancestors(host: HostSnapshot, pid: int) -> list[int]:
    """The processes above ``pid`` on its node, as far as the sampler shows them: engines start a worker a card."""
    parents = {one.pid: one.parent for one in host.processes}
    found: list[int] = []
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.append(pid)
    return found


Answer = TypeVar("Answer")


def of_newest(
    function: Callable[[Sequence[ActorSnapshot], Patterns], Answer],
) -> Callable[[Sequence[ActorSnapshot], Patterns], Answer]:
    """``function``, whose answer is kept for the same objects: thousands of actors cost milliseconds."""
    newest: list[tuple[Sequence[ActorSnapshot], Patterns, Answer]] = []

    @wraps(function)
    def kept(actors: Sequence[ActorSnapshot], patterns: Patterns) -> Answer:
        for known, by, answer in newest:
            if known is actors and by is patterns:
                return answer
        answer = function(actors, patterns)
        newest[:] = [(actors, patterns, answer)]
        return answer

    return kept


@of_newest
def owners_of(actors: Sequence[ActorSnapshot], patterns: Patterns) -> Owners:
    """The owners by these actors."""
    return Owners(actors, patterns)


@lru_cache(maxsize=64)
def patterns_of(system: str) -> Patterns:
    """What a system calls its roles: a dialect's own words, else those of the bundled trainers.

    Args:
        system: Name of a dialect, or of an algorithm of the bundled trainers.
    """
    from rltui.dialects.load import load_dialects  # reads YAML, which the first picture can do without

    try:
        dialect = load_dialects().get(system)
    except RltuiError:  # a file of the user's that is no dialect is said where a script is launched
        dialect = None
    if dialect is None or not dialect.roles:
        return OUR_PATTERNS
    letters = {name: letter for letter, name in ROLE_NAMES.items()}
    return tuple((pattern, letters[role]) for role, patterns in dialect.roles.items() for pattern in patterns)


def title_letter(title: str, patterns: Patterns = OUR_PATTERNS) -> str:
    """The role letter of a process by its title.

    Titles are such as ``ray::Learner.train``, ``VLLM::EngineCore``, ``VLLM::teacher 0::EngineCore`` or
    ``sglang::scheduler_TP0``; only a title of Ray's is held against the bundled trainers' words, which are short.
    """
    if _ENGINE_TITLE.match(title):
        return role_letter(title.split("::")[1]) or "E"
    is_known = title.startswith("ray::") or patterns is not OUR_PATTERNS
    return role_letter(title.removeprefix("ray::"), patterns) if is_known else ""


def actor_letter(actor: ActorSnapshot, patterns: Patterns = OUR_PATTERNS) -> str:
    """The role letter of a Ray actor by its class, and by its name where the system gives it one."""
    known_by = actor.class_name if patterns is OUR_PATTERNS else f"{actor.class_name} {actor.name}"
    return role_letter(known_by, patterns)


@lru_cache(maxsize=4096)
def role_letter(words: str, patterns: Patterns = OUR_PATTERNS) -> str:
    """The role letter of what a process calls itself, or an empty string for helpers such as queues."""
    return next((letter for pattern, letter in patterns if re.search(pattern, words)), "")
