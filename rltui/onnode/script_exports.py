"""What Ray's workers share with a script that finds a Ray of ours: its folder, and the variables that it exports.

Whoever starts Ray from a script has both in every worker, on all nodes. Ray of ours is there before the script is.
"""

import os
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from rltui.onnode import rundir

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
    """

    folder: str
    exports: Dict[str, str]


def script_place(attempt: str, environment: Dict[str, str]) -> Optional[ScriptPlace]:
    """Where the script of an attempt runs; None where it is one of the bundled trainers'."""
    told = rundir.read_json(os.path.join(attempt, rundir.SCRIPT_RUN))
    if told is None:
        return None
    try:
        with open(os.path.join(attempt, told["script"]), encoding="utf-8", errors="replace") as stream:
            text = stream.read()
    except OSError:
        text = ""
    folder = told["folder"] or os.path.expanduser("~")
    known = {**environment, "PWD": folder, "PYTHONPATH": told.get("pythonpath") or ""}
    return ScriptPlace(folder, exports(text, known))


def exports(text: str, known: Dict[str, str]) -> Dict[str, str]:
    """The variables that a script's outermost lines export, expanded with those that are ``known``; nothing is run."""
    variables = dict(known)
    exported: Dict[str, str] = {}
    for is_export, name, value in _assignments(text):
        if value is not None:
            found = _expanded(value, variables)
            if found is None:  # what stood there before is no longer true
                variables.pop(name, None)
                exported.pop(name, None)
                continue
            variables[name] = found
        if (is_export or name in exported) and name in variables and not _OWN.match(name):
            exported[name] = variables[name]
    return exported


def _assignments(text: str) -> "Iterator[Tuple[bool, str, Optional[str]]]":
    """Each ``NAME=value`` and ``export NAME`` of the lines that are not indented, with the quotes of its value."""
    for line in text.replace("\\\n", " ").splitlines():
        words = _words(line)
        is_export = words[:1] == ["export"]
        pairs = [word.partition("=") for word in words[is_export:]]
        if not all(_NAME.match(name) and (equals or is_export) for name, equals, _ in pairs):
            continue  # a command, perhaps with variables of its own
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
