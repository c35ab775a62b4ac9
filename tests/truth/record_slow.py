"""Record the fixtures of ``slow.py``: real short runs of the tiny model on CPU, most with a planted bottleneck.

``python tests/truth/record_slow.py [NAME…]`` writes ``slow_runs/NAME.jsonl``, the run's own metrics. Each run has a Ray
of its own and takes about a minute; nothing of it outlives the program.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = HERE / "slow_runs"
sys.path[:0] = [str(ROOT), str(HERE.parent), str(HERE.parent / "trainers")]

import trainer_support  # noqa: E402

LOCAL = ROOT / "layouts" / "local"
SHORT = ("train.steps=24", "tracking.wandb=disabled", "checkpoint.every=0")
GRPO = (LOCAL / "grpo-tiny.yaml", (*SHORT, "roles.learner.gpus=[1]"))
PPO = (LOCAL / "ppo-tiny.yaml", SHORT)
OPD = (LOCAL / "opd-tiny.yaml", SHORT)
JUDGE = ("data.reward=planted:slow_judge", "roles.reward={workers: 1}")
SAVES = ("checkpoint.every=3", "checkpoint.keep=1")
EVALUATES = ("data.eval=builtin/sort-digits", "data.eval_every=2", "data.eval_prompts=512")

RUNS = {
    "healthy": (GRPO, (), "generation", 0.04),
    "healthy-engines": (GRPO, ("roles.rollout.engines=2",), "generation", 0.04),
    "healthy-ahead": (GRPO, ("train.async_steps=1",), "generation", 0.03),
    "healthy-saves": (GRPO, ("checkpoint.every=8",), "generation", 0.04),
    "judge-round-trips": (GRPO, JUDGE, "", 0.0),
    "few-engines-needed": (GRPO, ("roles.rollout.engines=2",), "", 0.0),
    "healthy-ppo": (PPO, (), "", 0.0),
    "healthy-opd": (OPD, (), "", 0.0),
    "judge": (GRPO, JUDGE, "", 0.003),
    "judge-mild": (GRPO, JUDGE, "", 0.0008),
    "judge-constant": (GRPO, ("data.reward=planted:constant_judge",), "", 0.0),
    "engine": (GRPO, ("roles.rollout.engines=3",), "engine-1", 0.15),
    "engine-mild": (GRPO, ("roles.rollout.engines=3",), "engine-1", 0.03),
    "generation": (GRPO, (), "generation", 0.8),
    "generation-ahead": (GRPO, ("train.async_steps=1",), "generation", 0.5),
    "learner": (GRPO, (), "learner", 0.8),
    "learner-ahead": (GRPO, ("train.async_steps=1",), "learner", 0.5),
    "hand-over": (GRPO, (), "hand-over", 0.5),
    "hand-over-mild": (GRPO, (), "hand-over", 0.2),
    "disk": (GRPO, SAVES, "disk", 1.5),
    "disk-mild": (GRPO, SAVES, "disk", 0.6),
    "evaluation": (GRPO, EVALUATES, "", 0.0),
    "prompts": (GRPO, (), "prompts", 0.8),
    "prompts-hidden": (GRPO, (), "prompts", 0.03),
    "prompts-of-ppo": (PPO, (), "prompts", 0.5),
    "teacher": (OPD, (), "teacher", 0.8),
    "critic": (PPO, (), "critic", 0.8),
    "critic-mild": (PPO, (), "critic", 0.4),
    "long-answers": (GRPO, ("lengths.response=64", "train.temperature=1.5"), "decoding", 0.02),
    "all-long-answers": (GRPO, ("lengths.response=4",), "decoding", 0.1),
}
"""Name → layout, further overrides, what is planted, and seconds that it takes longer."""


def record(name: str) -> None:
    """Make one run and keep its metrics."""
    (base, common), more, planted, seconds = RUNS[name]
    os.environ.update(RLTUI_PLANTED=planted, RLTUI_PLANTED_S=str(seconds), OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text("import planted\nplanted.plant()\n")
        paths = (ROOT, HERE, site)
        trainer_support.ROOT = Path(os.pathsep.join(map(str, paths)))
        with trainer_support.ray_cluster(8, Path(scratch) / "cache") as environment:
            attempt = trainer_support.Attempt(Path(scratch) / "run", 1, (*common, *more), base)
            code = attempt.start(environment).wait()
            lines = attempt.metrics()
        if code:
            raise SystemExit(f"{name} ended with {code}:\n{attempt.log()[-3000:]}")
    FOLDER.mkdir(exist_ok=True)
    text = "".join(json.dumps(_short(line)) + "\n" for line in lines)
    (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")
    print(f"{name}: {len(lines)} steps", flush=True)


def _short(line: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 3) if key == "time" else float(f"{value:.4g}") for key, value in line.items()}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or RUNS:
        record(chosen)
