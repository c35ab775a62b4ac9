"""Speaks as AReaL does (inclusionAI/AReaL at 4aef98d8d): a line a step, then a table; goes on with recover.mode=on."""

from pathlib import Path

from talk import talk, words

given = words()
last = int(given.get("steps", "100000"))
info = Path(given["cluster.fileroot"]) / "recover_info"
first = int(info.read_text()) + 1 if given.get("recover.mode") == "on" and info.exists() else 1


def say(step: int) -> list[str]:
    """The lines of a step."""
    return [
        f"20260101-10:00:00 [StatsLogger] INFO: Epoch 1/2 Step {step}/50 Train step {step}/{last} done.",
        f"│ ppo_actor/task_reward/avg │ {step / 8:.4e} │",
        "│ timeperf/rollout          │ 3.0000e+00 │",
    ]


def save(step: int) -> None:
    """What it goes on from."""
    info.parent.mkdir(parents=True, exist_ok=True)
    info.write_text(str(step))


talk(first, last, say, save)
