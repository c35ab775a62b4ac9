"""``rltui shell``: a shell on a node of a run, inside its job."""

from __future__ import annotations

import argparse
import sys

from rltui.cli.output import add_run, print_lines
from rltui.cluster.local_transport import SSH_LOST
from rltui.errors import UsageError
from rltui.service.all_clusters import open_run
from rltui.service.node_shell import node_shell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--node", default="", metavar="N", help="one of its nodes (default: the first)")
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the command and do not run it")


def run(options: argparse.Namespace) -> int:
    """Open a shell where a run is: on Slurm a step inside its job, through ssh where that is elsewhere."""
    with open_run(options.cluster, options.run) as (context, summary):
        shell = node_shell(context, summary, options.node)
    if options.only_print:
        print_lines([shell.command])
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("A shell needs a terminal.", "--print prints the command.")
    code = shell.run()
    return 3 if code == SSH_LOST else code
