"""Printing: JSON for scripts, aligned columns for people, what would be done; and asking for a yes."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from rltui.errors import UNCONFIRMED, UsageError

if TYPE_CHECKING:
    from rltui.service.cockpit import ActionPreview


WATCH_S = 2.0
"""Seconds between two pictures of ``--watch``."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``, as every verb has it that prints data."""
    parser.add_argument("--json", action="store_true", help="print JSON with a schema version")


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Declare ``--watch`` and ``--every``; seconds are in ``options.watch``, None where it is to be printed once."""
    parser.add_argument(
        "--watch", action="store_const", const=WATCH_S, help=f"print it again every {WATCH_S:g} s, until ctrl+c"
    )
    parser.add_argument(
        "--every", dest="watch", type=float, metavar="S", help="the same every S seconds; with --json one line each"
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Declare ``--cluster`` of a verb that makes a run."""
    parser.add_argument("--cluster", default="local", metavar="C", help="where (default: local, this machine)")


def add_run(parser: argparse.ArgumentParser) -> None:
    """Declare the run that a verb is about, and the cluster that it may be looked for on."""
    parser.add_argument(
        "run", metavar="RUN", help="id or ID@CLUSTER, a unique prefix, or a layout's name (its newest run)"
    )
    add_only_cluster(parser)


def add_only_cluster(parser: argparse.ArgumentParser) -> None:
    """Declare ``--cluster`` of a verb that looks at runs."""
    parser.add_argument("--cluster", default="", metavar="C", help="only this cluster (default: all of them)")


def add_exclude(parser: argparse.ArgumentParser) -> None:
    """Declare ``--exclude``, whose names Slurm's users write as lists."""
    from rltui.cluster.slurm.nodelist import expand

    parser.add_argument(
        "--exclude",
        action="extend",
        type=expand,
        default=[],
        metavar="NODES",
        help="keep away from these too, from now on: n7, n3,n4 or n[1-3]",
    )


def add_cluster_name(parser: argparse.ArgumentParser, *, default: str = "") -> None:
    """Declare the cluster that a verb is about, which may be named with ``--cluster`` or without.

    Args:
        parser: The verb's.
        default: Which one it is where none is named; empty: one has to be.
    """
    parser.add_argument("name", nargs="?", default="", metavar="CLUSTER", help="`rltui clusters` lists them")
    parser.add_argument("--cluster", default="", metavar="C", help=f"the same (default: {default or 'none'})")


def named_cluster(options: argparse.Namespace) -> str:
    """The cluster that was named, or nothing.

    Raises:
        UsageError: Two were.
    """
    if options.name and options.cluster and options.name != options.cluster:
        raise UsageError(f"{options.name} and {options.cluster} are two clusters.", "Name one.")
    return str(options.name or options.cluster)


def print_json(value: Any) -> None:
    """Print ``value`` (builtins and structs) as indented JSON; NaN becomes null."""
    data = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(data.decode() + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to stdout, one behind the other; nothing where there are none."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def answer(options: argparse.Namespace, told: Mapping[str, Any], lines: Iterable[str], nothing: str = "") -> None:
    """Print ``told``, with the version of its schema, where JSON is asked for; else ``lines``.

    Args:
        options: The verb's.
        told: What a program reads.
        lines: What people read.
        nothing: What is said to people where there is no line.
    """
    if options.json:
        print_json({"schema": 1, **told})
    elif shown := list(lines):
        print_lines(shown)
    elif nothing:
        talk(nothing)


def talk(text: str) -> None:
    """Say something to the user, on stderr, broken between words at the terminal's width."""
    sys.stderr.write("".join(f"{line}\n" for line in wrapped(text.split("\n"), sys.stderr)))
    sys.stderr.flush()


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> Iterable[str]:
    """Lines of a table, cut at the terminal's width; columns whose index is in ``right`` are right-aligned."""
    table = [header, *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    for row in table:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield _cut("  ".join(cells).rstrip())


def _cut(line: str) -> str:
    """``line`` as wide as the terminal; whole where nobody reads it on one."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else f"{line[: width - 1]}…"


def wrapped(lines: Iterable[str], stream: TextIO | None = None) -> Iterator[str]:
    """``lines`` broken between words at the terminal's width, what follows indented; whole where there is none.

    Args:
        lines: What is to be printed.
        stream: Where to; stdout where nothing is said.
    """
    if not (stream or sys.stdout).isatty():
        yield from lines
        return
    width = shutil.get_terminal_size().columns
    for line in lines:
        if line.lstrip().startswith(("$ ", "fix: ")):
            yield line  # it is copied, and a break would be copied with it
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        yield from textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""]


def confirm(preview: ActionPreview) -> None:
    """Show what would be done and ask.

    Raises:
        UsageError: Nobody is there to ask, or the answer is no.
    """
    show(preview)
    ask(preview.title)


def ask(question: str) -> None:
    """Go on only if somebody says yes.

    Raises:
        UsageError: Nobody is there to ask, or the answer is no.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{question} {UNCONFIRMED}", "Add --yes.")
    if not is_agreed(question):
        raise UsageError("Not done.")


def is_agreed(question: str) -> bool:
    """Whether somebody who is there says yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def show(preview: ActionPreview) -> None:
    """Say what would be done: consequences, change, and what a check thinks of the change."""
    for line in (*preview.consequences, *preview.diff):
        talk(f"  {line}")
    for finding in preview.findings:
        talk(f"  {finding.severity} {finding.code} {finding.key}: {finding.message}")
