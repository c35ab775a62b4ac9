"""Loading: a file or preset name, plus overrides, into a typed layout that still knows its lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from rltui.layout.base import inherit
from rltui.layout.convert import to_struct
from rltui.layout.document import Document, Path_, dotted, dump, parse, read_text
from rltui.layout.errors import LayoutError, Problem
from rltui.layout.overrides import apply_overrides
from rltui.layout.schema import Layout

LARGEST = 1 << 18
"""GPUs of a layout: several times the largest machines there are."""


class LoadedLayout(Struct, frozen=True):
    """A layout with the places of its values.

    Attributes:
        layout: The typed layout, overrides applied.
        document: The plain values and their lines.
        overrides: The words that were applied.
    """

    layout: Layout
    document: Document
    overrides: tuple[str, ...] = ()

    def place(self, key: str) -> tuple[str, int]:
        """File and line of the dotted ``key``, or of its section where the value is a default; line 0 for an override.

        The file is the layout's own, or the base that the value comes from.
        """
        path: Path_ = tuple(key.split("."))
        return self.document.place(path)

    def line(self, key: str) -> int:
        """The line on which a key was set, for messages; see ``place``."""
        return self.place(key)[1]


def load_layout(path: str | Path, overrides: Sequence[str] = ()) -> LoadedLayout:
    """Load the layout file at ``path``.

    Raises:
        LayoutError: Unreadable, not YAML, or not a layout; every problem with file, line and key.
    """
    path = Path(path)
    return load_text(read_text(path), str(path), overrides)


def load_text(text: str, name: str, overrides: Sequence[str] = ()) -> LoadedLayout:
    """Load a layout from ``text``; ``name`` stands for the file in messages.

    Raises:
        LayoutError: As ``load_layout``.
    """
    document = apply_overrides(inherit(parse(text, name)), overrides)
    layout: Layout = to_struct(Layout, document)
    _refuse_enormous(layout, document)
    return LoadedLayout(layout, document, tuple(overrides))


def _refuse_enormous(layout: Layout, document: Document) -> None:
    """Each number may be within its bounds and their product beyond all reason: nothing later has to fear that."""
    hardware, roles = layout.hardware, layout.roles
    totals: dict[Path_, int] = {
        ("hardware", "nodes"): hardware.all_gpus,
        ("roles", "learner", "gpus"): roles.learner.num_learners,
        ("roles", "rollout", "engines"): roles.rollout.engines * roles.rollout.tensor_parallel,
        **{("pools", name, "gpus"): pool.total for name, pool in layout.pools.items()},
    }
    problems = [
        Problem(f"comes to {total} GPUs; {LARGEST} is as far as it goes", *document.place(path), dotted(path))
        for path, total in totals.items()
        if total > LARGEST
    ]
    if problems:
        raise LayoutError(problems)


def dump_layout(layout: Layout) -> str:
    """Return ``layout`` as YAML with every default written out; loading it gives an equal layout."""
    return dump(msgspec.to_builtins(layout))
