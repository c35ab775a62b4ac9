"""``rltui why``: say why a run died, or what went wrong in any log."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rltui.cli.output import add_json, add_only_cluster, print_json, print_lines, talk
from rltui.errors import UsageError
from rltui.paths import is_file, is_folder

if TYPE_CHECKING:
    from rltui.diagnose.diagnose import Findings
    from rltui.diagnose.sources import Source
    from rltui.service.attempt_differences import Differences

NOTHING_FOUND = "No known cause of failure is in there."
JUST_STOPS = (
    "No known cause of failure is in there, nor an exception. A run that hangs,\n"
    "or that was ended from outside, leaves such a log: `py-spy dump --pid PID`\n"
    "tells of the one, `sacct -j JOB -o State,ExitCode` and dmesg of the other."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="id, unique prefix of one, a layout's name, or a log (- is standard input)",
    )
    parser.add_argument(
        "--log", nargs="+", metavar="FILE", help="logs from anywhere instead of a run's; gzip too, - is standard input"
    )
    parser.add_argument("--attempt", type=int, default=0, metavar="N", help="an earlier attempt (default: the newest)")
    add_only_cluster(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Say why it died; exits with 0 where nothing was found and 1 where something was."""
    if bool(options.run) == bool(options.log):
        raise UsageError("Name a run or give logs.", "rltui why RUN, rltui why --log FILE…, or … | rltui why -")
    # a pipe, too: bash names what <(…) prints /dev/fd/63
    is_log = bool(options.run) and os.access(options.run, os.F_OK) and not is_folder(Path(options.run))
    logs = options.log or ([options.run] if options.run == "-" or is_log else [])
    said = _of_logs(logs) if logs else _of_run(options.run, options.attempt, options.cluster)
    findings = said.findings
    _print(said, as_json=options.json)
    return 1 if findings.diagnoses else 0


class Said(Struct, frozen=True):
    """What there is to print."""

    findings: Findings
    nothing: str = ""
    """What to say where nothing was found."""
    last: Sequence[str] = ()
    """The last lines of its log, where nothing was found in it."""
    different: Differences | None = None
    """From the last attempt that went well, where no cause is known."""
    unfinished: str = ""
    """What was to follow the attempt and did not."""


def _of_logs(names: Sequence[str]) -> Said:
    from rltui.diagnose.diagnose import examine
    from rltui.diagnose.sources import Ends

    for name in names:
        if name != "-":
            _require_readable(name)
    records = [name for name in names if name != "-" and _is_record(name)]
    ends = Ends()
    logs = map(ends.kept, _sources([name for name in names if name not in records]))
    found = examine(chain(logs, _compared(records)))
    if found.diagnoses or found.first_exception is not None:
        return Said(found)
    from rltui.diagnose.log_steps import words_of

    slow = examine(words_of(ends.of))  # nothing ended it: it may go on, and slowly
    return Said(slow if slow.diagnoses else found)


def _is_record(name: str) -> bool:
    """Whether a file is torch's record of a rank's collectives; a pipe is none, as it can be read only once."""
    from rltui.onnode.flight_recorder import is_record

    if not is_file(Path(name)):
        return False
    with Path(name).open("rb") as stream:
        return is_record(name, stream.read(64))


def _compared(names: Sequence[str]) -> Iterator[Source]:
    """What the flight records say, compared with each other; says which of them cannot be used."""
    from rltui.diagnose.flight_record import lines_of
    from rltui.diagnose.sources import text_source
    from rltui.onnode.flight_recorder import MOST_BYTES

    files: dict[str, bytes] = {}
    for name in names:
        with Path(name).open("rb") as stream:
            files[name] = stream.read(MOST_BYTES + 1)
    lines, unusable = lines_of(files)
    for sentence in unusable:
        talk(sentence)
    if lines:
        yield text_source("flight records", "\n".join(lines), has_lines=False)


def _require_readable(name: str) -> None:
    path = Path(name)
    if is_folder(path):
        raise UsageError(f"{name} is a directory.", "Name the logs in it.")
    if not os.access(path, os.F_OK):
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


def _of_run(word: str, attempt: int, cluster: str) -> Said:
    from rltui.service.all_clusters import open_clusters
    from rltui.service.attempt_differences import unexplained
    from rltui.service.attempts import at_attempt, endings
    from rltui.service.why import examine_run, last_words, nothing_found

    with open_clusters(cluster) as clusters:
        context, run = clusters.find(word)
        run = at_attempt(context.cluster.client, run, attempt or run.attempt)
        findings = examine_run(context, run)
        different = unexplained(context.cluster.client, run, findings)
        nothing = nothing_found(run, endings(context.cluster.client, run), findings.at_rest)
        if not run.identity.is_called(word) and findings.diagnoses:
            talk(f"{run.run_id}:")
        last = last_words(run, findings)
        return Said(findings, nothing, last, different, context.replacements.unfinished_words(run))


def _print(said: Said, *, as_json: bool) -> None:
    from rltui.diagnose import first_exception, nearest, report

    found, first = said.findings.diagnoses, said.findings.first_exception
    if as_json:
        extra: dict[str, Any] = {"first_exception": first_exception.as_json(first)} if first is not None else {}
        if said.different is not None:
            extra["different_from"] = said.different
        if near := said.findings.nearest:
            extra["nearest"] = near
        if said.unfinished:
            extra["unfinished"] = said.unfinished
        print_json({**report.as_json(found), **extra})
        return
    if said.unfinished:
        print_lines([said.unfinished, ""])
    if found and said.nothing and all(one.secondary for one in found):
        print_lines([said.nothing, ""])
    if found:
        print_lines(report.as_text(found))
    elif said.nothing:
        print_lines([said.nothing])
    else:
        talk(NOTHING_FOUND if first is not None else JUST_STOPS)
    if first is not None:
        advised = any(one.id == "program_failed" for one in found)
        print_lines([*([""] if found else []), *first_exception.in_words(first, advised=advised)])
    print_lines(said.last)
    print_lines(nearest.in_words(said.findings.nearest))
    if said.different is not None:
        print_lines(said.different.in_words())
