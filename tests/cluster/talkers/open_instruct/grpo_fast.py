"""Speaks as open-instruct does (allenai/open-instruct at e6c3044aa, open_instruct/grpo_fast.py); goes on by itself."""

from pathlib import Path

from talk import talk, words

given = words()
folder = Path(given["--checkpoint_state_dir"])
latest = folder / "latest"
first = int(latest.read_text().removeprefix("global_step")) + 1 if latest.exists() else 1
print("=== ✅ vLLM engines and actor_manager initialized", flush=True)
print("=== ✅ all models initialized", flush=True)


def say(step: int) -> list[str]:
    """The line of a step."""
    return [f"training_step: {step} scores: {step / 8} loss/policy_avg: -0.5 time/total: 4.5"]


def save(step: int) -> None:
    """A checkpoint of DeepSpeed."""
    (folder / f"global_step{step}").mkdir(parents=True, exist_ok=True)
    latest.write_text(f"global_step{step}")


talk(first, int(given.get("--steps", "100000")), say, save)
