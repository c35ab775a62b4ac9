"""The evaluations of a run: when the training loop makes them, and how its engines are asked meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rltui.onnode import rundir
from trainers.agents import AgentTurns
from trainers.data.codec import Codec
from trainers.data.prompts import EnginePrompt, Prompt
from trainers.evaluation import Evaluation, ask_engines
from trainers.multi_turn import EnvironmentTurns
from trainers.roles.calls import RoleDiedError
from trainers.roles.completions import Completion
from trainers.roles.fleet import Fleet
from trainers.roles.sampling import SamplingSettings
from trainers.rollouts import Rollouts, sequences_per_engine
from trainers.session import Session
from trainers.stopping import StopRequestedError


class Evaluations:
    """Makes the evaluations of a loop.

    Args:
        session: The attempt.
        fleet: The roles.
        codec: The model's tokenizer.
        rollouts: What keeps the engines full; its samples wait meanwhile.
        multi_turn: The environments or agents; None where answers have one turn.
        rewards: The reward of each sample of each prompt.
        check: Called while engines answer.
        mend: Starts an engine again that died meanwhile.
    """

    def __init__(
        self,
        session: Session,
        fleet: Fleet,
        codec: Codec,
        rollouts: Rollouts,
        multi_turn: EnvironmentTurns | AgentTurns | None,
        rewards: Callable[[Sequence[Prompt], Sequence[Sequence[Completion]]], list[list[float]]],
        check: Callable[[], None],
        mend: Callable[[RoleDiedError], None],
    ) -> None:
        self._session, self._fleet, self._rollouts = session, fleet, rollouts
        self._check, self._mend = check, mend
        self._talks = multi_turn.evaluation(rollouts) if multi_turn else None
        make_task = multi_turn.evaluation_task if multi_turn else None
        self._evaluation = Evaluation(session.layout, codec, self._ask, rewards, session.run, make_task)
        if left_out := self._evaluation.left_out:
            text = f"prompts of the evaluation set that are longer than lengths.prompt and left out: {left_out}"
            session.event("data", text, left_out=left_out)

    def of_beginning(self, step: int) -> dict[str, float] | None:
        """Evaluate the weights that the loop begins with at ``step``; None: an attempt has done so before."""
        return self._evaluate(step) if self._evaluation.is_missing(step) else None

    def after(self, step: int) -> dict[str, float]:
        """Make the evaluation of ``step``, which was just done, if one is due; its metrics."""
        return self._evaluate(step) if self._evaluation.is_due(step) else {}

    def _evaluate(self, step: int) -> dict[str, float]:
        """Evaluate the weights of this moment; the metrics, of which there are none where a stop ends it."""
        session = self._session
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
            return self._talks.generate(self._evaluation.prompts, settings(0), self._check)
        while True:
            found = self._answers(prompts, settings)
            if not isinstance(found, RoleDiedError):
                return found
            self._mend(found)

    def _answers(
        self, prompts: Sequence[EnginePrompt], settings: Callable[[int], SamplingSettings]
    ) -> list[list[Completion]] | RoleDiedError:
        """The answers, or which engine died meanwhile."""
        limits = self._fleet.deadlines.generate_s, sequences_per_engine(self._session.layout)
        try:
            with self._rollouts.dispatch.held(self._check):
                return ask_engines(self._fleet.engines, prompts, settings, *limits, self._check)
        except RoleDiedError as death:
            if death.role not in self._fleet.engines:
                raise
            return death
