"""Hangs of a real run: who holds it up is named within its deadline, and nobody while it does well."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from json_lines import records

from rltui.diagnose.slow_rules import RULES
from rltui.onnode import progress
from waiting import DEADLINE_S, eventually, slowness

if TYPE_CHECKING:
    from pathlib import Path

    from test_local_cluster import Shell

TRIES = 4
"""A learner may be stopped where no collective waits for it, while answers are written; then again."""
SCALE = 0.1
"""A standstill is one after a minute here, and a word is worth it after 6 s; later on a machine that is slow now."""


def scaled() -> dict[str, str]:
    """What a run to be stopped is launched with."""
    return {progress.SCALE: str(SCALE * slowness())}


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


def see_hangs(shell: Shell, run: str, folder: Path) -> None:
    """Stop a learner and the engine of a run that does well: each is named, and nobody while it is not stopped.

    Its deadlines are ``scaled``, and its roles are Pythons of their own: what a role's own stack says is the point, and
    a forked one is another program's.
    """
    hanging = Hanging(shell, run)
    early = hanging.events("evidence")
    # what a stage may take is scaled down too, to less than a start takes on a machine that is many times overloaded
    assert all(asked["text"].startswith("stage ") for asked in early), "nothing stood still while it came up"
    told = shell.json("bundle", hanging.run, "--output", str(folder / "healthy.tar.gz"))
    assert (len(told["answered"]), told["silent"]) == (1, [])
    with tarfile.open(folder / "healthy.tar.gz") as archive:
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
        before = len(hanging.answers())  # those of this standstill come on top of them

        def answered(before: int = before) -> None:
            eventually(lambda: len(hanging.answers()) > before, evidence, patience_s)

        learner = hanging.stopped("learner 1", answered)
        assert "is stopped (state T" in learner
        assert not hanging.accused(), "it goes on, and what was seen is of the past"
        if "waits for it in all_" in learner:
            break
    assert f"learner 0 (pid {hanging.pid('learner 0')} on " in learner, learner
    assert "waits for it in all_" in learner, learner
    assert all(asked["text"].startswith("no new step for ") for asked in hanging.events("evidence")[len(early) :])

    by_hand = str(folder / "engine.tar.gz")
    assert "is stopped (state T" in hanging.stopped(
        "engine 0", lambda: shell.run("bundle", hanging.run, "--output", by_hand)
    )
