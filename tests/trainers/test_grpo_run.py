"""The trainer as a program, on a real Ray with real DeepSpeed, engines and weight transfers: it learns, honestly."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from learning import LEARNING, STEPS, check_learned, check_not_learned
from trainer_support import ROOT, Attempt, Learned, at_generation, kill_at, pid_of, ray_node, roles_of

from rltui.onnode import rundir
from rltui.onnode.checkpoints import newest_checkpoint
from waiting import eventually

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

ALONE = ("roles.learner.gpus=[1]", "tracking.wandb=disabled")  # where the point is another: a process costs imports
PARITY_BOUND = 1e-4


def check_learning(attempt: Attempt) -> None:
    """The honest curve: chance at the start, the rule at the end, and one policy in learners and engines."""
    check_learned("grpo", attempt.metrics())
    assert max(line["parity_max_abs"] for line in attempt.metrics()) < PARITY_BOUND


def test_it_learns_to_sort(learned: Learned) -> None:
    assert learned.exit_code == 0, learned.attempt.log()[-3000:]
    check_learning(learned.attempt)


def test_every_step_has_the_canonical_metrics(learned: Learned) -> None:
    metrics = learned.attempt.metrics()
    assert [line["step"] for line in metrics] == list(range(1, STEPS + 1))
    names = {
        "step", "time", "reward", "reward_std", "loss", "grad_norm", "clip_fraction", "entropy", "learning_rate",
        "response_length", "response_length_max", "zero_std_fraction", "truncated_fraction", "parity_max_abs",
        "weight_version", "time/reward",
        "parity_mean_abs", "mismatch_kl", "importance_limited_fraction",
        "learner_tokens_per_second_step", "actor_tokens_per_second", "time/total", "time/generate", "time/train",
        "time/weight_sync", "time/saving", "time/data", "time/engine_idle", "time/learner_idle", "staleness_mean",
        "staleness_max",
        "learner_memory_gib", "engine_memory_gib", "packing_efficiency", "engine_occupancy", "fresh_mismatch_kl",
        "weight_sync_gib_per_second",
    }  # fmt: skip
    saved = {"checkpoint_bytes_per_second"}
    assert all(set(line) - saved == names for line in metrics)
    assert any(line.get("checkpoint_bytes_per_second", 0) > 0 for line in metrics), "some were written beside steps"
    assert [line["weight_version"] for line in metrics] == list(range(1, STEPS + 1))
    assert all(line["weight_sync_gib_per_second"] > 0 for line in metrics)
    [told] = [event["text"] for event in learned.attempt.lines("events.jsonl") if event["kind"] == "weights"]
    assert told == "weights travel by gloo, through host memory, because no rank has a card that NCCL can use"
    assert metrics[-1]["entropy"] < metrics[0]["entropy"]
    assert metrics[-1]["zero_std_fraction"] > metrics[0]["zero_std_fraction"]
    assert all(line["learning_rate"] == pytest.approx(5e-4) for line in metrics)


def test_status_endpoint_answers_its_token_only(learned: Learned) -> None:
    assert learned.denied == (401, 404)
    assert learned.status_mode == 0o600
    assert not (learned.attempt.path / rundir.STATUS_ENDPOINT).exists()


def test_status_endpoint_tells_what_the_contract_says(learned: Learned) -> None:
    status = learned.status
    assert {name: queue["maxsize"] for name, queue in status["queues"].items()} == {
        "Prompt Queue": 32, "Inference Results Queue": 32,
    }  # fmt: skip
    assert all(0 <= queue["current"] <= 32 for queue in status["queues"].values())  # asked at some moment of a step
    assert 10 <= status["step"] <= STEPS
    assert status["steps"] == STEPS
    assert status["learner_weight_version"] == status["weight_versions"]["engine 0"] == status["step"]
    assert status["phase"]["name"] in {"data", "generate", "reward", "train", "weight_sync", "saving"}
    assert [rank["rank"] for rank in status["ranks"]] == [0, 1]
    assert all(rank["pid"] > 0 and 0.1 < rank["resident_gib"] < 4 for rank in status["ranks"])
    assert status["token_stats"]["sample_count"] % 256 == 0
    assert status["token_stats"]["decode_tokens_per_sec"] > 0
    assert status["timing_stats"]["training_step_count"] == status["token_stats"]["sample_count"] // 256
    assert (status["concurrency_per_engine"], status["batch_size"], status["should_stop"]) == (256, 256, False)
    assert status["parity_max_abs"] < PARITY_BOUND


def test_peaks_of_memory_are_written_for_every_role_and_moment(learned: Learned) -> None:
    found = json.loads((learned.attempt.path / rundir.MEMORY).read_text())
    moments = {role["role"]: role["moments"] for role in found["roles"]}
    trained = {"load", "log-probs", "backward", "optimizer step", "weight sync", "save"}
    assert {name: set(peaks) for name, peaks in moments.items()} == {
        "learner 0": trained,
        "learner 1": trained,
        "engine 0": {"load", "generate", "weight sync"},
    }
    assert all(0.1 < peak["resident_gib"] < 4 for peaks in moments.values() for peak in peaks.values())
    assert found["estimate"]["notes"]  # on CPU there is no card to fill, and that is said


def test_stages_are_told_in_their_order(learned: Learned) -> None:
    stage = learned.attempt.stage()
    assert [visit["stage"] for visit in stage["history"]] == ["placing", "loading", "training", "saving"]
    assert (stage["step"], stage["steps"]) == (STEPS, STEPS)
    assert stage["roles"] == {"learner 0": "ready", "learner 1": "ready", "engine 0": "ready"}


def test_newest_checkpoints_are_kept(learned: Learned) -> None:
    folder = learned.attempt.run / rundir.CHECKPOINTS
    assert sorted(path.name for path in folder.iterdir()) == ["step-000040", "step-000050", "step-000060"]
    assert newest_checkpoint(str(learned.attempt.run)) == str(folder / "step-000060")


def test_wandb_gets_the_whole_curve_offline(learned: Learned) -> None:
    wandb = [str(Path(sys.executable).parent / "wandb"), "leet", "inspect"]
    folder = learned.attempt.run / "wandb" / "latest-run"
    read = subprocess.run([*wandb, str(folder), "--summary", "--json"], capture_output=True, text=True)
    found = json.loads(read.stdout)
    assert found["summary"]["step"] == STEPS
    assert found["summary"]["reward"] == pytest.approx(learned.attempt.metrics()[-1]["reward"])
    assert found["run_id"] == (learned.attempt.run / "wandb" / "run-id").read_text()


def test_log_has_a_line_now_and_then(learned: Learned) -> None:
    lines = [line for line in learned.attempt.log().splitlines() if f"/{STEPS}  reward" in line]
    assert f"step {STEPS}/{STEPS}" in lines[-1]
    spent = learned.attempt.metrics()[-1]["time"] - learned.attempt.metrics()[0]["time"]
    assert len(lines) <= 2 * spent + 2


def test_it_learns_over_two_nodes_in_shards_of_weights_and_of_rows_and_names_a_learner_that_dies(
    ray_environment: dict[str, str], launch: Callable[..., Attempt]
) -> None:
    """Bundles of learners on nodes of their own (two Ray nodes of this machine), and two engines.

    ZeRO-3, and two learners that share the tokens of every row: engines find the same log-probabilities.
    """
    words = [
        "train.steps=5000", "hardware.nodes=2", "hardware.gpus_per_node=4", "roles.learner.gpus=[1, 1]",
        "roles.learner.zero_stage=3", "roles.learner.sequence_parallel=2", "roles.rollout.engines=2",
        "train.warmup_steps=10",
        "grpo.aggregation=sequence", "grpo.advantage=centered", "grpo.ratio=sequence", "grpo.clip_low=3e-4",
        "grpo.clip_high=4e-4", "checkpoint.every=0", "tracking.wandb=disabled",
    ]  # fmt: skip
    with ray_node(ray_environment, num_cpus=2):
        attempt = launch(1, *words)
        attempt.await_step(25)
        pid = pid_of(attempt, "learner 1")
        os.kill(pid, 9)
        assert attempt.wait() == 1
    check_role_named(attempt, "learner 1", pid)
    nodes = {entry["role"]: entry["node"] for entry in roles_of(attempt)}
    assert len(nodes) == 4
    assert nodes["learner 0"] != nodes["learner 1"]
    assert attempt.mean_reward(21, 25) > attempt.mean_reward(1, 5) + 0.1
    assert max(line["parity_max_abs"] for line in attempt.metrics()) < PARITY_BOUND
    assert [line["learning_rate"] for line in attempt.metrics()[:3]] == pytest.approx([5e-5, 1e-4, 1.5e-4])
    assert {line["packing_efficiency"] for line in attempt.metrics()} == {1.0}


def check_role_named(attempt: Attempt, role: str, pid: int) -> None:
    """The run's last error is the death of a role."""
    error = attempt.events("error")[-1]
    assert f"{role} (pid {pid} on " in error
    assert "died" in error
    assert "Traceback" in attempt.log()


