"""``rltui launch``: check a layout and start a run of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from rltui.check.reporters import as_json, as_text
from rltui.cli.output import add_cluster, add_json, ask, print_json, print_lines, talk
from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.prompts import TerminalPrompter
from rltui.errors import UsageError
from rltui.runs.script_job import is_script
from rltui.service.allocations import job_around_us, refusal_in
from rltui.service.bad_nodes import offers
from rltui.service.context import Context, open_context
from rltui.service.launch import checked, launch, remembered
from rltui.service.login_facts import cluster_problems
from rltui.service.this_machine import here_instead_of_slurm
from rltui.service.wishes import Wishes, add_wishes, refuse_for_layout, wishes_of

if TYPE_CHECKING:
    from rltui.service.hands_off_rules import Policy
    from rltui.service.submit import Launched

MOST_JOBS = 50
"""Jobs of ``--until-done``: a stop for what nobody watches, far from what a run needs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("layout", nargs="?", default="", metavar="PRESET|FILE|SCRIPT")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    script = parser.add_argument_group(
        "a script of another system",
        "verl, TRL, slime, … or any program; run as it is, words behind -- are its arguments",
    )
    script.add_argument("--script", metavar="FILE", help="the script to run; a FILE that ends in .sh is one too")
    add_wishes(script)
    script.add_argument(
        "--dry-run",
        action="store_true",
        help="only show what would be run, and what the cluster says of it; exit 1 if that is no",
    )
    parser.add_argument("--wait", action="store_true", help="follow the run to its end; exit 1 if it fails")
    parser.add_argument("--auto", action="store_true", help="hands-off mode: go on by itself after faults (rltui auto)")
    parser.add_argument(
        "--until-done", action="store_true", help="hands-off mode, with the next Slurm job queued while one runs"
    )
    parser.add_argument("--max-jobs", type=int, metavar="N", help=f"of --until-done: jobs in all (default {MOST_JOBS})")
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="key=value,value", help="a run for each value; may be repeated"
    )
    parser.add_argument("--at-once", type=int, default=0, metavar="N", help="of --sweep: at most N at the same time")
    parser.add_argument("--chain", type=int, default=1, metavar="N", help="N Slurm jobs, each after the one before")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--here", action="store_true", help="run in the allocation that this shell is in (salloc)")
    where.add_argument("--jobid", default="", metavar="J", help="run in J, a running Slurm job of yours; it stays")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before running on a login node")
    add_unchecked(parser)
    add_cluster(parser)
    add_json(parser)


def add_unchecked(parser: argparse.ArgumentParser) -> None:
    """Declare ``--unchecked``, with which a launch does not ask the cluster beforehand."""
    parser.add_argument("--unchecked", action="store_true", help="submit whatever the cluster says of it beforehand")


def run(options: argparse.Namespace) -> int:
    """Launch; with ``--wait`` follow the run to its end."""
    _require_sense(options)
    source = options.script or options.layout
    if not source:
        raise UsageError("What is to be launched?", "`rltui layouts` lists presets; --script FILE runs a script.")
    wishes = _wishes(options)
    if wishes is None:
        refuse_for_layout(wishes_of(options, ()))
    if options.sweep:
        return _sweep(options, source, wishes)
    if wishes is not None:
        return _run_script(options, source, wishes)
    into = _allocation(options)
    with open_context(_cluster(options), TerminalPrompter()) as context:
        if options.dry_run:
            return _show(context, options, into)
        if not into:
            _require_place(context, options)
            consent(context.cluster.profile, options.layout, given=options.yes)
        launched = launch(
            context,
            options.layout,
            options.overrides,
            chain=options.chain,
            unchecked=options.unchecked,
            into=into,
            tell=lambda finding: talk(f"  {finding.severity} {finding.code}: {finding.message}"),
        )
        return _launched(context, launched, options)


def _show(context: Context, options: argparse.Namespace, into: str) -> int:
    """Show what a launch of the layout would be told; nothing is launched."""
    report, partition = checked(context, options.layout, options.overrides, unchecked=options.unchecked or bool(into))
    problems: list[str] = []
    if report.loaded is not None:
        layout, is_sound = report.loaded.layout, report.ok
        report = replace(report, findings=(*report.findings, *remembered(context, layout)))
        problems = refusal_in(context, into, layout) if into and is_sound else []
    can_launch = report.ok and not problems
    if options.json:
        print_json({**as_json([report]), "problems": problems, "partition": partition})
    else:
        print_lines(as_text(report))
        for problem in problems:
            talk(f"  error: {problem}")
        if can_launch:
            where = f"{context.name}, partition {partition}" if partition and not into else context.name
            talk(f"  would be launched on {where}; nothing was")
    return 0 if can_launch else 1


def _wishes(options: argparse.Namespace) -> Wishes | None:
    """What is said beside a script of another system; None where it is a layout, which says all of that itself."""
    if not options.script and not is_script(options.layout):
        return None
    return wishes_of(options, list(filter(None, (options.layout if options.script else "", *options.overrides))))


