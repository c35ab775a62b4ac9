"""``rltui ps``: list runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from rltui.cli import words
from rltui.cli.output import add_json, add_only_cluster, add_watch, columns, print_json, print_lines, talk
from rltui.cluster.slurm.ids import first_task
from rltui.service.all_clusters import open_clusters
from rltui.service.cockpit import OpenJob
from rltui.service.failures import with_failures
from rltui.service.run_columns import COLUMNS, GPUS, Fold, folded, read_columns
from rltui.service.run_filter import WORDS, picked
from rltui.watch.snapshots import RunSummary

UNSEEN_S = 60.0
"""How much longer a list without any run waits for a cluster: nothing else could be shown."""

LONGEST_TEXT = 100
"""Characters of the last column, also where no terminal cuts the line; ``--json`` and ``why`` have all of it."""
JOBS_HEADER = ("JOB", "CLUSTER", "STATE", "NODES", "PARTITION", "AGE", "NAME")
BESIDE = {"state": "STATE", "about": ""}
"""Columns that the cockpit always has and does not let choose → their heads."""
USUAL = ("state", "shape", "step", "reward", "tok/s", "age", "about")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="colleagues' runs too (team_run_roots of the profile)")
    parser.add_argument("--live", action="store_true", help="only runs that have not ended")
    parser.add_argument("--where", metavar="FILTER", help=f"those that fit, as behind / in the cockpit: {WORDS}")
    known = ", ".join((*BESIDE, *COLUMNS)).replace("%", "%%")
    parser.add_argument("--columns", metavar="A,B", help=f"these, in this order: {known}")
    parser.add_argument("--unfold", action="store_true", help="a line for each run of a sweep or an array of jobs, too")
    parser.add_argument("--jobs", action="store_true", help="Slurm jobs of yours that are no runs, to adopt")
    add_only_cluster(parser)
    add_json(parser)
    add_watch(parser)


def run(options: argparse.Namespace) -> int:
    """List the runs of all clusters, newest first; exits with 3 where the only cluster asked for is away."""
    if options.jobs:
        return _jobs(options)
    shown = read_columns(options.columns, tuple(BESIDE)) if options.columns is not None else ()
    with open_clusters(options.cluster) as clusters:
        clusters.want_gpus(GPUS in shown)
        snapshot = clusters.runs()
        if snapshot.unread and not snapshot.runs:
            talk(f"{snapshot.problem}; no run of it was ever seen from here, so waiting up to {UNSEEN_S:.0f} s more …")
            snapshot = clusters.runs(UNSEEN_S)
        runs = [run for run in snapshot.runs if options.all or not run.owner]
        runs = [run for run in runs if run.is_live or run.state == "unknown" or not options.live]
        runs = with_failures(clusters.with_numbers(runs), clusters.context)
    if options.where is not None:
        runs = picked(runs, options.where, time.time())
    if options.json:
        problems = {"problem": snapshot.problem, "scheduler_problem": snapshot.scheduler_problem}
        print_json({"schema": 1, "runs": runs, **problems})
    elif runs:
        _print(runs, shown, unfold=options.unfold)
    elif options.where is not None:
        talk("No run fits.")
    elif snapshot.unread:
        talk(f"No run can be shown: those of {', '.join(snapshot.unread)} have not been read.")
    elif snapshot.runs and not options.live:
        talk(f"No runs of yours; `rltui ps --all` shows {len(snapshot.runs)} of colleagues.")
    elif not snapshot.problem:
        talk("No runs yet. `rltui launch local/grpo-tiny` starts one, `rltui demo` shows it.")
    for problem in filter(None, (snapshot.problem, snapshot.scheduler_problem)):
        talk(f"rltui: {problem}")
    is_away = bool(snapshot.problem and options.cluster)
    return 3 if is_away or (snapshot.unread and not snapshot.runs) else 0


def _jobs(options: argparse.Namespace) -> int:
    """List jobs that are no runs; exits with 3 where no cluster could be asked."""
    from rltui.service.adopt import jobs_of  # reads scripts with all importers and checks: a list of runs needs none

    with open_clusters(options.cluster) as clusters:
        slurms = [name for name in clusters.names if clusters.profiles.by_name[name].scheduler == "slurm"]
        found, problems = jobs_of(clusters)
    if options.json:
        print_json({"schema": 1, "jobs": found, "problem": "; ".join(problems)})
    elif found:
        print_lines(columns(JOBS_HEADER, [_job_row(one) for one in found]))
        first = first_task(found[0].job.job_id)
        talk(f"`rltui adopt {first} --cluster {found[0].cluster}` makes a run of it, untouched.")
    elif not problems:
        talk("No jobs beside the runs." if slurms else "No profile is of a Slurm cluster; `rltui setup` describes one.")
    for problem in problems:
        talk(f"rltui: {problem}")
    return 3 if problems and len(problems) == len(slurms) else 0


def _job_row(one: OpenJob) -> tuple[str, ...]:
    job = one.job
    nodes = ",".join(job.nodes) or str(job.node_count)
    age = words.age(job.started_at or job.submitted_at)
    return (job.job_id, one.cluster, job.state, nodes, job.partition, age, shortened(job.name))


def _print(runs: Sequence[RunSummary], chosen: Sequence[str] = (), *, unfold: bool = False) -> None:
    several = any(run.owner or run.cluster != "local" for run in runs)
    shown = chosen or (*(("cluster",) if several else ()), *USUAL)
    header = ("RUN", *(BESIDE[word] if word in BESIDE else COLUMNS[word].title for word in shown))
    lines = list(runs) if unfold else folded(runs)
    rows = [_fold_row(one, shown) if isinstance(one, Fold) else _row(one, shown) for one in lines]
    right = frozenset(place for place, word in enumerate(shown, 1) if word in COLUMNS and COLUMNS[word].right)
    print_lines(columns(header, rows, right))
    if len(lines) < len(runs):
        talk("Runs of a sweep or an array of jobs are one line: --unfold shows each.")


def _row(run: RunSummary, shown: Sequence[str]) -> tuple[str, ...]:
    return (run.run_id, *(shortened(words.cell(word, run)) for word in shown))


def _fold_row(fold: Fold, shown: Sequence[str]) -> tuple[str, ...]:
    """What all have in common, and how many are in each state: in the last column, or behind the name without one."""
    same = {"cluster", "algo", "shape", "nodes"}
    cells = [words.cell(word, fold.runs[0]) if word in same else "" for word in shown]
    name = f"{fold.name} ×{len(fold.runs)}"
    if "about" not in shown:
        return (f"{name} ({fold.words})", *cells)
    cells[shown.index("about")] = f"({fold.words})"
    return (name, *cells)


def shortened(text: str) -> str:
    """``text`` in one line that can be read at a glance."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"
