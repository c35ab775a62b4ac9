"""``rltui check``, also ``rltui --check``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rltui.check.reporters import as_json, as_text
from rltui.check.run import Report, check_file, check_text
from rltui.cli.output import add_json, print_json, print_lines
from rltui.errors import UsageError
from rltui.layout.presets import resolve

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("words", nargs="+", metavar="FILE|PRESET|key=value", help="layouts ('-': stdin), and overrides")
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Check every layout; the exit code is the worst of them."""
    overrides = [word for word in options.words if "=" in word and not word.endswith((".yaml", ".yml"))]
    sources = [word for word in options.words if word not in overrides]
    if not sources:
        raise UsageError("Name at least one layout.", "rltui check local/grpo-tiny")
    reports = [_check(source, overrides) for source in sources]
    if options.json:
        print_json(as_json(reports))
    else:
        for report in reports:
            print_lines(as_text(report))
    return max(_exit_code(report, options.strict) for report in reports)


def _check(source: str, overrides: list[str]) -> Report:
    if source == "-":
        from rltui.layout.document import MAX_BYTES, decode
        from rltui.layout.errors import LayoutError

        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        try:
            return check_text(decode(data, "<stdin>"), "<stdin>", overrides)
        except LayoutError as error:
            raise UsageError(str(error)) from error
    return check_file(resolve(source), overrides)


def _exit_code(report: Report, strict: bool) -> int:
    if not report.readable:
        return 2
    warned = strict and any(finding.severity == "warning" for finding in report.findings)
    return 1 if not report.ok or warned else 0
