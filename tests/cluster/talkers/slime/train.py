"""Speaks as slime does (THUDM/slime at 624b824a8): slime/observability/rollout_metrics.py, train_metric_utils.py.

Megatron saves ``iter_%07d`` and its tracker last; ``--load`` of the folder that it saves to goes on behind its id.
"""

from pathlib import Path

from talk import talk, words

given = words()
folder = Path(given["--save"])
tracker = Path(given.get("--load", "/nowhere")) / "latest_checkpointed_iteration.txt"
first = int(tracker.read_text()) + 1 if tracker.exists() else 0


def say(step: int) -> list[str]:
    """The lines of a rollout, and of the training step on it."""
    at = "[2026-01-01 10:00:00]"
    rollout = {"rollout/raw_reward": step / 8, "rollout/response_len/mean": 801.5}
    perf = {"perf/step_time": 4.5, "perf/rollout_time": 3.0}
    return [
        f"(RolloutManager pid=9, ip=10.0.0.2) {at} rollout_metrics.py:41 - rollout {step}: {rollout}",
        f"{at} train_metric_utils.py:9 - perf {step}: {perf}",
        f"(MegatronTrainRayActor pid=4) {at} actor.py:7 - step {step}: {{'train/loss': -0.5, 'train/grad_norm': 1.5}}",
    ]


def save(step: int) -> None:
    """A checkpoint of Megatron."""
    (folder / f"iter_{step:07d}").mkdir(parents=True, exist_ok=True)
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))


talk(first, int(given.get("--num-rollout", "100000")), say, save)
