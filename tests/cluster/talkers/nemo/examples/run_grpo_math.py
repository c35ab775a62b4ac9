"""Speaks as NeMo-RL does (NVIDIA-NeMo/RL at 7ea279abf, nemo_rl/algorithms/grpo.py); goes on by itself."""

from pathlib import Path

from talk import talk, words

given = words()
folder = Path(given["checkpointing.checkpoint_dir"])
last = int(given.get("grpo.max_num_steps", "100000"))
saved = [int(path.parent.name.removeprefix("step_")) for path in folder.glob("step_*/training_info.json")]


def say(step: int) -> list[str]:
    """The lines of a step."""
    return [
        f"========================= Step {step}/{last} =========================",
        "▶ Generating responses for batch of size 64...",
        "▶ Training policy...",
        "📊 Training Results:",
        "  • Loss: -0.5000",
        f"  • Avg Reward: {step / 8:.4f}",
        "  • Mean Generation Length: 801.5000",
        "⏱️  Timing:",
        "  • Total step time: 4.50s",
        "  • policy_training: 1.25s (27.8%)",
        "  • generation: 3.00s (66.7%)",
    ]


def save(step: int) -> None:
    """A checkpoint, complete when it has its name."""
    making = folder / f"tmp_step_{step}"
    making.mkdir(parents=True, exist_ok=True)
    (making / "training_info.json").write_text("{}")
    making.rename(folder / f"step_{step}")


talk(max(saved, default=0) + 1, last, say, save)
