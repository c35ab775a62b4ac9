"""Dialects: what each training system prints, and what comes out as step and metrics."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rltui.dialects.load import load_dialects, read_dialect, recognised
from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.onnode.line_reader import LineReader
from rltui.onnode.metric_sources import Sources
from rltui.onnode.script_output import Follower, fill, parse_values
from rltui.onnode.script_run import read_to_the_end
from rltui.watch.metrics import parse_metrics

DIALECTS = load_dialects()

# What a console line of each system looks like (addresses: the dialect's own sources), then step, steps and metrics.
SAID: list[tuple[str, list[str], tuple[int | None, int | None], dict[str, float]]] = [
    (
        "verl",
        ["\x1b[36m(TaskRunnerV1 pid=71)\x1b[0m step:7 - actor/pg_loss:-0.25 - critic/rewards/mean:np.float64(0.5) - "
         "timing_s/step:12.5 - response_length/clip_ratio:0.0"],
        (7, None),
        {"loss": -0.25, "reward": 0.5, "time/total": 12.5, "truncated_fraction": 0.0},
    ),
    (
        "slime",
        ["(RolloutManager pid=9, ip=10.0.0.2) [2026-01-01 10:00:00] rollout_metrics.py:41 - rollout 3: "
         "{'rollout/raw_reward': 0.25, 'rollout/response_len/mean': 801.5}",
         "[2026-01-01 10:01:00] train_metric_utils.py:9 - perf 3: {'perf/step_time': 61.0, 'perf/rollout_time': 40.0}",
         "(MegatronTrainRayActor pid=4) actor.py:7 - step 6: {'train/loss': 0.5, 'train/grad_norm': np.float32(1.5)}"],
        (3, None),
        {"reward": 0.25, "response_length": 801.5, "time/total": 61.0, "time/generate": 40.0, "loss": 0.5,
         "grad_norm": 1.5},
    ),
    (
        "prime-rl",
        ["12:00:01 SUCCESS Step 4 | Time: 9.1s | Reward: 0.7500 | Seq. Length: 210",
         "12:00:02 SUCCESS Step 4 | Time: 9.0s | Loss: 0.0125 | Entropy: 0.5 | Mismatch KL: 0.0004 | Grad. Norm: 0.25 "
         "| LR: 1.00e-06 | Throughput: 12,345 tokens/s | MFU: 31.0% | Peak Mem.: 61.5 GiB"],
        (4, None),
        {"reward": 0.75, "loss": 0.0125, "entropy": 0.5, "mismatch_kl": 0.0004, "grad_norm": 0.25,
         "learning_rate": 1e-6, "learner_tokens_per_second_step": 12345.0, "learner_memory_gib": 61.5},
    ),
    (
        "trl",
        ["Writing model shards: 100%|██████████| 1/1 [00:00<00:00, 66.2it/s]",
         "  2%|▏         | 2/100 [00:05<04:10,  2.5s/it]",
         "{'loss': '0.002', 'grad_norm': '1.5', 'num_tokens': '2050', 'reward': '0.75', 'step_time': '0.5'}"],
        (2, 100),
        {"loss": 0.002, "grad_norm": 1.5, "reward": 0.75, "time/total": 0.5},
    ),
    (
        "nemo-rl",
        ["========================= Step 5/500 =========================", "▶ Training policy...",
         "  • Total step time: 33.50s", "  • policy_training: 10.25s (30.6%)", "  • generation: 20.00s (59.7%)"],
        (5, 500),
        {"time/total": 33.5, "time/train": 10.25, "time/generate": 20.0},
    ),
    (
        "skyrl",
        ["(skyrl_entrypoint pid=3) INFO Step 6:", "(skyrl_entrypoint pid=3) {'reward/avg_raw_reward': 0.5,",
         "(skyrl_entrypoint pid=3)  'timing/step': 8.25,", "(skyrl_entrypoint pid=3)  'policy/grad_norm': 0.125}"],
        (6, None),
        {"reward": 0.5, "time/total": 8.25, "grad_norm": 0.125},
    ),
    (
        "openrlhf",
        ["✨ Global step 8: {'policy_loss': -0.5, 'actor_grad_norm': 0.25, 'timing/step_total': 4.5}"],
        (8, None),
        {"loss": -0.5, "grad_norm": 0.25, "time/total": 4.5},
    ),
    (
        "openrlhf-flat",
        ["INFO:openrlhf: ✨ Global step 9: {'policy_loss': -0.5, 'reward': 0.25, 'response_length': 801.0}"],
        (9, None),
        {"loss": -0.5, "reward": 0.25},
    ),
    (
        "areal",
        ["Epoch 1/2 Step 3/50 Train step 3/100 done.", "│ ppo_actor/task_reward/avg │ 5.0000e-01 │",
         "│ timeperf/rollout          │ 1.2500e+01 │"],
        (3, 100),
        {"reward": 0.5, "time/generate": 12.5},
    ),
    ("open-instruct", ["training_step: 9 scores: 4.5 time/total: 30.0"], (9, None), {"reward": 4.5}),
    ("generic", ["Step 10/20: loss=0.5, reward=1.0"], (10, 20), {"loss": 0.5, "reward": 1.0}),
    ("generic", ["[step 10 of 20] loss: 0.5 | reward: 1.0"], (10, 20), {"loss": 0.5, "reward": 1.0}),
    (
        "generic",
        ["step 10/20  loss 5e-1, mean reward -1.0 (kl 0.25)  998 tok/s  0.95 steps/s  took 3s"],
        (10, 20),
        {"loss": 0.5, "mean reward": -1.0, "kl": 0.25},
    ),
]  # fmt: skip

WRITTEN = {
    "verl": "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B",
    "slime": "ray job submit -- python3 train.py --actor-num-gpus-per-node 4 --rollout-num-gpus 4",
    "prime-rl": "uv run rl @ configs/rl.toml",
    "open-instruct": "python open_instruct/grpo_fast.py --vllm_num_engines 4",
    "trl": "accelerate launch -m trl.scripts.grpo --output_dir out",
    "nemo-rl": "uv run python examples/run_grpo_math.py --config grpo.yaml",
    "skyrl": "python -m skyrl_train.entrypoints.main_base generator.inference_engine.num_engines=4",
    "openrlhf": "python3 -m openrlhf.cli.train_ppo_ray --actor.num_gpus_per_node 8",
    "openrlhf-flat": "python3 -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 8 --vllm_num_engines 4",
    "areal": "python3 -m areal.launcher.slurm examples/gsm8k.py --config grpo.yaml",
}


def follow(attempt: Path, name: str, lines: list[str]) -> Follower:
    log = attempt / rundir.OUT_LOG
    log.write_text("".join(f"{line}\n" for line in lines))
    dialect = msgspec.to_builtins(DIALECTS[name])
    file = fill(dialect["metrics"]["file"], {"attempt": str(attempt)})
    sources = Sources(dialect["metrics"], file, str(attempt / "tensorboard"))
    follower = Follower(str(attempt), dialect, LineReader(str(log), also_returns=True), sources, lambda: 1.0)
    follower.look(is_last=True)
    return follower


def test_of_a_script_that_prints_faster_than_it_is_read_steps_are_told_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltui.onnode.line_reader.CHUNK", 4096)
    monkeypatch.setattr("rltui.onnode.script_run.LOOK_BYTES", 4096)
    log = LineReader(str(tmp_path / rundir.OUT_LOG), also_returns=True)
    (tmp_path / rundir.OUT_LOG).write_text("".join(f"step {step}/999 loss 0.5\n" for step in range(1000)))
    follower = Follower(str(tmp_path), msgspec.to_builtins(DIALECTS["generic"]), log)
    told: list[tuple[str, str, int, int]] = []
    write_stage = rundir.write_stage

    def note(attempt: str, *stands: Any) -> None:
        told.append(stands)
        write_stage(attempt, *stands)

    monkeypatch.setattr(rundir, "write_stage", note)
    with subprocess.Popen(["true"]) as child:
        child.wait(10)
        read_to_the_end(child, follower, log)
    assert told[0][2:] == (999, 999), "the newest step is known before the metrics up to it are read"
    assert len({detail for _, detail, _, _ in told}) >= 5, "how far they are read is told as they are"
    assert told[-1] == ("training", "", 999, 999)


def test_a_line_of_many_words_takes_no_longer_than_its_length() -> None:
    words = "so many words " * 20_000
    began = time.process_time()
    assert parse_values(f"{words}: loss = 3, a/b:1.5 - c:-2 at 12:30:05", "pairs") == {
        "loss": 3.0,
        "a/b": 1.5,
        "c": -2.0,
    }
    assert time.process_time() - began < 1.0


def metrics(attempt: Path) -> dict[int, dict[str, float]]:
    path = attempt / rundir.METRICS
    lines = path.read_bytes().splitlines() if path.exists() else []
    return {point[0]: point[1] for line in lines if (point := parse_metrics(line))}


@pytest.mark.parametrize(("name", "lines", "steps", "values"), SAID, ids=[case[0] for case in SAID])
def test_progress_lines_become_steps_and_metrics_under_our_names(
    tmp_path: Path, name: str, lines: list[str], steps: tuple[int | None, int | None], values: dict[str, float]
) -> None:
    follower = follow(tmp_path, name, lines)
    assert (follower.step, follower.steps) == steps
    found = metrics(tmp_path)[steps[0] or 0]
    assert {key: found.get(key) for key in values} == values
    stage = rundir.read_json(str(tmp_path / rundir.STAGE))
    assert stage is not None
    assert (stage["stage"], stage["step"]) == ("training", steps[0])


def test_every_dialect_has_a_line_of_its_own_and_is_recognised_by_its_command() -> None:
    assert {case[0] for case in SAID} == set(DIALECTS)
    assert set(WRITTEN) == set(DIALECTS) - {"generic"}
    for name, command in WRITTEN.items():
        found = recognised(f"#!/bin/bash\n# verl and slime in a comment: main_ppo\n{command}\n", DIALECTS.values())
        assert [one.name for one in found] == [name]


def test_each_dictionary_is_a_step_where_the_bar_is_not_drawn_each_time(tmp_path: Path) -> None:
    line = "{'loss': '0.5', 'reward': '0.25'}"
    follower = follow(tmp_path, "trl", ["  1%| | 4/100 [00:01<00:10, 1s/it]", line, line, line])
    assert follower.step == 6
    assert sorted(metrics(tmp_path)) == [4, 5, 6]


def test_numbers_that_come_before_their_step_is_told_are_that_steps(tmp_path: Path) -> None:
    line = "{'loss': '0.5', 'reward': '%s'}"
    began = "  0%| | 0/23 [00:00<?, ?it/s]"
    follow(tmp_path, "trl", [began, line % "0.25", " 91%|# | 21/23 [00:01<00:10, 1s/it]", line % "0.5"])
    assert {step: one["reward"] for step, one in metrics(tmp_path).items()} == {21: 0.25, 22: 0.5}


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_where_nobody_tells_steps_they_are_counted(tmp_path: Path, count: int) -> None:
    follow(tmp_path, "trl", ["{'loss': '0.5', 'reward': '0.25'}"] * count)
    assert sorted(metrics(tmp_path)) == list(range(1, count + 1))


def test_a_file_of_metrics_goes_before_the_console(tmp_path: Path) -> None:
    (tmp_path / "verl-metrics.jsonl").write_text(
        '{"step": 1, "data": {"critic/rewards/mean": 0.123456789, "note": "x"}}\n{"step": 2, "da'
    )
    follow(tmp_path, "verl", ["step:1 - critic/rewards/mean:0.123"])
    with (tmp_path / "verl-metrics.jsonl").open("a") as stream:
        stream.write('ta": {"critic/rewards/mean": 0.5}}\n')
    assert metrics(tmp_path)[1]["reward"] == 0.123456789
    fresh = follow(tmp_path, "verl", ["step:1 - critic/rewards/mean:0.123", "step:2 - critic/rewards/mean:0.4"])
    assert fresh.step == 2
    assert metrics(tmp_path)[2]["reward"] == 0.5


def test_where_a_system_tells_of_its_queues_is_noted_for_its_own_node(tmp_path: Path) -> None:
    line = "(ActorManager pid=7, ip=10.0.0.2) INFO - Dashboard server started at http://node7.example.org:41234"
    follow(tmp_path, "open-instruct", [line])
    told = json.loads((tmp_path / rundir.STATUS_ENDPOINT).read_text())
    assert (told["url"], told["host"], told["token"]) == ("http://127.0.0.1:41234", "node7", "")


def test_a_file_that_starts_anew_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    reader = LineReader(str(path))
    assert list(reader.read()) == []
    path.write_text("one\ntwo\nthr")
    assert list(reader.read()) == ["one", "two"]
    path.write_text("new\n")
    assert list(reader.read()) == ["new"]


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("{'a': inf, 'b': 1, 'c': -inf}", "python", {"a": float("inf"), "b": 1.0, "c": float("-inf")}),
        ("{'a': __import__('os').getpid()}", "python", {}),
        ("{" * 100_000, "python", {}),
        ("[1, 2]", "json", {}),
        ('{"a": true, "b": "2,000", "c": 3}', "json", {"b": 2000.0, "c": 3.0}),
        ("a:1 - b/c: -2.5e-3 | d=7", "pairs", {"a": 1.0, "b/c": -0.0025, "d": 7.0}),
        ("torch 2.13.0 at 10:11:12", "pairs", {}),
        ("loss 0.5 reward=1", "pairs", {"loss 0.5 reward": 1.0}),
        ("reward 0.9  2.3k tok/s  0.91 steps/s  kl -inf", "words", {"reward": 0.9, "kl": -float("inf")}),
        ("of all that was seen 7 times 12:30:01 ago", "words", {}),
    ],
)
def test_values_are_read_and_never_run(text: str, kind: str, values: dict[str, float]) -> None:
    assert parse_values(text, kind) == values


def test_hostile_output_is_survived(tmp_path: Path) -> None:
    noise = ["step:", "step:99999999999999999999 - x:1", "\x1b]0;title\x07", "{" * 5000, "Step 1: {", "}" * 10]
    for name in DIALECTS:
        follow(tmp_path, name, noise * 20)


def test_a_dialect_of_the_users_own_replaces_a_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dialects"
    folder.mkdir()
    (folder / "mine.yaml").write_text("name: trl\nsummary: mine\nprogress: [{pattern: 'at (?P<step>\\d+)'}]\n")
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path))
    assert load_dialects()["trl"].summary == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nsummary: y\nadvances: []\n", "advances"),
        ("name: x\nsummary: y\nprogress: [{pattern: '('}]\n", "is no regular expression"),
        ("[", "is no dialect"),
    ],
)
def test_a_file_that_is_no_dialect_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(RltuiError, match=said):
        read_dialect(path)


def test_a_metric_called_time_is_not_when_the_step_ended(tmp_path: Path) -> None:
    follow(tmp_path, "openrlhf", ["Global step 1: {'time': 5.0, 'step': 99, 'reward': 1.0}"])
    record: dict[str, Any] = json.loads((tmp_path / rundir.METRICS).read_text())
    assert (record["time"], record["step"]) == (1.0, 1)
