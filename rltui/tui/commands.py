"""The ``:`` command line: the same verbs as in the shell, with completion. Pure functions."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERBS: dict[str, str] = {
    "launch": "preset",
    "open": "run",
    "why": "run",
    "fix": "run",
    "auto": "run",
    "cancel": "run",
    "resubmit": "run",
    "exclude": "",
    "less-memory": "",
    "edit": "",
    "actions": "",
    "gpus": "run",
    "actors": "run",
    "queues": "run",
    "metrics": "run",
    "logs": "run",
    "events": "run",
    "clusters": "",
    "jobs": "",
    "connect": "cluster",
    "keys": "",
    "theme": "theme",
    "pause": "",
    "help": "",
    "quit": "",
}
"""Verb → what its argument names."""

NEEDS_ARGUMENT = ("open", "theme", "connect")

ABBREVIATIONS = {"q": "quit"}
"""What fingers type, though it begins several verbs."""

KEY_OF = {"less-memory": "lower_memory", "keys": "help"}
"""Verbs that do what the key with another id does."""

TABS = ("gpus", "actors", "queues", "metrics", "logs", "events")
"""Verbs that open a tab of a run."""


class Command(NamedTuple):
    """A command as typed; ``problem`` says why it cannot be done."""

    verb: str = ""
    argument: str = ""
    problem: str = ""


def parse(text: str) -> Command:
    """Read a command: a verb or the beginning of just one, and at most one argument."""
    words = text.split()
    if not words:
        return Command()
    words[0] = ABBREVIATIONS.get(words[0], words[0])
    fitting = [verb for verb in VERBS if verb.startswith(words[0])]
    verb = words[0] if words[0] in VERBS else fitting[0] if len(fitting) == 1 else ""
    if not verb:
        return Command(problem=f"no command {words[0]!r}{_near(words[0])}")
    if len(words) > 2 or (len(words) == 2 and not VERBS[verb]):
        return Command(problem=f"{verb} takes {'one ' + VERBS[verb] if VERBS[verb] else 'nothing'}")
    if len(words) == 1 and verb in NEEDS_ARGUMENT:
        return Command(problem=f"{verb} what? Name a {VERBS[verb]}")
    return Command(verb, words[1] if len(words) == 2 else "")


def _near(word: str) -> str:
    """The few verbs that may have been meant."""
    near = [verb for verb in VERBS if verb.startswith(word)] or difflib.get_close_matches(word, VERBS, n=3, cutoff=0.5)
    return f": {', '.join(near[:4])}?" if near else ": tab after its first letter completes one, ? lists the keys"


def complete(text: str, arguments: Mapping[str, Sequence[str]]) -> str:
    """``text`` made longer as far as it is certain.

    Args:
        text: What is typed.
        arguments: Kind of argument (a value of ``VERBS``) → all that can stand there.
    """
    verb, space, start = text.partition(" ")
    if not space:
        return extend(verb, list(VERBS), finish=" ")
    choices = list(arguments.get(VERBS.get(verb, ""), ()))
    return f"{verb} {extend(start, choices, finish='')}"


def extend(start: str, choices: Sequence[str], finish: str) -> str:
    """``start`` made longer as far as all ``choices`` that begin with it agree; a single one is finished off."""
    fitting = [choice for choice in choices if choice.startswith(start)]
    if len(fitting) == 1:
        return fitting[0] + finish
    if not fitting:
        return start
    # The first and the last in order differ the most, so what they share all share.
    first, last = min(fitting), max(fitting)
    same = next((index for index, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    return first[:same] if same is not None else min(first, last, key=len)


def resolve(name: str, known: Sequence[str]) -> str:
    """The one of ``known`` that ``name`` is, or is the beginning of; empty where none or several fit."""
    if name in known:
        return name
    fitting = [choice for choice in known if choice.startswith(name)]
    return fitting[0] if len(fitting) == 1 else ""


def no_run(name: str) -> str:
    """What to say where no run, or more than one, fits a name."""
    return f"no run is named {name!r}, or several begin so\npress / to look for it in the list"
