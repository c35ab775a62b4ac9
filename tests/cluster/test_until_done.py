"""``--until-done``: the next job waits while one trains, goes on from its end, and goes when it is not needed.

A talker that said nothing of how many steps there are would need a next job after half of its time only, and Slurm
counts limits in minutes; tests/unit/test_queue_ahead.py has both.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from night import SCRIPT, Night, There
from talkers.talk import HURRY

import rltui.dialects
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PATTERN = r"  - pattern: '^(?P<steps>\d+) steps in all$'"


class UntilDone(There):
    """The lab, where runs are launched with ``--until-done``, say how many steps there are, and have a minute."""

    def __init__(self, folder: Path, lab: Lab, steps: int) -> None:
        super().__init__(folder, lab)
        self._auto = ("--until-done", "slurm.time=00:02:00")
        told = f"echo {steps} steps in all\nPYTHONPATH"
        script = re.sub(r"(total_training_steps=)\d+", rf"\g<1>{steps}", SCRIPT).replace("PYTHONPATH", told, 1)
        (folder / "night.sh").write_text(script)
        (folder / "config/dialects").mkdir()
        verl = Path(rltui.dialects.__file__).with_name("verl.yaml").read_text()
        (folder / "config/dialects/verl.yaml").write_text(verl.replace("progress:\n", f"progress:\n{PATTERN}\n"))

    def queue(self) -> list[str]:
        """State and reason of alice's jobs."""
        words = ["squeue", "-h", "-u", "alice", "-o", "%T %r"]
        return sorted(self.lab.exec("login", words).stdout.splitlines())

    def change_limit(self, night: Night, to: str) -> None:
        """Change the time limit of the first attempt's job; one that is over has none."""
        job = str(night.read("slurm.json", night.attempts[0])["job_id"])
        self.lab.exec("login", ["scontrol", "update", f"JobId={job}", to], user="root", check=False)

    def state(self) -> tuple[str, int]:
        """State of the one run, and the attempt that it is at."""
        (run,) = json.loads(self.rltui("ps", "--cluster", "lab", "--json"))["runs"]
        return str(run["state"]), int(run["attempt"])


def test_the_next_job_waits_while_one_trains_and_goes_on_from_its_end(slurm_cluster: Lab, tmp_path: Path) -> None:
    place = UntilDone(tmp_path, slurm_cluster, 1_000_000)
    night = Night(place, seed=1)
    night.start()
    eventually(lambda: len(night.attempts) == 2, "a second attempt")
    eventually(lambda: place.queue() == ["PENDING Dependency", "RUNNING None"], "its job behind it", saw=place.queue)
    seen = (place.state(), night.decisions())
    # the first has a minute: where this machine took longer to look, it is over
    assert seen == (("running", 1), []) or night.read("end.json", night.attempts[0])
    events = night.attempts[0] / "events.jsonl"
    eventually(lambda: "is queued behind this one" in events.read_text(), "word of it")

    eventually(lambda: night.saved() > 0, "a checkpoint")
    place.change_limit(night, "EndTime=now+60")  # of which Slurm warns within 30 s, when it looks
    first = eventually(lambda: night._first_step(night.attempts[1]), "a step of the second attempt")
    ended = night.read("end.json", night.attempts[0])
    assert ended["outcome"] == "time-limit"
    assert 1 < first[0] <= night.step(night.attempts[0]) + 1
    decision = night.decisions()[0]
    told = tuple(decision[key] for key in ("decision", "cause", "next_attempt"))
    assert told == ("restart", "slurm_time_limit", 2)

    eventually(lambda: len(night.attempts) == 3, "a third attempt")
    eventually(lambda: "PENDING Dependency" in place.queue(), "its job behind the second")
    night.plant("module missing")
    eventually(lambda: not place.queue(), "the end of all jobs")
    assert (place.state(), night.is_on()) == (("failed", 2), False)
    assert night.read("end.json")["unneeded"]
    assert len(night.attempts) == 3


def test_a_job_that_is_not_needed_goes_with_the_run_s_end(slurm_cluster: Lab, tmp_path: Path) -> None:
    place = UntilDone(tmp_path, slurm_cluster, 9000)  # as many as take three minutes
    night = Night(place, seed=2)
    night.start()
    eventually(lambda: len(night.attempts) == 2, "a second attempt")
    eventually(lambda: "PENDING Dependency" in place.queue(), "its job")
    place.change_limit(night, "TimeLimit=10")
    Path(place.folder(night.run_id), HURRY).touch()
    eventually(lambda: not place.queue(), "the end of all jobs", saw=place.queue)
    assert place.state() == ("finished", 1)
    assert night.read("end.json")["unneeded"]
    history = json.loads(place.rltui("history", night.run_id, "--cluster", "lab", "--json"))["history"]
    assert (history["attempts"][0]["number"], history["goodput"] > 0) == (1, True)
