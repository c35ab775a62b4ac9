"""The local cluster through the verbs, as a user's scripts would use it: real runs of the real trainer."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rltui.onnode import processes
from rltui.service.recording import read_recording
from waiting import eventually

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1200)]


class Shell:
    """Runs rltui with its own run root and state directory, and a model cache shared by the module's tests."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.runs = folder / "runs"
        self.state = folder / "state"
        self.environment = {
            **os.environ,
            "RLTUI_RUN_ROOT": str(self.runs),
            "RLTUI_STATE_DIR": str(self.state),
            "RLTUI_CACHE_DIR": str(cache),
        }

    def start(self, *words: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, "-m", "rltui", *words]
        return subprocess.Popen(
            argv,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, expect: int = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=400)
        assert process.returncode == expect, f"rltui {' '.join(words)}: {process.returncode}\n{out}\n{err}"
        return out

    def json(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*words, "--json"))
        assert answer["schema"] == 1
        return answer

    def only_run(self) -> dict[str, Any]:
        (run,) = self.json("ps")["runs"]
        return dict(run)

    def step(self) -> int:
        """The last step that a run has reported: read from its file, as starting rltui costs more than a step."""
        stages = [json.loads(path.read_text()) for path in self.runs.glob("*/attempts/*/stage.json")]
        return max((stage.get("step") or 0 for stage in stages), default=0)

    def rewards(self, attempt: int) -> list[float]:
        file = next(self.runs.glob(f"*/attempts/{attempt:02d}/metrics.jsonl"))
        return [json.loads(line)["reward"] for line in file.read_text().splitlines()]

    def uuids(self) -> list[str]:
        return [json.loads(path.read_text())["uuid"] for path in self.runs.glob("*/attempts/*/job.json")]


@pytest.fixture(scope="module")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def shell(tmp_path: Path, model_cache: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, model_cache)
    yield shell
    for uuid in shell.uuids():
        processes.end_all(uuid, grace_s=0.5, exclude=())


def test_a_run_outlives_rltui_is_watched_cancelled_and_resubmitted(shell: Shell) -> None:
    launcher = shell.start("launch", "local/grpo-tiny", "train.steps=100000", "checkpoint.every=20", "--wait")
    eventually(lambda: shell.step() > 25, "the 25th step")
    launcher.send_signal(signal.SIGKILL)
    launcher.communicate()
    killed_at = shell.only_run()["stage"]["step"]
    eventually(lambda: shell.step() > killed_at, "a step after rltui was killed")

    run = shell.only_run()
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
    recorder.communicate(timeout=60)
    see_again(shell, run)

    saved = max(int(path.parent.name[5:]) for path in shell.runs.glob("*/checkpoints/*/COMPLETE"))
    assert saved >= killed_at
    shell.run("resubmit", run["run_id"], f"train.steps={saved + 10}", "--wait")
    again = shell.only_run()
    assert (again["run_id"], again["attempt"], again["state"]) == (run["run_id"], 2, "finished")
    second = next(shell.runs.glob("*/attempts/02/metrics.jsonl")).read_text().splitlines()
    assert [json.loads(line)["step"] for line in second] == list(range(saved + 1, saved + 11))
    first = shell.rewards(1)
    assert sum(shell.rewards(2)) / 10 > sum(first[:10]) / 10 + 0.1, "what had been learned is there"
    assert again["reward"] == pytest.approx(shell.rewards(2)[-1])
    entries = [json.loads(line) for line in (shell.state / "journal.jsonl").read_text().splitlines()]
    phases = [(entry["action"], entry["phase"]) for entry in entries]
    assert phases == [
        ("submit", "intent"), ("submit", "submitting"), ("submit", "done"),
        ("cancel", "intent"), ("cancel", "done"),
        ("resubmit", "intent"), ("resubmit", "submitting"), ("resubmit", "done"),
    ]  # fmt: skip


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
    assert then["summary"]["stage"]["step"] == then["metrics"]["steps"][-1]
    assert shell.json("replay", str(file), "--at", "end")["run"]["summary"]["state"] == "cancelled"


