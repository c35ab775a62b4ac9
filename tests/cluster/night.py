"""A night that nobody watches: runs in hands-off mode, random faults, and what became of them.

``make night`` (nights.py) runs as many as its time allows; tests/cluster/test_night.py is the short form.
The trainer is a talker (a small program that speaks as verl does), so that an attempt takes seconds, and the deadlines
are scaled to them; rltui, the job scripts, the driver, the guard and Slurm are the real ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import seen_processes as seen
from json_lines import records
from night_faults import BY_SLURM, FOR_A_PERSON, LAST_WORDS, TRACKER
from night_report import Outcome
from slurm_support import profile_file, take_node
from verbs import rltui

from rltui.onnode import rundir
from waiting import eventually, slowness

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]
TALKERS = Path(__file__).parent / "talkers"
SCALE = 0.01
"""Of all deadlines, where the machine keeps up: a standstill of ten minutes becomes six seconds."""
STEP_S = 0.02
SEEN_LATE = 60
"""Steps between two looks at what the talker prints: a node that dies takes the last ones along."""
SCRIPT = f"""#!/bin/bash
#SBATCH --time=01:00:00
PYTHONPATH={TALKERS} {sys.executable} -m verl.trainer.main_ppo trainer.default_local_dir=$PWD/checkpoints \\
    trainer.resume_mode=disable trainer.total_training_steps=1000000 trainer.nnodes=1 trainer.n_gpus_per_node=1 \\
    talker.step_s={STEP_S} "$@"
"""


class Place(Protocol):
    """Where runs are launched, and how faults get there."""

    faults: tuple[str, ...]
    """Besides those that every place knows."""

    def rltui(self, *words: str) -> str:
        """Run a verb that has to succeed."""

    def run_path(self, run_id: str) -> Path:
        """The run's directory, as this machine sees it."""

    def folder(self, run_id: str) -> Path:
        """Where the script of the run works."""

    def inject(self, fault: str, night: Night) -> None:
        """Do one of ``faults``."""


class Here:
    """This machine's own cluster.

    Args:
        folder: For all that belongs to it.
        hands_off: Whether its runs go on by themselves.
        scale: Of all deadlines; None: ``SCALE``, and more on a machine that is slow now.
    """

    faults: tuple[str, ...] = ()

    def __init__(self, folder: Path, *, hands_off: bool = True, scale: float | None = None) -> None:
        self.home, self._auto = folder, ("--auto",) * hands_off
        self.scale = scale or SCALE * slowness()
        own = {"RLTUI_RUN_ROOT": "runs", "RLTUI_STATE_DIR": "state", "RLTUI_CONFIG_DIR": "config"}
        self.environment = {
            **os.environ,
            **{name: str(folder / value) for name, value in own.items()},
            "PYTHONPATH": str(ROOT),
            "RLTUI_DEADLINE_SCALE": str(self.scale),
            # nights side by side would otherwise wait for each other's slots
            "RLTUI_QUEUE": str(folder),
        }
        (folder / "night.sh").write_text(SCRIPT)
        (folder / "config").mkdir()
        (folder / "pager").write_text(f'#!/bin/sh\necho "$RLTUI_NOTIFY_KIND" >>{folder}/told\n')
        (folder / "pager").chmod(0o755)
        notify = f"{{command: [{folder}/pager], events: [fixed, needs you]}}"
        (folder / "config/clusters.yaml").write_text(f"local:\n  notify: {notify}\n")

    def told(self) -> list[str]:
        """What was told so far, by kind."""
        try:
            return (self.home / "told").read_text().splitlines()
        except OSError:
            return []

    def rltui(self, *words: str) -> str:
        done = rltui(words, self.home, self.environment, codes=(0,))  # in a session of its own: ctrl+c is for the night
        return done.stdout

    def launch(self) -> str:
        return self.rltui("launch", "--script", "night.sh", "--gpus-per-node", "0", *self._auto).split()[-1]

    def run_path(self, run_id: str) -> Path:
        return self.home / "runs" / run_id

    def folder(self, run_id: str) -> Path:
        return self.home

    def inject(self, fault: str, night: Night) -> None:
        raise AssertionError(fault)


