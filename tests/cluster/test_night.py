"""Hands-off mode against random faults, in short: `make night` is the long form of it."""

from __future__ import annotations

import datetime
import json
import os
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from night import SCALE, Here, Night, There, spend
from night_faults import FOR_A_PERSON, FOR_A_PERSON_HERE, RECOVERABLE
from night_report import report

from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

pytestmark = [pytest.mark.slow]


def test_faults_on_this_machine_end_without_a_person_or_with_one_told(tmp_path: Path) -> None:
    night = Night(Here(tmp_path), seed=1)
    recoverable = [*RECOVERABLE, *RECOVERABLE[:2]]  # two of them come again, to a run that has recovered from them
    faults = [*recoverable, *FOR_A_PERSON_HERE]
    random.Random(7).shuffle(faults)
    spend(night, faults)
    print("\n".join(report(night.outcomes, night.wrong, FOR_A_PERSON)))
    assert night.wrong == []
    assert len(night.outcomes) == len(faults)
    assert sum(one.submitted_s is not None for one in night.outcomes) == len(recoverable)
    # whoever cancels knows it
    wanted = {"fixed": len(recoverable), "needs you": len(FOR_A_PERSON_HERE) - 1}
    eventually(lambda: len(night.place.told()) >= sum(wanted.values()), "all that is told", saw=night.place.told)
    assert dict(Counter(night.place.told())) == wanted
    slow = night.place.scale / SCALE
    assert max(one.submitted_s - one.verdict_s for one in night.outcomes if one.submitted_s is not None) < 120 * slow
    assert max(one.noticed_s for one in night.outcomes if one.fault != "trainer stopped") < 30 * slow, "a death"


def test_faults_on_slurm_end_without_a_person_or_with_one_told(slurm_cluster: Lab, tmp_path: Path) -> None:
    night = Night(There(tmp_path, slurm_cluster), seed=2)
    faults = ["trainer killed", "trainer stopped", "requeued by an admin", "time limit", "collective timed out"]
    faults += ["cancelled by an admin", "node crashed", "head lost", "module missing"]
    spend(night, faults)
    print("\n".join(report(night.outcomes, night.wrong, FOR_A_PERSON)))
    assert night.wrong == []
    assert reasons(night) == {"node-lost"}, "the node that crashed is remembered, and no other is blamed"
    alone = {one.fault for one in night.outcomes if one.submitted_s is not None}
    assert alone == {fault for fault in faults if fault not in FOR_A_PERSON}


def test_nodes_whose_slurmd_or_network_dies_cost_a_start_each_and_no_trainer_stays_on_them(
    four_nodes: Lab, tmp_path: Path
) -> None:
    night = Night(There(tmp_path, four_nodes), seed=4)
    night.start()
    try:
        for number, fault in enumerate(("slurmd dead", "node cut off")):
            night.round(fault)
            events = night.attempts[number] / "events.jsonl"
            eventually(lambda: "it was taken for dead" in events.read_text(), "the word of who was")  # noqa: B023
        night.stop()
    finally:
        night.kill()
    print("\n".join(report(night.outcomes, night.wrong, FOR_A_PERSON)))
    assert night.wrong == []
    assert reasons(night) == {"node-lost"}
    assert night.decisions() == [], "Slurm starts it again by itself"


def test_slurm_holds_back_what_is_to_start_after_quiet_hours_until_it_is_switched_off(
    slurm_cluster: Lab, tmp_path: Path
) -> None:
    night = Night(There(tmp_path, slurm_cluster), seed=3)
    night.start()
    now = datetime.datetime.now(tz=datetime.timezone.utc)  # the lab's hosts have no time zone
    hours = "-".join((now + datetime.timedelta(hours=by)).strftime("%H:%M") for by in (-1, 5))
    night.place.rltui("auto", night.run_id, f"quiet_hours={hours}")
    eventually(night.step, "a step")
    os.kill(night.trainer(), signal.SIGKILL)
    (decision,) = eventually(night.decisions, "the decision")
    assert 4 * 3600 < decision["hold_s"] <= 5 * 3600

    def queue() -> list[str]:
        return slurm_cluster.exec("login", ["squeue", "-h", "-u", "alice", "-o", "%T %r"]).stdout.split("\n")[:-1]

    eventually(lambda: queue() == ["PENDING BeginTime"], "the first job's end, and nothing but a job that waits")
    said = night.place.rltui("auto", night.run_id, "--off")
    assert eventually(lambda: not queue(), "the end of the job that waits"), said
    (row,) = json.loads(night.place.rltui("ps", "--cluster", "lab", "--json"))["runs"]
    assert (row["state"], row["attempt"]) == ("failed", 1), "what never ran is not how it ended"


def reasons(night: Night) -> set[str]:
    """What the cluster's memory of bad nodes holds."""
    lines = (night.run.parent / ".bad-nodes.jsonl").read_text().splitlines()
    return {json.loads(line)["reason"] for line in lines}
