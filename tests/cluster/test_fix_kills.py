"""``rltui fix`` killed at any moment of it: nothing is doubled or left, and the next ``rltui fix`` does the rest."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import seen_processes as seen
from json_lines import records
from night import Here, Night
from verbs import rltui

from rltui.cluster.relay_program import BOOTSTRAP
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

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

    def settled(self, before: Path) -> str:
        """The state once nothing of the killed one is under way: ``unknown`` and ``failed`` were never handed over.

        What tells it are records, not how the run goes on: a word that was sent is heeded when the machine has time.
        """
        eventually(lambda: not self.under_way(), "the end of what the killed one had started", saw=self.under_way)
        about = {"action": "cancel", "attempt": int(before.name)}
        asked = [one["phase"] for one in self.journal() if about.items() <= one.items()]
        if asked and asked[-1] == "intent":  # sent or not: asked again, it is
            rltui(("cancel", self.run_id, "--yes"), self.place.home, self.place.environment)
        if asked:
            eventually(lambda: self.read("end.json", before), "the end of what was cancelled", saw=self.seen)
        return eventually(self.lasting_state, "a state that stays", saw=self.seen)

    def lasting_state(self) -> str:
        state = self.state()
        return state if state in ("running", "cancelled", "failed", "unknown") else ""

    def under_way(self) -> list[list[str]]:
        """Commands of rltui that act on the run, or are starting it: relays, and supervisors without an identity."""
        known = {self.read("supervisor.json", attempt).get("pid") for attempt in self.attempts}
        mine = f"RLTUI_STATE_DIR={self.place.environment['RLTUI_STATE_DIR']}"
        commands = {pid: seen.words(pid, "cmdline") for pid in seen.all_pids() if mine in seen.words(pid, "environ")}
        starting = [words for pid, words in commands.items() if "rltui.onnode.supervise" in words and pid not in known]
        return starting + [words for words in commands.values() if BOOTSTRAP in words]

    def journal(self) -> list[dict[str, Any]]:
        return records((self.place.home / "state/journal.jsonl").read_text())

    def seen(self) -> str:
        """For a failure: what there is."""
        ends = [self.read("end.json", attempt) for attempt in self.attempts]
        return f"{self.state()}, trainers {self.trainers()}, ends {ends}, journal {self.journal()[-8:]}"

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
            state = night.settled(before)
            if state != "running":
                said = json.loads(why(night))["unfinished"]
                assert word in said or (state != "cancelled" and f"attempt {int(night.attempt.name)}" in said)
                assert night.fix() == 0, "no word of it has to be given again"
                gone_on += 1
            finished += code == 0
            eventually(lambda: night.state() == "running" and len(night.trainers()) == 1, "one trainer", saw=night.seen)
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
