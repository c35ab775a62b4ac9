"""Printing: JSON for scripts, aligned columns for people."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON with a schema version")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Declare ``--cluster``."""
    parser.add_argument("--cluster", default="local", metavar="C", help="where (default: local, this machine)")


def print_json(value: Any) -> None:
    """Print ``value`` (builtins and structs) as indented JSON; NaN becomes null."""
    data = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(data.decode() + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to stdout."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def talk(text: str) -> None:
    """Say something to the user, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> Iterable[str]:
    """Lines of a table; columns whose index is in ``right`` are right-aligned."""
    table = [header, *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    for row in table:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
