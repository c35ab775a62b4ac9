"""The training loops in one process, whole or with one fault each: ``python mutants.py ALGORITHM NAME…``.

Steps, judgement, shards, learner, critic, teacher scores and the sampling engine are the real ones; Ray, the processes
and the transfer of weights are left out, because nothing that is mutated here is theirs. Prints one JSON object: by
name, the metrics of each step and what ended the run early, if anything did.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from learning import STEPS
from trainer_support import ROOT

STALE_STEPS = 50
"""How far behind the engine of the mutant ``stale`` is, in steps."""


class LocalFleet:
    """The roles of a layout as plain objects of this process, one of each kind.

    Args:
        layout: The layout.
        paths: The model's folder of each kind of role.
        behind: How many versions the engine's weights are behind what it is told; None: it never gets any.
    """

    def __init__(self, layout: Any, paths: dict[str, str], behind: int | None) -> None:
        from trainers.roles.critic import Critic
        from trainers.roles.engine import EngineActor
        from trainers.roles.learner import Learner
        from trainers.roles.sleep import EngineSleep
        from trainers.roles.teacher import Teacher

        self.engine_sleep = EngineSleep([], [], 0.0)
        self._behind, self._sent = behind, deque[dict[str, Any]]()
        self.engine = EngineActor(layout.roles.rollout, paths["learner"], layout.lengths, 0)
        self.engine.load()
        self._roles: dict[str, Any] = {"learner": Learner(layout, 0, paths["learner"])}
        if layout.roles.critic is not None:
            self._roles["critic"] = Critic(layout, 0, paths["learner"])
        for role in self._roles.values():
            role.load("127.0.0.1", role.free_port())
        if layout.roles.teacher is not None:
            self._roles["teacher"] = Teacher(layout, 0, paths["teacher"])
            self._roles["teacher"].load()

    def of(self, kind: str) -> list[Any]:
        return [self._roles[kind]]

    def begin(self, kind: str, method: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
        return [getattr(self._roles[kind], method.__name__)(argument) for argument in arguments]

    def finish(self, answers: list[Any], doing: str) -> list[Any]:
        return answers

    def send_weights(self, version: int) -> None:
        import torch

        self.engine._weight_version = version  # what it claims, whatever it has
        if self._behind is None:
            return
        named = self._roles["learner"]._engine.module.named_parameters()
        self._sent.append({name: parameter.detach().clone() for name, parameter in named})
        if len(self._sent) > self._behind:
            with torch.no_grad():
                own = dict(self.engine._engine._model.named_parameters())
                for name, tensor in self._sent.popleft().items():
                    own[name].copy_(tensor)


def make_loop(algorithm: str, layout: Any, fleet: LocalFleet, path: str) -> Any:
    """The real loop of the algorithm, but for what reaches outside of this process."""
    import importlib

    from trainers.data.codec import Codec
    from trainers.data.curriculum import make_curriculum
    from trainers.data.tasks import make_task
    from trainers.lookahead import StalenessCounter
    from trainers.phases import Phases
    from trainers.prefetch import Prefetch
    from trainers.resuming import initial_state
    from trainers.rewards.composed import make_reward
    from trainers.roles.completions import derive_seed, grouped
    from trainers.roles.sampling import SamplingSettings

    base: Any = getattr(importlib.import_module(f"trainers.{algorithm}"), algorithm.capitalize())

    class Local(base):  # type: ignore[misc]
        def generate(self, number: int, drawn: int = 0, count: int | None = None) -> Any:
            train = self.layout.train
            prompts = self.task.prompts(self.state.cursor + drawn, count or train.prompts_per_step)
            settings = SamplingSettings(
                train.temperature, self.layout.lengths.response, train.samples_per_prompt,
                self.codec.stop_token_ids, derive_seed(train.seed, number, drawn),
            )  # fmt: skip
            samples = fleet.engine.generate([list(p.token_ids) for p in prompts], settings)
            return prompts, self.staleness.note(grouped(samples, len(prompts)), self.state.weight_version)

    loop = Local.__new__(Local)
    loop.session = MagicMock(layout=layout)
    loop.lookahead = MagicMock()  # ``generate`` reads the prompts itself
    loop.layout, loop.fleet, loop.codec = layout, fleet, Codec(path)
    loop.task = loop.curriculum = make_curriculum(layout, make_task(layout, loop.codec))
    loop.reward = make_reward(layout, lambda *_: None)
    loop.prefetched_rewards, loop.prefetched_scores = Prefetch(loop.compute_rewards), None
    loop.state, loop.memory_gib, loop.phases = initial_state(layout), [], Phases(loop.session.board)
    loop.meter = SimpleNamespace(measure=lambda *_: {})
    loop.weights = SimpleNamespace(send=fleet.send_weights)
    loop.staleness = StalenessCounter(layout.train.async_steps)
    return loop


def negative(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with its sign turned; of several results, that of the first."""

    def turned(*arguments: Any, **options: Any) -> Any:
        found = function(*arguments, **options)
        return (-found[0], *found[1:]) if isinstance(found, tuple) else -found

    return turned