def test_colocated_roles_take_turns_and_may_use_a_batch_twice_in_lower_precision(
    launch: Callable[..., Attempt],
) -> None:
    """Engines as guests that sleep while learners work, two optimizer steps a batch; unlikely tokens are not drawn."""
    pool = ["pools={all: {gpus: [1]}}", "roles.learner.gpus=[]", "roles.learner.pool=all", "roles.rollout.pool=all"]
    words = [*pool, "roles.rollout.engines=0", "train.steps=80", "train.optimizer_steps=2", "train.learning_rate=3e-4"]
    words += ["roles.rollout.sleep_while_training=true", "train.top_p=0.98", "train.min_p=0.002"]
    words += ["roles.learner.precision=bf16", "roles.rollout.precision=fp32", "checkpoint.every=0"]
    words += ["roles.learner.micro_batch=48", "roles.learner.gradient_checkpointing=true"]
    attempt = launch(1, *LEARNING, *words, "tracking.wandb=disabled")
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    check_learned("grpo", lines, 80)
    assert max(line["clip_fraction"] for line in lines) > 0.0  # the second step is off-policy
    assert all(line["time/sleep"] > 0 < line["time/wake"] and line["time/weight_sync"] >= 0 for line in lines)
    assert not any("parity_max_abs" in line for line in lines)
    assert 1e-5 < lines[0]["mismatch_kl"] < 0.01  # the kept share Z less 1 less log Z, where weights are the same


