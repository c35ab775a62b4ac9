"""``rltui render``: print the Slurm job script that a launch would submit."""

from __future__ import annotations

import argparse
import sys

from rltui.cli.output import add_json, print_json, talk
from rltui.runs.script_job import is_script
from rltui.service.render import render, render_script
from rltui.service.wishes import add_wishes, wishes_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("layout", metavar="PRESET|FILE|SCRIPT")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--cluster", default="", metavar="C", help="a cluster's profile (default: an empty one)")
    add_wishes(parser.add_argument_group("a script of another system", "Its #SBATCH lines hold otherwise."))
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the job script on stdout, and what a check finds or stands in its way on stderr."""
    if is_script(options.layout):
        rendered = render_script(options.layout, wishes_of(options, options.overrides), options.cluster)
    else:
        rendered = render(options.layout, options.overrides, options.cluster)
    if options.json:
        print_json({"schema": 1, "cluster": rendered.cluster, "script": rendered.script, "ok": rendered.ok})
    else:
        sys.stdout.write(rendered.script)
    for line in rendered.said:
        talk(line)
    return 0 if rendered.ok else 1
