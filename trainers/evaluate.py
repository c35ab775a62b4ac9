"""Evaluate a model by itself, without Ray: ``python -m trainers.evaluate LAYOUT --model FOLDER [key=value …]``.

The evaluation set, the engine and the reward are the layout's; the metrics are one JSON object on stdout, under the
names that they have in a run.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stdout
from pathlib import Path

from rltui.layout.load import load_layout
from rltui.layout.schema import Layout
from trainers.data.codec import Codec
from trainers.data.models import resolve_model
from trainers.data.prompts import EnginePrompt, Prompt
from trainers.evaluation import Evaluation
from trainers.rewards.composed import make_reward, score_groups
from trainers.roles.completions import Completion, grouped
from trainers.roles.engine import EngineActor
from trainers.roles.engine_environment import engine_environment
from trainers.roles.sampling import SamplingSettings

log = logging.getLogger("trainers")


def evaluate(layout: Layout, model: str, folder: Path) -> dict[str, float]:
    """Evaluate ``model`` (a folder, or a name) on the layout's evaluation set; the metrics.

    Args:
        layout: The layout; of its roles only the rollout engine counts.
        model: What to evaluate.
        folder: Some answers are kept in its folder ``evaluations``.

    Raises:
        ValueError: The layout has no evaluation set, or something of it is not in reach.
    """
    if not layout.data.eval:
        raise ValueError("the layout has no evaluation set: data.eval=NAME")
    if layout.data.environment:
        raise ValueError("a model is evaluated in an environment by a run only: train.steps=0, data.eval_every=1")
    os.environ.update(engine_environment(layout.roles.rollout, layout.hardware.on_cpu))
    path = resolve_model(model, layout, lambda *_: None)
    codec = Codec(path, layout.train.stop)
    engine = EngineActor(layout.roles.rollout, path, layout.lengths, 0)

    def ask(prompts: Sequence[EnginePrompt], settings: Callable[[int], SamplingSettings]) -> list[list[Completion]]:
        return grouped(engine.generate(list(prompts), settings(0)), len(prompts))

    def score(prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> list[list[float]]:
        return score_groups(reward, codec, prompts, groups)

    found = Evaluation(layout, codec, ask, score, folder)
    with closing(make_reward(layout, lambda _, text: log.info(text))) as reward:
        engine.load()
        return found.run(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainers.evaluate", description="Evaluate a model by itself.")
    parser.add_argument("layout", type=Path, help="whose data.eval, reward and engine are taken")
    parser.add_argument("--model", default="", help="folder or name of the model; by default the learner's")
    parser.add_argument("--folder", type=Path, default=Path(), help="where evaluations/ keeps some answers")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes of the layout")
    options = parser.parse_intermixed_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    log.setLevel(logging.INFO)
    layout = load_layout(options.layout, options.overrides).layout
    with redirect_stdout(sys.stderr):  # libraries talk there when they are imported
        metrics = evaluate(layout, options.model or layout.roles.learner.model, options.folder)
    print(json.dumps(metrics))
    return 0


if __name__ == "__main__":
    sys.exit(main())