def test_a_coin_teaches_nothing_and_engines_that_miss_their_weights_end_the_run(launch: Callable[..., Attempt]) -> None:
    """The negative control: same machine, same metric, a reward that means nothing.

    Then no weights come any more: trainer and engine drift apart, and that is seen at once.
    """
    preamble = f"""
from trainers.weight_sync import Transfers
send = Transfers.send
Transfers.send = lambda self, version: send(self, version) if version <= {STEPS} else []
"""
    words = ["train.steps=5000", "checkpoint.every=0", "data.reward=coin", *ALONE]
    attempt = launch(1, *LEARNING, *words, preamble=preamble)
    assert attempt.wait() == 1
    check_not_learned(attempt.metrics()[:STEPS])
    assert "the engine does not run the learner's weights" in attempt.events("error")[-1]
    assert len(attempt.metrics()) <= STEPS + 3


STOPPED_AT = 10
"""The step of a resumed run in which it is told to stop."""


def test_a_run_goes_on_from_its_checkpoint_to_the_bit_and_with_fewer_learners(
    learned: Learned, launch: Callable[..., Attempt], tmp_path: Path
) -> None:
    """From step 41, with what a kill in the midst of later checkpoints would have left: the curve of the run itself.

    Then one learner goes on with what two have saved when they were told to stop.
    """
    of_learned = learned.attempt
    run = tmp_path / "run-1"
    shutil.copytree(of_learned.run, run, symlinks=True)
    for step in (50, 60):
        (run / rundir.CHECKPOINTS / f"step-{step:06d}" / rundir.CHECKPOINT_COMPLETE).unlink()
    resumed = launch(2, *LEARNING, preamble=at_generation(STOPPED_AT, "os.kill(os.getpid(), signal.SIGTERM)"))
    assert resumed.wait() == 143, resumed.log()[-3000:]
    done = [line["step"] for line in resumed.metrics()]
    assert done == list(range(41, done[-1] + 1))
    assert STOPPED_AT - 1 <= len(done) <= STOPPED_AT
    assert resumed.rewards(41, done[-1]) == of_learned.rewards(41, done[-1])
    assert losses(resumed, 41, done[-1]) == pytest.approx(losses(of_learned, 41, done[-1]), abs=1e-5)
    assert resumed.events("checkpoint")[0] == "resumed from step 40"
    assert newest_checkpoint(str(run)) == str(run / rundir.CHECKPOINTS / f"step-{done[-1]:06d}")
    wandb_id = Path("wandb", "run-id")
    assert (run / wandb_id).read_text() == (of_learned.run / wandb_id).read_text()

    last = done[-1] + 2
    alone = launch(3, *LEARNING, *ALONE, f"train.steps={last}", "checkpoint.export=true")
    assert alone.wait() == 0, alone.log()[-3000:]
    assert "resharding it for 1" in alone.log()
    assert [line["step"] for line in alone.metrics()] == [last - 1, last]
    assert alone.rewards(last - 1, last) == pytest.approx(of_learned.rewards(last - 1, last), abs=0.02)
    assert losses(alone, last - 1, last - 1) == pytest.approx(losses(of_learned, last - 1, last - 1), abs=1e-5)
    assert not list(alone.run.rglob("universal"))
    exported = alone.run / rundir.EXPORT / f"step-{last:06d}"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in exported.iterdir()}


