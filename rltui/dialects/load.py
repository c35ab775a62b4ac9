"""The dialects that ship with rltui and the user's own, and whose script a text is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import yaml

from rltui.dialects.schema import Dialect
from rltui.errors import RltuiError, UsageError
from rltui.paths import config_dir

OWN_FOLDER = "dialects"
LARGEST = 1 << 20


def load_dialects() -> dict[str, Dialect]:
    """All dialects by name; one of the user's replaces a bundled one of the same name.

    Raises:
        RltuiError: A file is no dialect; the text names it.
    """
    folders = (Path(__file__).parent, config_dir() / OWN_FOLDER)
    files = (path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.yaml")))
    return {dialect.name: dialect for dialect in map(read_dialect, files)}


def read_dialect(path: Path) -> Dialect:
    """Read one dialect.

    Raises:
        RltuiError: It cannot be read, or is none; the text says where.
    """
    try:
        text = path.read_text(encoding="utf-8")[:LARGEST]
        return msgspec.convert(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), Dialect)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise RltuiError(f"{path} is no dialect: {error}.", "docs/dialects.md shows what one looks like.") from error


def named(name: str, dialects: dict[str, Dialect]) -> Dialect:
    """The dialect called ``name``.

    Raises:
        UsageError: There is none.
    """
    if name not in dialects:
        raise UsageError(f"There is no dialect {name}.", f"There are: {', '.join(dialects)}.")
    return dialects[name]


def recognised(text: str, dialects: Iterable[Dialect]) -> tuple[Dialect, ...]:
    """The dialects whose marks are in a script, most marks first; none where it is of no known system."""
    code = "\n".join(line for line in text.splitlines() if not re.match(r"\s*#(?!!|SBATCH)", line))
    found = [(sum(bool(re.search(mark, code)) for mark in one.recognise), one) for one in dialects]
    return tuple(one for count, one in sorted(found, key=lambda pair: -pair[0]) if count)