def faults(name: str) -> list[Any]:
    """The patches that make the mutant ``name``."""
    import torch

    from trainers import advantages, metrics, objectives, variants
    from trainers.roles.critic import Critic
    from trainers.roles.step_report import RankReport

    bounds = ("PARITY_BOUND_FP32", "MISMATCH_KL_BOUND")
    quiet = [patch.object(metrics, bound, torch.inf) for bound in bounds]  # else the loop itself ends such a run
    turned = {
        "sign of the token's advantages": (advantages, "generalised_advantages"),
        "sign of the divergence": (objectives, "divergence"),
    }
    if name == "sign of the group's advantages":
        known = variants.VARIANTS["advantage"]
        return [patch.dict(known, standard=negative(known["standard"]))]
    if name in turned:
        owner, attribute = turned[name]
        return [patch.object(owner, attribute, negative(getattr(owner, attribute)))]
    if name == "critic not trained":
        nothing = dict.fromkeys((field.name for field in fields(RankReport)), 0)

        def train(*_: Any) -> RankReport:
            return RankReport(**{**nothing, "tokens": 1})

        return [patch.object(Critic, "train", train)]
    return quiet if name in ("no weights", "stale weights") else []


def run(algorithm: str, name: str, steps: int) -> dict[str, Any]:
    """Metrics of a run of the mutant ``name``; names that are no fault run the loop as it is."""
    from contextlib import ExitStack

    from rltui.layout.load import load_layout
    from trainers.data.models import model_names, resolve_model
    from trainers.metrics import TrainingError

    words = [f"train.steps={steps}", *(["roles.learner.gpus=[1]"] if algorithm != "ppo" else [])]
    layout = load_layout(ROOT / "layouts" / "local" / f"{algorithm}-tiny.yaml", words).layout
    paths = {kind: resolve_model(model, layout, lambda *_: None) for kind, model in model_names(layout).items()}
    behind = {"no weights": None, "no weights, unnoticed": None, "stale weights": STALE_STEPS}.get(name, 0)
    lines: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for fault in faults(name):
            stack.enter_context(fault)
        loop = make_loop(algorithm, layout, LocalFleet(layout, paths, behind), paths["learner"])
        loop.weights.send(0)
        try:
            while loop.state.step < steps:
                metrics = loop.step()
                lines.append({"step": loop.state.step, **metrics})
        except TrainingError as error:
            return {"lines": lines, "error": f"{type(error).__name__}: {error}"}
    return {"lines": lines, "error": ""}


def main() -> None:
    """Run the mutants that are named, one after the other."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    algorithm, *names = sys.argv[1:]
    print(json.dumps({name: run(algorithm, name, STEPS) for name in names}))


if __name__ == "__main__":
    main()
