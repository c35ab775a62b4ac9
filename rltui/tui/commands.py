"""The ``:`` command line: the shell's verbs, with completion; and overrides as they are typed. Pure functions."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rltui.service import verb_table
from rltui.watch.snapshots import RunIdentity, names_of

OWN: dict[str, str] = {
    "launch": "preset",
    "open": "run",
    "attach": "run",
    "why": "run",
    "fix": "run",
    "auto": "run",
    "cancel": "run",
    "resubmit": "run",
    "exclude": "",
    "signal": "",
    "form": "",
    "less-memory": "",
    "edit": "",
    "actions": "",
    "shell": "",
    "gpus": "run",
    "actors": "run",
    "queues": "run",
    "metrics": "run",
    "logs": "run",
    "events": "run",
    "wandb-sync": "run",
    "history": "run",
    "filter": "filter",
    "columns": "",
    "samples": "run",
    "config": "run",
    "ps": "",
    "clusters": "",
    "jobs": "",
    "queue": "cluster",
    "adopt": "",
    "connect": "cluster",
    "keys": "",
    "theme": "theme",
    "pause": "",
    "help": "",
    "quit": "",
}
"""Verb that has a screen or a key of its own → what its argument names."""

SHELL = {verb.name: verb for verb in verb_table.VERBS}
"""The verbs of the shell. What is not in ``OWN``, or is typed with options, is run as there."""

VERBS: dict[str, str] = {**{name: verb.takes for name, verb in SHELL.items()}, **OWN}
"""Every verb → what its argument names."""

WORDS_OF = {"filter": 2}
"""Verbs that take more than one word: ``filter save NAME``."""

NEEDS_ARGUMENT = ("open", "attach", "theme", "connect")

ABBREVIATIONS = {"q": "quit"}
"""What fingers type, though it begins several verbs."""

KEY_OF = {"less-memory": "lower_memory", "keys": "help"}
"""Verbs that do what the key with another id does."""

TABS = ("gpus", "actors", "queues", "metrics", "logs", "events", "history", "samples", "config")
"""Verbs that open a tab of a run."""


class Command(NamedTuple):
    """A command as typed; ``problem`` says why it cannot be done."""

    verb: str = ""
    argument: str = ""
    problem: str = ""
    words: tuple[str, ...] | None = None
    """What follows the verb where it is to be run as in the shell."""


def parse(text: str) -> Command:
    """Read a command: a verb or the beginning of just one, and what follows it."""
    try:
        first, *words = shlex.split(text) or [""]
    except ValueError as error:
        return Command(problem=f"this cannot be read: {error}")
    if not first:
        return Command()
    first = ABBREVIATIONS.get(first, first)
    fitting = [verb for verb in VERBS if verb.startswith(first)]
    verb = first if first in VERBS else fitting[0] if len(fitting) == 1 else ""
    if not verb:
        return Command(problem=f"no command {first!r}{_near(first)}")
    if (
        verb in OWN
        and len(words) <= WORDS_OF.get(verb, bool(OWN[verb]))
        and not any(word.startswith("-") for word in words)
    ):
        if not words and verb in NEEDS_ARGUMENT:
            return Command(problem=f"{verb} what? Name a {OWN[verb]}")
        return Command(verb, " ".join(words))
    if verb not in SHELL:
        return Command(problem=f"{verb} takes {'one ' + OWN[verb] if OWN[verb] else 'nothing'}")
    if SHELL[verb].use == "terminal":
        return Command(problem=f"{verb} needs a terminal of its own: rltui {verb} in another window")
    return Command(verb, words=tuple(words))


def filled(command: Command, current: Mapping[str, str]) -> tuple[str, ...]:
    """The verb and its words, with the run or cluster that is looked at where the verb takes one and none is named.

    Args:
        command: One that is run as in the shell.
        current: Kind of argument → what is looked at.
    """
    words = command.words or ()
    named = bool(words) and not words[0].startswith("-")
    here = "" if named else current.get(SHELL[command.verb].takes, "")
    return (command.verb, *filter(None, (here,)), *words)


def _near(word: str) -> str:
    """The few verbs that may have been meant."""
    near = [verb for verb in VERBS if verb.startswith(word)] or [verb.name for verb in verb_table.verbs_for([word])]
    near = near or difflib.get_close_matches(word, VERBS, n=3, cutoff=0.5)
    return f": {', '.join(near[:4])}?" if near else ": tab after its first letter completes one, ? lists the keys"


class Completion(NamedTuple):
    """What the tab key makes of a text."""

    before: str
    """What stands in front of the word that is completed."""
    word: str
    """The word, made longer as far as it is certain."""
    choices: tuple[str, ...] = ()
    """What the word can become, where that is not certain."""

    @property
    def text(self) -> str:
        """The whole command line with the completed word in its place."""
        return self.before + self.word


def complete(text: str, arguments: Mapping[str, Sequence[str]]) -> Completion:
    """``text`` made longer as far as it is certain.

    Args:
        text: What is typed.
        arguments: Kind of argument (a value of ``VERBS``) → all that can stand there.
    """
    verb, space, start = text.partition(" ")
    if not space:
        return extend(verb, sorted(VERBS), finish=" ")
    return extend(start, arguments.get(VERBS.get(verb, ""), ()), before=f"{verb} ")


def extend(start: str, choices: Iterable[str], finish: str = "", before: str = "") -> Completion:
    """``start`` made longer as far as all ``choices`` that begin with it agree; a single one is finished off."""
    fitting = tuple(choice for choice in choices if choice.startswith(start))
    if len(fitting) == 1:
        return Completion(before, fitting[0] + finish)
    if not fitting:
        return Completion(before, start)
    # The first and the last in order differ the most, so what they share all share.
    first, last = min(fitting), max(fitting)
    same = next((index for index, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return Completion(before, first[:same], fitting)


def resolve(name: str, known: Iterable[RunIdentity]) -> list[RunIdentity]:
    """Those of ``known`` that have this id, or begin so; ``@CLUSTER`` behind it says of which cluster."""
    begun = [run for run in known if run.may_be_called(name)]
    return [run for run in begun if run.is_called(name)] or begun


def no_run(name: str, fitting: Sequence[RunIdentity]) -> str:
    """What to say where no run, or more than one, fits a name."""
    if not fitting:
        return f"no run is named {name!r}\npress / to look for it in the list"
    return f"{name!r} could be {', '.join(names_of(fitting[:5]).values())}"


def with_override(overrides: tuple[str, ...], new: str) -> tuple[str, ...]:
    """``overrides`` with ``new`` at the end; an older one of the same key goes."""
    key = new.partition("=")[0].strip()
    return (*(old for old in overrides if old.partition("=")[0].strip() != key), new)


def override_problem(text: str) -> str:
    """What is wrong with the form of an override, or an empty string; values are judged by the check."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        return "an override is key.path=value, such as train.steps=100"
    return "" if value.strip() else f"{key.strip()} has no value"


