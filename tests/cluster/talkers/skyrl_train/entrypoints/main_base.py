"""Speaks as SkyRL does (NovaSky-AI/SkyRL at a9564572e): skyrl_train/trainer.py, skyrl_train/utils/tracking.py."""

import pprint
from pathlib import Path

from talk import talk, words

given = words()
folder = Path(given["trainer.ckpt_path"])
newest = folder / "latest_ckpt_global_step.txt"
is_resumed = given.get("trainer.resume_mode") == "latest" and newest.exists()
first = int(newest.read_text()) + 1 if is_resumed else 1


def say(step: int) -> list[str]:
    """The lines of a step: a dictionary over several lines."""
    values = {"reward/avg_raw_reward": step / 8, "timing/step": 4.5, "policy/grad_norm": 0.125, "x" * 60: 1.0}
    lines = pprint.pformat(values).splitlines()
    return [f"(skyrl_entrypoint pid=3) 2026-01-01 10:00:00 | INFO Step {step}:"] + [
        f"(skyrl_entrypoint pid=3) {line}" for line in lines
    ]


def save(step: int) -> None:
    """A checkpoint: its state last, then the file that names it."""
    (folder / f"global_step_{step}/policy").mkdir(parents=True, exist_ok=True)
    (folder / f"global_step_{step}/trainer_state.pt").touch()
    newest.write_text(str(step))


talk(first, int(given.get("trainer.steps", "100000")), say, save)
