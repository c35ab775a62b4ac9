"""The local cluster through the verbs, as a user's scripts would use it: real runs of the real trainer."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hangs import scaled, see_hangs
from json_lines import records
from verbs import rltui

from forks import server_of_session, write_forking_python
from rltui.onnode import processes
from rltui.service.recording import read_recording
from tiny_model import tiny_model
from waiting import DEADLINE_S, eventually

ROOT = Path(__file__).parents[2]
NO_WANDB = "tracking.wandb=disabled"
PYTHON = "RLTUI_TRAINER_PYTHON"
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1800)]


class Shell:
    """Runs rltui with its own run root and state directory; the first of a session makes the model for all.

    Ray forks the roles of its runs, but where PYTHON is taken from its environment.
    """

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.state = folder / "state"
        self.folder = ROOT
        self.forking = folder / "python"
        self.environment = {
            **os.environ,
            "RLTUI_RUN_ROOT": str(self.runs),
            "RLTUI_STATE_DIR": str(self.state),
            PYTHON: str(self.forking),
        }
        write_forking_python(self.forking, server_of_session())
        tiny_model()

    def start(self, *words: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, "-m", "rltui", *words]
        return subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, expect: int = 0) -> str:
        done = rltui(words, self.folder, self.environment, codes=(expect,))
        return done.stdout

    def json(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*words, "--json"))
        assert answer["schema"] == 1
        return answer

    def causes(self, run: str) -> dict[str, str]:
        """What ``why`` says by cause, whatever its exit code."""
        done = rltui(("why", run, "--json"), self.folder, self.environment)
        return {one["id"]: one["summary"] for one in json.loads(done.stdout)["diagnoses"]}

    def only_run(self) -> dict[str, Any]:
        (run,) = self.json("ps")["runs"]
        return dict(run)

    def step(self) -> int:
        """The last step that a run has reported: read from its file, as starting rltui costs more than a step."""
        stages = [json.loads(path.read_text()) for path in self.runs.glob("*/attempts/*/stage.json")]
        return max((stage.get("step") or 0 for stage in stages), default=0)

    def values(self, name: str, attempt: int) -> list[float]:
        """A metric of an attempt's steps so far."""
        (text,) = [file.read_text() for file in self.runs.glob(f"*/attempts/{attempt:02d}/metrics.jsonl")] or [""]
        return [record[name] for record in records(text)]

    def rewards(self, attempt: int) -> list[float]:
        return self.values("reward", attempt)

    def steps(self, attempt: int) -> list[int]:
        return [int(step) for step in self.values("step", attempt)]

    def saved(self) -> int:
        """The step of the newest checkpoint that is complete; 0: none is."""
        done = self.runs.glob("*/checkpoints/*/COMPLETE")
        return max((int(path.parent.name.removeprefix("step-")) for path in done), default=0)

    def uuids(self) -> list[str]:
        return [json.loads(path.read_text())["uuid"] for path in self.runs.glob("*/attempts/*/job.json")]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for uuid in shell.uuids():
        processes.end_all(uuid, grace_s=0.5, exclude=())


def test_a_run_outlives_rltui_is_watched_cancelled_and_goes_on_after_each_death_and_its_history_adds_up(
    shell: Shell, tmp_path: Path
) -> None:
    before = dict(shell.environment)
    del shell.environment[PYTHON]  # each role of the first attempt is a Python of its own, as a user's is
    shell.environment |= scaled()
    launcher = shell.start("launch", "local/grpo-tiny", "train.steps=100000", "checkpoint.every=20", NO_WANDB, "--wait")
    eventually(lambda: shell.step() > 25, "the 25th step")
    launcher.send_signal(signal.SIGKILL)
    launcher.communicate()
    killed_at = shell.only_run()["stage"]["step"]
    eventually(lambda: shell.step() > killed_at, "a step after rltui was killed")

    run = shell.only_run()
    see_hangs(shell, run["run_id"], tmp_path)
    shell.environment = before
    watch_to_its_end(shell, run)
    saved = [shell.saved()]
    assert saved[0] >= killed_at
    kill_a_learner(shell, run["run_id"], saved)
    kill_the_supervisor(shell, run["run_id"], saved)
    shell.run("resubmit", run["run_id"], f"train.steps={saved[-1] + 10}", "--wait")
    again = shell.only_run()
    assert (again["run_id"], again["attempt"], again["state"]) == (run["run_id"], 4, "finished")
    assert shell.steps(4) == list(range(saved[-1] + 1, saved[-1] + 11))
    first = shell.rewards(1)
    assert sum(shell.rewards(4)) / 10 > sum(first[:10]) / 10 + 0.1, "what had been learned is there"
    assert again["reward"] == pytest.approx(shell.rewards(4)[-1])
    see_history(shell, run["run_id"], saved)
    entries = [json.loads(line) for line in (shell.state / "journal.jsonl").read_text().splitlines()]
    phases = [(entry["action"], entry["phase"]) for entry in entries]
    resubmitted = [("resubmit", "intent"), ("resubmit", "submitting"), ("resubmit", "done")]
    assert phases == [
        ("submit", "intent"), ("submit", "submitting"), ("submit", "done"),
        ("cancel", "intent"), ("cancel", "done"),
        *resubmitted * 3,
    ]  # fmt: skip


