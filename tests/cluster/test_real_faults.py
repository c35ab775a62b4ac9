"""A real run on Slurm in hands-off mode under the faults of roles, cards and jobs: what is said of them, and when."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from workstation import FEW_ANSWERS, Workstation

from rltui.onnode.progress import SCALE
from rltui.onnode.rundir import CHECKPOINT_COMPLETE
from waiting import eventually, slowness

if TYPE_CHECKING:
    from lab import Lab

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1800)]
SETTINGS = (
    "train.steps=100000", "checkpoint.every=10", "tracking.wandb=disabled",
    "slurm.time=00:30:00", *FEW_ANSWERS,
)  # fmt: skip
BY = 0.1
"""A standstill is one after a minute instead of ten; later on a machine that is slow now."""
TELLING = ("error", "evidence", "restart", "warning", "end")
"""Kinds of events that say that something is wrong."""
DEATH_S, STANDSTILL_S = 30.0, 90.0
"""The first word on a death, and the verdict on a standstill, have to be there after these; later on a slow machine."""


class Faulty(Workstation):
    """A run in hands-off mode, and what its files say after a fault."""

    def __init__(self, lab: Lab, folder: Path, *words: str) -> None:
        self.slow = slowness()
        super().__init__(lab, folder, f'env: {{{SCALE}: "{BY * self.slow}"}}')
        self.rltui("launch", "local/grpo-tiny", *SETTINGS, *words, "--cluster", "lab", "--auto")
        self.run = str(self.only_run()["run_id"])

    def slurm(self, name: str) -> str:
        """Of the newest attempt's job."""
        (told,) = eventually(lambda: self.lines("slurm.json", self.attempt), "the job's own note")
        return str(told[name])

    def send(self, signal: str, role: str) -> None:
        """Send a signal to a role, whose pid is as its node counts."""
        (placed,) = [event["roles"] for event in self.lines("events.jsonl", self.attempt) if event["kind"] == "roles"]
        pid = next(str(one["pid"]) for one in placed if one["role"] == role)
        self.lab.exec(self.slurm("head"), ["kill", f"-{signal}", pid], user="root")

    def decisions(self, number: int) -> list[dict[str, Any]]:
        return [one for one in self.lines("../../hands-off.jsonl", 1) if one["attempt"] == number]

    def causes(self, *words: str) -> list[str]:
        return [one["id"] for one in self.says("why", self.run, *words)["diagnoses"]]

    def first_word(self, fault: str, inject: Callable[[], object], within_s: float) -> tuple[int, float]:
        """Do a fault once the attempt has steps to lose, and wait for the first word on it in its files.

        Returns:
            The attempt, and when it was done.
        """
        number = self.attempt
        eventually(lambda: len(self.lines("metrics.jsonl", number)) > 15, f"steps before: {fault}")
        at = time.time()
        inject()

        def told() -> list[float]:
            events = self.lines("events.jsonl", number)
            return [one["time"] - at for one in events if one["time"] > at and one["kind"] in TELLING]

        first_s = min(eventually(told, f"a word on: {fault}"))
        print(f"{fault}: the first word after {first_s:.1f} s", end="", flush=True)
        assert first_s < within_s * self.slow
        return number, at

    def goes_on(
        self, fault: str, inject: Callable[[], object], cause: Sequence[str], within_s: float = DEATH_S, starts: int = 1
    ) -> None:
        """See that an attempt goes on after a fault, from what was saved, by whose decision, and that it is one.

        Args:
            fault: Its name.
            inject: Does it.
            cause: On one of which hands-off mode decides.
            within_s: As the first word has to come.
            starts: With which attempt from then on it trains again.
        """
        number, at = self.first_word(fault, inject, within_s)
        first = eventually(lambda: self.lines("metrics.jsonl", number + starts), f"a step after: {fault}")[0]
        (end,), (decided,) = self.lines("end.json", number), self.decisions(number)
        verdict_s, step_s = decided["time"] - at, first["time"] - at
        print(f", the verdict after {verdict_s:.1f} s, a step after {step_s:.1f} s: {end['reason'][:60]}")
        assert "common causes" not in end["reason"], "Ray's list of guesses is the same for every death"
        assert decided["cause"] in cause, decided
        steps = self.lines("metrics.jsonl", number)
        until_end = max(line["step"] for line in steps if line["time"] <= end["at"])
        # a damaged checkpoint's steps are done again, and those while the next one was being written
        assert until_end - 60 < first["step"] <= steps[-1]["step"] + 1
        self.is_alone(number + starts)

    def stop_trainer(self) -> None:
        """Stop the trainer while nothing is being saved, so that no newer checkpoint can come."""

        def stands() -> bool:
            self.send_trainer("STOP")
            eventually(lambda: self.trainer("ps", "-o", "stat=").startswith("T"), "a trainer that stands")
            folders = self.home.glob("checkpoints/*step-*")
            if all((folder / CHECKPOINT_COMPLETE).exists() for folder in folders):
                return True
            self.send_trainer("CONT")
            return False

        eventually(stands, "a trainer that stands while nothing is being saved")

    def send_trainer(self, signal: str) -> None:
        self.trainer("kill", f"-{signal}")

    def trainer(self, *words: str) -> str:
        """What a command says whose last word is the trainer's pid on its node."""
        find = 'exec "$@" $(pgrep -u alice -f -- "-m trainers[.]grpo")'
        return self.lab.exec(self.slurm("head"), ["sh", "-c", find, "sh", *words], user="root").stdout

    def saved(self) -> list[Path]:
        """What says that a checkpoint is complete, of each, the newest last."""
        done = self.home.glob(f"checkpoints/step-*/{CHECKPOINT_COMPLETE}")
        return sorted(done, key=lambda path: int(path.parent.name[5:]))

    def is_alone(self, number: int) -> None:
        """Nothing is doubled, and nothing is left of the attempts before."""
        assert self.attempt == number
        # the job before may still be listed, as its node is being tidied up
        eventually(lambda: self.jobs() == [self.slurm("job_id")], "no other job", saw=self.jobs)

    def jobs(self) -> list[str]:
        return self.lab.exec("login", ["squeue", "-h", "-u", "alice", "-o", "%i"]).stdout.split()