def test_a_run_whose_supervisor_is_killed_is_found_lost_and_can_go_on(shell: Shell) -> None:
    shell.run("launch", "local/grpo-tiny", "roles.learner.gpus=[1]", "train.steps=100000", "checkpoint.every=10")
    eventually(lambda: shell.step() > 12, "the 12th step")
    eventually(lambda: [*shell.runs.glob("*/checkpoints/*/COMPLETE")], "a checkpoint, written beside the steps")
    supervisor = json.loads(next(shell.runs.glob("*/attempts/01/supervisor.json")).read_text())
    os.kill(supervisor["pid"], signal.SIGKILL)
    lost = eventually(lambda: shell.only_run()["end"], "the end")
    assert lost["outcome"] == "lost"
    assert not processes.by_attempt(shell.uuids()[0])
    saved = max(int(path.parent.name[5:]) for path in shell.runs.glob("*/checkpoints/*/COMPLETE"))
    shell.run("resubmit", "grpo-tiny", f"train.steps={saved + 10}", "--wait")
    assert shell.only_run()["state"] == "finished"


def test_a_layout_that_cannot_run_is_refused_before_anything_is_made(shell: Shell) -> None:
    process = shell.start("launch", "local/grpo-tiny", "roles.rollout.engines=9")
    _, err = process.communicate(timeout=120)
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
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.startswith("rltui: Cannot make /proc/none/.local/share/rltui/runs")
    assert "RLTUI_RUN_ROOT" in err
    assert "Traceback" not in err


def test_the_history_of_a_run_whose_learner_was_killed_adds_up(shell: Shell) -> None:
    shell.run("launch", "local/grpo-tiny", "train.steps=100000", "checkpoint.every=40")
    eventually(lambda: [*shell.runs.glob("*/checkpoints/*/COMPLETE")], "a checkpoint, written beside the steps")
    eventually(lambda: shell.step() % 40 > 10 and shell.step() > 40, "a step that is in no checkpoint")
    attempts = next(shell.runs.glob("*/attempts"))
    events = [json.loads(line) for line in (attempts / "01/events.jsonl").read_text().splitlines()]
    roles = next(event["roles"] for event in events if event["kind"] == "roles")
    os.kill(next(one["pid"] for one in roles if one["role"] == "learner 0"), signal.SIGKILL)
    eventually((attempts / "01/end.json").is_file, "the end of the first attempt")

    run = shell.only_run()["run_id"]
    saved = max(int(path.parent.name[5:]) for path in shell.runs.glob("*/checkpoints/*/COMPLETE"))
    shell.run("resubmit", run, f"train.steps={saved + 100}", "--wait")
    told = shell.json("history", run)["history"]
    first, second = told["attempts"]
    lines = [(attempts / number / "metrics.jsonl").read_text().splitlines() for number in ("01", "02")]
    steps = [[json.loads(line)["step"] for line in of_one] for of_one in lines]
    assert [one["steps"] for one in (first, second)] == [len(set(of_one)) for of_one in steps]
    assert first["overtaken_steps"] == sum(step > saved for step in steps[0]) > 0
    assert (second["first_step"], second["last_step"], second["overtaken_steps"]) == (saved + 1, saved + 100, 0)
    for one, number in ((first, "01"), (second, "02")):
        ended = json.loads((attempts / number / "end.json").read_text())["at"]
        stages = json.loads((attempts / number / "stage.json").read_text())["history"]
        started = next(stage["at"] for stage in stages if stage["stage"] == "preflight")
        assert one["held_s"] == pytest.approx(ended - started)
        parts = ("start_up_s", "kept_s", "overtaken_s", "between_s", "tail_s")
        assert sum(one[part] for part in parts) == pytest.approx(one["held_s"])
    kept_s = sum(
        json.loads(line)["time/total"]
        for of_one, is_first in zip(lines, (True, False), strict=True)
        for line in of_one
        if not (is_first and json.loads(line)["step"] > saved)
    )
    assert (told["unit"], first["slots"]) == ("CPU slot", 3)
    assert told["kept_h"] <= kept_s * 3 / 3600 * 1.001, "no step counts for more than it took"
    assert told["kept_h"] == pytest.approx(kept_s * 3 / 3600, rel=0.1)
    assert told["goodput"] == pytest.approx(told["kept_h"] / told["held_h"])
    [(cause, lost_h)] = told["lost_h"].items()
    assert cause == first["cause"] not in ("", "failed"), "the cause has a name"
    again = first["overtaken_s"] + first["tail_s"] + second["start_up_s"]
    assert lost_h == pytest.approx(again * 3 / 3600)