class There(Here):
    """The lab's Slurm, over SSH."""

    faults = BY_SLURM

    def __init__(self, folder: Path, lab: Lab) -> None:
        super().__init__(folder)
        self.lab = lab
        scaled = f'env: {{RLTUI_DEADLINE_SCALE: "{self.scale}"}}'
        (folder / "config/clusters.yaml").write_text(profile_file(sys.executable, scaled))
        self.environment |= {"RLTUI_SSH_CONFIG": str(lab.ssh_settings().config)}
        self._alice = Path(lab.folder, "home", "alice")

    def launch(self) -> str:
        folder = self.lab.exec("login", ["pwd"]).stdout.strip()
        words = ("--nodes", "1", "--gpus-per-node", "1", "--folder", folder, "--cluster", "lab", *self._auto)
        words += ("slurm.partition=low",)  # others may take its nodes
        return self.rltui("launch", "--script", "night.sh", *words).split()[-1]

    def run_path(self, run_id: str) -> Path:
        return self._alice / "runs" / run_id

    def folder(self, run_id: str) -> Path:
        return self._alice

    def inject(self, fault: str, night: Night) -> None:
        """What only a cluster can do: an admin's word, or a node that is gone."""
        record = night.read("slurm.json")
        job = str(record["job_id"])
        if fault == "requeued by an admin":
            self.lab.exec("login", ["scontrol", "requeue", job], user="root")
        elif fault in ("preempted", "preempted for good"):
            if fault == "preempted for good":
                self.lab.exec("login", ["scontrol", "update", f"JobId={job}", "Requeue=0"])
            take_node(self.lab, record["head"])
        elif fault == "time limit":
            self.lab.exec("login", ["scontrol", "update", f"JobId={job}", "TimeLimit=1"])
            # Slurm's own warning comes within half a minute, as in test_until_done.py
            self.lab.exec("login", ["scancel", "--batch", "--signal=USR2", job])
        elif fault == "cancelled by an admin":
            self.lab.exec("login", ["scancel", job], user="root")
        elif fault == "node crashed":
            self.lab.crash(record["head"])
        elif fault == "slurmd dead":
            self.lab.service(record["head"], "slurmd", "stop")
        elif fault == "node cut off":
            self.lab.cut(record["head"])
        elif fault == "GPU lost":
            self.lab.gpus(record["head"], xid=79, lost=True, only=0)
            eventually(lambda: "Xid" in (night.attempt / "events.jsonl").read_text(), "the driver's word")
            night.plant("CUDA gave up")
        else:
            super().inject(fault, night)