def is_damaged(user: Faulty) -> None:
    """As a learner dies, the newest checkpoint is damaged: it is set aside, and the one before gone on from."""
    number, known = user.attempt, list[Path]()

    def damage() -> None:
        user.stop_trainer()
        known.extend(path.parent for path in user.saved()[-2:])
        os.truncate(known[-1] / "state.json", 9)
        user.send("KILL", "learner 1")
        user.send_trainer("CONT")

    eventually(lambda: len(user.saved()) > 1, "a checkpoint before the one that is damaged")
    user.goes_on("learner killed, checkpoint damaged", damage, ["role_died", "gloo_timeout"], starts=2)
    before, newest = known
    (decision,) = user.decisions(number + 1)
    told = (decision["decision"], decision["cause"], decision["set_aside"])
    assert told == ("restart", "ckpt_broken", newest.name)
    assert user.lines("metrics.jsonl", number + 2)[0]["step"] == int(before.name[5:]) + 1
    assert newest.with_name(f"{newest.name}-damaged").joinpath(CHECKPOINT_COMPLETE).is_file(), "nothing is deleted"


def test_a_real_run_goes_on_after_each_fault_of_its_roles_and_of_a_card(slurm_cluster: Lab, tmp_path: Path) -> None:
    user, lab = Faulty(slurm_cluster, tmp_path), slurm_cluster

    number, _ = user.first_word("engine killed", lambda: user.send("KILL", "engine 0"), DEATH_S)
    step = user.step()
    eventually(lambda: user.step() > step + 5, "steps with another engine in its place")
    assert user.attempt == number

    is_damaged(user)

    def lost() -> None:
        lab.gpus(user.slurm("head"), xid=79, lost=True, only=0)
        eventually(lambda: "Xid" in str(user.lines("events.jsonl", user.attempt)), "the driver's word")
        user.send("KILL", "learner 0")

    node = user.slurm("head")
    user.goes_on("GPU lost", lost, ["xid_79_fell_off_bus"])
    assert user.slurm("head") != node, "it keeps away from the card"
    remembered = (user.home.parent / ".bad-nodes.jsonl").read_text().splitlines()
    assert {json.loads(line)["reason"] for line in remembered} == {"gpu-lost"}
    number = user.attempt
    user.goes_on("learner stopped", lambda: user.send("STOP", "learner 1"), ["run_stalled"], STANDSTILL_S)
    said = user.says("why", user.run, "--attempt", str(number))["diagnoses"]
    assert "learner 1 (pid " in str(said), "who held up the others is told of the end, too"

    number = user.attempt
    lab.exec("login", ["scancel", user.slurm("job_id")], user="root")
    (decision,) = eventually(lambda: user.decisions(number), "the decision on a job that somebody else cancelled")
    assert decision["decision"] == "stop"
    assert set(user.causes()) <= {"cancelled_by_other"}, "accounting may not know yet who it was"
    eventually(lambda: not user.jobs(), "no job of the run")
    assert "run_stalled" in user.says("history", user.run)["history"]["lost_h"]
