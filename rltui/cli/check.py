"""``rltui check``, also ``rltui --check``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import structs

from rltui.check.reporters import as_json, as_text
from rltui.check.run import Report, check_file, check_text
from rltui.cli.output import add_json, print_json, print_lines, talk, wrapped
from rltui.cli.sources import add_open, find, is_script, is_script_text, parted, said
from rltui.errors import UsageError
from rltui.layout.document import MAX_BYTES, decode, read_text
from rltui.layout.errors import LayoutError
from rltui.paths import replace_text

STDIN = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="FILE|PRESET|SCRIPT|key=value", help="what to check ('-': stdin), and overrides"
    )
    add_open(parser)
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    forms = ("text", "json", "sarif", "github", "junit")
    parser.add_argument("--format", choices=forms, default="text", help="default: text")
    parser.add_argument("--fix", action="store_true", help="show what would settle errors and warnings")
    parser.add_argument("--write", action="store_true", help="with --fix: write it into the files, keeping comments")
    parser.add_argument("--cluster", metavar="C", help="also check against this cluster's profile")
    parser.add_argument("--live", action="store_true", help="with --cluster: ask it what it has right now")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Check every layout; the exit code is the worst of them."""
    sources, overrides = parted(options.words)
    if not sources:
        raise UsageError("Name at least one layout.", "rltui check local/grpo-tiny")
    if options.write and (not options.fix or STDIN in sources or overrides):
        raise UsageError("--write needs --fix, files, and no overrides.", "rltui check --fix --write my.yaml")
    on_cluster = _on_cluster(options.cluster, options.live)
    reports = [on_cluster(_check(source, overrides, said(options))) for source in sources]
    if options.fix:
        reports = [_fix(report, options.write, on_cluster) for report in reports]
    _print(reports, "json" if options.json else options.format, strict=options.strict)
    return max(_exit_code(report, options.strict) for report in reports)


def _on_cluster(name: str | None, live: bool) -> Callable[[Report], Report]:
    """What adds the findings about a cluster to a report; without one, nothing is added.

    Raises:
        UsageError: There is no such cluster, or none is named for ``--live``.
        ClusterError: The cluster does not answer.
    """
    if not name:
        if live:
            raise UsageError("--live needs a cluster.", "rltui check --cluster NAME --live my.yaml")
        return lambda report: report
    from rltui.check.live import check_on
    from rltui.cluster.profiles import load_profiles

    profile = load_profiles().get(name)
    if profile.scheduler == "local":
        from rltui.service.this_machine import machine_facts

        facts = machine_facts()
        return lambda report: _measured(check_on(report, profile, facts), name)
    if live:
        from rltui.cluster.prompts import TerminalPrompter
        from rltui.service.live_facts import live_facts

        def asked(report: Report) -> Report:
            layout = report.loaded.layout if report.loaded else None
            return _measured(check_on(report, profile, live_facts(profile, TerminalPrompter(), layout)), name)

        return asked
    return lambda report: check_on(report, profile)


def _measured(report: Report, cluster: str) -> Report:
    """``report`` with what earlier runs like it took of their cards there; a cluster that is not asked says nothing."""
    if not cluster or report.loaded is None or report.loaded.layout.hardware.on_cpu:
        return report
    from rltui.service.context import open_context
    from rltui.service.memory_peaks import measured_findings

    with open_context(cluster) as context:
        found = measured_findings(context, report.loaded.layout)
    return structs.replace(report, findings=(*report.findings, *found))


def _print(reports: Sequence[Report], form: str, *, strict: bool) -> None:
    if form == "json":
        print_json(as_json(reports))
    elif form == "text":
        for report in reports:
            print_lines(wrapped(as_text(report)))
    else:
        from rltui.check.sarif import as_github, as_junit, as_sarif

        if form == "sarif":
            print_json(as_sarif(reports))
        elif form == "junit":
            print_lines([as_junit(reports, strict=strict)])
        else:
            print_lines(as_github(reports))


def _check(source: str, overrides: list[str], given: list[str]) -> Report:
    if source == STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        try:
            text = decode(data, "<stdin>")
        except LayoutError as error:
            raise UsageError(str(error)) from error
        if not is_script_text(text, Path("<stdin>")):
            return check_text(text, "<stdin>", [*given, *overrides])
        from rltui.check.script import check_script_text

        return check_script_text(text, Path("<stdin>"), overrides, given)
    path = find(source)
    if not is_script(path):
        return check_file(path, [*given, *overrides])
    from rltui.check.script import check_script

    return check_script(path, overrides, given)


def _fix(report: Report, write: bool, on_cluster: Callable[[Report], Report]) -> Report:
    """Say, and with ``write`` do, what settles the report's findings; returns the report of what is then there."""
    from rltui.check.fix import apply, collect

    found = collect(report.findings)
    if not found.words:
        talk(f"{report.file}: nothing that a fix is known for")
        return report
    talk(f"{report.file}: {' '.join(found.codes)} would be settled by: {' '.join(found.words)}")
    if found.at_odds:
        talk(f"{report.file}: check again for {' '.join(found.at_odds)}, whose fix depends on these")
    if not write:
        return report
    path = Path(report.file)
    if is_script(path):
        raise UsageError(
            f"{path} is a script, which rltui does not edit.", "Write the settings above into it yourself."
        )
    edited = apply(read_text(path), report.file, found.words)
    try:
        replace_text(path, edited)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", "Copy it to a folder of yours.") from error
    talk(f"{report.file}: written")
    return on_cluster(check_file(path))


def _exit_code(report: Report, strict: bool) -> int:
    if not report.readable:
        return 2
    warned = strict and any(finding.severity == "warning" for finding in report.findings)
    return 1 if not report.ok or warned else 0
