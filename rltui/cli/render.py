"""``rltui render``: print the Slurm job script that a launch would submit."""

from __future__ import annotations

import argparse
import sys

from rltui.check.reporters import as_text
from rltui.cli.output import add_json, print_json, talk
from rltui.runs.script_job import is_script
from rltui.service.render import render
from rltui.service.wishes import add_wishes, wishes_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("layout", metavar="PRESET|FILE|SCRIPT")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--cluster", default="", metavar="C", help="a cluster's profile (default: an empty one)")
    add_wishes(parser.add_argument_group("a script of another system", "Its #SBATCH lines hold otherwise."))
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the script on stdout and what the check finds on stderr."""
    if is_script(options.layout):
        return _of_script(options)
    rendered = render(options.layout, options.overrides, options.cluster)
    if options.json:
        print_json({"schema": 1, "cluster": rendered.cluster, "script": rendered.script, "ok": rendered.report.ok})
    else:
        sys.stdout.write(rendered.script)
    if rendered.report.findings:
        talk("\n".join(as_text(rendered.report)))
    return 0 if rendered.report.ok else 1


def _of_script(options: argparse.Namespace) -> int:
    """Print the job that wraps a script of another system, and what stands in its way."""
    from rltui.service.render import render_script  # a layout needs no importers

    name, text, prepared = render_script(options.layout, wishes_of(options, options.overrides), options.cluster)
    if options.json:
        print_json({"schema": 1, "cluster": name, "script": text, "ok": not prepared.problems})
    else:
        sys.stdout.write(text)
    for note in (*prepared.notes, *(f"error: {problem}" for problem in prepared.problems)):
        talk(f"  {note}")
    return 1 if prepared.problems else 0