def watch_to_its_end(shell: Shell, run: dict[str, Any]) -> None:
    """Record a run that lives, look at it by each verb, and cancel it."""
    recorder = shell.start("record", run["run_id"], "--follow", "-o", str(shell.state / "run.tar.gz"))
    assert recorder.stderr is not None
    assert "until it ends" in recorder.stderr.readline()
    shown = shell.json("show", run["run_id"])["run"]
    assert sorted(actor["name"] for actor in shown["actors"]) == ["engine 0", "learner 0", "learner 1"]
    assert {actor["state"] for actor in shown["actors"]} == {"ALIVE"}
    assert {queue["name"] for queue in shown["status"]["queues"]} == {"Prompt Queue", "Inference Results Queue"}
    assert shown["hosts"][0]["processes"]
    assert len(shown["metrics"]["steps"]) > 20
    assert "step" in shell.run("logs", "grpo-tiny")

    shell.run("resubmit", run["run_id"], expect=1)  # it is alive
    assert shell.json("cancel", run["run_id"], "--yes")["state"] == "cancelled"
    shell.run("cancel", run["run_id"], "--yes", expect=1)  # it has ended
    eventually(lambda: not processes.by_attempt(shell.uuids()[0]), "the end of all processes")
    recorder.communicate(timeout=DEADLINE_S)
    see_again(shell, run)


def kill_a_learner(shell: Shell, run: str, saved: list[int]) -> None:
    """Go on with a second attempt, and kill a learner of it when it has steps to lose."""
    shell.run("resubmit", run, "checkpoint.every=40")
    eventually(lambda: shell.saved() > saved[0], "a checkpoint, written beside the steps")
    eventually(lambda: has_steps_to_lose(shell, 2), "steps that are in no checkpoint, nor soon in one")
    attempt = next(shell.runs.glob("*/attempts/02"))
    events = records((attempt / "events.jsonl").read_text())
    roles = next(event["roles"] for event in events if event["kind"] == "roles")
    learner = next(one["pid"] for one in roles if one["role"] == "learner 0")
    assert "forks.py" in " ".join(processes.words_of(parent_of(learner))), "it starts as the tests of real runs have it"
    assert processes.attempt_of(learner) in shell.uuids()
    os.kill(learner, signal.SIGKILL)
    eventually((attempt / "end.json").is_file, "the end of the second attempt")
    saved.append(shell.saved())


def kill_the_supervisor(shell: Shell, run: str, saved: list[int]) -> None:
    """Go on with a third attempt, and kill its supervisor when it has steps to lose."""
    shell.run("resubmit", run)
    eventually(lambda: has_steps_to_lose(shell, 3), "such steps again")
    attempt = next(shell.runs.glob("*/attempts/03"))
    os.kill(json.loads((attempt / "supervisor.json").read_text())["pid"], signal.SIGKILL)
    lost = eventually(
        lambda: (seen := shell.only_run())["end"] and not seen["as_of"] and seen, "the end of the third attempt"
    )
    assert (lost["attempt"], lost["state"], lost["end"]["outcome"]) == (3, "lost", "lost"), lost
    uuid = json.loads((attempt / "job.json").read_text())["uuid"]
    eventually(lambda: not processes.by_attempt(uuid), "the end of all processes")
    saved.append(shell.saved())


def has_steps_to_lose(shell: Shell, attempt: int) -> bool:
    """Whether the last step is in no checkpoint, nor soon in one."""
    steps = shell.steps(attempt)
    return bool(steps) and 10 < steps[-1] - shell.saved() < 30