def _run_script(options: argparse.Namespace, source: str, wishes: Wishes) -> int:
    """Launch a script of another system, or show what that would be."""
    from rltui.service.scripts import in_freest_partition, launch_script, prepare

    into = _allocation(options)
    with open_context(_cluster(options), TerminalPrompter()) as context:
        prepared = prepare(source, wishes, context.cluster.profile)
        findings = (*prepared.findings, *offers(context.cluster, prepared.job))
        found = [f"{one.severity} {one.code} {one.key}: {one.message}" for one in findings]
        problems = list(prepared.problems)
        if options.dry_run and into:
            problems += refusal_in(context, into, prepared.job)
        elif options.dry_run and not options.unchecked:
            problems += cluster_problems(context, in_freest_partition(context, prepared.job), is_new=True)
        is_told = options.dry_run or wishes.anyway  # else it is what ends the launch
        for line in (*prepared.notes, *found, *(f"error: {problem}" for problem in problems if is_told)):
            talk(f"  {line}")
        if options.dry_run:
            if options.json:
                shown = {"problems": problems, "findings": findings, "notes": prepared.notes}
                print_json({"schema": 1, "script": prepared.job, **shown})
            return 1 if problems else 0
        _require_place(context, options)
        consent(context.cluster.profile, source, given=options.yes)
        launched = launch_script(context, prepared, anyway=wishes.anyway, unchecked=options.unchecked, into=into)
        return _launched(context, launched, options)


def _sweep(options: argparse.Namespace, source: str, wishes: Wishes | None) -> int:
    """Launch a run for each combination of the swept values."""
    from rltui.service.sweep import planned, submit_sweep
    from rltui.service.sweep_points import Sweep, points_of

    sweep = Sweep(tuple(options.sweep), options.at_once)
    points = points_of(sweep.words)
    with open_context(options.cluster, TerminalPrompter()) as context:
        launches = planned(context, source, options.overrides, wishes, sweep, unchecked=options.unchecked)
        for point in points:
            talk(f"  {' '.join(point.settings)}")
        talk(f"  {len(points)} runs of {source} on {context.name}{sweep.limit_in_words}")
        if options.dry_run:
            return 0
        _require_place(context, options)
        consent(context.cluster.profile, source, given=options.yes)
        if not options.yes:
            ask(f"Launch {len(points)} runs?")
        made = submit_sweep(launches, options.at_once, lambda one: None if options.json else print(one.run_id))
        if options.json:
            print_json({"schema": 1, "runs": made})
    return 0


def _launched(context: Context, launched: Launched, options: argparse.Namespace) -> int:
    where = f"{launched.cluster}, partition {launched.partition}" if launched.partition else launched.cluster
    if launched.nodes:
        where += f", in job {launched.job_id} on {', '.join(launched.nodes)}"
    talk(f"launched {launched.run_id} on {where}  (rltui attach {launched.run_id})")
    if (policy := _policy(options)) is not None:
        from rltui.service.hands_off_switch import switch_on

        talk(switch_on(context, context.find(launched.run_id), policy))
    if not options.wait:
        print_json({"schema": 1, **msgspec.to_builtins(launched)}) if options.json else print(launched.run_id)
        return 0
    from rltui.cli.follow import follow

    return follow(context, launched.run_id, options.json)


def _allocation(options: argparse.Namespace) -> str:
    """Id of the job that is to be run in; empty: one is submitted."""
    return job_around_us() if options.here else str(options.jobid)


def _cluster(options: argparse.Namespace) -> str:
    """Which cluster is meant: an allocation is on one that has Slurm."""
    if not (options.here or options.jobid) or options.cluster != LOCAL:
        return str(options.cluster)
    from rltui.cli.adopt import only_slurm

    return only_slurm(is_here=options.here)


def _policy(options: argparse.Namespace) -> Policy | None:
    """How the run goes on by itself; None: not at all."""
    from rltui.service.hands_off_rules import Policy

    if options.until_done:
        return Policy(queue_ahead=True, max_restarts=(options.max_jobs or MOST_JOBS) - 1)
    return Policy() if options.auto else None


def _require_place(context: Context, options: argparse.Namespace) -> None:
    """Refuse what ``switch_on`` would refuse before there is a run."""
    if (policy := _policy(options)) is not None:
        from rltui.service.hands_off_switch import require_sound

        require_sound(context, policy)


def _require_sense(options: argparse.Namespace) -> None:
    """Refuse words that do not go together.

    Raises:
        UsageError: They do not.
    """
    if options.until_done and options.chain > 1:
        raise UsageError(
            "--until-done submits each job as it is needed, --chain all of them at once.", "Give one of them."
        )
    together = options.chain > 1 or options.until_done or options.auto or options.wait
    if options.sweep and together:
        raise UsageError("--sweep goes without --chain, --until-done, --auto and --wait.", "Launch these one by one.")
    if (options.here or options.jobid) and (options.sweep or options.chain > 1 or options.until_done or options.auto):
        raise UsageError(
            "A run in an allocation goes without --sweep, --chain, --until-done and --auto: it ends with that.",
            "Launch them one by one, or without --here and --jobid.",
        )
    if options.at_once < 0 or (options.at_once and not options.sweep):
        raise UsageError("--at-once is how many runs of a --sweep may run at the same time, at least 1.")
    if options.max_jobs is not None and (not options.until_done or options.max_jobs < 1):
        raise UsageError("--max-jobs is how many jobs --until-done may submit, at least 1.")


def consent(profile: Profile, what: str, *, given: bool) -> None:
    """Ask before ``what`` runs on a login node, unless consent is ``given``.

    Raises:
        UsageError: Nobody is there to ask, or the answer is no.
    """
    said = () if given else here_instead_of_slurm(profile)
    for line in said:
        talk(f"  {line}")
    if said:
        ask(f"Run {what} on this machine?")
