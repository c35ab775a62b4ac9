"""Presets: the layouts that ship with rltui, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from rltui.errors import UsageError
from rltui.paths import is_file, with_home

FIRST = "local/grpo-tiny"
"""What somebody who has chosen nothing yet begins with: it needs no GPU, and two minutes."""


def preset_root() -> Path:
    """Folder of the shipped layouts: inside the package when installed, beside it in a checkout."""
    inside = Path(__file__).parent.parent / "layouts"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "layouts"


def preset_files() -> Iterator[tuple[str, Path]]:
    """Name and file of every preset, sorted; ``layouts/local/grpo-tiny.yaml`` is ``local/grpo-tiny``."""
    root = preset_root()
    for path in sorted(root.rglob("*.yaml")):
        yield path.relative_to(root).with_suffix("").as_posix(), path


def resolve(name_or_file: str) -> Path:
    """Return the layout file that a user means by ``name_or_file``.

    A word that looks like a path (it ends in .yaml or .yml, or starts with ``.``, ``/`` or ``~``) or names an existing
    file is that file; any other word is a preset, by its full name or, where only one ends so, by its last part.

    Raises:
        UsageError: No preset has this name, or several do.
    """
    if name_or_file.endswith((".yaml", ".yml")) or name_or_file.startswith((".", "/", "~")):
        return with_home(name_or_file)
    presets = dict(preset_files())
    if name_or_file in presets:
        return presets[name_or_file]
    short = [name for name in presets if name.rsplit("/", 1)[-1] == name_or_file]
    if len(short) == 1:
        return presets[short[0]]
    if len(short) > 1:
        raise UsageError(f"{name_or_file!r} could be {' or '.join(short)}.", "Write the full name.")
    if is_file(Path(name_or_file)):
        return Path(name_or_file)
    raise UsageError(
        f"No preset or layout file is called {name_or_file[:100]!r}.", _suggest(name_or_file, list(presets))
    )


def _suggest(word: str, names: list[str]) -> str:
    ends = {name.rsplit("/", 1)[-1]: name for name in names}
    match = difflib.get_close_matches(word, [*names, *ends], n=1, cutoff=0.5)
    listing = "`rltui layouts` lists the presets; a file needs its .yaml ending."
    return f"Did you mean {ends.get(match[0], match[0])!r}? {listing}" if match else listing