def losses(attempt: Attempt, first: int, last: int) -> list[float]:
    """The losses of steps ``first`` to ``last``."""
    by_step = {line["step"]: line["loss"] for line in attempt.metrics()}
    return [by_step[step] for step in range(first, last + 1)]


def test_variants_together_learn_and_resume_where_the_data_stood_also_if_the_reference_dies(
    launch: Callable[..., Attempt],
) -> None:
    """Active sampling, RLOO, Clip-Cov's chance, Dr. GRPO's sum, the KL in the reward, no loss from cut samples."""
    words = [
        *LEARNING[1:], *ALONE, "train.steps=60", "checkpoint.every=40", "grpo.active_sampling_limit=3",
        "grpo.ratio=clip_cov", "grpo.clip_cov_fraction=0.01", "grpo.clip_cov_low=0.1", "train.optimizer_steps=2",
        "grpo.aggregation=dr_grpo", "grpo.advantage=rloo", "grpo.mask_truncated=true",
        "roles.reference={zero_stage: 0}", "grpo.kl=reward", "grpo.kl_coefficient=0.01",
    ]  # fmt: skip
    whole = launch(1, *words)
    assert whole.wait() == 0, whole.log()[-3000:]
    metrics = whole.metrics()
    tried = [int(line["prompts_tried"]) for line in metrics]
    assert min(tried) >= 32
    assert 32 < max(tried) <= 96
    assert whole.mean_reward(51, 60) > whole.mean_reward(1, 5) + 0.2
    assert all(line["parity_max_abs"] < PARITY_BOUND and abs(line["mismatch_kl"]) < 1e-8 for line in metrics)
    assert metrics[-1]["kl"] > 0.01 > abs(metrics[0]["kl"])

    shutil.rmtree(whole.run / rundir.CHECKPOINTS / "step-000060")
    resumed = launch(2, *words, preamble=kill_at(3, "reference 0"))
    assert resumed.wait() == 0, resumed.log()[-3000:]
    gone, back = resumed.events(rundir.RESTART)
    assert gone.startswith("reference 0 (pid ")
    assert "starting it again (1 of 3 restarts within an hour)" in gone
    assert back.startswith(f"reference 0 (pid {pid_of(resumed, 'reference 0')} on ")
    again = {line["step"]: line for line in resumed.metrics()}
    for name in ("prompts_tried", "reward", "zero_std_fraction", "kl"):
        assert [again[step][name] for step in range(41, 61)] == [line[name] for line in metrics[40:]]


@pytest.fixture(scope="module")
def hopeless(ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """A run that cannot earn anything (one token is too short for any answer) nor save anything (no disk is enough)."""
    words = ["train.steps=5", "lengths.response=1", "checkpoint.every=2", *ALONE]
    words += ["roles.learner.precision=bf16", "roles.rollout.precision=fp32"]
    attempt = Attempt(tmp_path_factory.mktemp("hopeless") / "run-1", 1, words)
    full = "import trainers.checkpoint as disk, trainers.saving as saving; disk.SPARE = 1e12; saving.ROOM_WAIT_S = 2"
    attempt.start(ray_environment, preamble=full)
    attempt.wait()
    return attempt


def test_steps_without_signal_change_nothing(hopeless: Attempt) -> None:
    metrics = hopeless.metrics()
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5]
    for line in metrics:
        assert (line["reward"], line["zero_std_fraction"]) == (0.0, 1.0)
        assert line["truncated_fraction"] > 0.9
        assert (line["weight_version"], line["loss"], line["grad_norm"]) == (0, 0.0, 0.0)
        # log-probs are looked at all the same; of a bf16 learner and a fp32 engine: reported, not fatal
        assert line["parity_max_abs"] > PARITY_BOUND