def without_script(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """``words`` of a resubmission less its ``--script FILE``, and that file; empty where there is none.

    Raises:
        ValueError: No file stands behind ``--script``.
    """
    kept, script, rest = [], "", iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != "--script":
            kept.append(word)
        elif not (script := value if equals else next(rest, "")):
            raise ValueError("--script needs a file")
    return tuple(kept), script


def script_words(text: str) -> tuple[tuple[str, ...], str]:
    """What stands behind a script, as words, and what is wrong with its form; the words are judged by the check."""
    try:
        return tuple(shlex.split(text)), ""
    except ValueError as error:
        return (), f"the words cannot be read: {error}"


def keys_that_fit(text: str) -> list[str]:
    """Keys of a layout that the last part of a dotted key may become."""
    from rltui.layout.convert import known_keys
    from rltui.layout.schema import Layout

    section, _, last = text.rpartition(".")
    path = tuple(section.split(".")) if section else ()
    return [name for name in known_keys(Layout, path) if name.startswith(last)]


def complete_override(text: str) -> Completion:
    """``text`` with the key of its last word made longer as far as it is certain; values are left alone."""
    before, space, word = text.rpartition(" ")
    if "=" in word:
        return Completion("", text)
    section, dot, last = word.rpartition(".")
    keys = keys_that_fit(word)
    ends = "." if len(keys) == 1 and keys_that_fit(f"{section}{dot}{keys[0]}.") else "="
    return extend(last, keys, ends, f"{before}{space}{section}{dot}")
