"""What Ray's workers share with a script that finds a Ray of ours: its folder, and the variables that it exports.

Whoever starts Ray from a script has both in every worker, on all nodes. Ray of ours is there before the script is.
"""

import os
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from rltui.onnode import processes, rundir

_WORD = re.compile(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"\\])+")
_PART = re.compile(r"'(?P<literal>[^']*)'|\"(?P<quoted>(?:\\.|[^\"\\])*)\"|(?P<bare>(?:\\.|[^'\"\\])+)")
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_VARIABLE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
_OWN = re.compile(r"SLURM_|RAY_(?:ADDRESS|AUTH_|TMPDIR|API_SERVER)|CUDA_VISIBLE_DEVICES\Z|TMPDIR\Z|PWD\Z|HOME\Z")
"""Variables that are each node's own, or this Ray's."""


class ScriptPlace(NamedTuple):
    """Where a script runs.

    Attributes:
        folder: Its folder.
        exports: The variables that it exports, as far as they can be told without a shell.
        untold: The names of those that it exports besides.
    """

    folder: str
    exports: Dict[str, str]
    untold: Tuple[str, ...] = ()


def script_place(attempt: str, environment: Dict[str, str]) -> Optional[ScriptPlace]:
    """Where the script of an attempt runs; None where it is one of the bundled trainers'."""
    told = rundir.read_json(os.path.join(attempt, rundir.SCRIPT_RUN))
    if told is None:
        return None
    text = processes.contents(os.path.join(attempt, told.get("script") or "")).decode("utf-8", "replace")
    folder = os.path.expanduser(told.get("folder") or "~")
    place = read_place(text, folder, {**environment, "PYTHONPATH": told.get("pythonpath") or ""})
    return place if os.path.isdir(place.folder) else place._replace(folder=folder)


def read_place(text: str, folder: str, known: Dict[str, str]) -> ScriptPlace:
    """Where the outermost lines of a script, started in ``folder``, lead, and what they export; nothing is run.

    Args:
        text: The script.
        folder: Where it is started.
        known: Variables of its environment.
    """
    variables = {**known, "PWD": folder}
    exported: Dict[str, str] = {}
    untold: Set[str] = set()
    for words in map(_words, text.replace("\\\n", " ").splitlines()):
        if words[:1] == ["cd"] and words[2:3] in ([], ["&&"], ["||"]):
            target = _expanded(words[1], variables) if words[1:] else variables.get("HOME")
            variables["PWD"] = os.path.normpath(os.path.join(variables["PWD"], target or "."))
        for is_export, name, value in _assignments(words):
            found = variables.get(name) if value is None else _expanded(value, variables)
            if found is None:  # what stood there before is no longer true
                variables.pop(name, None)
                if exported.pop(name, None) is not None or is_export:
                    untold.add(name)
                continue
            variables[name] = found
            if (is_export or name in exported or name in untold) and not _OWN.match(name):
                exported[name] = found
                untold.discard(name)
    return ScriptPlace(variables["PWD"], exported, tuple(sorted(untold)))


def _assignments(words: List[str]) -> "Iterator[Tuple[bool, str, Optional[str]]]":
    """Each ``NAME=value`` and ``export NAME`` of a line's words, with the quotes of its value."""
    is_export = words[:1] == ["export"]
    pairs = [word.partition("=") for word in words[is_export:]]
    if all(_NAME.match(name) and (equals or is_export) for name, equals, _ in pairs):  # else a command
        for name, equals, value in pairs:
            yield is_export, name, value if equals else None


def _words(line: str) -> List[str]:
    """The words of a line as they stand there, without its comment; none of a block's lines, which may never be run."""
    words: List[str] = []
    for word in _WORD.findall(line) if line[:1].strip() else []:
        if word.startswith("#"):
            break
        words.append(word)
    return words


def _expanded(value: str, variables: Dict[str, str]) -> Optional[str]:
    """A value as a shell would have it; None where only a shell can tell."""
    found = ""
    for part in _PART.finditer(value):
        if part.group("literal") is not None:
            found += part.group("literal")
            continue
        text = part.group("quoted") if part.group("quoted") is not None else part.group("bare")
        names = [match.group("plain") or match.group("braced") for match in _VARIABLE.finditer(text)]
        left = _VARIABLE.sub("", text)
        if any(name not in variables for name in names) or re.search(r"[$`\\]", left):
            return None
        if part.group("bare") is not None and re.search(r"[;|&<>()*?~]", left):
            return None
        found += _VARIABLE.sub(lambda match: variables[match.group("plain") or match.group("braced")], text)
    return found
