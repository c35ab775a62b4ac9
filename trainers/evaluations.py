"""The evaluations of a run: when the training loop makes them, and how its engines are asked meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rltui.onnode import rundir
from trainers.evaluation import Evaluation, ask_engines
from trainers.roles.calls import RoleDiedError
from trainers.rollouts import sequences_per_engine
from trainers.stopping import StopRequestedError

if TYPE_CHECKING:
    from trainers.data.prompts import EnginePrompt
    from trainers.loop import Loop
    from trainers.roles.engine import Completion
    from trainers.roles.sampling import SamplingSettings


class Evaluations:
    """Makes the evaluations of a loop.

    Args:
        loop: The training loop.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        playing = loop.playing
        self._talks = playing.evaluation(loop.rollouts) if playing else None
        make_task = playing.evaluation_task if playing else None
        run = loop.session.run
        self._evaluation = Evaluation(loop.layout, loop.codec, self._ask, loop.rewards, run, make_task)
        if left_out := self._evaluation.left_out:
            text = f"prompts of the evaluation set that are longer than lengths.prompt and left out: {left_out}"
            loop.session.event("data", text, left_out=left_out)

    def make_up(self) -> None:
        """Make the evaluation of the state that the loop begins with, unless an attempt has made it before."""
        step = self._loop.state.step
        if self._evaluation.is_missing(step):
            self._loop.reporter.note(step, self._evaluate(step))

    def after_step(self) -> dict[str, float]:
        """Make the evaluation of the step that was just done, if one is due; its metrics."""
        step = self._loop.state.step
        return self._evaluate(step) if self._evaluation.is_due(step) else {}

    def _evaluate(self, step: int) -> dict[str, float]:
        """Evaluate the weights of this moment; the metrics, of which there are none where a stop ends it."""
        session = self._loop.session
        session.board.enter("evaluate")
        session.stages.show("training", f"{rundir.EVALUATING} {len(self._evaluation.prompts)} prompts", step=step)
        session.stages.flush()
        try:
            return self._evaluation.run(step)
        except StopRequestedError:
            return {}

    def _ask(
        self, prompts: Sequence[EnginePrompt], settings: Callable[[int], SamplingSettings]
    ) -> list[list[Completion]]:
        """Have the engines answer while the samples of steps to come wait; once more where an engine died.

        In environments the answers are asked for before all others, and those under way go on beside them: a turn can
        only be begun while engines are handed prompts.
        """
        if self._talks is not None:
            return self._talks.generate(self._evaluation.prompts, settings(0), self._loop.check)
        while True:
            found = self._answers(prompts, settings)
            if not isinstance(found, RoleDiedError):
                return found
            self._loop.send_weights(self._loop.state.weight_version, [found])

    def _answers(
        self, prompts: Sequence[EnginePrompt], settings: Callable[[int], SamplingSettings]
    ) -> list[list[Completion]] | RoleDiedError:
        """The answers, or which engine died meanwhile."""
        loop = self._loop
        limits = loop.fleet.deadlines.generate_s, sequences_per_engine(loop.layout)
        try:
            with loop.rollouts.dispatch.held(loop.check_others):
                return ask_engines(loop.fleet.engines, prompts, settings, *limits, loop.check_others)
        except RoleDiedError as death:
            if death.role not in loop.fleet.engines:
                raise
            return death
