"""``rltui why``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.cli.output import add_json, print_json, print_lines, talk
from rltui.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rltui.diagnose.diagnose import Findings
    from rltui.diagnose.sources import Source

NOTHING_FOUND = "No known cause of failure is in there."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="id, unique prefix of one, or a layout's name")
    parser.add_argument(
        "--log", nargs="+", metavar="FILE", help="logs from anywhere instead of a run's; gzip too, - is standard input"
    )
    parser.add_argument("--attempt", type=int, default=0, metavar="N", help="an earlier attempt (default: the newest)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Say why it died; exits with 0 where nothing was found and 1 where something was."""
    if bool(options.run) == bool(options.log):
        raise UsageError("Name a run or give logs.", "rltui why RUN, or rltui why --log FILE…")
    findings, nothing = _of_logs(options.log) if options.log else _of_run(options.run, options.attempt)
    _print(findings, nothing, as_json=options.json)
    return 1 if findings.diagnoses else 0


def _of_logs(names: Sequence[str]) -> tuple[Findings, str]:
    from rltui.diagnose.diagnose import examine

    for name in names:
        if name != "-":
            _require_readable(name)
    return examine(_sources(names)), ""


def _require_readable(name: str) -> None:
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{name} is a directory.", "Name the logs in it.")
    if not path.exists():
        raise UsageError(f"There is no file {name}.")
    if not os.access(path, os.R_OK):
        raise UsageError(f"{name} cannot be read.")


def _sources(names: Sequence[str]) -> Iterator[Source]:
    from rltui.diagnose.sources import stream_source

    for name in names:
        if name == "-":
            yield stream_source("-", sys.stdin.buffer)
            continue
        with Path(name).open("rb") as stream:
            yield stream_source(name, stream)


def _of_run(word: str, attempt: int) -> tuple[Findings, str]:
    from rltui.service.all_clusters import open_clusters
    from rltui.service.attempts import at_attempt
    from rltui.service.why import examine_run, nothing_found

    with open_clusters() as clusters:
        context, run = clusters.find(word)
        run = at_attempt(context.cluster.client, run, attempt or run.attempt)
        return examine_run(context, run), nothing_found(run)


def _print(findings: Findings, nothing: str, *, as_json: bool) -> None:
    from rltui.diagnose import first_exception, report

    found, first = findings.diagnoses, findings.first_exception
    if as_json:
        extra = {"first_exception": first_exception.as_json(first)} if first is not None else {}
        print_json({**report.as_json(found), **extra})
        return
    if found and nothing and all(one.secondary for one in found):
        print_lines([nothing, ""])
    if found:
        print_lines(report.as_text(found))
    elif nothing:
        print_lines([nothing])
    else:
        talk(NOTHING_FOUND)
    if first is not None:
        print_lines(["", *first_exception.in_words(first)] if found else first_exception.in_words(first))
