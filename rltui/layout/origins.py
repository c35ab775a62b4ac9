"""Where each setting of a resolved layout comes from: a line of a file, an override, or a change of a later attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.layout.document import Path_, dotted
from rltui.layout.overrides import parse_override

if TYPE_CHECKING:
    from rltui.layout.load import LoadedLayout

AT_LAUNCH = "override at launch"
DEFAULT = "default"
FREEST_PARTITION = "chosen at launch: most nodes free"


def origins(loaded: LoadedLayout) -> dict[str, str]:
    """``file:line`` of each key, or that it is an override; what is not there has its default."""
    found: dict[str, str] = {}
    for path, line in loaded.document.lines.items():
        key = _setting(path)
        if not key or (key in found and line):
            continue  # the items of a list stand under the list's own line, unless one was overridden
        file = loaded.document.inherited.get(path, loaded.document.name)
        found[key] = f"{Path(file).expanduser().absolute()}:{line}" if line else AT_LAUNCH
    return found


def changed(before: Mapping[str, str], words: Sequence[str], what: str) -> dict[str, str]:
    """``before`` with the keys of ``key.path=value`` words coming from ``what``."""
    return {**before, **{_setting(parse_override(word)[0]): what for word in words}}


def origin_of(key: str, known: Mapping[str, str]) -> str:
    """Where the setting ``key`` comes from; an override of a whole section speaks for its keys."""
    if key in known:
        return known[key]
    parents = key.split(".")[:-1]
    sections = (".".join(parents[:length]) for length in range(len(parents), 0, -1))
    found = next((known[section] for section in sections if section in known), DEFAULT)
    return DEFAULT if found.rpartition(":")[2].isdigit() else found


def _setting(path: Path_) -> str:
    """The dotted key of a path, of a list's item that of the list."""
    length = next((index for index, part in enumerate(path) if isinstance(part, int)), len(path))
    return dotted(path[:length])