def test_a_full_disk_stops_no_training_but_fails_the_end(hopeless: Attempt) -> None:
    missed = hopeless.events("checkpoint")
    assert [text[:12] for text in missed] == ["step 2 was n", "step 4 was n", "step 5 waits"]
    assert hopeless.running.returncode == 1
    assert "a checkpoint needs about" in hopeless.events("error")[-1]
    assert newest_checkpoint(str(hopeless.run)) is None


def test_an_engine_that_dies_changes_nothing_but_the_time_and_ends_the_run_where_no_restart_is_left(
    learned: Learned, launch: Callable[..., Attempt]
) -> None:
    """It is started again with the weights of the moment: the curve is that of the run that was let be."""
    one_restart = "import trainers.roles.restarts as restarts; restarts.LIMIT = 1"
    words = (*LEARNING, "train.steps=5000", "checkpoint.every=0", "tracking.wandb=disabled")
    attempt = launch(1, *words, preamble=one_restart)
    attempt.await_step(8)
    pid = pid_of(attempt, "engine 0")
    os.kill(pid, 9)
    attempt.await_step(20)
    died, back = eventually(lambda: attempt.events(rundir.RESTART)[1:] and attempt.events(rundir.RESTART), "a restart")
    assert died.startswith(f"engine 0 (pid {pid} on ")
    assert "starting it again (1 of 1 restarts within an hour)" in died
    assert "and goes on" in back
    assert f"(pid {pid} on " not in back
    again = pid_of(attempt, "engine 0")
    os.kill(again, 9)
    assert attempt.wait() == 1
    check_role_named(attempt, "engine 0", again)
    assert attempt.rewards(1, 20) == learned.attempt.rewards(1, 20)


def test_a_ray_of_ours_has_no_process_that_nobody_asks(ray_environment: dict[str, str]) -> None:
    folder = str(Path(ray_environment["RAY_AUTH_TOKEN_PATH"]).parent)
    started = [" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    ours = " ".join(words for words in started if folder in words)
    assert "raylet" in ours
    assert "idle_agent.sh" in ours, "as tests have it, see bare_ray.py"
    assert not any(left_out in ours for left_out in ("log_monitor", "client.server", "autoscaler/_private/monitor"))


def test_bundles_that_find_no_place_are_named_with_what_is_free(launch: Callable[..., Attempt]) -> None:
    attempt = launch(1, "hardware.gpus_per_node=64", "roles.learner.gpus=[48]", "deadlines.place_s=2")
    assert attempt.wait() == 1
    error = attempt.events("error")[-1]
    assert "the learner bundles found no place" in error
    assert "48 CPU" in error
    assert f"{socket.gethostname()} (" in error
    assert "): 4 CPU. Wait for CPUs" in error


def test_a_stop_while_loading_ends_at_once(launch: Callable[..., Attempt]) -> None:
    preamble = """
import os, signal
from trainers.roles.fleet import Fleet
wait = Fleet._await_load
def stopped(fleet, *arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    return wait(fleet, *arguments)
Fleet._await_load = stopped
"""
    attempt = launch(1, *ALONE, preamble=preamble)
    assert attempt.wait() == 143
    assert [visit["stage"] for visit in attempt.stage()["history"]] == ["placing", "loading"]
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
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert got.returncode == 0, got.stderr
    lines = got.stdout.splitlines()
    assert lines[0] == "node0 ┃ L0 ┃ E0 ┃ ·· ┃"
    assert lines[-1] == "[]"
    assert any("70 × 32 prompts × 8 samples = 256 samples a step, 17920 in all" in line for line in lines)
    assert any("4 saves, the newest 3 kept" in line for line in lines)
