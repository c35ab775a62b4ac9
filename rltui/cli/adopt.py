"""``rltui adopt``: make a run of a job or process that rltui did not start."""

from __future__ import annotations

import argparse

import msgspec

from rltui.cli.output import add_json, add_only_cluster, print_json, talk
from rltui.cluster.profile import LOCAL
from rltui.cluster.profiles import load_profiles
from rltui.cluster.prompts import TerminalPrompter
from rltui.errors import UsageError
from rltui.service.adopt import adopt_job, adopt_process
from rltui.service.context import open_context


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", default="", metavar="JOBID", help="of Slurm; `rltui ps --jobs` lists them")
    parser.add_argument("--pid", type=int, metavar="P", help="a process of this machine, with all that it started")
    parser.add_argument("--name", default="", metavar="N", help="what the run is called (default: as the job is)")
    parser.add_argument("--dialect", default="", metavar="D", help="read its output as that of this training system")
    add_only_cluster(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Make a run of a job or process that rltui did not start, without touching it."""
    if bool(options.job) == (options.pid is not None):
        raise UsageError("Name one job, or one process with --pid.", "`rltui ps --jobs` lists the jobs.")
    cluster = options.cluster or (LOCAL if options.pid is not None else only_slurm())
    with open_context(cluster, TerminalPrompter()) as context:
        if options.pid is not None:
            made = adopt_process(context, options.pid, options.dialect, options.name)
        else:
            made = adopt_job(context, options.job, options.dialect, options.name)
        summary = context.find(made.run_id)
    if options.json:
        print_json({"schema": 1, **msgspec.to_builtins(made), "state": summary.state})
        return 0
    for note in made.notes:
        talk(f"  {note}")
    talk(f"{made.run_id} is {summary.state}. `rltui release-run {made.run_id}` forgets it; the job goes on.")
    talk(f"`rltui gpus {made.run_id} --sample 60` shows its GPUs and processes for an hour, and `why` where it hangs.")
    return 0


def only_slurm(*, is_here: bool = False) -> str:
    """The one Slurm cluster that there is, or with ``is_here`` the one whose profile needs no way to it.

    Raises:
        UsageError: There is none, or more than one.
    """
    profiles = load_profiles().by_name
    found = [name for name, profile in profiles.items() if profile.scheduler == "slurm"]
    if is_here:
        found = [name for name in found if not profiles[name].host] or found
    if len(found) == 1:
        return found[0]
    hint = f"Add --cluster C: {', '.join(found)}." if found else "`rltui setup` describes one."
    raise UsageError("Which cluster's job is it?" if found else "No profile is of a Slurm cluster.", hint)
