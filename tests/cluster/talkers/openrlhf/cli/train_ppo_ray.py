"""Speaks as OpenRLHF does (OpenRLHF/OpenRLHF at 3c3be623, and before 0.10 with underscores in place of the dots).

openrlhf/trainer/ppo_trainer.py says the line; DeepSpeed saves into ``_actor`` and writes ``latest`` last; without
``load_enable`` (``load_checkpoint``) it begins at step 0.
"""

from pathlib import Path

from talk import talk, words

given = words()
folder = Path(given.get("--ckpt.path") or given["--ckpt_path"]) / "_actor"
is_resumed = "--ckpt.load_enable" in given or "--load_checkpoint" in given
latest = folder / "latest"
first = int(latest.read_text().removeprefix("global_step")) + 1 if is_resumed and latest.exists() else 1


def say(step: int) -> list[str]:
    """The lines of a step."""
    values = {"policy_loss": -0.5, "actor_grad_norm": 0.25, "reward": step / 8, "timing/step_total": 4.5}
    return [f"(PPOTrainer pid=7) INFO 01-01 10:00:00 ppo_trainer.py:88] ✨ Global step {step}: {values}"]


def save(step: int) -> None:
    """A checkpoint of DeepSpeed."""
    (folder / f"global_step{step}").mkdir(parents=True, exist_ok=True)
    (folder / f"global_step{step}/mp_rank_00_model_states.pt").touch()
    latest.write_text(f"global_step{step}")


talk(first, int(given.get("--steps", "100000")), say, save)
