"""The one place where values become part of a shell script, or of sbatch's lines in it."""

from __future__ import annotations

import re
import shlex

from rltui.errors import RltuiError

LONGEST = 100_000
"""Characters of a value in a script; a longer one is a mistake, and Slurm refuses scripts over 4 MiB anyway."""

LONGEST_DIRECTIVE = 16_000
"""Characters of a directive's value: a list of a thousand excluded nodes fits."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_DIRECTIVE = re.compile(r"[A-Za-z0-9_@%+=:,./&|()\[\]*!~-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def bash_quote(value: str, what: str = "a value") -> str:
    """Quote ``value`` as one word of bash that stands for exactly this text.

    Args:
        value: Any text: quotes, ``$(…)``, newlines and leading dashes stay text.
        what: What it is, for the error.

    Raises:
        RltuiError: It holds a NUL, which no shell can carry, or is no text that a file can hold, or is too long.
    """
    if "\0" in value:
        raise RltuiError(f"{_shown(what)} holds a NUL character, which no shell can carry.", "Remove it.")
    if len(value) > LONGEST:
        raise RltuiError(
            f"{_shown(what)} has {len(value)} characters; a script holds at most {LONGEST}.", "Shorten it."
        )
    _encodable(value, what)
    return shlex.quote(value)


def bash_path(path: str, what: str = "a path") -> str:
    """As ``bash_quote``, but a leading ``~/`` is the home directory of whoever runs the script.

    Raises:
        RltuiError: As for ``bash_quote``.
    """
    rest = path.removeprefix("~/")
    return bash_quote(path, what) if rest == path else f'"$HOME"/{bash_quote(rest, what)}'


def variable_name(name: str) -> str:
    """Return ``name`` where it can be a shell variable.

    Raises:
        RltuiError: It cannot.
    """
    if not _VARIABLE.fullmatch(name):
        raise RltuiError(
            f"{_shown(name)!r} cannot be the name of an environment variable.",
            "Names are letters, digits and underscores, and do not begin with a digit.",
        )
    return name


def directive_value(value: str, what: str = "a value") -> str:
    """Write ``value`` as sbatch reads it in an ``#SBATCH`` line.

    sbatch ends a value at white space or ``#`` and knows quotes and backslashes; the shell never sees these lines.

    Raises:
        RltuiError: It holds a line break or another control character, a quote or a backslash, or is too long: any of
            these could begin another directive, or be read differently by another version of Slurm.
    """
    if _CONTROL.search(value) or any(letter in value for letter in "\"'\\"):
        raise RltuiError(
            f"{_shown(what)} cannot be put into a job script: {_shown(value)!r} holds a line break, "
            "a control character, a quote or a backslash.",
            "Remove it.",
        )
    if len(value) > LONGEST_DIRECTIVE:
        raise RltuiError(
            f"{_shown(what)} has {len(value)} characters; Slurm gets at most {LONGEST_DIRECTIVE}.", "Shorten it."
        )
    _encodable(value, what)
    return value if _PLAIN_DIRECTIVE.fullmatch(value) else f'"{value}"'


def file_pattern(folder: str, name: str) -> str:
    """Write ``name`` in an attempt's ``folder`` for ``--output``: percent signs of the folder begin no replacement.

    Raises:
        RltuiError: As for ``directive_value``.
    """
    return directive_value(f"{folder.replace('%', '%%')}/{name}", "the attempt's path")


def comment_text(value: str) -> str:
    """``value`` for a comment: one line, without control characters."""
    return _CONTROL.sub(" ", value)[:200]


def _encodable(value: str, what: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RltuiError(f"{_shown(what)} is not valid Unicode text.", "Write it again.") from error


def _shown(text: str) -> str:
    short = _CONTROL.sub("?", text.encode("utf-8", "replace").decode())
    return short if len(short) <= 80 else short[:77] + "…"
