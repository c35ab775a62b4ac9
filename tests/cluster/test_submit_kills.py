"""rltui killed at any moment, and two of them at once: every state is one that the next rltui can go on from."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from slurm_support import SLEEPS, LabTransport, context_on, fault_seeds, jobs_by_mark, small_layout
from test_submit_faults import until_answered

from rltui.onnode import rundir
from rltui.runs.claims import write_end
from rltui.runs.directory import ClaimedError, new_run_id
from rltui.runs.journal import LOOK_UP_FOR_S, Journal, fold_submissions
from rltui.service.recover import Recoverer
from rltui.service.resubmit import resubmit
from rltui.service.submit import submit_attempt
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

KILLS, RACES = 100, 20
"""Trials of one seed."""
seeds = pytest.mark.parametrize("seed", fault_seeds())
STEPS = 48
"""Questions and entries of a submission, counted before and after."""
ATTEMPT_FILES = {rundir.LAYOUT, rundir.JOB, rundir.SCRIPT}


class Zygote:
    """Starts rltui that act, at the cost of a fork."""

    def __init__(self, lab: Lab, state: Path) -> None:
        argv = [sys.executable, str(Path(__file__).with_name("submit_zygote.py")), str(lab.folder), str(state)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def act(self, do: str, run: str, *, step: int = 0, kill_after_s: float | None = None) -> int:
        """Let one act and kill it at a step or after a time; returns its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "run": run, "step": step}) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        if kill_after_s is not None:
            time.sleep(kill_after_s)  # the moment is what is drawn: nothing is waited for
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def look_after(context: Context) -> None:
    """What the next rltui does, a minute later."""

    def clock() -> float:
        return time.time() + LOOK_UP_FOR_S + 1

    context.cluster.slurm._clock = clock  # type: ignore[attr-defined]
    Recoverer(context.cluster, context.journal, clock).recover()


@seeds
def test_rltui_killed_at_any_moment_leaves_nothing_that_the_next_one_cannot_settle(
    slurm_cluster: Lab, tmp_path: Path, seed: int
) -> None:
    chance, state = random.Random(3 + seed), tmp_path / "state"
    zygote = Zygote(slurm_cluster, state)
    assert zygote.act("submit", new_run_id("whole")) == 0  # this one uploads the code
    began = time.monotonic()
    assert zygote.act("submit", new_run_id("whole")) == 0
    length_s = time.monotonic() - began
    context = context_on(LabTransport(slurm_cluster), state, SLEEPS)
    codes: Counter[int] = Counter()
    run = ""
    for trial in range(KILLS):
        do = ("submit", "cancel", "resubmit", "replace")[trial % 4]
        run = new_run_id(f"killed-{trial}") if do == "submit" else run
        if chance.random() < 0.2:
            codes[zygote.act(do, run, kill_after_s=chance.uniform(0, length_s))] += 1
        else:
            codes[zygote.act(do, run, step=chance.randrange(1, STEPS))] += 1
    zygote.close()
    until_answered(slurm_cluster)
    look_after(context)
    entries = Journal(state).entries()
    assert len(entries) == len([line for line in Journal(state).path.read_bytes().split(b"\n") if line])
    told = fold_submissions(entries)
    phases = Counter(one.phase for one in told.values())
    print(f"{KILLS} kills, exit codes {dict(codes)}, submissions {dict(phases)}, seed {seed}")
    assert codes[-signal.SIGKILL] > KILLS / 3, codes
    assert set(phases) <= {"done", "adopted", "failed", "absent", "superseded"}
    found = jobs_by_mark(slurm_cluster)
    for one in told.values():
        jobs = found.get(one.uuid[:8], [])
        assert jobs == ([one.job] if one.phase in ("done", "adopted") else []), one
    root = Path(slurm_cluster.folder, "home", "alice", "runs")
    for attempt in root.glob("*/attempts/*"):
        assert {path.name for path in attempt.iterdir()} >= ATTEMPT_FILES, attempt
        assert json.loads((attempt / rundir.JOB).read_text())["uuid"] in told
    for seen in context.runs().runs:
        assert seen.attempt
        assert seen.state in ("queued", "cancelled", "failed", "unknown"), seen
    context.close()


def ended_run(context: Context) -> RunSummary:
    """A run whose first attempt is over."""
    launched = submit_attempt(context, new_run_id("raced"), 1, small_layout())
    run = context.find(launched.run_id)
    write_end(context.cluster.client, f"{run.path}/attempts/01", "failed", "for the race")
    # what a list shows may be a moment old
    return eventually(lambda: None if (run := context.find(launched.run_id)).is_live else run, "the run's end")


@seeds
def test_of_two_that_resubmit_the_same_attempt_one_wins_and_the_other_is_told(
    slurm_cluster: Lab, tmp_path: Path, seed: int
) -> None:
    """Two login nodes: one run root, a journal each."""
    contexts = [context_on(LabTransport(slurm_cluster), tmp_path / name) for name in ("one", "two")]
    run = ended_run(contexts[0])
    refused: list[ClaimedError] = []
    with ThreadPoolExecutor(2) as pool:
        for race in range(RACES):
            run = run_as_failed(run, race)

            def go(context: Context, seen: RunSummary = run) -> int:
                try:
                    return resubmit(context, seen).attempt
                except ClaimedError as error:
                    refused.append(error)
                    return 0

            won = sorted(pool.map(go, contexts))
            assert won == [0, race + 2]
    assert len(refused) == RACES
    print(f"{RACES} races, one won each, seed {seed}")
    assert "another rltui" in refused[0].message
    submitted = {
        one.uuid[:8] for context in contexts for one in fold_submissions(context.journal.entries()).values() if one.job
    }
    found = jobs_by_mark(slurm_cluster)
    assert sorted(len(found[mark]) for mark in submitted) == [1] * (RACES + 1)
    for context in contexts:
        context.close()


def run_as_failed(run: RunSummary, race: int) -> RunSummary:
    """The run as both see it before the race: its newest attempt has failed."""
    from msgspec import structs

    return structs.replace(run, attempt=race + 1, last_attempt=race + 1)
