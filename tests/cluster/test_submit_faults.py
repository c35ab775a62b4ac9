"""Submissions and cancellations with links that break at every byte: nothing twice, nothing lost."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from slurm_support import (
    SLEEPS,
    CutTransport,
    LabTransport,
    Link,
    context_on,
    fault_seeds,
    jobs_by_mark,
    small_layout,
)

from rltui.errors import RltuiError
from rltui.runs.directory import new_run_id
from rltui.runs.journal import LOOK_UP_FOR_S, Journal, Submission, fold_submissions
from rltui.service.actions import cancel
from rltui.service.one_fix import compose_fix
from rltui.service.recover import Recoverer
from rltui.service.resubmit import resubmit
from rltui.service.submit import submit_attempt
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

SUBMISSIONS, CANCELS, FIXES = 100, 50, 8
"""Trials of one seed."""
BATCH = 50
seeds = pytest.mark.parametrize("seed", fault_seeds())


def submissions(state: Path) -> list[Submission]:
    return list(fold_submissions(Journal(state).entries()).values())


def look_again(context: Context, later_s: float = 0.0) -> None:
    """What any rltui does at its start, ``later_s`` from now."""

    def clock() -> float:
        return time.time() + later_s

    context.cluster.slurm._clock = clock  # type: ignore[attr-defined]
    Recoverer(context.cluster, context.journal, clock).recover()


def until_answered(lab: Lab, own: int = 0) -> None:
    """Wait until nothing of what was asked over links that broke is under way on the login node any more.

    Tests that put the clock forward would otherwise look for the last of it before it can be there.

    Args:
        lab: The cluster.
        own: Relays that the test still has.
    """
    running = ["pgrep", "-u", "alice"]
    eventually(lambda: len(lab.exec("login", running, check=False).stdout.split()) <= own, "no question under way")


class Measured(Journal):
    """A journal that notes how many bytes had passed the link at each entry."""

    def __init__(self, state: Path, link: Link) -> None:
        super().__init__(state)
        self.link = link
        self.passed: dict[str, dict[str, int]] = {}

    def write(self, action: str, phase: str, **details: Any) -> None:
        self.passed[f"{action} {phase}"] = dict(self.link.passed)
        super().write(action, phase, **details)


def cut_points(lab: Lab, state: Path, count: int, chance: random.Random) -> list[tuple[str, int]]:
    """Where to cut: a third anywhere, the rest about the moment in which the scheduler is asked."""
    for _ in range(2):  # the first one also uploads the code
        link = Link()
        journal = Measured(state, link)
        context = context_on(CutTransport(LabTransport(lab), link), state, journal=journal)
        submit_attempt(context, new_run_id("measured"), 1, small_layout())
        context.close()
    points = []
    for trial in range(count):
        direction = chance.choice(["to", "from"])
        begin = 0 if trial % 3 == 0 else journal.passed["submit submitting"][direction]
        points.append((direction, chance.randrange(begin, link.passed[direction] + 1)))
    return points


@seeds
def test_a_link_cut_at_any_byte_of_a_submission_doubles_and_loses_nothing(
    slurm_cluster: Lab, tmp_path: Path, seed: int
) -> None:
    chance, layout = random.Random(7 + seed), small_layout()
    points = cut_points(slurm_cluster, tmp_path / "measured", SUBMISSIONS, chance)
    link = Link()
    raised = 0
    for first in range(0, SUBMISSIONS, BATCH):
        for direction, n_bytes in points[first : first + BATCH]:
            context = context_on(CutTransport(LabTransport(slurm_cluster), link), tmp_path / "state")
            link.cut_after(n_bytes, direction, mends_itself=chance.random() < 0.5)
            try:
                submit_attempt(context, new_run_id(f"cut-{link.cuts}"), 1, layout)
            except RltuiError:
                raised += 1
            context.close()
            link.mend()
        context = context_on(LabTransport(slurm_cluster), tmp_path / "state")
        look_again(context)
        context.close()
    until_answered(slurm_cluster)
    context = context_on(LabTransport(slurm_cluster), tmp_path / "state")
    look_again(context, LOOK_UP_FOR_S + 1)
    context.close()
    found, told = jobs_by_mark(slurm_cluster), submissions(tmp_path / "state")
    phases: dict[str, int] = {}
    for one in told:
        phases[one.phase] = phases.get(one.phase, 0) + 1
    print(f"{len(told)} submissions, {link.cuts} cuts, {raised} errors, {phases}, seed {seed}")
    assert link.cuts > SUBMISSIONS / 2
    doubled = {one.run: jobs for one in told if len(jobs := found.get(one.uuid[:8], [])) > 1}
    assert not doubled
    for one in told:
        jobs = found.get(one.uuid[:8], [])
        assert one.phase in ("done", "adopted", "failed", "absent"), one
        assert one.recorded, one
        assert ([one.job] if one.phase in ("done", "adopted") else []) == jobs, one


@seeds
def test_a_link_cut_at_any_byte_of_a_cancellation_ends_that_job_and_no_other(
    slurm_cluster: Lab, tmp_path: Path, seed: int
) -> None:
    chance, link = random.Random(11 + seed), Link()
    bystander = context_on(LabTransport(slurm_cluster), tmp_path / "state", SLEEPS)
    kept = submit_attempt(bystander, new_run_id("kept"), 1, small_layout())
    asked_again = 0
    for trial in range(CANCELS):
        # one half waits in the queue, the other runs
        layout = small_layout("slurm.options=['--hold']") if trial % 2 else small_layout()
        launched = submit_attempt(bystander, new_run_id(f"ended-{trial}"), 1, layout)
        run = bystander.find(launched.run_id)
        context = context_on(CutTransport(LabTransport(slurm_cluster), link), tmp_path / "state", SLEEPS)
        context.cluster.client.hello()
        link.cut_after(chance.randrange(3000), chance.choice(["to", "from"]), mends_itself=chance.random() < 0.5)
        try:
            cancel(context, run)
        except RltuiError:
            asked_again += 1
        link.mend()
        context.close()
    print(f"{CANCELS} cancellations, {link.cuts} cuts, {asked_again} unknown and asked again, seed {seed}")
    assert link.cuts > CANCELS / 4
    for run in bystander.runs().runs:
        if run.run_id != kept.run_id and run.is_live:
            cancel(bystander, run)
    states = slurm_cluster.exec("login", ["squeue", "--me", "-h", "-t", "all", "-o", "%A|%T"]).stdout.split()
    alive = {line for line in states if line.partition("|")[2] in ("PENDING", "RUNNING")}
    assert alive == {f"{kept.job_id}|RUNNING"}

    def others() -> list[RunSummary]:
        return [run for run in bystander.runs().runs if run.run_id != kept.run_id and run.is_live]

    eventually(lambda: not others(), "the end of all others in rltui's eyes")
    assert bystander.find(kept.run_id).state == "starting"
    bystander.close()


def fixed(context: Context, run: RunSummary, *words: str) -> None:
    """What `rltui fix RUN [key=value …] --yes` does."""
    fix = compose_fix(context, run, words)
    resubmit(context, run, fix.overrides, fix.exclude, cancel_first=True)


@seeds
def test_a_link_cut_at_any_byte_of_a_fix_is_gone_on_from(slurm_cluster: Lab, tmp_path: Path, seed: int) -> None:
    """Between the end of the old attempt and the new one nothing may be forgotten, and no job may be there twice."""
    chance, link, word = random.Random(13 + seed), Link(), "train.learning_rate=1e-7"
    state = tmp_path / "state"
    context = context_on(LabTransport(slurm_cluster), state, SLEEPS)
    held = small_layout("slurm.options=['--hold']")
    first = context.find(submit_attempt(context, new_run_id("measured"), 1, held).run_id)
    journal = Measured(state, link)
    measured = context_on(CutTransport(LabTransport(slurm_cluster), link), state, SLEEPS, journal)
    fixed(measured, first, word)
    measured.close()
    ended, whole, went_on, as_before = journal.passed["cancel done"], dict(link.passed), 0, 0
    for trial in range(FIXES):
        run = context.find(submit_attempt(context, new_run_id(f"fixed-{trial}"), 1, held).run_id)
        cut = context_on(CutTransport(LabTransport(slurm_cluster), link), state, SLEEPS)
        direction = chance.choice(["to", "from"])
        begin = ended[direction] if trial % 2 else whole[direction] // 3  # every other one once the old job has ended
        link.cut_after(chance.randrange(begin, whole[direction]), direction, mends_itself=chance.random() < 0.3)
        with contextlib.suppress(RltuiError):
            fixed(cut, run, word)
        cut.close()
        link.mend()
        until_answered(slurm_cluster, own=1)
        look_again(context, LOOK_UP_FOR_S + 1)
        seen = context.find(run.run_id)
        if seen.attempt == 1 and seen.is_live:
            as_before += 1
            fixed(context, seen, word)
        elif not seen.is_live:
            left = context.replacements.interrupted(seen)
            assert seen.attempt > 1 or (left is not None and left.overrides == (word,)), seen
            fixed(context, seen, *(() if left is not None else (word,)))
            went_on += 1
        newest = context.find(run.run_id)
        assert newest.attempt > 1
        layout = Path(slurm_cluster.folder, "home/alice/runs", run.run_id, f"attempts/{newest.attempt:02d}/layout.yaml")
        assert "learning_rate: 1.0e-07" in layout.read_text()
        alive = slurm_cluster.exec("login", ["squeue", "--me", "-h", "-t", "PD,R", "-o", "%j"]).stdout.splitlines()
        assert len([name for name in alive if run.run_id in name]) == 1, alive
    print(f"{FIXES} fixes, {link.cuts} cuts: {as_before} left as before, {went_on} gone on with, seed {seed}")
    assert went_on
    context.close()
