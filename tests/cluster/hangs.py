"""Hangs of a real run on this machine: who holds it up is named within its deadline, and nobody in a healthy run."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from json_lines import records
from test_local_cluster import PYTHON, Shell

from rltui.diagnose.slow_rules import RULES
from rltui.onnode import processes, progress
from waiting import DEADLINE_S, eventually, slowness

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.trainers, pytest.mark.timeout(1800)]

TRIES = 4
"""A learner may be stopped where no collective waits for it, while answers are written; then again."""
SCALE = 0.1
"""A standstill is one after a minute here, and a word is worth it after 6 s; later on a machine that is slow now."""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    del shell.environment[PYTHON]  # what a role's own stack says is the point, and a forked one is another program's
    shell.environment[progress.SCALE] = str(SCALE * slowness())
    yield shell
    for uuid in shell.uuids():
        for process in processes.by_attempt(uuid):
            processes.send(process.pid, process.start_time, signal.SIGCONT)
        processes.end_all(uuid, grace_s=5.0)


class Hanging:
    """The run, its roles, and what is said of it."""

    def __init__(self, shell: Shell, run: str) -> None:
        self.shell, self.run = shell, run
        self.attempt = shell.runs / run / "attempts" / "01"

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in records((self.attempt / "events.jsonl").read_text()) if event["kind"] == kind]

    def pid(self, role: str) -> int:
        return next(int(one["pid"]) for one in self.events("roles")[-1]["roles"] if one["role"] == role)

    def causes(self) -> dict[str, str]:
        """What ``why`` says by cause."""
        return self.shell.causes(self.run)

    def accused(self) -> set[str]:
        """The causes named, without advice on speed: on few cores one kind of role does wait for the other."""
        return set(self.causes()) - {rule.cause for rule in RULES if rule.word != "straggler"}

    def stopped(self, role: str, look: Callable[[], object]) -> str:
        """Stop a role and ``look`` until ``why`` names it; what that says, after the run goes on again."""
        pid = self.pid(role)
        os.kill(pid, signal.SIGSTOP)
        early: str = eventually(lambda: self.causes().get("process_awaited"), "a word before the standstill")
        assert f"{role} (pid {pid} on " in early

        def said() -> str:
            look()
            return self.causes().get("process_awaited", "")

        summary: str = eventually(said, "a verdict")
        assert f"{role} (pid {pid} on " in summary
        step = self.shell.step()
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: self.shell.step() > step + 3, "more steps")
        return summary

    def answers(self) -> list[Path]:
        return list((self.attempt / "evidence").glob("*-*.json"))


def test_stopped_roles_are_named_and_healthy_ones_are_not(shell: Shell, tmp_path: Path) -> None:
    words = ("train.steps=100000", "checkpoint.every=0", "tracking.wandb=disabled")
    shell.run("launch", "local/grpo-tiny", *words)
    eventually(lambda: shell.step() > 5, "some steps")
    hanging = Hanging(shell, shell.only_run()["run_id"])
    early = hanging.events("evidence")
    # what a stage may take is scaled down too, to less than a start takes on a machine that is many times overloaded
    assert all(asked["text"].startswith("stage ") for asked in early), "nothing stood still while it came up"
    told = shell.json("bundle", hanging.run, "--output", str(tmp_path / "healthy.tar.gz"))
    assert (len(told["answered"]), told["silent"]) == (1, [])
    with tarfile.open(tmp_path / "healthy.tar.gz") as archive:
        stacks = next(one for one in archive if one.name.endswith("-stacks.txt"))
        stream = archive.extractfile(stacks)
        assert stream is not None
        stacks_text = stream.read()
        ranks = {name[-6] for name in archive.getnames() if "evidence/nccl_trace_" in name}
    assert ranks == {"0", "1"}, "torch's own records, of learners that do well too"
    assert b"ray::Learner" in stacks_text
    assert b"Ray: actor learner 0 is ALIVE on " in stacks_text
    assert not hanging.accused()

    evidence, patience_s = "the evidence of the standstill", DEADLINE_S * slowness()
    for _ in range(TRIES):
        learner = hanging.stopped(
            "learner 1", lambda: eventually(lambda: len(hanging.answers()) > 1 + len(early), evidence, patience_s)
        )
        assert "is stopped (state T" in learner
        assert not hanging.accused(), "it goes on, and what was seen is of the past"
        if "waits for it in all_" in learner:
            break
    assert f"learner 0 (pid {hanging.pid('learner 0')} on " in learner
    assert "waits for it in all_" in learner
    assert all(asked["text"].startswith("no new step for ") for asked in hanging.events("evidence")[len(early) :])

    by_hand = str(tmp_path / "engine.tar.gz")
    assert "is stopped (state T" in hanging.stopped(
        "engine 0", lambda: shell.run("bundle", hanging.run, "--output", by_hand)
    )
    shell.run("cancel", hanging.run, "--yes")
