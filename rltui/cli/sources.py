"""What a verb is given to look at: a preset, a layout file, or a launch script of another system."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from rltui.errors import UsageError
from rltui.layout.errors import LayoutError
from rltui.layout.load import LoadedLayout, load_layout, load_text
from rltui.layout.presets import resolve
from rltui.paths import is_file, with_home

SCRIPT_ENDINGS = (".sh", ".bash", ".sbatch", ".slurm", ".toml", ".py")
_LAYOUT_ENDINGS = (".yaml", ".yml")
_OF_A_LAYOUT = re.compile(r"^(?:layout|base)\s*:", re.MULTILINE)
_MAX_BYTES = 1 << 20
_SET = "what a script leaves open: a layout's key (hardware.gpus_per_node=8) or a variable of its (NNODES=4)"


def add_source(parser: argparse.ArgumentParser, what: str = "PRESET|FILE|SCRIPT") -> None:
    """Declare one layout or script (or ``what`` else the verb takes), overrides, and what a script may leave open."""
    parser.add_argument("layout", metavar=what)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    add_open(parser)


def add_open(parser: argparse.ArgumentParser) -> None:
    """Declare ``--set`` and ``--gpu``, which say what a launch script leaves open."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=_SET)
    parser.add_argument("--gpu", metavar="NAME", help="the card, where a script does not say it: H100-SXM-80GB")


def said(options: argparse.Namespace) -> list[str]:
    """What ``--set`` and ``--gpu`` say; of a layout file they are overrides."""
    return [*options.set, *([f"hardware.gpu={options.gpu}"] if options.gpu else [])]


def is_override(word: str) -> bool:
    """Whether a word is ``key=value`` and not a file."""
    return "=" in word and not word.endswith((*_LAYOUT_ENDINGS, *SCRIPT_ENDINGS))


def parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of words in any order the files or presets, and the overrides."""
    overrides = [word for word in words if is_override(word)]
    return [word for word in words if word not in overrides], overrides


def find(word: str) -> Path:
    """The file that ``word`` means.

    Raises:
        UsageError: There is none.
    """
    return with_home(word) if word.endswith(SCRIPT_ENDINGS) else resolve(word)


def is_script(path: Path) -> bool:
    """Whether a file is a launch script or another system's configuration; what cannot be told is a layout."""
    if path.suffix in SCRIPT_ENDINGS:
        return True
    if not is_file(path):  # a pipe would be waited on for ever
        return False
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    return is_script_text(text, path)


def is_script_text(text: str, path: Path) -> bool:
    """``is_script`` for what was read."""
    if text.startswith("#!"):
        return True
    if _OF_A_LAYOUT.search(text) or path.suffix not in (*_LAYOUT_ENDINGS, ""):
        return False
    from rltui.importers.read import read_facts

    try:
        read_facts(text, path)
    except UsageError:
        return False
    return True


def opened(word: str) -> tuple[Path, str]:
    """The file that ``word`` means, and what it says where it is a launch script; nothing of a layout.

    Raises:
        UsageError: There is no such file, or a script that cannot be read.
    """
    from rltui.importers.source import read_source

    path = find(word)
    return path, read_source(path) if is_script(path) else ""


def load(word: str, overrides: Sequence[str] = (), given: Sequence[str] = ()) -> LoadedLayout:
    """The layout that ``word`` means; for a script, the one that it comes to.

    Args:
        word: A preset's name or a file.
        overrides: Changes to the layout, ``key.path=value``.
        given: The words of ``said``: what a script leaves open.

    Raises:
        LayoutError: A layout that cannot be read.
        UsageError: There is no such file, or no layout can be made of the script.
    """
    return load_opened(*opened(word), overrides, given)


def load_opened(path: Path, script: str, overrides: Sequence[str], given: Sequence[str]) -> LoadedLayout:
    """``load`` for what was opened."""
    if not script:
        return load_layout(path, [*given, *overrides])
    from rltui.importers.layout_of import as_yaml
    from rltui.importers.read import import_file

    found = import_file(path, given, script)
    if found.layout is None:
        reason = found.unmapped[0].removeprefix("layout: ") if found.unmapped else "it says too little"
        raise UsageError(
            f"{path}: no layout can be made of this {found.dialect} script: {reason}.",
            "`rltui import` shows what was read of it; `--set hardware.nodes=2` says what it leaves open.",
        )
    try:
        return load_text(as_yaml(found.layout), str(path), overrides)
    except LayoutError as error:  # the lines are those of a text that nobody sees
        raise LayoutError([replace(problem, line=0) for problem in error.problems]) from error
