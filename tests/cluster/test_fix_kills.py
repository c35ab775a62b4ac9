"""``rltui fix`` killed at any moment of it: nothing is doubled or left, and the next ``rltui fix`` does the rest."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import seen_processes as seen
from night import Here, Night
from verbs import rltui

from waiting import eventually, slowness

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOST_S = 5.0
"""After these a supervisor that was started has written its number: this machine is slow, its disk is not far."""
KILLS = int(os.environ.get("FAULT_TRIALS", "8"))


class Fixed(Night):
    """A run that is fixed again and again, each time with a word of its own."""

    def fix(self, *words: str, kill_after_s: float | None = None) -> int:
        argv = [sys.executable, "-m", "rltui", "fix", self.run_id, *words, "--yes"]
        process = subprocess.Popen(
            argv, env=self.place.environment, cwd=self.place.home, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        if kill_after_s is not None:
            time.sleep(kill_after_s)  # the moment is what is drawn: nothing is waited for
            process.kill()
        return process.wait(120)

    def state(self) -> str:
        return str(json.loads(self.place.rltui("ps", "--json"))["runs"][0]["state"])

    def settled(self) -> str:
        """The state once nothing of the killed one is under way any more; ``unknown`` where its last word was lost.

        ``failed`` is one that was never handed over.
        """
        deadline = time.monotonic() + LOST_S * slowness()
        while (state := self.state()) not in ("running", "cancelled", "failed"):
            if state == "unknown" and time.monotonic() > deadline:
                return state
            assert time.monotonic() < deadline + 90, f"{state} is no state that stays"
        if state == "failed":
            return state
        if state == "running":  # what the killed one asked for may still be on its way there
            step = self.step()
            eventually(lambda: self.read("end.json") or self.step() > step + 1, "steps, or its end")
        if self.read("end.json") or self.state() == "cancelled":
            return eventually(lambda: self.state() == "cancelled" and "cancelled", "its end")
        return "running"

    def trainers(self) -> list[int]:
        found = [pid for attempt in self.attempts for pid in self.pids(attempt)]
        return [pid for pid in set(found) if seen.runs(pid, "main_ppo")]

    def words(self, attempt: Path) -> list[str]:
        return list(self.read("script.json", attempt)["words"])


def test_a_fix_killed_at_any_moment_is_finished_by_the_next_one(tmp_path: Path) -> None:
    night, chance = Fixed(Here(tmp_path, hands_off=False), seed=1), random.Random(5)
    night.start()
    eventually(lambda: night.saved() > 0, "a first checkpoint")
    began = time.monotonic()
    assert night.fix("talker.note=0") == 0
    length_s, finished, gone_on = time.monotonic() - began, 0, 0
    try:
        for number in range(1, 4 * KILLS):
            if number > KILLS and gone_on > 1:
                break
            before, word = night.attempt, f"talker.note={number}"
            eventually(lambda: night.step() > 1 or night.read("end.json"), "steps")
            assert not night.read("end.json"), (night.attempt / "out.log").read_text()[-2000:]
            code = night.fix(word, kill_after_s=chance.uniform(0.3, 1.0) * length_s)
            state = night.settled()
            if state in ("unknown", "failed") or (state == "cancelled" and night.attempt == before):
                said = json.loads(why(night))["unfinished"]
                assert word in said or (state != "cancelled" and f"attempt {int(night.attempt.name)}" in said)
                assert night.fix() == 0, "no word of it has to be given again"
                gone_on += 1
            finished += code == 0
            eventually(lambda: night.state() == "running" and len(night.trainers()) == 1, "one trainer")
            assert [int(path.name) for path in night.attempts] == list(range(1, len(night.attempts) + 1))
            assert (word in night.words(night.attempt)) == (night.attempt != before), "changed, or left alone"
        print(f"{number} kills within {length_s:.1f} s: {finished} came too late, {gone_on} fixes gone on with, seed 5")
        assert gone_on > 1
        night.place.rltui("cancel", night.run_id, "--yes")
        eventually(lambda: not night.trainers(), "the end")
    finally:
        for attempt in night.attempts:
            for pid in night.pids(attempt):
                os.kill(pid, signal.SIGKILL)


def why(night: Night) -> str:
    """What ``why --json`` prints; its exit code tells whether it knows a cause."""
    return rltui(("why", night.run_id, "--json"), night.place.home, night.place.environment).stdout
