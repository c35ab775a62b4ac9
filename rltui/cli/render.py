"""``rltui render``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rltui.check.reporters import as_text
from rltui.cli.output import add_json, print_json, talk
from rltui.service.render import render

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("layout", metavar="PRESET|FILE")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--cluster", default="", metavar="C", help="a cluster's profile (default: an empty one)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the script on stdout and what the check finds on stderr."""
    rendered = render(options.layout, options.overrides, options.cluster)
    if options.json:
        print_json({"schema": 1, "cluster": rendered.cluster, "script": rendered.script, "ok": rendered.report.ok})
    else:
        sys.stdout.write(rendered.script)
    if rendered.report.findings:
        talk("\n".join(as_text(rendered.report)))
    return 0 if rendered.report.ok else 1