@dataclass
class Night:
    """One run under fire."""

    place: Any
    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """A line each, which begins with one of ``night_report.WRONG``."""
    run_id: str = ""
    run: Path = Path()

    def start(self) -> None:
        self.random = random.Random(self.seed)
        self.run_id = self.place.launch()
        self.run = self.place.run_path(self.run_id)

    # what the files say

    @property
    def attempts(self) -> list[Path]:
        return sorted((self.run / "attempts").glob("[0-9]*"))

    @property
    def attempt(self) -> Path:
        return self.attempts[-1]

    def read(self, name: str, attempt: Path | None = None) -> dict[str, Any]:
        try:
            return dict(json.loads(((attempt or self.attempt) / name).read_text()))
        except (OSError, ValueError):
            return {}

    def step(self, attempt: Path | None = None) -> int:
        return int(self.read("stage.json", attempt).get("step") or 0)

    def saved(self) -> int:
        try:
            return int((self.place.folder(self.run_id) / TRACKER).read_text())
        except (OSError, ValueError):
            return 0

    def decisions(self) -> list[dict[str, Any]]:
        try:
            return records((self.run / "hands-off.jsonl").read_text())
        except OSError:
            return []

    def is_on(self) -> bool:
        return bool(json.loads((self.run / "hands-off.json").read_text())["on"])

    def pids(self, attempt: Path | None = None) -> list[int]:
        """Processes with an attempt's mark, whoever's they are: the lab's are alice's, and seen from outside."""
        mark = f"{rundir.ATTEMPT_VARIABLE}={self.read('job.json', attempt)['uuid']}"
        return [pid for pid in seen.all_pids() if mark in seen.words(pid, "environ") and not seen.is_zombie(pid)]

    def trainer(self) -> int:
        return int(eventually(lambda: next((p for p in self.pids() if seen.runs(p, "main_ppo")), None), "the trainer"))

    # one fault

    def round(self, fault: str) -> None:
        """Let the run make progress, do ``fault``, and see that what follows is right."""
        before, first = self.attempt, self.step()
        eventually(lambda: self.saved() > first and self.step() > first + 6, f"progress before {fault!r}")
        decided, at, step = len(self.decisions()), time.time(), self.step()
        self._inject(fault)
        if fault in BY_SLURM:
            fresh = eventually(lambda: self.attempt if self.attempt != before else None, f"{fault!r}: Slurm")
            began = eventually(lambda: self._first_step(fresh), f"a step after {fault!r}")
            self.outcomes.append(Outcome(fault, 0.0, (fresh / "job.json").stat().st_mtime - at, began[1] - at))
            self._check(before, fresh, fault)
            return
        decision = eventually(lambda: self.decisions()[decided:], f"a decision after {fault!r}")[0]
        wanted = "stop" if fault in FOR_A_PERSON else "restart"
        if decision["decision"] != wanted:
            self.wrong.append(f"decided: {fault}: {decision['decision']}, not {wanted}: {decision['why']}")
        outcome = Outcome(fault, decision["time"] - at, None)
        outcome.noticed_s = self.read("end.json", before)["at"] - at
        self.outcomes.append(outcome)
        if decision["decision"] == "stop":
            eventually(lambda: not self.is_on(), "hands-off mode switched off")
            self.place.rltui("auto", self.run_id)
            self.place.rltui("resubmit", self.run_id)
        fresh = eventually(lambda: self.attempt if self.attempt != before else None, f"an attempt after {fault!r}")
        if decision["decision"] == "restart":
            outcome.submitted_s = (fresh / "job.json").stat().st_mtime - at
        began = eventually(lambda: self._first_step(fresh), f"a step after {fault!r}")
        outcome.training_s, outcome.lost_steps = began[1] - at, step - began[0] + 1
        self._check(before, fresh, fault)

    def _inject(self, fault: str) -> None:
        if fault in LAST_WORDS:
            self.plant(fault)
        elif fault == "trainer killed":
            os.kill(self.trainer(), signal.SIGKILL)
        elif fault == "checkpoint torn":
            os.kill(self.trainer(), signal.SIGKILL)
            (self.place.folder(self.run_id) / TRACKER).write_text("")
        elif fault == "trainer stopped":
            os.kill(self.trainer(), signal.SIGSTOP)
        elif fault == "supervisor killed":
            os.kill(self.read("supervisor.json")["pid"], signal.SIGKILL)
        elif fault == "cancelled":
            self.place.rltui("cancel", self.run_id, "--yes")
        else:
            self.place.inject(fault, self)

    def plant(self, words: str) -> None:
        """Have the trainer die with those of ``LAST_WORDS``."""
        planted = self.place.folder(self.run_id) / "checkpoints/planted"
        planted.write_text(LAST_WORDS[words])
        planted.rename(planted.with_name("last-words"))

    def _trainers(self, *attempts: Path) -> dict[int, str]:
        """Live trainers of ``attempts`` by pid: of which, in what state, and whose children."""
        found = {}
        for attempt in attempts:
            for pid in self.pids(attempt):
                if seen.runs(pid, "main_ppo"):
                    found[pid] = f"{attempt.name}: {seen.state_and_parent(pid)}"
        return found

    def _first_step(self, attempt: Path) -> tuple[int, float] | None:
        try:
            first = json.loads((attempt / "metrics.jsonl").read_text().splitlines()[0])
        except (OSError, ValueError, IndexError):
            return None
        return int(first["step"]), float(first["time"])

    def _check(self, before: Path, fresh: Path, fault: str) -> None:
        """Nothing doubled, nothing left, nothing lost: one attempt lives, and it goes on from what was saved."""
        numbers = [int(path.name) for path in self.attempts]
        if numbers != list(range(1, len(numbers) + 1)) or self.attempt != fresh:
            self.wrong.append(f"doubled: {fault}: attempts {numbers}")
        same_job = self.read("job.json", before)["uuid"] == self.read("job.json", fresh)["uuid"]

        def is_alone() -> bool:
            return len(self._trainers(before, fresh)) == 1 and (same_job or not self.pids(before))

        # a process that forks is two until the new one has its own command, and the supervisor before ends last
        try:
            eventually(is_alone, "one trainer")
        except AssertionError:
            trainers = self._trainers(before, fresh)
            kind = "doubled" if trainers else "lost"
            self.wrong.append(f"{kind}: {fault}: of {before.name} or {fresh.name} there live {trainers}")
        first, _ = self._first_step(fresh) or (0, 0.0)
        if first > self.step(before) + 1 + SEEN_LATE or first <= 1:
            self.wrong.append(f"lost: {fault}: went on at step {first} after step {self.step(before)}")
        ended = self.read("end.json", before)
        if ended.get("hung") and fault != "trainer stopped":
            self.wrong.append(f"killed: {fault}: a healthy attempt was ended: {ended['hung']}")

    def stop(self) -> None:
        """Switch it off, end the run, and see that nothing comes after it."""
        self.place.rltui("auto", self.run_id, "--off")
        number, decided = len(self.attempts), len(self.decisions())
        self.place.rltui("cancel", self.run_id, "--yes")
        if len(self.attempts) != number or len(self.decisions()) != decided:
            self.wrong.append("doubled: something was started after hands-off mode had been switched off")

    def kill(self) -> None:
        """End whatever is left of the run, and let nothing come after it."""
        with contextlib.suppress(OSError, ValueError):
            told = json.loads((self.run / rundir.HANDS_OFF).read_text())
            rundir.write_json(str(self.run / rundir.HANDS_OFF), {**told, "on": False})
        for attempt in self.attempts:
            for pid in self.pids(attempt):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def spend(night: Night, faults: Iterable[str]) -> None:
    """One run through ``faults``, in this order."""
    night.start()
    try:
        for fault in faults:
            night.round(fault)
        night.stop()
    finally:
        night.kill()