def see_again(shell: Shell, run: dict[str, Any]) -> None:
    """What was recorded of a run that lived and was cancelled has what only somebody who watched can know."""
    file = shell.state / "run.tar.gz"
    recording = read_recording(file)
    ray = json.loads(next(shell.runs.glob("*/attempts/01/ray.json")).read_text())
    assert not [name for name, (data, _) in recording.files.items() if ray["token"].encode() in data]
    seen = next(one["t"] for one in recording.changes if one["path"] == "attempts/01/status-now.json")
    then = shell.json("replay", str(file), "--at", f"{float(str(seen)) - run['created_at'] + 0.1:.2f}")["run"]
    assert then["summary"]["state"] == "running"
    assert sorted(actor["state"] for actor in then["actors"]) == ["ALIVE"] * 3
    assert {queue["name"] for queue in then["status"]["queues"]} == {"Prompt Queue", "Inference Results Queue"}
    assert then["summary"]["stage"]["step"] - then["metrics"]["steps"][-1] in (-1, 0, 1), "read between two writes"
    assert shell.json("replay", str(file), "--at", "end")["run"]["summary"]["state"] == "cancelled"


def test_a_layout_that_cannot_run_is_refused_before_anything_is_made(shell: Shell) -> None:
    process = shell.start("launch", "local/grpo-tiny", "roles.rollout.engines=9")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "Not launched: P101" in err
    assert "Fix: roles.rollout.engines=1" in err
    assert not list(shell.runs.glob("grpo*"))


@pytest.mark.parametrize("verb", [["ps"], ["launch", "local/grpo-tiny"], ["demo", "--no-screen"]])
def test_a_home_that_cannot_be_written_is_one_clear_line(shell: Shell, verb: list[str]) -> None:
    for name in ("RLTUI_RUN_ROOT", "RLTUI_STATE_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        shell.environment.pop(name, None)
    shell.environment["HOME"] = "/proc/none"
    process = shell.start(*verb)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert err.startswith("rltui: Cannot make /proc/none/.local/share/rltui/runs")
    assert "RLTUI_RUN_ROOT" in err
    assert "Traceback" not in err


def parent_of(pid: int) -> int:
    """Who started the process."""
    found = processes.read_stat(pid)
    assert found is not None
    return found.parent


def see_history(shell: Shell, run: str, saved: list[int]) -> None:
    """What is told of a run's time is what its files hold.

    Args:
        shell: Has the run.
        run: Its id.
        saved: The newest checkpoint at the end of each attempt but the last.
    """
    told = shell.json("history", run)["history"]
    attempts, folders = told["attempts"], sorted(shell.runs.glob("*/attempts/*"))
    steps = [shell.steps(one["number"]) for one in attempts]
    kept = [min([*saved[place:], steps[place][-1]]) for place in range(len(attempts))]
    assert [one["steps"] for one in attempts] == [len(set(of_one)) for of_one in steps]
    assert [one["first_step"] for one in attempts] == [1, *(step + 1 for step in saved)]
    overtaken = [sum(step > last for step in of_one) for of_one, last in zip(steps, kept, strict=True)]
    assert [one["overtaken_steps"] for one in attempts] == overtaken
    assert (overtaken[0], min(overtaken[1:-1]) > 0, overtaken[-1]) == (0, True, 0), "who is cancelled saves"
    assert (told["unit"], attempts[0]["slots"]) == ("CPU slot", 3)
    kept_s = 0.0
    for one, folder, last in zip(attempts, folders, kept, strict=True):
        ended = json.loads((folder / "end.json").read_text())["at"]
        stages = json.loads((folder / "stage.json").read_text())["history"]
        started = next(stage["at"] for stage in stages if stage["stage"] == "preflight")
        assert one["held_s"] == pytest.approx(ended - started)
        parts = ("start_up_s", "kept_s", "overtaken_s", "between_s", "tail_s")
        assert sum(one[part] for part in parts) == pytest.approx(one["held_s"])
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        kept_s += sum(line["time/total"] for line in lines if line["step"] <= last)
    assert told["kept_h"] <= kept_s * 3 / 3600 * 1.001, "no step counts for more than it took"
    assert told["kept_h"] == pytest.approx(kept_s * 3 / 3600, rel=0.1)
    assert told["goodput"] == pytest.approx(told["kept_h"] / told["held_h"])
    lost = {
        one["cause"]: (one["overtaken_s"] + one["tail_s"] + after["start_up_s"]) * 3 / 3600
        for one, after in itertools.pairwise(attempts)
    }
    assert not {"", "failed"} & lost.keys(), "the cause has a name"
    assert told["lost_h"] == pytest.approx(lost)
