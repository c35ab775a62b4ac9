"""``rltui explain``: tell the story behind a finding's code."""

from __future__ import annotations

import argparse
import textwrap

from rltui.check.catalog import RULES
from rltui.check.handbook import markdown
from rltui.check.rule import Rule
from rltui.cli.output import add_json, answer, print_lines
from rltui.diagnose.index import CAUSES
from rltui.diagnose.report import story as cause_story
from rltui.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", nargs="?", help="such as P101 or nccl_timeout; without it, all are listed")
    parser.add_argument("--markdown", action="store_true", help="print all stories of checks as one page")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the story of a finding's code or of a diagnosis, or the list of both."""
    if options.markdown:
        print_lines(markdown())
    elif not options.code:
        _list(options)
    elif options.code.lower() in CAUSES:
        _cause(options.code.lower(), options)
    elif options.code.upper() in RULES:
        _rule(RULES[options.code.upper()], options)
    else:
        raise UsageError(f"There is no code {options.code[:40]!r}.", "`rltui explain` lists them all.")
    return 0


def _list(options: argparse.Namespace) -> None:
    rules = sorted(RULES.values(), key=lambda rule: rule.code)
    causes = [cause for _, cause in sorted(CAUSES.items())]
    width = max(map(len, CAUSES))
    lines = [f"{rule.code}  {rule.severity:<7}  {rule.title}" for rule in rules]
    told = [{"code": rule.code, "severity": rule.severity, "title": rule.title} for rule in rules]
    answer(
        options,
        {"rules": told, "causes": [{"id": one.id, "title": one.title} for one in causes]},
        [*lines, "", *(f"{cause.id:<{width}}  {cause.title}" for cause in causes)],
    )


def _cause(name: str, options: argparse.Namespace) -> None:
    lines = cause_story(name)
    answer(options, {"id": name, "title": CAUSES[name].title, "story": "\n".join(lines)}, lines)


def _rule(rule: Rule, options: argparse.Namespace) -> None:
    story = " ".join(rule.story.split())
    wrapped = textwrap.wrap(story, 80)
    told = {"code": rule.code, "severity": rule.severity, "title": rule.title, "story": story}
    answer(options, told, [f"{rule.code} ({rule.severity}): {rule.title}", *(["", *wrapped] if wrapped else [])])
