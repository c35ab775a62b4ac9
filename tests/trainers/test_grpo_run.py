"""The trainer as a program, on a real Ray with real DeepSpeed, engines and weight transfers: it learns, honestly."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import ROOT, Attempt, ray_node, wait_for

from rltui.onnode import rundir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

STEPS = 120
LEARNING = (f"train.steps={STEPS}", "checkpoint.every=20", "train.learning_rate=5.0e-4", "train.prompts_per_step=32")
PARITY_BOUND = 1e-4


def ask_status(attempt: Attempt, token: str | None = None, path: str = "/api/status") -> tuple[int, dict[str, Any]]:
    """The status endpoint's answer; with its own token unless another is given."""
    endpoint = json.loads((attempt.path / rundir.STATUS_ENDPOINT).read_text())
    headers = {"Authorization": f"Bearer {endpoint['token'] if token is None else token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint["url"] + path, headers=headers), timeout=10) as got:
            return got.status, json.load(got)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@dataclass
class Learned:
    """A finished run, and what its status endpoint said while it trained."""

    attempt: Attempt
    exit_code: int
    status: dict[str, Any]
    denied: tuple[int, int]
    status_mode: int


@pytest.fixture(scope="module")
def learned(ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learned]:
    attempt = Attempt(tmp_path_factory.mktemp("learned") / "run-1", 1, LEARNING).start(ray_environment)
    try:
        attempt.await_step(10)
        mode = stat.S_IMODE(os.stat(attempt.path / rundir.STATUS_ENDPOINT).st_mode)
        status = ask_status(attempt)[1]
        denied = ask_status(attempt, token="wrong")[0], ask_status(attempt, path="/secrets")[0]
        yield Learned(attempt, attempt.wait(), status, denied, mode)
    finally:
        if attempt.running.poll() is None:
            attempt.running.kill()
            attempt.running.wait()


def check_learning(attempt: Attempt) -> None:
    """The honest curve: chance at the start (1/6 of those in the right form), the rule at the end."""
    assert attempt.mean_reward(1, 5) <= 0.35
    assert attempt.mean_reward(110, STEPS) >= 0.70
    assert max(line["parity_max_abs"] for line in attempt.metrics()) < PARITY_BOUND


def test_it_learns_to_sort(learned: Learned) -> None:
    assert learned.exit_code == 0, learned.attempt.log()[-3000:]
    check_learning(learned.attempt)


def test_every_step_has_the_canonical_metrics(learned: Learned) -> None:
    metrics = learned.attempt.metrics()
    assert [line["step"] for line in metrics] == list(range(1, STEPS + 1))
    names = {
        "step", "time", "reward", "reward_std", "loss", "grad_norm", "clip_fraction", "entropy", "learning_rate",
        "response_length", "zero_std_fraction", "truncated_fraction", "parity_max_abs", "weight_version",
        "learner_tokens_per_second_step", "actor_tokens_per_second", "time/total", "time/generate", "time/train",
        "time/weight_sync", "time/saving", "learner_memory_gib", "engine_memory_gib",
    }  # fmt: skip
    assert all(set(line) == names for line in metrics)
    assert [line["weight_version"] for line in metrics] == list(range(1, STEPS + 1))
    assert metrics[-1]["entropy"] < metrics[0]["entropy"]
    assert metrics[-1]["zero_std_fraction"] > metrics[0]["zero_std_fraction"]
    assert all(line["learning_rate"] == pytest.approx(5e-4) for line in metrics)


def test_status_endpoint_answers_its_token_only(learned: Learned) -> None:
    assert learned.denied == (401, 404)
    assert learned.status_mode == 0o600
    assert not (learned.attempt.path / rundir.STATUS_ENDPOINT).exists()


def test_status_endpoint_tells_what_the_contract_says(learned: Learned) -> None:
    status = learned.status
    assert status["queues"] == {
        "Prompt Queue": {"current": 0, "maxsize": 32},
        "Inference Results Queue": {"current": 0, "maxsize": 32},
    }
    assert 10 <= status["step"] <= STEPS
    assert status["steps"] == STEPS
    assert status["learner_weight_version"] == status["weight_versions"]["engine 0"] == status["step"]
    assert status["phase"]["name"] in {"generate", "reward", "train", "weight_sync", "saving"}
    assert [rank["rank"] for rank in status["ranks"]] == [0, 1]
    assert all(rank["pid"] > 0 and 0.1 < rank["resident_gib"] < 4 for rank in status["ranks"])
    assert status["token_stats"]["sample_count"] % 256 == 0
    assert status["token_stats"]["decode_tokens_per_sec"] > 0
    assert status["timing_stats"]["training_step_count"] == status["token_stats"]["sample_count"] // 256
    assert (status["concurrency_per_engine"], status["batch_size"], status["should_stop"]) == (256, 256, False)
    assert status["parity_max_abs"] < PARITY_BOUND


def test_stages_are_told_in_their_order(learned: Learned) -> None:
    stage = learned.attempt.stage()
    assert [visit["stage"] for visit in stage["history"]] == ["placing", "loading", "training", "saving"]
    assert (stage["step"], stage["steps"]) == (STEPS, STEPS)
    assert stage["roles"] == {"learner 0": "ready", "learner 1": "ready", "engine 0": "ready"}


def test_newest_checkpoints_are_kept(learned: Learned) -> None:
    folder = learned.attempt.run / rundir.CHECKPOINTS
    assert sorted(path.name for path in folder.iterdir()) == ["step-000080", "step-000100", "step-000120"]
    assert rundir.newest_checkpoint(str(learned.attempt.run)) == str(folder / "step-000120")


def test_wandb_gets_the_whole_curve_offline(learned: Learned) -> None:
    wandb = [str(Path(sys.executable).parent / "wandb"), "leet", "inspect"]
    folder = learned.attempt.run / "wandb" / "latest-run"
    read = subprocess.run([*wandb, str(folder), "--summary", "--json"], capture_output=True, text=True, timeout=60)
    found = json.loads(read.stdout)
    assert found["summary"]["step"] == STEPS
    assert found["summary"]["reward"] == pytest.approx(learned.attempt.metrics()[-1]["reward"])
    assert found["run_id"] == (learned.attempt.run / "wandb" / "run-id").read_text()


def test_log_has_a_line_now_and_then(learned: Learned) -> None:
    lines = [line for line in learned.attempt.log().splitlines() if f"/{STEPS}  reward" in line]
    assert f"step {STEPS}/{STEPS}" in lines[-1]
    spent = learned.attempt.metrics()[-1]["time"] - learned.attempt.metrics()[0]["time"]
    assert len(lines) <= 2 * spent + 2


def test_it_learns_in_shards_of_zero_3(launch: Callable[..., Attempt]) -> None:
    attempt = launch(1, *LEARNING, "roles.learner.zero_stage=3", "tracking.wandb=disabled")
    assert attempt.wait() == 0, attempt.log()[-3000:]
    check_learning(attempt)


def test_it_does_not_learn_from_a_coin(launch: Callable[..., Attempt]) -> None:
    """The negative control: same machine, same metric, a reward that means nothing."""
    attempt = launch(1, *LEARNING, "data.reward=coin", "tracking.wandb=disabled")
    assert attempt.wait() == 0, attempt.log()[-3000:]
    assert attempt.mean_reward(110, STEPS) <= 0.2


def test_a_kill_costs_the_steps_since_the_checkpoint_and_nothing_else(
    learned: Learned, launch: Callable[..., Attempt]
) -> None:
    """kill -9 after step 25, resume, SIGTERM after step 40: from step 21 on, the curve of the run that was let be."""
    killed = launch(1, *LEARNING)
    killed.await_step(25)
    killed.running.kill()
    assert killed.wait() == -9
    wandb_id = (killed.run / "wandb" / "run-id").read_text()

    resumed = launch(2, *LEARNING)
    resumed.await_step(40)
    resumed.running.terminate()
    assert resumed.wait(15.0) == 143
    done = [line["step"] for line in resumed.metrics()]
    assert done == list(range(21, done[-1] + 1))
    assert killed.rewards(1, 25) == learned.attempt.rewards(1, 25)
    assert resumed.rewards(21, 40) == learned.attempt.rewards(21, 40)
    assert resumed.events("checkpoint")[0] == "resumed from step 20"
    assert rundir.newest_checkpoint(str(resumed.run)) == str(resumed.run / rundir.CHECKPOINTS / f"step-{done[-1]:06d}")
    assert (resumed.run / "wandb" / "run-id").read_text() == wandb_id


def test_spread_over_two_nodes_in_lower_precision_with_micro_batches(
    ray_environment: dict[str, str], launch: Callable[..., Attempt]
) -> None:
    """Bundles of learners on nodes of their own (two Ray nodes of this machine), and two engines."""
    with ray_node(ray_environment, num_cpus=2):
        attempt = launch(
            1, "train.steps=25", "hardware.nodes=2", "hardware.gpus_per_node=4", "roles.learner.gpus=[1, 1]",
            "roles.rollout.engines=2", "roles.rollout.precision=fp32", "roles.learner.precision=bf16",
            "roles.learner.micro_batch=48", "roles.learner.gradient_checkpointing=true", "roles.learner.zero_stage=1",
            "grpo.aggregation=sequence", "grpo.advantage=centered", "train.warmup_steps=10", "tracking.wandb=disabled",
        )  # fmt: skip
        assert attempt.wait() == 0, attempt.log()[-3000:]
    nodes = {entry["role"]: entry["node"] for entry in roles_of(attempt)}
    assert len(nodes) == 4
    assert nodes["learner 0"] != nodes["learner 1"]
    metrics = attempt.metrics()
    assert [line["learning_rate"] for line in metrics[:3]] == pytest.approx([5e-5, 1e-4, 1.5e-4])
    assert metrics[-1]["parity_max_abs"] > PARITY_BOUND  # bf16 learner, fp32 engine: reported, not fatal
    assert attempt.mean_reward(21, 25) > attempt.mean_reward(1, 5) + 0.1


@pytest.fixture(scope="module")
def hopeless(ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """A run that cannot earn anything (one token is too short for any answer) nor save anything (no disk is enough)."""
    words = ["train.steps=5", "lengths.response=1", "checkpoint.every=2", "tracking.wandb=disabled"]
    attempt = Attempt(tmp_path_factory.mktemp("hopeless") / "run-1", 1, words)
    attempt.start(ray_environment, preamble="import trainers.checkpoint; trainers.checkpoint.SPARE = 1e12")
    attempt.wait()
    return attempt


def test_steps_without_signal_change_nothing(hopeless: Attempt) -> None:
    metrics = hopeless.metrics()
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5]
    for line in metrics:
        assert (line["reward"], line["zero_std_fraction"]) == (0.0, 1.0)
        assert line["truncated_fraction"] > 0.9
        assert (line["weight_version"], line["loss"], line["grad_norm"]) == (0, 0.0, 0.0)
        assert 0 < line["parity_max_abs"] < PARITY_BOUND  # log-probs are looked at all the same


def test_a_full_disk_stops_no_training_but_fails_the_end(hopeless: Attempt) -> None:
    missed = hopeless.events("checkpoint")
    assert [text.split(":")[0] for text in missed] == ["step 2 was not saved", "step 4 was not saved"]
    assert hopeless.running.returncode == 1
    assert "a checkpoint needs about" in hopeless.events("error")[-1]
    assert rundir.newest_checkpoint(str(hopeless.run)) is None


def test_engines_that_miss_their_weights_end_the_run(launch: Callable[..., Attempt]) -> None:
    """Without weight transfers after the first, trainer and engine drift apart, and that is seen at once."""
    preamble = """
from trainers.roles.fleet import Fleet
send = Fleet.send_weights
Fleet.send_weights = lambda self, version: send(self, version) if version == 0 else None
"""
    attempt = launch(1, *LEARNING, "tracking.wandb=disabled", preamble=preamble)
    assert attempt.wait() == 1
    assert "the engine does not run the learner's weights" in attempt.events("error")[-1]
    assert len(attempt.metrics()) <= 3


@pytest.mark.parametrize("victim", ["learner 0", "learner 1", "engine 0"])
def test_a_role_that_dies_is_named(launch: Callable[..., Attempt], victim: str) -> None:
    attempt = launch(1, "train.steps=5000", "tracking.wandb=disabled")
    attempt.await_step(3)
    pid = pid_of(attempt, victim)
    os.kill(pid, 9)
    assert attempt.wait(30.0) == 1
    error = attempt.events("error")[-1]
    assert f"{victim} (pid {pid} on " in error
    assert "died" in error
    assert "Traceback" in attempt.log()


def pid_of(attempt: Attempt, role: str) -> int:
    """The process id of a role."""
    return next(int(entry["pid"]) for entry in roles_of(attempt) if entry["role"] == role)


def roles_of(attempt: Attempt) -> list[dict[str, Any]]:
    """Where each role is, from the events."""
    events = wait_for(lambda: [e for e in attempt.lines(rundir.EVENTS) if e["kind"] == "roles"], "the event with roles")
    return list(events[0]["roles"])


def test_bundles_that_find_no_place_are_named_with_what_is_free(launch: Callable[..., Attempt]) -> None:
    preamble = "import trainers.grpo as g; g.Deadlines = lambda D=g.Deadlines: D(place_s=2.0)"
    attempt = launch(1, "hardware.gpus_per_node=64", "roles.learner.gpus=[48]", preamble=preamble)
    assert attempt.wait() == 1
    error = attempt.events("error")[-1]
    assert "the learner bundles found no place" in error
    assert "48 CPU" in error
    assert f"{socket.gethostname()} (" in error
    assert "): 4 CPU. Wait for CPUs" in error


def test_a_stop_while_loading_ends_at_once(launch: Callable[..., Attempt]) -> None:
    attempt = launch(1, *LEARNING)
    wait_for(lambda: attempt.stage().get("stage") == "loading" and attempt.stage()["roles"], "loading")
    attempt.running.terminate()
    assert attempt.wait(15.0) == 143
    assert attempt.metrics() == []


def test_without_ray_the_error_says_what_is_missing(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path / "run-1", 1, ["tracking.wandb=disabled"]).start({**os.environ, "PYTHONPATH": str(ROOT)})
    assert attempt.wait() == 1
    assert "RAY_ADDRESS is not set" in attempt.events("error")[-1]


def test_dry_run_draws_and_counts_without_ray_or_torch(tmp_path: Path) -> None:
    layout = Attempt(tmp_path / "run-1", 1, ["train.steps=70", "checkpoint.every=20", "roles.learner.gpus=[1]"]).path
    program = (
        "import sys; from trainers.grpo import main; code = main(['--dry-run', sys.argv[1]]); "
        "print(sorted({'torch', 'ray', 'deepspeed', 'transformers', 'wandb'} & set(sys.modules))); sys.exit(code)"
    )
    got = subprocess.run(
        [sys.executable, "-c", program, str(layout / rundir.LAYOUT)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert got.returncode == 0, got.stderr
    lines = got.stdout.splitlines()
    assert lines[0] == "node0 ┃ L0 ┃ E0 ┃ ·· ┃"
    assert lines[-1] == "[]"
    assert any("70 × 32 prompts × 8 samples = 256 samples a step, 17920 in all" in line for line in lines)
    assert any("4 saves, the newest 3 kept" in line for line in lines)
