"""``rltui explain``."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rltui.check.catalog import RULES
from rltui.cli.output import print_lines
from rltui.diagnose.index import CAUSES
from rltui.diagnose.report import story as cause_story
from rltui.errors import UsageError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("code", nargs="?", help="such as P101 or nccl_timeout; without it, all are listed")
    parser.add_argument("--markdown", action="store_true", help="print all stories of checks as one page")


def run(options: argparse.Namespace) -> int:
    """Print the story of a finding's code or of a diagnosis, or the list of both."""
    if options.markdown:
        from rltui.check.handbook import markdown

        print_lines(markdown())
        return 0
    if not options.code:
        print_lines(f"{rule.code}  {rule.severity:<7}  {rule.title}" for rule in sorted(RULES.values(), key=_code))
        width = max(map(len, CAUSES))
        print_lines(["", *(f"{cause.id:<{width}}  {cause.title}" for _, cause in sorted(CAUSES.items()))])
        return 0
    if options.code.lower() in CAUSES:
        print_lines(cause_story(options.code.lower()))
        return 0
    rule = RULES.get(options.code.upper())
    if rule is None:
        raise UsageError(f"There is no code {options.code[:40]!r}.", "`rltui explain` lists them all.")
    story = textwrap.wrap(" ".join(rule.story.split()), 80)
    print_lines([f"{rule.code} ({rule.severity}): {rule.title}", *(["", *story] if story else [])])
    return 0


def _code(rule: object) -> str:
    return str(getattr(rule, "code", ""))
